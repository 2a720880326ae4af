//! `iogate turn`: a command that waits for its turn.

use std::ffi::OsStr;
use std::io::{ErrorKind, IsTerminal};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use anyhow::{Context, anyhow};
use iogate_net::turns::ClaimError;
use iogate_turn::{Place, Settings, TurnError, Turns, Wish};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::attempt::Attempt;
use crate::cli::{PolicyChoice, TurnArgs};
use crate::commands::signals::heeded;
use crate::failure::Failure;

/// What is passed on to the command.
const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

pub(crate) fn run(args: &TurnArgs) -> Result<(), Failure> {
    let turns = Turns::new(settings(args)?).map_err(Failure::usage)?;
    let place = match args.place.to_str() {
        Some(text) => Place::of_text(text, turns.settings()),
        None => Place::of(args.place.as_ref(), turns.settings()),
    };
    let place = place.map_err(|error| {
        let is_wrong = error.kind() == ErrorKind::InvalidInput;
        let error = anyhow::Error::new(error).context(format!("{:?}", args.place));
        if is_wrong { Failure::usage(error) } else { Failure::failed(error) }
    })?;
    let wish = Wish {
        bytes: args.bytes.map_or(0, |bytes| bytes.0),
        timeout: args.timeout.map(|time| time.0),
        ..Wish::default()
    };
    // Before the wait, so that no signal ends this process in the midst of it: the turn would be held up for a lease.
    let mut signals = Signals::new(heeded(&SIGNALS)).context("signals cannot be handled")?;
    let mut came = None;
    let mut watch = |_: &_| {
        came = signals.pending().next();
        if came.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let turn = match turns.take_watched(&place, &wish, &mut watch) {
        Ok(turn) => turn,
        Err(TurnError::Claim(ClaimError::Interrupted)) => std::process::exit(128 + came.unwrap_or(0)),
        Err(error) => return Err(Failure::failed(error)),
    };
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    // It has the turn of this process: a library in it must not wait for one of its own.
    let spawned = Command::new(program).args(arguments).env("IOGATE_POLICY", "none").spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            drop(turn);
            return Err(not_started(program, error));
        }
    };
    let status = wait(child, signals)?;
    let lost = turn.release().err();
    let mut code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    if let Some(lost) = lost {
        eprintln!("iogate: {lost}");
        if args.strict && code == 0 {
            code = 1;
        }
    }
    std::process::exit(code)
}

/// What the environment says, and the flags.
fn settings(args: &TurnArgs) -> Result<Settings, Failure> {
    let settings = Settings::read(&|name| match (name, args.policy) {
        ("IOGATE_POLICY", Some(policy)) => Some(
            match policy {
                PolicyChoice::Lock => "lock",
                PolicyChoice::Backoff => "backoff",
                PolicyChoice::LockBackoff => "lock+backoff",
                PolicyChoice::None => "none",
            }
            .into(),
        ),
        ("IOGATE_STRICT", _) if args.strict => Some("1".into()),
        _ => std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
    });
    settings.map_err(Failure::usage)
}

fn not_started(program: &OsStr, error: std::io::Error) -> Failure {
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Failure::failed(anyhow!(error).context(Attempt::run(program.display()))).status(status)
}

/// Waits for the command, and passes on what signals come meanwhile.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus, Failure> {
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    // The terminal's go to all processes in its foreground, the command among them.
    let is_terminal = std::io::stdin().is_terminal();
    let passing = thread::spawn(move || {
        for number in signals.forever() {
            if is_terminal && matches!(number, SIGINT | SIGQUIT) {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(number) {
                // It may have ended just now.
                let _ = kill_process(pid, signal);
            }
        }
    });
    // Its number stays its own until it is reaped: so no signal reaches another process.
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    handle.close();
    let _ = passing.join();
    Ok(child.wait().context("waiting for the command")?)
}
