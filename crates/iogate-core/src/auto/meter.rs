//! What the storage charges, learnt from the dispatches of one gate.

use alloc::boxed::Box;

use crate::device::Device;
use crate::gate::{Dispatch, DispatchId};
use crate::hash::HashMap;
use crate::profile::{Class, Coverage, Profile, Profiled, Refit, Sample, Streams};
use crate::request::Op;
use crate::time::Time;

use super::pricing::Pricing;

/// Dispatches before which what has been learnt is not believed.
pub(super) const DISPATCHES_MIN: u64 = 64;

/// Watches dispatches, and learns prices.
#[derive(Clone, Debug)]
pub struct Meter {
    refit: Refit,
    streams: Streams,
    flying: HashMap<DispatchId, Flying>,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    since: Time,
    op: Op,
    class: Class,
    bytes: u64,
    in_flight: u32,
}

impl Meter {
    /// One that goes on from what `refit` knows.
    pub fn new(refit: Refit) -> Meter {
        Meter { refit, streams: Streams::default(), flying: HashMap::default() }
    }

    /// A dispatch has been handed over.
    pub fn begun(&mut self, now: Time, dispatch: &Dispatch) {
        let Dispatch { id, file, op, offset, bytes, .. } = *dispatch;
        let class = self.streams.class(file.0, op, offset, bytes);
        let in_flight = self.flying.len() as u32 + 1;
        // Who was alone has company now: that is neither what it costs alone nor what it costs beside others all the time.
        if in_flight == 2 {
            self.flying.values_mut().for_each(|flying| flying.in_flight = 2);
        }
        self.flying.insert(id, Flying { since: now, op, class, bytes, in_flight });
    }

    /// A dispatch has been carried out.
    pub fn ended(&mut self, now: Time, id: DispatchId) {
        if let Some(Flying { since, op, class, bytes, in_flight }) = self.flying.remove(&id) {
            self.refit.add(Sample { op, class, bytes, in_flight, ns: now.since(since).as_nanos() });
        }
    }

    /// What has been learnt so far, and what was known before.
    pub fn refit(&self) -> &Refit {
        &self.refit
    }

    /// What has been learnt so far, if it is enough to believe.
    pub fn pricing(&self) -> Option<Learnt> {
        (self.refit.dispatches() >= DISPATCHES_MIN).then(|| Learnt::of(&self.refit))
    }
}

/// Prices as they were at a moment.
#[derive(Clone, Debug)]
pub struct Learnt {
    pub(super) profile: Profile,
    /// Which of them were measured; none if they are to be believed anyway.
    pub(super) coverage: Option<Coverage>,
}

impl Learnt {
    pub(super) fn of(refit: &Refit) -> Learnt {
        // What was measured before is to be believed also where this traffic has not shown it.
        let coverage = (!refit.is_kept()).then(|| refit.coverage());
        Learnt { profile: refit.profile(), coverage }
    }
}

impl Pricing for Learnt {
    fn coverage(&self) -> Option<Coverage> {
        self.coverage
    }

    fn device(&self) -> Box<dyn Device> {
        Box::new(Profiled::new(&self.profile))
    }
}
