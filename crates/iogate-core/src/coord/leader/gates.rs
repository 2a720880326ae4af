//! The policy that gates share: what they report goes to the [`Allotter`], and its grants back. Nothing of it is kept in the journal: gates
//! tell a new leader what they hold.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{Asked, Leader};
use crate::Time;
use crate::global_policy::{Allotted, Allotter, GateId, Report, Terms};
use crate::policy::Leaf;
use crate::refusal::{Refusal, errno};
use crate::wire::ReportUse;

/// A status names so many classes: those that have most.
const NAMED_MAX: usize = 24;
/// So many gates with another policy are counted.
const OTHERS_MAX: usize = 1024;

pub(super) struct Gates {
    allotter: Allotter,
    digest: u64,
    /// Gates that go by another policy, and when each has last asked.
    others: BTreeMap<u64, Time>,
    /// For the classes of an answer.
    room: Vec<u8>,
}

impl Gates {
    pub(super) fn new(terms: Terms, now: Time) -> Gates {
        let (digest, others) = (terms.digest(), BTreeMap::new());
        Gates { digest, others, allotter: Allotter::new(terms, now), room: Vec::new() }
    }

    /// A gate has asked that goes by another policy. It asks again and again, unless it is gone.
    fn note_other(&mut self, gate: u64, now: Time) {
        let absent_max = self.allotter.terms().absent_max;
        self.others.retain(|_, seen| now.since(*seen) < absent_max);
        if self.others.len() < OTHERS_MAX || self.others.contains_key(&gate) {
            self.others.insert(gate, now);
        }
    }

    pub(super) fn status(&self) -> GatesStatus {
        let branches = self.allotter.branches().into_iter();
        GatesStatus {
            gates: self.allotter.gates(),
            others: self.others.len(),
            classes: self.allotter.classes().count(),
            named: largest(self.allotter.classes()),
            groups: largest(branches.map(|(branch, allotted)| (branch.into(), allotted))),
        }
    }
}

/// Those that have most.
fn largest(classes: impl Iterator<Item = (Leaf, Allotted)>) -> Vec<ClassStatus> {
    let mut classes: Vec<(Leaf, Allotted)> = classes.collect();
    classes.sort_unstable_by_key(|(leaf, allotted)| (Reverse(allotted.used.max(allotted.demand)), *leaf));
    let named = classes.iter().take(NAMED_MAX).map(|&(Leaf { app, within }, allotted)| ClassStatus {
        class: app.0,
        name: None,
        within: within.map(|branch| branch.0),
        gates: allotted.gates,
        demand: allotted.demand,
        used: allotted.used,
        held: allotted.committed,
    });
    named.collect()
}

/// How a policy is used that gates share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatesStatus {
    /// Gates that are known.
    pub gates: usize,
    /// Gates that go by another policy, and are refused.
    #[serde(default)]
    pub others: usize,
    /// Classes that have something at some gate, or ask for it.
    pub classes: usize,
    /// The largest of them.
    pub named: Vec<ClassStatus>,
    /// The largest groups that they are in.
    #[serde(default)]
    pub groups: Vec<ClassStatus>,
}

/// What a class has at all gates together, in bytes a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its application number, as gates know it.
    pub class: u32,
    /// What the policy's file calls it, if it names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group that it is in, likewise.
    #[serde(default)]
    pub within: Option<u32>,
    /// Gates where it has something, or asks for it.
    pub gates: u32,
    /// What it asks for.
    pub demand: u64,
    /// What it uses.
    pub used: u64,
    /// What it may use at most.
    pub held: u64,
}

impl Leader {
    pub(super) fn report_use(&mut self, asked: Asked, letter: &ReportUse<'_>) -> Result<(), Refusal> {
        let Asked { now, connection, session, id } = asked;
        let Some(uid) = self.sessions.get(&session).map(|session| session.user.uid) else { return Ok(()) };
        let Some(gates) = &mut self.gates else {
            let text = "this coordinator has no policy for gates: it needs --policy, with [global]";
            return Err(Refusal::new(errno::EOPNOTSUPP, text));
        };
        if uid != 0 && uid != self.config.own_uid {
            let text = format!(
                "gates that share the policy are those of root and of user {}, and this one is user {uid}'s",
                self.config.own_uid
            );
            return Err(Refusal::new(errno::EACCES, text));
        }
        if letter.terms != gates.digest {
            gates.note_other(letter.gate, now);
            let text = "the gate goes by another policy than the coordinator: give both the same file, with the same users and groups";
            return Err(Refusal::new(errno::EINVAL, text));
        }
        gates.others.remove(&letter.gate);
        let report =
            Report::of_letter(letter).map_err(|error| Refusal::new(errno::EPROTO, format!("{error}")))?;
        match gates.allotter.report(now, GateId(letter.gate), &report) {
            Some(grant) => self.at_once.fields(connection, id, &grant.letter(&mut gates.room)),
            None if report.leaves => self.at_once.done(connection, id),
            None => {
                let text = "a later report of this gate has come, or there are more gates than may be";
                return Err(Refusal::new(errno::ESTALE, text));
            }
        }
        Ok(())
    }
}
