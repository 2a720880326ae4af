//! What all of this crate takes from the system: clocks, random numbers.

use std::io;
use std::time::Duration;

pub(crate) use iogate_engine::unix_now;
use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started, asleep or not: the clock of leases, which goes on while the machine sleeps, as those of other
/// machines do. It never goes back.
pub(crate) fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Fills the memory with random bytes.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let count = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    if count < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// The same error once more, for another who waits for the same.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const ASLEEP: &str = "1000000";

    #[test]
    fn an_error_says_the_same_again() {
        for error in [io::Error::from_raw_os_error(libc::EDQUOT), io::Error::other("no room in the hold")] {
            let other = again(&error);
            assert_eq!((other.to_string(), other.kind()), (error.to_string(), error.kind()));
            assert_eq!(other.raw_os_error(), error.raw_os_error());
        }
    }

    #[test]
    fn a_lease_runs_on_while_the_machine_sleeps() {
        // In a time namespace the clocks can be as far apart as after a long sleep.
        if std::env::var_os("IOGATE_TEST_ASLEEP").is_some() {
            let awake = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
            assert!(since_boot() > awake + Duration::from_secs(900_000), "{:?} {awake:?}", since_boot());
            return;
        }
        let after_sleep = |program: &std::path::Path| {
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", ASLEEP, "--fork"]).arg(program);
            command
        };
        if !after_sleep("true".as_ref()).output().is_ok_and(|output| output.status.success()) {
            return eprintln!("skipped: there are no time namespaces for this user");
        }
        let mut command = after_sleep(&std::env::current_exe().unwrap());
        let name = "system::tests::a_lease_runs_on_while_the_machine_sleeps";
        let output = command.args(["--exact", name]).env("IOGATE_TEST_ASLEEP", "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
