//! A program that this process stands for: it is started, gets the signals that come for it, and is waited for.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, getpid, getsid, kill_process, waitid,
};
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;

use super::signals::heeded;
use crate::attempt::Attempt;
use crate::failure::Failure;

/// What ends a process that does nothing about it.
const ENDING: [i32; 7] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];
/// What else a program may want to know.
const OTHERS: [i32; 2] = [SIGCONT, SIGWINCH];
/// As shells have it.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// The signals that come from now on, for a program that is started later.
pub(crate) struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    pub(crate) fn new() -> Result<Signals, Failure> {
        let signals = heeded(&[&ENDING[..], &OTHERS].concat());
        Ok(Signals(SignalsInfo::new(signals).context("signals cannot be handled")?))
    }

    /// One that has come and ends a process.
    pub(crate) fn ending(&mut self) -> Option<i32> {
        self.0.pending().map(|origin| origin.signal).find(|signal| ENDING.contains(signal))
    }

    /// Starts the program, passes on what comes for it, and waits for its end.
    pub(crate) fn run(mut self, mut command: Command) -> Result<ExitStatus, Failure> {
        // A terminal's would not reach a program that is not there yet, and it had not asked for any other.
        if let Some(signal) = self.ending() {
            return Ok(ExitStatus::from_raw(signal));
        }
        let mut child = command.spawn().map_err(|error| not_started(&command, error))?;
        let pid = Pid::from_child(&child);
        let handle = self.0.handle();
        let passing = std::thread::spawn(move || {
            for origin in self.0.forever().filter(|origin| !is_known(origin, pid)) {
                if let Some(signal) = Signal::from_named_raw(origin.signal) {
                    // It may have ended just now.
                    let _ = kill_process(pid, signal);
                }
            }
        });
        // Its number stays its own until it is reaped: so no signal reaches another process.
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        }
        handle.close();
        let _ = passing.join();
        Ok(child.wait().context("cannot wait for the program")?)
    }
}

/// Whether the program has a signal by itself: a terminal's concern all processes of a group, which the program may have left (`timeout`
/// does). But a hangup may be told to the session's leader alone.
fn is_known(origin: &Origin, pid: Pid) -> bool {
    let is_of_terminal = match origin.signal {
        SIGINT | SIGQUIT | SIGWINCH => true,
        SIGHUP => getsid(None) != Ok(getpid()),
        _ => false,
    };
    origin.cause == Cause::Kernel && is_of_terminal && getpgid(Some(pid)) == Ok(getpgrp())
}

/// What this process ends with for a program that has ended.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// That a program could not be started.
pub(crate) fn not_started(command: &Command, error: io::Error) -> Failure {
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED };
    let attempt = Attempt::run(command.get_program().display());
    Failure::failed(anyhow!(error).context(attempt)).status(status)
}
