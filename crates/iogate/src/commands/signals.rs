//! Signals, as this process was started to take them.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Those of some signals that this process was not started to ignore, as by `nohup` or in the background of a script: to handle one
/// would have it not ignored any more.
pub(crate) fn heeded(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    signals.iter().copied().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// The signals by which a process that works until it is told to end is told so. SIGTERM is always one of them.
pub(crate) fn ending() -> Vec<i32> {
    let mut signals = heeded(&[SIGINT, SIGHUP]);
    signals.push(SIGTERM);
    signals
}

/// The same, handled from now on.
pub(crate) fn of_the_end() -> Result<Signals, Failure> {
    Ok(Signals::new(ending()).context("signals cannot be handled")?)
}

/// What the kernel says that a process ignores: a bit for each signal.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_what_the_kernel_says() {
        assert_eq!(ignored("SigBlk:\t0000000000000004\nSigIgn:\t0000000000000003\nSigCgt:\t00\n"), 0b11);
        assert_eq!(ignored(""), 0);
    }
}
