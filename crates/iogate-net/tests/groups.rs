//! The groups that this machine's user database gives a user: one of this test's own, which only its threads see.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{ROOT, directory, engine, errno, own};
use iogate_core::wire::open;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::server::Export;
use iogate_net::transport::auth::{Credential, Policy};
use iogate_net::{Listener, Server, ServerConfig};
use iogate_vfs::users::Squash;
use iogate_vfs::{Caller, OpenHow, Tree, Users};
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

/// A user of the database, who is in root's group there.
const STAFF: Caller = Caller::new(4242, 4242);

/// Puts a file in the place of another one, for this thread and those that it starts.
fn put_over(at: &str, folder: &Path, text: &str) -> rustix::io::Result<()> {
    let file = folder.join(at.trim_start_matches("/etc/"));
    fs::write(&file, text).unwrap();
    rustix::mount::mount_bind(&file, at)
}

fn with_database(folder: &Path) -> rustix::io::Result<()> {
    // SAFETY: what this thread shares no more are mounts, and the folder and mask that it works with.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    put_over("/etc/passwd", folder, "root:x:0:0::/:/bin/sh\nstaff:x:4242:4242::/:/bin/sh\n")?;
    put_over("/etc/group", folder, "root:x:0:staff\nstaff:x:4242:\n")
}

fn serve(root: &Path, squash: Squash) -> Server {
    let tree = directory(root);
    let export = Export {
        users: Users::new(squash, Caller::new(65_534, 65_534), Vec::new(), Vec::new()).unwrap(),
        ..Export::new("files", engine(&*tree), tree)
    };
    let config = ServerConfig::alone(vec![export]);
    let endpoint = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&endpoint, Policy::None { user: STAFF, on_any_network: false }).unwrap();
    Server::start(config, vec![listener]).unwrap()
}

#[test]
fn where_root_is_squashed_nobody_is_in_its_group() {
    let folder = tempfile::tempdir().unwrap();
    if own() != ROOT || with_database(folder.path()).is_err() {
        return eprintln!("skipped: the user database cannot be another one for a thread");
    }
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(root.path().join("f"), "root's group's").unwrap();
    fs::set_permissions(root.path().join("f"), PermissionsExt::from_mode(0o060)).unwrap();
    for (squash, expected) in [(Squash::None, 0), (Squash::Root, libc::EACCES)] {
        let server = serve(root.path(), squash);
        let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        let remote = Remote::connect(server.endpoints(), &options).unwrap();
        let how = OpenHow { flags: open::READ, ..OpenHow::default() };
        assert_eq!(errno(remote.open(STAFF, Path::new("f"), how)), expected);
    }
}
