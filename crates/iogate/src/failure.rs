//! How a command fails: a message, a hint, an exit status.

use std::fmt::Display;
use std::process::ExitCode;

use crate::attempt;

/// The exit status where what was asked is not right.
const USAGE: u8 = 2;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// Something went wrong in doing what was asked, or whom it was asked of is not there: exit status 1.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), hint: None, status: 1 }
    }

    /// What was asked, or a file that says it, is not right or cannot be read: exit status 2, as for flags that do not parse.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), hint: None, status: USAGE }
    }

    /// With advice on what to do.
    pub(crate) fn hint(self, hint: impl Display) -> Failure {
        Failure { hint: Some(hint.to_string()), ..self }
    }

    /// With advice where there is none, neither its own nor for an error of the system's, and what was asked is not right.
    pub(crate) fn or_help(self, help: impl FnOnce() -> String) -> Failure {
        let has_advice = self.hint.is_some() || attempt::advice(&self.error, &self.in_full()).is_some();
        if has_advice || self.status != USAGE { self } else { self.hint(help()) }
    }

    /// With what it happened in, or to.
    pub(crate) fn within(self, what: impl Display) -> Failure {
        Failure { error: self.error.context(what.to_string()), ..self }
    }

    /// With an exit status of its own.
    pub(crate) fn status(self, status: u8) -> Failure {
        Failure { status, ..self }
    }

    /// Both, with the advice of the first that has some.
    pub(crate) fn and(self, other: Failure) -> Failure {
        Failure {
            error: anyhow::anyhow!("{}\n{}", in_full(&self.error), in_full(&other.error)),
            hint: self.hint.or(other.hint),
            status: self.status.max(other.status),
        }
    }

    /// What failed of several things of which each was tried, whatever became of the others.
    pub(crate) fn of_all(tried: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
        tried.into_iter().filter_map(Result::err).reduce(Failure::and).map_or(Ok(()), Err)
    }

    /// The error without the advice.
    pub(crate) fn in_full(&self) -> String {
        in_full(&self.error)
    }

    /// Says it on standard error.
    pub(crate) fn report(self) -> ExitCode {
        // Standard error may be gone; the exit status says it too.
        let _ = self.write(&mut std::io::stderr().lock());
        ExitCode::from(self.status)
    }

    fn write(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let said = in_full(&self.error);
        writeln!(out, "error: {said}")?;
        if let Some(hint) = self.hint.as_deref().or_else(|| attempt::advice(&self.error, &said)) {
            writeln!(out, "  hint: {hint}")?;
        }
        Ok(())
    }
}

/// An error with its causes, but for those that it says itself.
pub(crate) fn in_full(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::failed(error)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error: anyhow::Result<()> = Err(anyhow!("it does not answer"));
        let error = error.context("io1 cannot be reached (it does not answer)").context("no status");
        assert_eq!(in_full(&error.unwrap_err()), "no status: io1 cannot be reached (it does not answer)");
        assert_eq!(in_full(&anyhow!("a").context("b")), "b: a");
    }
}
