//! What applications would have gained without another one: what was recorded at a gate, simulated with and without that one.
//!
//! | file | what |
//! |---|---|
//! | `recorded` | what was recorded, as a window of work and as dispatches |
//! | `observed` | a device that takes as long as what was recorded did |
//!
//! The scheduler stays what it was. A simulation judges itself: with all applications it has to come out as it was recorded. What
//! it says of the time without one of them is taken in proportion. Where it did not come out, where it needs what nobody has seen, or
//! where ways to see the storage that are equally likely say different things, nothing is said but that.

mod observed;
mod recorded;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use self::observed::{Observed, Table, Tally, Way, most_in_service};
pub use self::recorded::{Recording, RecordingDoubt};
use super::pricing::Pricing;
use super::shadow::{Shadow, Times};
use super::window::{Window, key_of};
use crate::gate::GateConfig;
use crate::profile::Profile;
use crate::request::{AppId, ClientId};
use crate::sched::ConfigError;
use crate::time::Span;

/// By how many thousandths a simulation may be off of an application's time as it was recorded: of who is asked about, and of who is
/// left out.
const OFF_MAX: u64 = 50;
const OFF_MAX_OTHER: u64 = 100;
/// Thousandths of the storage's time that may be of a kind that nobody has seen.
const UNSEEN_MAX: u64 = 100;
/// How much less likely a way to see the storage may be than the most likely one, as a logarithm, to be heard.
const LIKELY: i64 = 100_000;
/// By how many thousandths of a gain, or else of the time, those that are heard may differ.
const APART_MAX: u64 = 150;
const APART_OF_TIME_MAX: u64 = 20;
/// Completions of an application by which anything is said of it.
const COMPLETED_MIN: u32 = 16;

/// What is known of the storage.
#[derive(Clone, Copy)]
pub enum Known<'a> {
    /// What was recorded of it.
    Recorded,
    /// The same, and what a measurement has said of what was not recorded.
    Profile(&'a Profile),
    /// It is a device of which more can be made.
    Device(&'a dyn Pricing),
}

/// What an application would have gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gain {
    /// How long it took for what it had completed, as it was recorded.
    pub took: Span,
    /// How long it would have taken.
    pub without: Span,
}

/// Why nothing is said of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// It has completed too little.
    #[error("too few requests completed: {0} of {COMPLETED_MIN}")]
    Little(u32),
    /// Simulated, it does not take as long as it did, or the other one does not.
    #[error("simulated as it was it takes {} % {} than recorded", off.unsigned_abs() / 10, if *off < 0 { "less" } else { "more" })]
    Off {
        /// By how much, in thousandths of what was recorded.
        off: i64,
    },
    /// It would take what nobody has seen.
    #[error("{} % of the storage's time would be of a kind that was not seen; a profile would say", .0 / 10)]
    Unseen(u64),
    /// What was recorded can be seen in several ways, and they say different things.
    #[error("what was recorded may mean that it would take from {} to {} % of its time", .least / 10, .most / 10)]
    Ambiguous {
        /// The least that one of them says, in thousandths of its time.
        least: u64,
        /// The most.
        most: u64,
    },
}

/// What each application would have gained, or why that is not said.
pub type Answers = Vec<(AppId, Result<Gain, Doubt>)>;

/// What was recorded, simulated as it was.
pub struct Counterfactual<'a> {
    window: Window,
    gate: GateConfig,
    models: Vec<Model<'a>>,
}

/// A way to see the storage, and what becomes of all that was recorded then.
struct Model<'a> {
    storage: Storage<'a>,
    /// The logarithm of how likely it is, less than that of the most likely one.
    unlikely: i64,
    with: Vec<Times>,
}

/// What became of a window.
struct Simulated {
    /// How long each application took.
    times: Vec<Times>,
    /// How much of the storage's time nobody has seen, in thousandths.
    unseen: u64,
}

enum Storage<'a> {
    Device(&'a dyn Pricing),
    Observed(Arc<Table>),
}

impl Storage<'_> {
    /// What becomes of a window; `is_quick`: if all takes as much less as it lies apart.
    fn simulate(&self, window: &Window, gate: &GateConfig, is_quick: bool) -> Result<Simulated, ConfigError> {
        let tally = Arc::new(Tally::default());
        let observed;
        let pricing = match self {
            Storage::Device(pricing) => *pricing,
            Storage::Observed(table) => {
                observed = Observed { table: table.clone(), tally: tally.clone(), is_quick };
                &observed
            }
        };
        let mut shadow = Shadow::new(window, gate, &gate.scheduler, pricing, u32::MAX)?;
        shadow.run(window, u64::MAX);
        Ok(Simulated { times: shadow.times(window).collect(), unseen: tally.unseen() })
    }
}

impl<'a> Counterfactual<'a> {
    /// Simulates a recording as it was, of a gate with these settings.
    ///
    /// # Errors
    /// If no gate can have these settings.
    pub fn new(
        recording: &Recording,
        gate: &GateConfig,
        known: Known<'a>,
    ) -> Result<Counterfactual<'a>, ConfigError> {
        let (extent_bytes, storages) = match known {
            Known::Device(pricing) => (pricing.extent_bytes(), Vec::new()),
            _ => (Table::EXTENT_BYTES, recording.dispatches()),
        };
        let window = recording.window(extent_bytes);
        let mut storages: Vec<(Storage<'a>, i64)> = match known {
            Known::Device(pricing) => [(Storage::Device(pricing), 0)].into(),
            _ if storages.is_empty() || !recording.has_dispatches() => Vec::new(),
            Known::Recorded => {
                let ways = Way::all(most_in_service(&storages).min(64));
                ways.into_iter().map(|way| table(Table::new(&storages, &window, way, None))).collect()
            }
            Known::Profile(profile) => {
                let costs = profile.costs();
                let way = Way { slots: costs.slots().max(1), by_number: true };
                [table(Table::new(&storages, &window, way, Some(costs)))].into()
            }
        };
        let best = storages.iter().map(|(_, score)| *score).min().unwrap_or(0);
        storages.sort_by_key(|(_, score)| *score);
        let mut models = Vec::new();
        for (storage, score) in storages {
            let with = storage.simulate(&window, gate, false)?.times;
            models.push(Model { storage, unlikely: score - best, with });
        }
        Ok(Counterfactual { window, gate: gate.clone(), models })
    }

    /// The applications that had requests.
    pub fn apps(&self) -> impl Iterator<Item = AppId> + '_ {
        self.window.apps.iter().filter_map(|part| u32::try_from(part.key).ok()).map(AppId)
    }

    /// What each other application would have gained without this one.
    ///
    /// # Errors
    /// If no gate can have these settings.
    pub fn without(&self, app: AppId) -> Result<Answers, ConfigError> {
        let key = key_of(app, ClientId(0));
        let Some(left_out) = self.window.apps.iter().position(|part| part.key == key) else {
            return Ok(Vec::new());
        };
        let window = self.window.without(|app| app == left_out as u32);
        let mut without = Vec::with_capacity(self.models.len());
        for model in &self.models {
            let [usual, quick] =
                [false, true].map(|is_quick| model.storage.simulate(&window, &self.gate, is_quick));
            without.push((usual?, quick?.times));
        }
        let others = (0..self.window.apps.len()).filter(|index| *index != left_out);
        let of_app = |index: usize| {
            let app = AppId(u32::try_from(self.window.apps[index].key).ok()?);
            Some((app, self.gain(index, left_out, &without)))
        };
        Ok(others.filter_map(of_app).collect())
    }

    /// What one application gains without another one, by what all models say.
    fn gain(&self, app: usize, left_out: usize, without: &[(Simulated, Vec<Times>)]) -> Result<Gain, Doubt> {
        let part = &self.window.apps[app];
        if part.completed < COMPLETED_MIN {
            return Err(Doubt::Little(part.completed));
        }
        let off = |model: &Model<'_>, of: usize| off(model.with[of].measured, self.window.apps[of].measured);
        let holds = |model: &Model<'_>| {
            off(model, app).unsigned_abs() <= OFF_MAX && off(model, left_out).unsigned_abs() <= OFF_MAX_OTHER
        };
        let mut heard = self.models.iter().zip(without).filter(|(model, _)| holds(model));
        let Some((best, (Simulated { times, unseen }, quick))) = heard.next() else {
            let nearest = self.models.first().map_or(0, |model| match off(model, app) {
                of if of.unsigned_abs() > OFF_MAX => of,
                _ => off(model, left_out),
            });
            return Err(Doubt::Off { off: nearest });
        };
        if *unseen > UNSEEN_MAX {
            return Err(Doubt::Unseen(*unseen));
        }
        let part_of =
            |model: &Model<'_>, times: &[Times]| thousandths(times[app].measured, model.with[app].measured);
        let said = part_of(best, times);
        let quick = part_of(best, quick);
        let (mut least, mut most) = (said.min(quick), said.max(quick));
        for (model, (Simulated { times, .. }, _)) in
            heard.filter(|(model, _)| model.unlikely <= best.unlikely + LIKELY)
        {
            let other = part_of(model, times);
            (least, most) = (least.min(other), most.max(other));
        }
        let may_differ = (1_000_u64.abs_diff(said) * APART_MAX / 1_000).max(APART_OF_TIME_MAX);
        if most - least > may_differ {
            return Err(Doubt::Ambiguous { least, most });
        }
        let took = part.measured;
        let exact = u128::from(took.as_nanos()) * u128::from(times[app].measured.as_nanos());
        let without = exact / u128::from(best.with[app].measured.as_nanos().max(1));
        Ok(Gain { took, without: Span::from_nanos(without.min(u128::from(u64::MAX)) as u64) })
    }
}

fn table<'a>(table: Table) -> (Storage<'a>, i64) {
    let score = table.score;
    (Storage::Observed(Arc::new(table)), score)
}

/// One time over another, in thousandths.
fn thousandths(of: Span, all: Span) -> u64 {
    (u128::from(of.as_nanos()) * 1_000 / u128::from(all.as_nanos().max(1))).min(u128::from(u64::MAX)) as u64
}

/// By how much one time is longer than another, in thousandths.
fn off(of: Span, than: Span) -> i64 {
    (thousandths(of, than).min(1_000_000) as i64) - 1_000
}
