//! `iogate serve`: who may do what. As root, which alone can act for several users; without it these tests pass by.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use iogate_core::wire::{Change, Identity, open, set};
use iogate_engine::Origin;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::tree::{Caller, OpenHow};
use iogate_net::{Endpoint, Tree};

const USER: Caller = Caller::new(12345, 12345);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server of the folder's directory `data`, which everybody may change.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Path, listen: &str, export: &str) -> Server {
        let data = folder.join("data");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o1777)).unwrap();
        let (socket, config) = (folder.join("socket"), folder.join("server.toml"));
        let text = format!(
            "[[listen]]\nat = \"unix:{}\"\n{listen}\n[[export]]\ndirectory = \"{}\"\n{export}\n",
            socket.display(),
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_iogate"))
            .args(["serve".as_ref(), config.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap() == "ready"), "the server does not start");
        Server { child, socket }
    }

    /// One that believes root, as a mount that several users share is.
    fn that_trusts_root(folder: &Path) -> Server {
        Server::start(folder, "", "forwarders = [\"root\"]\nusers = { squash = \"none\" }")
    }

    fn remote(&self) -> Remote {
        let client = ClientOptions { retry_for: Duration::from_secs(1), ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        Remote::connect(&[Endpoint::Unix(self.socket.clone())], &options).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn created(flags: u32) -> OpenHow {
    OpenHow { flags: open::READ | open::WRITE | open::CREATE | flags, mode: 0o755, ..OpenHow::default() }
}

fn mode(mode: u32) -> Change {
    Change { which: set::MODE, mode, ..Change::default() }
}

#[test]
fn set_user_id_goes_when_the_owner_changes_the_file_as_on_a_local_file_system() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::that_trusts_root(folder.path());
    let remote = server.remote();
    let path = Path::new("program");
    let file = remote.open(USER, path, created(0)).unwrap();
    file.append(USER, Origin::default(), &[1; 10_000]).unwrap().unwrap();
    let found = || std::fs::metadata(folder.path().join("data/program")).unwrap().mode() & 0o7777;
    let plain = remote.open_with(path, open::READ | open::WRITE, 0).unwrap();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("a write", &|| assert_eq!(plain.write_at(0, b"changed").unwrap(), 7)),
        ("an append", &|| {
            file.append(USER, Origin::default(), b"longer").unwrap().unwrap();
        }),
        ("space", &|| file.allocate(0, 0, 1 << 20).unwrap()),
        ("a hole", &|| file.allocate(3, 0, 4096).unwrap()),
        ("zeros", &|| file.allocate(16, 0, 4096).unwrap()),
        ("a size", &|| {
            file.set_attr(USER, &Change { which: set::SIZE, size: 100, ..Change::default() }).unwrap();
        }),
    ];
    for (what, change) in changes {
        remote.set_attr(USER, path, Identity::default(), &mode(0o6755)).unwrap();
        assert_eq!(found(), 0o6755, "its owner may set it");
        change();
        assert_eq!(found(), 0o755, "{what} leaves it");
    }
    // To open it for writing changes nothing yet.
    remote.set_attr(USER, path, Identity::default(), &mode(0o4755)).unwrap();
    drop(remote.open(USER, path, OpenHow { flags: open::WRITE, ..OpenHow::default() }).unwrap());
    assert_eq!(found(), 0o4755);
    // What only root may, it still may: a group that it is not in.
    let given = Change { which: set::UID | set::GID, uid: 1, gid: 77, ..Change::default() };
    remote.set_attr(Caller::new(0, 0), path, Identity::default(), &given).unwrap();
    remote.set_attr(Caller::new(0, 0), path, Identity::default(), &mode(0o2755)).unwrap();
    assert_eq!(found(), 0o2755);
}

#[test]
fn threads_of_a_root_server_cannot_pass_disk_quotas() {
    if !is_root() {
        return;
    }
    // CAP_SYS_RESOURCE, and CAP_FSETID, which keeps set-user-ID.
    const GIVEN_UP: u64 = 1 << 24 | 1 << 4;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::that_trusts_root(folder.path());
    let remote = server.remote();
    let file = remote.create(Path::new("file"), 0o644).unwrap();
    for round in 0..100 {
        file.write_at(round << 16, &[1; 1 << 16]).unwrap();
    }
    file.sync(false).unwrap();
    let mut threads = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        let carries_out =
            ["iogate-net-", "iogate-engine", "iogate-ring"].iter().any(|kind| name.starts_with(kind));
        if !carries_out || name.trim_end() == "iogate-net-watc" {
            continue;
        }
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let effective = u64::from_str_radix(effective, 16).unwrap();
        assert_eq!(effective & GIVEN_UP, 0, "{name}");
        threads += 1;
    }
    assert!(threads >= 3, "{threads} threads");
}
