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
            error: anyhow::anyhow!("{:#}\n{:#}", self.error, other.error),
            hint: self.hint.or(other.hint),
            status: self.status.max(other.status),
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(self) -> ExitCode {
        // Standard error may be gone; the exit status says it too.
        let _ = self.write(&mut std::io::stderr().lock());
        ExitCode::from(self.status)
    }

    fn write(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        writeln!(out, "error: {:#}", self.error)?;
        if let Some(hint) = &self.hint {
            writeln!(out, "  hint: {hint}")?;
        }
        Ok(())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::failed(error)
    }
}
