//! A process that serves, as who has started it sees it: waited for until it says that it does, and, if it does not, why.

use std::io::{self, Read};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::READY;
use crate::failure::Failure;

/// How long one may take where nobody looks on who would lose patience.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);
/// Lines of a log that say why one did not start.
const LOG_LINES: usize = 5;

/// Waits until a process says that it serves; at most so long. If it does not: what is to be said of it, behind its name.
pub(crate) fn until_it_serves(mut out: ChildStdout, patience: Duration) -> Result<(), String> {
    // Of a time that is too far away there is no instant: then there is no limit.
    let until = Instant::now().checked_add(patience);
    let (mut said, mut more) = (Vec::new(), [0; 512]);
    while !said.split(|byte| *byte == b'\n').any(|line| line == READY.as_bytes()) {
        if !has_more(&out, until) {
            return Err(format!("does not serve after {} s", patience.as_secs()));
        }
        match out.read(&mut more) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return Err("did not start".into()),
            Ok(count) => said.extend_from_slice(&more[..count]),
        }
    }
    Ok(())
}

/// Waits until a process says something or ends; `false`: it has not up to then.
fn has_more(out: &ChildStdout, until: Option<Instant>) -> bool {
    loop {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
        let found = poll(&mut [PollFd::new(out, PollFlags::IN)], timeout.as_ref());
        if found != Err(rustix::io::Errno::INTR) {
            return found != Ok(0);
        }
    }
}

/// That a process does not serve, with the end of its log.
pub(crate) fn not_started(name: &str, why: &str, log: &[u8]) -> Failure {
    let log = String::from_utf8_lossy(log);
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    Failure::failed(anyhow!("{name} {why}; its log says:\n{end}"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn waited_for(script: &str, patience: Duration) -> Result<(), String> {
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let result = until_it_serves(child.stdout.take().unwrap(), patience);
        let _ = child.kill();
        child.wait().unwrap();
        result
    }

    #[test]
    fn one_that_never_serves_is_given_up() {
        let began = Instant::now();
        let given_up = waited_for("echo listening; exec sleep 30", Duration::from_millis(300));
        assert_eq!(given_up, Err("does not serve after 0 s".into()));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn one_that_serves_or_ends_is_known_at_once() {
        let forever = Duration::MAX;
        assert_eq!(waited_for("echo listening; echo ready; exec sleep 30", forever), Ok(()));
        assert_eq!(waited_for("echo already; echo no", forever), Err("did not start".into()));
    }

    #[test]
    fn the_end_of_a_log_says_why() {
        let said = not_started("io0", "did not start", b"1\n2\n3\n4\n5\n6\n").in_full();
        assert_eq!(said, "io0 did not start; its log says:\n2\n3\n4\n5\n6");
    }
}
