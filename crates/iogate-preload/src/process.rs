//! The beginning of a program, its children, and calls past the C library's functions.

use libc::pid_t;

use crate::descriptors;
use crate::log;
use crate::opening;
use crate::settings;
use crate::table;

/// Called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if !settings::is_active() {
        return;
    }
    log::start();
    opening::learn_umask();
    table::watch_forks();
    descriptors::adopt_inherited();
}

interpose! {
    // A child that shares its parent's memory would change the parent's table.
    fn vfork[real]() -> pid_t {
        let _ = real;
        // SAFETY: what may follow `vfork` may follow `fork`.
        unsafe { libc::fork() }
    }
}
