//! A mount that hangs is a test that fails, not one that never ends.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::mount::UnmountFlags;

/// A test has each of its mounts for seconds.
const MOUNTED_MAX: Duration = Duration::from_secs(120);
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
        let mountpoint = mountpoint.to_owned();
        std::thread::spawn(move || watch(&mountpoint, &is_over));
        HangGuard { _ended: ended }
    }
}

fn watch(mountpoint: &PathBuf, is_over: &Receiver<()>) {
    let lasts = |limit| is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    if !lasts(MOUNTED_MAX) {
        return;
    }
    let path = mountpoint.display();
    eprintln!("HANGS: {path} has been mounted for {MOUNTED_MAX:?}, and is aborted");
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if let Err(errno) = rustix::mount::unmount(mountpoint, flags) {
        eprintln!("{path}: {errno}");
    }
    if lasts(FAILING_MAX) {
        eprintln!("HANGS: the test with {path} goes on without its mount: the process ends");
        std::process::abort();
    }
}
