//! What is wrong with a scenario, and where.

use std::fmt;
use std::sync::Arc;

use iogate_core::nearest::did_you_mean;

/// Problems that are reported at once; what follows them is mostly a consequence.
pub const PROBLEMS_MAX: usize = 10;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the file, from 1.
    Line(u32),
    /// A setting from outside of the file, as it was given.
    Setting(Arc<str>),
}

impl Place {
    /// The line, if it is one.
    pub fn line(&self) -> Option<u32> {
        match self {
            Place::Line(line) => Some(*line),
            Place::Setting(_) => None,
        }
    }
}

/// A scenario that cannot be used: at least one problem.
#[derive(Clone, Debug)]
pub struct ScenarioError {
    /// What the scenario was read from, as messages name it.
    pub source: String,
    /// The problems, at most [`PROBLEMS_MAX`], in the order of their lines.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub kind: ProblemKind,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemKind {
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// No such key.
    #[error("unknown key '{key}' in {table}; {}it has: {known}", did_you_mean(.near))]
    UnknownKey {
        /// The key.
        key: String,
        /// The table that it is in.
        table: String,
        /// The nearest key, if one is near.
        near: Option<String>,
        /// All keys.
        known: String,
    },
    /// A key that must be there is not.
    #[error("{table} has no '{key}': expected {expected}")]
    Missing {
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// What its value is.
        expected: String,
    },
    /// A value of another kind.
    #[error("{key} = {found}: expected {expected}")]
    Wrong {
        /// The key, with its table.
        key: String,
        /// The value.
        found: String,
        /// What should have been there.
        expected: String,
    },
    /// A value that does not fit the rest, with what to do.
    #[error("{0}")]
    Unfit(String),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match &problem.place {
                Place::Line(line) => write!(f, "{}:{line}: {}", self.source, problem.kind)?,
                Place::Setting(text) => write!(f, "{text}: {}", problem.kind)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}
