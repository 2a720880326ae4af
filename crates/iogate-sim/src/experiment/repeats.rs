//! Runs that several plans have in common.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{digest, seed_of};
use crate::result::RunResult;
use crate::scenario::{Plan, Point, Scenario};

/// The runs that occur more than once among some plans: each is carried out once, and its result is kept until it was used as often as
/// it occurs. It is what another run would give, to the digit: a run has no input but its scenario and its seed.
#[derive(Debug, Default)]
pub struct Repeats(Mutex<HashMap<Key, Known>>);

/// What a run is made of, and its seed.
type Key = (u64, u64);

#[derive(Debug)]
struct Known {
    /// How often it occurs that has not come yet.
    left: u32,
    result: Option<RunResult>,
}

impl Repeats {
    /// Those among plans.
    pub fn among<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Repeats {
        let mut all: HashMap<Key, u32> = HashMap::new();
        for point in plans.into_iter().flat_map(|plan| &plan.points) {
            let made_of = made_of(&point.scenario);
            for repetition in 0..point.scenario.repetitions {
                *all.entry((made_of, seed_of(point, repetition))).or_default() += 1;
            }
        }
        all.retain(|_, count| *count > 1);
        Repeats(Mutex::new(all.into_iter().map(|(key, left)| (key, Known { left, result: None })).collect()))
    }

    /// How many runs are still to come that need not be carried out.
    pub fn spared(&self) -> u64 {
        self.known().values().map(|known| u64::from(known.left.saturating_sub(1))).sum()
    }

    /// The result of a repetition of a point, if it is known; else what `run` gives, for the next time.
    ///
    /// # Errors
    /// That of `run`.
    pub(super) fn once<E>(
        &self,
        point: &Point,
        repetition: u32,
        run: impl FnOnce() -> Result<RunResult, E>,
    ) -> Result<RunResult, E> {
        if self.known().is_empty() {
            return run();
        }
        let key = (made_of(&point.scenario), seed_of(point, repetition));
        if let Some(known) = self.known().get_mut(&key)
            && let Some(result) = &known.result
        {
            let result = result.clone();
            known.left = known.left.saturating_sub(1);
            if known.left == 0 {
                known.result = None;
            }
            return Ok(result);
        }
        // Not under the lock: two threads may carry out the same run at once, and find the same.
        let result = run()?;
        if let Some(known) = self.known().get_mut(&key) {
            known.left = known.left.saturating_sub(1);
            known.result = (known.left > 0).then(|| result.clone());
        }
        Ok(result)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells a scenario from others in what its runs do: all but what it is called, and how it is repeated.
fn made_of(scenario: &Scenario) -> u64 {
    let nameless = Scenario {
        title: String::new(),
        notes: Vec::new(),
        seed: 0,
        repetitions: 1,
        confidence: 0.0,
        ..scenario.clone()
    };
    digest(format!("{nameless:?}").as_bytes())
}
