//! A mount that hangs is a test that fails, not one that never ends.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

/// A test has each of its mounts for seconds.
const MOUNTED_MAX: Duration = Duration::from_secs(300);
/// How long a test may take to fail when its mount is gone.
const FAILING_MAX: Duration = Duration::from_secs(60);

/// Watches a mount until it is dropped. One that lasts too long is aborted: what hangs in it, fails. Where that does not help, the
/// process ends.
pub struct HangGuard {
    _ended: Sender<()>,
}

impl HangGuard {
    pub fn new(mountpoint: &Path) -> HangGuard {
        let (ended, is_over) = channel();
        let watched = (mountpoint.display().to_string(), connection(mountpoint));
        std::thread::spawn(move || watch(&watched.0, &watched.1, &is_over));
        HangGuard { _ended: ended }
    }
}

fn watch(path: &str, connection: &str, is_over: &Receiver<()>) {
    let lasts = |limit| is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    if !lasts(MOUNTED_MAX) {
        return;
    }
    say(&format!("HANGS: {path} has been mounted for {MOUNTED_MAX:?}, and is aborted"));
    if let Err(error) = abort(connection) {
        say(&format!("{path} cannot be aborted: {error}"));
    }
    // What is dead is not taken off with its `Mounted`. It may have been taken off before.
    let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
    if lasts(FAILING_MAX) {
        say(&format!("HANGS: the test with {path} goes on without its mount: the process ends"));
        std::process::exit(101);
    }
}

/// Past what keeps the words of a test until it ends.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// The number of a mount's connection, which is its device's. The mount itself is not asked: it may hang already.
fn connection(mountpoint: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_mount = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        (fields.nth(1)? == mountpoint.to_str()?)
            .then(|| device.split_once(':').map(|(_, minor)| minor.to_owned()))?
    };
    mounts.lines().rev().find_map(of_mount).expect("it is mounted")
}

/// Ends a connection, whether its mount has been taken off or not.
fn abort(connection: &str) -> std::io::Result<()> {
    let dir = tempfile::tempdir()?;
    rustix::mount::mount("none", dir.path(), "fusectl", MountFlags::empty(), None)?;
    let aborted = std::fs::write(dir.path().join(connection).join("abort"), "1");
    rustix::mount::unmount(dir.path(), UnmountFlags::DETACH)?;
    aborted
}
