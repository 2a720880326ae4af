//! The kernel's switch for FUSE over io_uring. It is the machine's: a test has it on for as long as it mounts, and a mount keeps what it
//! began with.

use std::fs::File;

use rustix::fs::FlockOperation;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch, on, for one test at a time; put back when dropped.
pub struct UringOn {
    before: Vec<u8>,
    // Holds the lock.
    _switch: File,
}

impl UringOn {
    /// `None` where the kernel has no such switch, or it may not be set, or io_uring is forbidden.
    pub fn switch() -> Option<UringOn> {
        let disabled = std::fs::read("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
        let switch = File::options().read(true).write(true).open(SWITCH).ok()?;
        rustix::fs::flock(&switch, FlockOperation::LockExclusive).ok()?;
        let before = std::fs::read(SWITCH).ok()?;
        let on = UringOn { before, _switch: switch };
        (!disabled.starts_with(b"2") && std::fs::write(SWITCH, "Y").is_ok()).then_some(on)
    }
}

impl Drop for UringOn {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(SWITCH, &self.before) {
            eprintln!("{SWITCH} is not as it was: {error}");
        }
    }
}

/// Whether mounts over io_uring can be tried; says so loudly if not.
pub fn can_use_uring() -> bool {
    let can = UringOn::switch().is_some();
    if !can {
        eprintln!(
            "SKIPPED over io_uring: this kernel does not offer that for FUSE, or {SWITCH} may not be set"
        );
    }
    can
}
