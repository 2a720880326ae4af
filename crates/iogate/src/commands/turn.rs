//! `iogate turn`: a command that waits for its turn.

use std::io::{self, ErrorKind, IsTerminal};
use std::ops::ControlFlow;
use std::process::Command;

use anyhow::anyhow;
use iogate_net::turns::ClaimError;
use iogate_turn::{Place, Policy, Settings, TurnError, Turns, Wish};

use crate::cli::{PolicyChoice, TurnArgs};
use crate::commands::child::{self, Signals};
use crate::commands::coord::Looking;
use crate::failure::Failure;
use crate::output::say;

pub(crate) fn run(args: &TurnArgs) -> Result<(), Failure> {
    let turns = Turns::new(settings(args)?).map_err(Failure::usage)?;
    if turns.settings().policy == Policy::None && !is_policy_given(args) {
        without_turn(turns.settings().is_strict)?;
    }
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
    let mut signals = Signals::new()?;
    let looking = Looking::begin(turns.settings());
    let mut came = None;
    let mut watch = |_: &_| {
        came = signals.ending();
        if came.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let turn = match turns.take_watched(&place, &wish, &mut watch) {
        Ok(turn) => turn,
        Err(TurnError::Claim(ClaimError::Interrupted)) => std::process::exit(128 + came.unwrap_or(0)),
        Err(error) => return Err(Failure::failed(error)),
    };
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    // It has the turn of this process: a library in it must not wait for one of its own.
    let mut command = Command::new(program);
    command.args(arguments).env("IOGATE_POLICY", "none");
    let status = signals.run(command)?;
    let lost = turn.release().err();
    looking.end();
    let mut code = child::code(status);
    if let Some(lost) = lost {
        say(format_args!("iogate: {lost}"));
        if args.strict && code == 0 {
            code = 1;
        }
    }
    std::process::exit(code)
}

/// Whether somebody has said how to wait, if only that nobody is to: within a turn, that is what commands are told.
fn is_policy_given(args: &TurnArgs) -> bool {
    args.policy.is_some() || std::env::var_os("IOGATE_POLICY").is_some_and(|policy| !policy.is_empty())
}

/// Nothing says by whom turns are granted. Scripts also run where there is no coordinator, so the command does too, unless `is_strict`.
fn without_turn(is_strict: bool) -> Result<(), Failure> {
    const HINT: &str = "set IOGATE_COORD to the coordinator's address, as in io1:7100 or unix:/run/coord, or give \
        --policy backoff, or --policy none to run without turns";
    if is_strict {
        return Err(Failure::usage(anyhow!("there is no coordinator to take turns by")).hint(HINT));
    }
    say(
        "iogate: the command runs without a turn, as IOGATE_COORD names no coordinator; --policy none says that this is meant",
    );
    Ok(())
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
        // Who looks at a terminal would take a command that waits for one that hangs.
        ("IOGATE_VERBOSE", _) if is_looked_at(name) => Some("1".into()),
        _ => std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
    });
    settings.map_err(Failure::usage)
}

/// Whether somebody looks on, who has not said otherwise by this variable.
fn is_looked_at(variable: &str) -> bool {
    std::env::var_os(variable).is_none_or(|value| value.is_empty()) && io::stderr().is_terminal()
}
