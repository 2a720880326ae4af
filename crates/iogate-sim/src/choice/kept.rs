//! What it is worth to begin with what was learnt of the same storage before, under other applications.

use iogate_core::Time;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Meter, Pace, Prior};
use iogate_core::profile::{Findings, Profile, Refit};

use super::evaluate::{Known, Slowdowns, auto, chooser};
use super::mix::{Mix, Set, fifo};
use super::run::run;

/// What a choice begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Nothing: prices are assumed, and learnt.
    Anew,
    /// What was learnt before, which goes on.
    Kept,
    /// The same, and a prior is asked for the first scheduler, as if all had been measured.
    KeptWithPrior,
    /// A profile that was measured.
    Measured,
}

impl Begins {
    /// All of them, in the order of [`Paired::ways`].
    pub const ALL: [Begins; 4] = [Begins::Anew, Begins::Kept, Begins::KeptWithPrior, Begins::Measured];
}

/// What became of a mix by what its choice begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// The kind of storage.
    pub storage: &'static str,
    /// Cells that were measured before.
    pub cells: usize,
    /// How long applications take, against `fifo`.
    pub ways: [Slowdowns; 4],
}

/// What is learnt under a mix by a choice that knows nothing of its storage.
pub fn learnt(mix: &Mix) -> Findings {
    let mut auto = auto(mix, Known::Nothing);
    run(mix, &fifo(), Some(&mut auto), u64::MAX);
    auto.findings().unwrap_or_default()
}

/// A choice that begins with `fifo`, and with what was learnt before.
pub fn auto_kept(mix: &Mix, findings: &Findings, asks_prior: bool) -> Auto {
    let (kind, rotational) = (mix.storage.kind(), mix.storage.is_rotational());
    let chooser = chooser(mix, Profile::assumed(kind, rotational));
    let chooser = if asks_prior { chooser.beginning_with(Prior::committed()) } else { chooser };
    let meter = Meter::new(Refit::from_findings(kind, rotational, findings));
    Auto::new(chooser, Pace::new(REQUESTS_PER_S, Time::ZERO)).learning(meter)
}

impl Paired {
    /// The mix with this number, after other applications on the same storage.
    pub fn new(set: Set, number: u64) -> Paired {
        let findings = learnt(&Mix::random_before(set, number));
        let mix = Mix::random(set, number);
        let base = run(&mix, &fifo(), None, u64::MAX);
        let ways = Begins::ALL.map(|begins| {
            let mut auto = match begins {
                Begins::Anew => auto(&mix, Known::Nothing),
                Begins::Kept => auto_kept(&mix, &findings, false),
                Begins::KeptWithPrior => auto_kept(&mix, &findings, true),
                Begins::Measured => auto(&mix, Known::Profile),
            };
            Slowdowns::of(&run(&mix, &fifo(), Some(&mut auto), u64::MAX), &base)
        });
        Paired { storage: mix.storage.kind(), cells: findings.iter().count(), ways }
    }
}
