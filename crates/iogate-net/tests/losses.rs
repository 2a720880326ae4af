//! Write-backs that fail: each client with writes that are not synced is told, also over a restart of the server.

mod common;
#[path = "../../iogate-vfs/tests/common/failing.rs"]
mod failing;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{GRACE, any_port, serve};
use failing::Failing;
use iogate_engine::store::DirectoryStore;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::server::{Answers, Keeping};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::DirectoryTree;

/// Serves `files` below a folder, beside the log of answers. The next sync fails if that is asked for.
fn start(folder: &Path, at: &Endpoint, fails: &Arc<AtomicBool>) -> Server {
    let files = folder.join("files");
    let fails = Arc::clone(fails);
    let syncs = move || match fails.swap(false, Ordering::SeqCst) {
        true => Err(io::Error::from_raw_os_error(libc::EIO)),
        false => Ok(()),
    };
    let store = Failing { store: DirectoryStore::new(&files).unwrap(), syncs: Arc::new(syncs) };
    let tree = DirectoryTree::new(&files, Arc::new(store)).unwrap();
    let answers = Answers::open(&folder.join("answers"), Keeping::Boot).unwrap();
    serve(Arc::new(tree), at, Some(Arc::new(answers)), GRACE)
}

fn connect(endpoint: &Endpoint) -> Remote {
    let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
    Remote::connect(std::slice::from_ref(endpoint), &RemoteOptions { client, ..RemoteOptions::default() })
        .unwrap()
}

#[test]
fn a_write_back_that_failed_is_not_forgotten_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let server = start(folder.path(), &any_port(), &fails);
    let endpoint = server.endpoints()[0].clone();
    let clients = [(); 2].map(|()| connect(&endpoint));
    let [one, two] = clients.each_ref().map(|client| client.create("file".as_ref(), 0o644).unwrap());
    let [other, _] = clients.each_ref().map(|client| client.create("other".as_ref(), 0o644).unwrap());
    for file in [&one, &two, &other] {
        file.write_at(0, b"lost?").unwrap();
    }
    // The kernel tells one of them, and nobody after that.
    fails.store(true, Ordering::SeqCst);
    assert_eq!(one.sync(false).unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(server);

    let _server = start(folder.path(), &endpoint, &fails);
    assert_eq!(two.sync(false).unwrap_err().raw_os_error(), Some(libc::EIO), "what it has written is lost");
    two.sync(false).unwrap();
    other.sync(false).unwrap();
    two.write_at(0, b"kept").unwrap();
    two.sync(false).unwrap();
}
