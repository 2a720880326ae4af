//! Which application the process belongs to.

use std::sync::atomic::{AtomicU64, Ordering};

use iogate_core::AppId;
use iogate_vfs::app::{self, AppFile, Own};

/// Set in what is known, so that application 0, unknown, can be.
const KNOWN: u64 = 1 << 32;

static APP: AtomicU64 = AtomicU64::new(0);

/// The process's application: what [`iogate_set_app`] was told, else what the environment says.
pub(crate) fn application() -> AppId {
    let known = APP.load(Ordering::Relaxed);
    if known != 0 {
        return AppId(known as u32);
    }
    let programs = AppFile::from_environment().unwrap_or_else(|error| {
        tracing::warn!("IOGATE_APP_FILE: {error}");
        AppFile::default()
    });
    let found = app::application(&Own, &programs).map_or(AppId(0), |(app, _)| app);
    let before = APP.compare_exchange(0, KNOWN | u64::from(found.0), Ordering::Relaxed, Ordering::Relaxed);
    before.map_or_else(|told| AppId(told as u32), |_| found)
}

/// Tells the library which application the process belongs to from now on; 0 is unknown. For MPI libraries and programs
/// that know better than their environment: `void iogate_set_app(uint32_t)`.
#[unsafe(no_mangle)]
extern "C" fn iogate_set_app(app: u32) {
    APP.store(KNOWN | u64::from(app), Ordering::Relaxed);
}
