//! What applications, and groups of them, get at gates that are fair.

use iogate_core::policy::{Branch, Entitlement, Policy};
use iogate_core::{AppId, Span};

use super::App;

/// Applications that have a share together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// What those in it get together.
    pub entitlement: Entitlement,
}

/// The policy of a gate by itself.
pub(crate) fn policy(groups: &[Group], apps: &[App], lot: Option<Span>) -> Policy {
    let branch = |group: &Group| Branch { entitlement: group.entitlement, ..Branch::default() };
    Policy {
        apps: apps.iter().map(|app| (AppId(app.id), app.entitlement)).collect(),
        branches: (0..).zip(groups).map(|(index, group)| (class(index), branch(group))).collect(),
        within: apps.iter().filter_map(|app| Some((AppId(app.id), class(app.group?)))).collect(),
        lot,
        ..Policy::default()
    }
}

/// The number of a group's class. Applications have numbers up to about 2^31.
pub(super) fn class(group: u32) -> AppId {
    AppId(u32::MAX - group)
}
