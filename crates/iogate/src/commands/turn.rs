//! `iogate turn`: a command that waits for its turn.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::process::Command;

use iogate_net::turns::ClaimError;
use iogate_turn::{Place, Settings, TurnError, Turns, Wish};

use crate::cli::{PolicyChoice, TurnArgs};
use crate::commands::child::{self, Signals};
use crate::failure::Failure;
use crate::output::say;

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
    let mut signals = Signals::new()?;
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
    let mut code = child::code(status);
    if let Some(lost) = lost {
        say(format_args!("iogate: {lost}"));
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
