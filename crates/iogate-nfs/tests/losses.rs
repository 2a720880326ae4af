//! Write-backs that fail: each client with writes that are not committed is told, also over a restart of the server.

mod common;
#[path = "../../iogate-vfs/tests/common/failing.rs"]
mod failing;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use failing::{Failing, Syncs};
use iogate_engine::store::DirectoryStore;
use iogate_nfs::Server;
use iogate_nfs::wire::*;

fn lost() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EIO))
}

/// Syncs that fail as long as they are told so.
fn failing(fails: &Arc<AtomicBool>) -> Syncs {
    let fails = Arc::clone(fails);
    Arc::new(move || if fails.load(Ordering::SeqCst) { lost() } else { Ok(()) })
}

fn start(path: &Path, syncs: Syncs) -> Server {
    let how = How { keeps_answers: true, ..How::default() };
    let store = Failing { store: DirectoryStore::new(path).unwrap(), syncs };
    let export = export_over(path, how, Arc::new(store));
    serve_export(export, how, TcpListener::bind("127.0.0.1:0").unwrap())
}

fn verifier(client: &mut Client, file: FileHandle) -> u64 {
    client.write(file, 0, b"x", Stable::Unstable).unwrap().0.verifier
}

#[test]
fn a_write_back_that_failed_is_not_forgotten_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let server = start(folder.path(), failing(&fails));
    let mut client = Client::connect(&server);
    let [file, other] = [&b"file"[..], b"other"].map(|name| client.create(client.root, name, 0o644).unwrap());
    let before = verifier(&mut client, file);
    // One client is told; another one has what it has written by then from before.
    fails.store(true, Ordering::SeqCst);
    assert_eq!(client.commit(file), Err(Status::Io));
    fails.store(false, Ordering::SeqCst);
    let after = verifier(&mut client, file);
    assert_ne!(after, before);
    drop((client, server));

    let server = start(folder.path(), failing(&fails));
    let mut client = Client::connect(&server);
    let [file, other] = [(&b"file"[..], file), (b"other", other)]
        .map(|(name, file)| if is_root() { file } else { client.look_up(client.root, name).unwrap() });
    assert_eq!(verifier(&mut client, file), after, "it is as before what is lost was written");
    assert_eq!(client.commit(file), Ok(after));
    assert_eq!(verifier(&mut client, other), before, "nothing of it was lost");
}

#[test]
fn a_change_of_attributes_does_not_overhear_it() {
    let folder = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let server = start(folder.path(), failing(&fails));
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o644).unwrap();
    let before = verifier(&mut client, file);
    fails.store(true, Ordering::SeqCst);
    let attr = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let Reply::SetAttr(status, _) = client.call(&Request::SetAttr { file, attr, guard: None }) else {
        panic!()
    };
    assert_eq!(status, Status::Io);
    fails.store(false, Ordering::SeqCst);
    let after = client.commit(file).unwrap();
    assert_ne!(after, before, "the kernel has told of the loss, and does not again");
}

#[test]
fn a_write_whose_loss_somebody_else_was_told_of_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    // The first sync ends when it is let go, and has nothing to tell: the second one was told.
    let ((begun, begins), (go, goes)) = (channel(), channel());
    let (begun, goes, count) = (Mutex::new(begun), Mutex::new(goes), AtomicUsize::new(0));
    let syncs = move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => {
            begun.lock().unwrap().send(()).unwrap();
            goes.lock().unwrap().recv().unwrap();
            Ok(())
        }
        1 => lost(),
        _ => Ok(()),
    };
    let server = start(folder.path(), Arc::new(syncs));
    let [mut one, mut other] = [(); 2].map(|()| Client::connect(&server));
    let file = one.create(one.root, b"file", 0o644).unwrap();
    let write = |stable| Request::Write { file, offset: 0, count: 1, stable, data: b"x" };
    one.begin(&write(Stable::FileSync));
    begins.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(other.commit(file), Err(Status::Io));
    go.send(()).unwrap();
    let Reply::Write { result, .. } = one.end(write(Stable::FileSync).procedure()) else { panic!() };
    assert_eq!(result, Err(Status::Io));
    assert!(one.write(file, 0, b"x", Stable::FileSync).is_ok());
}

#[test]
fn what_could_not_be_removed_is_synced_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&syncs);
    let server = start(
        folder.path(),
        Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }),
    );
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o644).unwrap();
    let dir = client.mkdir(client.root, b"dir").unwrap();
    verifier(&mut client, file);
    // Neither is what it is to be removed or replaced as.
    let place = Place { dir: client.root, name: b"file" };
    let Reply::Removed(status, _) = client.call(&Request::RmDir(place)) else { panic!() };
    assert_eq!(status, Status::NotDir);
    assert_eq!(client.rename((client.root, b"dir"), (client.root, b"file")), Status::NotDir);
    assert_ne!(client.attr(dir), Err(Status::Stale));
    let before = syncs.load(Ordering::SeqCst);
    drop((client, server));
    assert_eq!(syncs.load(Ordering::SeqCst), before + 1);
}
