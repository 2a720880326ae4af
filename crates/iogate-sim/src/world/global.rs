//! One policy over all gates of a layer: their holders, the allotter, and the messages between them. All of them are the core's.
//!
//! A gate comes when its first request does, and goes without a word when its node is lost. The allotter is at the coordinator's node;
//! while that is gone it answers nothing, and then it is a new one. Left out: the time that the allotter takes.

use iogate_core::global_policy::{Allotter, GateId, Grant, Holder, Report, Terms};
use iogate_core::policy::Policy;
use iogate_core::{Span, Time};

use super::{Event, Message, World};
use crate::scenario::{App, FaultKind, GlobalSpec, Group, Scenario, shares};
use crate::slab::Slab;

/// Bytes of a report or a grant, and of each class in them.
const LETTER_BYTES: u64 = 64;
const CLASS_BYTES: u64 = 32;

/// The policy, and who keeps it.
pub(super) struct Global {
    terms: Terms,
    /// The first gate, one past the last, and how many there are.
    first: u32,
    after: u32,
    allotter: Option<Allotter>,
    holders: Vec<Option<Holder>>,
    /// When each holder is looked at next.
    wakes: Vec<Time>,
    pub(super) letters: Slab<Letter>,
}

/// A message between a gate and the allotter.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) bytes: u64,
    gate: u32,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Report(Report),
    Grant(Grant),
    /// It has been read.
    Nothing,
}

/// What the gates of a layer go by; `None`: each has a policy of its own.
pub(super) fn policy(global: &GlobalSpec, groups: &[Group], apps: &[App], lot: Option<Span>) -> Policy {
    Policy { is_shared: true, total: global.total, ..shares::policy(groups, apps, lot) }
}

impl Global {
    /// That of a scenario with these applications, whose layers begin with these nodes.
    pub(super) fn new(scenario: &Scenario, apps: &[App], layers: &[u32]) -> Option<Box<Global>> {
        let spec = scenario.global.as_ref()?;
        let (first, after) = (layers[spec.layer as usize], layers[spec.layer as usize + 1]);
        let terms = Terms {
            by: String::new(),
            policy: policy(spec, &scenario.groups, apps, None),
            lease: spec.lease,
            every: spec.every,
            skew: spec.skew,
            absent_max: spec.absent,
        };
        let gates = (after - first) as usize;
        Some(Box::new(Global {
            terms,
            first,
            after,
            allotter: None,
            holders: (0..gates).map(|_| None).collect(),
            wakes: vec![Time::MAX; gates],
            letters: Slab::new(),
        }))
    }
}

impl World<'_> {
    /// A request has come to a gate: from then on it takes part.
    pub(super) fn join_policy(&mut self, node: u32) {
        let Some(global) = &mut self.global else { return };
        let now = self.nodes[node as usize].clock_at(self.queue.now());
        if !(global.first..global.after).contains(&node) {
            return;
        }
        let index = (node - global.first) as usize;
        if global.holders[index].is_none() {
            let expected = global.after - global.first;
            global.holders[index] = Some(Holder::new(global.terms.clone(), expected, now));
            self.tend_holder(node);
        }
    }

    /// A gate has been asked: whether somebody waits there who has nothing.
    pub(super) fn look_for_lack(&mut self, node: u32) {
        let Some(global) = &mut self.global else { return };
        let now = self.nodes[node as usize].clock_at(self.queue.now());
        let Some(gate) = &mut self.nodes[node as usize].gate else { return };
        if !(global.first..global.after).contains(&node) || !gate.take_lack() {
            return;
        }
        if let Some(holder) = &mut global.holders[(node - global.first) as usize] {
            holder.urge(now);
            self.tend_holder(node);
        }
    }

    /// A holder reports if it is time, and its gate goes by what it holds.
    pub(super) fn tend_holder(&mut self, node: u32) {
        let world_now = self.queue.now();
        let coordinator = self.nodes.len() as u32;
        let is_over = self.is_over();
        let this = &mut self.nodes[node as usize];
        let now = this.clock_at(world_now);
        let Some(global) = &mut self.global else { return };
        let index = (node - global.first) as usize;
        if global.wakes[index] <= world_now {
            global.wakes[index] = Time::MAX;
        }
        let (Some(holder), Some(gate)) = (&mut global.holders[index], &mut this.gate) else { return };
        if is_over || this.lost {
            return;
        }
        let report = (holder.due() <= now).then(|| holder.report(now, gate.usages(now)));
        gate.allot(now, holder.rates(now));
        let next = this.when_clock_shows(holder.due().min(holder.changes_at(now)));
        if next < global.wakes[index] {
            global.wakes[index] = next;
            self.queue.add(next, Event::Holder(node));
        }
        self.touch(node);
        if let Some(report) = report {
            let classes = report.classes.len();
            self.post(node, coordinator, node, Content::Report(report), classes);
        }
    }

    fn post(&mut self, from: u32, to: u32, gate: u32, content: Content, classes: usize) {
        let Some(global) = &mut self.global else { return };
        let bytes = LETTER_BYTES + CLASS_BYTES * classes as u64;
        let letter = global.letters.add(Letter { bytes, gate, content });
        self.net.send(&mut self.queue, from, to, bytes, Message::Letter(letter));
    }

    /// Whether a fault holds that keeps a gate and the coordinator apart.
    fn is_cut(&self, gate: u32) -> bool {
        let now = self.queue.now().since(Time::ZERO);
        let Some(global) = &self.global else { return true };
        let index = gate - global.first;
        let cuts = |kind: &FaultKind| match kind {
            FaultKind::LostCoordinator => true,
            FaultKind::CutGate { node } => *node == index,
            _ => false,
        };
        self.scenario.faults.iter().any(|fault| cuts(&fault.kind) && fault.holds_at(now))
    }

    /// Whether the coordinator has been gone since the allotter began.
    fn has_forgotten(&self, began: Time) -> bool {
        let (began, now) = (began.since(Time::ZERO), self.queue.now().since(Time::ZERO));
        let is_later = |from: Span| from > began && from <= now;
        let mut faults = self.scenario.faults.iter();
        faults.any(|fault| fault.kind == FaultKind::LostCoordinator && is_later(fault.from))
    }

    /// A report or a grant has come in.
    pub(super) fn read_letter(&mut self, letter: u32) {
        let now = self.queue.now();
        let coordinator = self.nodes.len() as u32;
        let Some(global) = &mut self.global else { return };
        let gate = global.letters[letter].gate;
        let content = std::mem::replace(&mut global.letters[letter].content, Content::Nothing);
        global.letters.free(letter);
        if self.is_cut(gate) {
            return;
        }
        match content {
            Content::Report(report) => {
                let is_new = self
                    .global
                    .as_ref()
                    .and_then(|global| global.allotter.as_ref())
                    .is_none_or(|allotter| self.has_forgotten(allotter.began()));
                let Some(global) = &mut self.global else { return };
                if is_new {
                    global.allotter = Some(Allotter::new(global.terms.clone(), now));
                }
                let Some(allotter) = &mut global.allotter else { return };
                if let Some(grant) = allotter.report(now, GateId(gate.into()), &report) {
                    let classes = grant.classes.len();
                    self.post(coordinator, gate, gate, Content::Grant(grant), classes);
                }
            }
            Content::Grant(grant) => {
                let clock = self.nodes[gate as usize].clock_at(now);
                let Some(global) = &mut self.global else { return };
                let index = (gate - global.first) as usize;
                if let Some(holder) = &mut global.holders[index] {
                    holder.granted(clock, &grant);
                }
                self.tend_holder(gate);
            }
            Content::Nothing => {}
        }
    }
}
