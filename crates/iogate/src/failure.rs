//! How a command fails: a message, a hint, an exit status.

use std::fmt::Display;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// Something went wrong in doing what was asked: exit status 1.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), hint: None, status: 1 }
    }

    /// What was asked, or the input, is not right: exit status 2, as for flags that do not parse.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), hint: None, status: 2 }
    }

    /// With advice on what to do.
    pub(crate) fn hint(self, hint: impl Display) -> Failure {
        Failure { hint: Some(hint.to_string()), ..self }
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
        writeln!(out, "error: {}", in_full(&self.error))?;
        if let Some(hint) = &self.hint {
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
