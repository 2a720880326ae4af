//! What a choice says of itself, in words and in numbers.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::bursts::{Expected, Left};
use super::objective::{Ln, Score, exp_thousandths};
use crate::request::AppId;
use crate::sched::SchedulerConfig;
use crate::time::{Span, Time};

/// Changes that are kept.
const CHANGES_MAX: usize = 64;

/// Why the scheduler in use is the one in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was there at the beginning.
    Start,
    /// Situations like this one were faster with it.
    Prior,
    /// It promised to be faster.
    Gain,
    /// It does as much, and keeps the storage busy for less long.
    Thrift,
    /// The one before it made an application slower than may be.
    Harm,
    /// The one after it has not kept its promise.
    Reverted,
    /// What the storage charges is not known well enough to believe anything any more.
    Doubt,
    /// It was there at the beginning because seeks cost, and they do not.
    Refuted,
}

/// A change, or the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// The scheduler before.
    pub from: SchedulerConfig,
    /// The scheduler since.
    pub to: SchedulerConfig,
    /// Why.
    pub reason: Reason,
    /// How much faster it promised to be: the logarithm of the ratio of times, the mean over applications.
    pub predicted: Ln,
    /// What of that was seen in the first window with it.
    pub measured: Option<Ln>,
}

/// What is to be said of a choice.
#[derive(Clone, Debug)]
pub struct Status {
    /// The change that led to what is in use.
    pub change: Change,
    /// What was considered in the last window, whole: against `fifo`, with `fifo` and what is in use among them.
    pub considered: Vec<(SchedulerConfig, Score)>,
    /// How far predictions were from what was measured: the root of the mean square of the logarithm, if there were any.
    pub error: Option<Ln>,
    /// What is tried in turns with what is in use, and how many of four slices are over.
    pub turns: Option<(SchedulerConfig, usize)>,
    /// What measurements say beyond what is simulated, of the present load: by how much faster than that it is, and how many they are.
    pub corrected: Vec<(SchedulerConfig, Ln, u32)>,
    /// Changes so far.
    pub switches: u64,
    /// Moments in which something was tried only to see what its dispatches take.
    pub probes: u64,
    /// Applications of which it was taken for known, in the last window, when they end.
    pub ends: u64,
    /// Windows that were looked at.
    pub windows: u64,
    /// Requests that were simulated.
    pub simulated: u64,
    /// The most memory that was in use, in bytes, that of simulated devices left out.
    pub memory_max: usize,
}

/// The last changes of a gate, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Changes(VecDeque<Change>);

impl Changes {
    /// What is in use is so since `change`: a new change, or the last one, of which more is known now.
    pub fn note(&mut self, change: &Change) {
        match self.0.back_mut() {
            _ if change.reason == Reason::Start => {}
            Some(last) if last.at == change.at => last.clone_from(change),
            _ => {
                if self.0.len() == CHANGES_MAX {
                    self.0.pop_front();
                }
                self.0.push_back(change.clone());
            }
        }
    }

    /// The changes.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.0.iter()
    }
}

/// A change of a gate's scheduler, as its status has it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Changed {
    /// How long ago.
    pub ago_ms: u64,
    /// The scheduler since.
    pub scheduler: String,
    /// Why.
    pub why: String,
}

/// What a gate's status says of the choice of its scheduler.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Choice {
    /// What is in use, with its parameters.
    pub scheduler: String,
    /// For how long it has been.
    pub since_ms: u64,
    /// Why: `fifo -> aioli: 3.10x predicted, 2.80x measured`.
    pub why: String,
    /// Why nothing is chosen at the moment, if nothing is.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub held: Option<String>,
    /// Where it comes from what the storage is taken to charge, if that is known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub prices: Option<String>,
    /// What was considered last, and how many times as fast as `fifo` it is expected to be.
    pub considered: Vec<Considered>,
    /// How far predictions were from what was measured.
    pub error_percent: Option<f64>,
    /// What is tried in turns with what is in use.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub turns: Option<InTurns>,
    /// What measurements have corrected, of the present load.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub corrected: Vec<Corrected>,
    /// Changes so far.
    pub switches: u64,
    /// Moments in which something was tried only to see what its dispatches take.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_none"))]
    pub probes: u64,
    /// Applications of which it was taken for known, in the last window, when they end.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_none"))]
    pub ends: u64,
    /// Applications of whose bursts it is known now how large they are.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub expected: Vec<ExpectedEnd>,
    /// Windows that were looked at.
    pub windows: u64,
    /// Requests that were simulated.
    pub simulated: u64,
    /// The last changes.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub changes: Vec<Changed>,
}

/// An application that has a burst now, of which it is expected when it ends.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpectedEnd {
    /// The application.
    pub app: AppId,
    /// Bytes of the whole burst, and those that are not carried out yet.
    pub bytes: u64,
    /// See `bytes`.
    pub left: u64,
    /// Who says so.
    pub from: Source,
}

/// By what the end of an application is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Source {
    /// It has said how much it moves.
    Said,
    /// Its last two bursts were of that size.
    Seen,
}

/// A scheduler that was considered.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Considered {
    /// The scheduler with its parameters.
    pub scheduler: String,
    /// How many times as fast as `fifo` it is expected to be, the geometric mean over applications.
    pub speed: f64,
}

/// A scheduler that is tried in turns with what is in use.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InTurns {
    /// The scheduler with its parameters.
    pub scheduler: String,
    /// Slices that are over, of four.
    pub slices: u32,
}

/// A scheduler of which measurements have said something else than simulations.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Corrected {
    /// The scheduler with its parameters.
    pub scheduler: String,
    /// How many times as fast as it is simulated it is expected to be, against `fifo`.
    pub factor: f64,
    /// Measurements behind that.
    pub measured: u32,
}

#[cfg(feature = "serde")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Choice {
    /// What `status` says, at `now`.
    pub fn of(status: &Status, now: Time) -> Choice {
        let Status { change, considered, error, turns, corrected, switches, probes, .. } = status;
        let Status { ends, windows, simulated, .. } = status;
        let factor = |ln: Ln| exp_thousandths(ln) as f64 / 1_000.0;
        let considered = considered.iter().map(|(scheduler, score)| Considered {
            scheduler: scheduler.to_string(),
            speed: factor(-score.mean),
        });
        let turns =
            turns.as_ref().map(|(of, slices)| InTurns { scheduler: of.to_string(), slices: *slices as u32 });
        let corrected = corrected.iter().map(|(scheduler, by, measured)| Corrected {
            scheduler: scheduler.to_string(),
            factor: factor(*by),
            measured: *measured,
        });
        Choice {
            scheduler: change.to.to_string(),
            since_ms: now.since(change.at).as_nanos() / 1_000_000,
            why: change.to_string(),
            held: None,
            prices: None,
            considered: considered.collect(),
            error_percent: error.map(|error| (error / 1_000) as f64 / 10.0),
            turns,
            corrected: corrected.collect(),
            switches: *switches,
            probes: *probes,
            ends: *ends,
            expected: Vec::new(),
            windows: *windows,
            simulated: *simulated,
            changes: Vec::new(),
        }
    }

    /// The same with the changes until then.
    #[must_use]
    pub fn with(mut self, changes: &Changes, now: Time) -> Choice {
        let changed = |change: &Change| Changed {
            ago_ms: now.since(change.at).as_nanos() / 1_000_000,
            scheduler: change.to.to_string(),
            why: change.to_string(),
        };
        self.changes = changes.iter().map(changed).collect();
        self
    }

    /// The same with the bursts that applications have now, if it is expected when they end.
    #[must_use]
    pub fn expecting(mut self, left: impl IntoIterator<Item = Left>) -> Choice {
        let end = |Left { app, bytes, expected, .. }: Left| {
            let (left, Expected { bytes, is_said }) = (bytes?, expected?);
            let from = if is_said { Source::Said } else { Source::Seen };
            Some(ExpectedEnd { app, bytes, left, from })
        };
        self.expected = left.into_iter().filter_map(end).collect();
        self
    }

    /// What it says some time later, if nothing has changed.
    #[must_use]
    pub fn later(mut self, by: Span) -> Choice {
        let by = by.as_nanos() / 1_000_000;
        self.since_ms += by;
        self.changes.iter_mut().for_each(|changed| changed.ago_ms += by);
        self
    }

    /// What is said where `scheduler` stays, as nothing can be chosen.
    pub fn held(scheduler: &SchedulerConfig, why: &str) -> Choice {
        let (scheduler, held) = (scheduler.to_string(), Some(why.into()));
        Choice { why: alloc::format!("{scheduler} from the beginning"), scheduler, held, ..Choice::default() }
    }
}

/// How many times as fast, as in `3.1x`.
struct Times(Ln);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (exp_thousandths(self.0) + 5) / 10;
        write!(f, "{}.{:02}x", hundredths / 100, hundredths % 100)
    }
}

impl fmt::Display for Change {
    /// `fifo -> aioli: 3.10x predicted, 2.80x measured`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { from, to, reason, predicted, measured, .. } = self;
        match reason {
            Reason::Start => return write!(f, "{to} from the beginning"),
            Reason::Prior => write!(f, "{from} -> {to}: {} in situations like this one", Times(*predicted))?,
            Reason::Gain => write!(f, "{from} -> {to}: {} predicted", Times(*predicted))?,
            Reason::Thrift => write!(f, "{from} -> {to}: as much in less of the storage's time")?,
            Reason::Harm => write!(f, "{from} -> {to}: an application was slowed down too much")?,
            Reason::Reverted => write!(f, "{from} -> {to}: it did not show what it promised")?,
            Reason::Doubt => write!(f, "{from} -> {to}: what the storage charges varies too much")?,
            Reason::Refuted => write!(f, "{from} -> {to}: seeks cost too little to be spared by waits")?,
        }
        match measured {
            Some(measured) => write!(f, ", {} measured", Times(*measured)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::sched::SchedulerConfig;
    use crate::time::Time;

    #[test]
    fn a_change_says_what_was_promised_and_what_was_kept() {
        let named = |name| SchedulerConfig::by_name(name).unwrap();
        let change = Change {
            at: Time::ZERO,
            from: named("to-agg"),
            to: named("aioli"),
            reason: Reason::Gain,
            predicted: 1_131_402,
            measured: Some(1_029_619),
        };
        assert_eq!(change.to_string(), "to-agg -> aioli: 3.10x predicted, 2.80x measured");
        let mut changes = Changes::default();
        changes.note(&Change { reason: Reason::Start, ..change.clone() });
        changes.note(&Change { measured: None, ..change.clone() });
        changes.note(&change);
        let later = |ms| Time::ZERO + crate::time::Span::from_millis(ms);
        changes.note(&Change { at: later(5), reason: Reason::Doubt, measured: None, ..change.clone() });
        let told = Choice::default().with(&changes, later(7)).later(crate::time::Span::from_millis(1));
        let told: Vec<(u64, &str)> = told.changes.iter().map(|one| (one.ago_ms, one.why.as_str())).collect();
        let doubt = "to-agg -> aioli: what the storage charges varies too much";
        assert_eq!(told, [(8, "to-agg -> aioli: 3.10x predicted, 2.80x measured"), (3, doubt)]);
        let start = Change { reason: Reason::Start, ..change };
        assert_eq!(start.to_string(), "aioli from the beginning");
    }
}
