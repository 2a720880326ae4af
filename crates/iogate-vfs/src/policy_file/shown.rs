//! A policy in words, for people.

use std::fmt;

use iogate_core::policy::{Entitlement, Policy, Rate};
use iogate_core::units::{format_size, format_time, plural};
use iogate_engine::{ClassBy, Engine};

use super::{by, others};

/// The policy in force, in a line; `None`: there is none.
pub fn in_short(engine: &Engine) -> Option<String> {
    let policy = engine.with_gate(|gate, _| gate.policy().cloned())?;
    let lot = policy.lot.map(|lot| format!(", lots of {}", format_time(lot.as_nanos())));
    let sharing = engine.sharing().map(|sharing| format!("; {sharing}"));
    Some(format!(
        "by {}: {}{}{}",
        by(&policy, engine.class_by()),
        classes(&policy, engine.class_by()),
        lot.unwrap_or_default(),
        sharing.unwrap_or_default()
    ))
}

/// Who is named, and what all others are entitled to.
pub(super) fn classes(policy: &Policy, by: ClassBy) -> String {
    let others = others(policy);
    match (policy.branches.len(), policy.apps.len()) {
        (_, 0) if by == ClassBy::Path => format!("for all paths {}", Shown(others)),
        (_, named) if by == ClassBy::Path => format!("{named} named, for all other paths {}", Shown(others)),
        (0, 0) if *others == Entitlement::default() => "an equal share for each".into(),
        (0, 0) => format!("for each {}", Shown(others)),
        (0, named) => format!("{named} named, for each other {}", Shown(others)),
        (groups, named) => {
            let word = plural(groups as u64, "group", "groups");
            format!("{groups} {word} and {named} named, for each other {}", Shown(others))
        }
    }
}

/// An entitlement for people.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a Entitlement);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entitlement { weight, min, max } = self.0;
        write!(f, "weight {weight}")?;
        for (name, rate) in [("at least", rate_shown(*min)), ("at most", rate_shown(*max))] {
            if let Some(rate) = rate {
                write!(f, ", {name} {rate}")?;
            }
        }
        Ok(())
    }
}

/// A rate for people, if there is one.
pub fn rate_shown(rate: Rate) -> Option<String> {
    let bytes = rate.bytes.map(|bytes| format!("{}/s", size(bytes.get())));
    let requests = rate.requests.map(|requests| format!("{requests} requests/s"));
    match (bytes, requests) {
        (Some(bytes), Some(requests)) => Some(format!("{bytes} and {requests}")),
        (bytes, requests) => bytes.or(requests),
    }
}

/// With a unit in any case.
fn size(bytes: u64) -> String {
    const MB: u64 = 1_000_000;
    let text = format_size(bytes);
    match text.ends_with('B') {
        true => text,
        false if bytes.is_multiple_of(MB) => format!("{}MB", bytes / MB),
        false => format!("{text}B"),
    }
}
