//! Two mounts over stripes, each a forwarder of its own: what one removes or replaces, the other reads and writes on.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{HangGuard, Recorder, can_mount, engine_over, on_all_mounts, serve};
use iogate_core::Layout;
use iogate_fuse::{MountOptions, Mounted};
use iogate_net::Server;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::Credential;
use iogate_vfs::{StripedTree, Tree};

fn connect(server: &Server, stripes: bool) -> Arc<dyn Tree> {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    Arc::new(
        Remote::connect(server.endpoints(), &RemoteOptions { client, ..RemoteOptions::default() }).unwrap(),
    )
}

/// Unmounted whatever happens.
struct Taken {
    mounted: Option<Mounted>,
    _hang: HangGuard,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.detach();
            mounted.wait();
        }
    }
}

fn mount(path: &Path, names: &Server, targets: &[Server]) -> Taken {
    let layout = Layout { first_target: 0, stripe_bytes: 64 << 10, targets: targets.len() as u32 };
    let targets = targets.iter().map(|server| connect(server, false)).collect();
    let tree: Arc<dyn Tree> = Arc::new(StripedTree::new(connect(names, true), targets, layout).unwrap());
    let engine = engine_over(tree.store());
    let control = Arc::new(Recorder::default());
    let options = MountOptions::default();
    let mounted = iogate_fuse::mount_tree(tree, "stripes", path, engine, &options, control).unwrap();
    Taken { mounted: Some(mounted), _hang: HangGuard::new(path) }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..256 << 10).map(|at| (at / 1000) as u8 ^ seed).collect()
}

#[test]
fn what_another_mount_removes_or_replaces_is_read_and_written_on() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let names = serve(&at("names"));
    let targets: Vec<Server> = (0..4).map(|index| serve(&at(&index.to_string()))).collect();
    let (one, other) = (at("one"), at("other"));
    let _mounts = (mount(&one, &names, &targets), mount(&other, &names, &targets));

    // Replaced while it is read.
    fs::write(one.join("model"), pattern(1)).unwrap();
    let mut reader = File::open(one.join("model")).unwrap();
    let mut begin = vec![0; 1000];
    reader.read_exact(&mut begin).unwrap();
    fs::write(other.join("model.new"), pattern(2)).unwrap();
    fs::rename(other.join("model.new"), other.join("model")).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!([begin, rest].concat() == pattern(1));
    assert!(fs::read(other.join("model")).unwrap() == pattern(2));
    assert_eq!(reader.metadata().unwrap().nlink(), 0);

    // Removed while it is written.
    let mut writer =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(one.join("log")).unwrap();
    writer.write_all(&pattern(3)[..100]).unwrap();
    fs::remove_file(other.join("log")).unwrap();
    writer.write_all(&pattern(3)[100..]).unwrap();
    writer.sync_all().unwrap();
    let mut found = vec![0; 256 << 10];
    writer.read_exact_at(&mut found, 0).unwrap();
    assert!(found == pattern(3));
    assert!(fs::metadata(other.join("log")).is_err());

    // Cut by whoever has it open, and meanwhile of another name.
    fs::write(one.join("mine"), pattern(4)).unwrap();
    fs::write(other.join("theirs"), pattern(5)).unwrap();
    let mine = OpenOptions::new().read(true).write(true).open(one.join("mine")).unwrap();
    fs::rename(other.join("mine"), other.join("kept")).unwrap();
    fs::rename(other.join("theirs"), other.join("mine")).unwrap();
    let itself = format!("/proc/self/fd/{}", mine.as_raw_fd());
    drop(OpenOptions::new().write(true).truncate(true).open(itself).unwrap());
    assert_eq!(mine.metadata().unwrap().len(), 0);
    assert!(fs::read(other.join("mine")).unwrap() == pattern(5), "another one's file is as it was");
}

#[test]
fn a_removed_file_that_is_open_twice_stays_what_it_is_open_for() {
    on_all_mounts(|mount| {
        let path = mount.at("removed");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        drop(File::open(&itself).unwrap());
        // The mount is told of that some time later.
        std::thread::sleep(Duration::from_millis(200));
        let again = OpenOptions::new().write(true).open(&itself).expect("it is open for writing");
        again.write_all_at(b"text", 0).unwrap();
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"text");
    });
}
