//! What it is worth to begin with what was learnt of the same storage before, under other applications.

use iogate_core::Time;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Meter, Pace, Prior};
use iogate_core::profile::{Findings, Profile, Refit};

use super::evaluate::{Known, Slowdowns, auto, chooser};
use super::mix::{Mix, Set, fifo};
use super::run::run;

/// Ways to begin, in the order of [`Paired::ways`].
pub const WAYS: [&str; 5] = ["nothing", "kept", "kept, prior", "kept, prior if covered", "measured"];

/// A mix with what is known of its storage in each of the [`WAYS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// The kind of storage.
    pub storage: &'static str,
    /// How long the mix takes with `fifo`, in seconds.
    pub seconds: f64,
    /// Cells that were measured before.
    pub cells: usize,
    /// How long applications take, against `fifo`.
    pub ways: Vec<Slowdowns>,
}

/// What is learnt under `mix`, by a choice that begins with `known`, or with nothing.
pub fn learnt(mix: &Mix, known: Option<&Findings>) -> Findings {
    let mut auto = known.map_or_else(|| auto(mix, Known::Nothing), |known| auto_kept(mix, known, 0));
    run(mix, &fifo(), Some(&mut auto), u64::MAX);
    auto.findings().unwrap_or_default()
}

/// A choice that begins with `fifo`, and with what was learnt before.
pub fn auto_kept(mix: &Mix, findings: &Findings, prior: u32) -> Auto {
    let (kind, rotational) = (mix.storage.kind(), mix.storage.is_rotational());
    let refit = Refit::from_findings(kind, rotational, findings);
    let chooser = chooser(mix, Profile::assumed(kind, rotational));
    let known = |op| {
        let of = refit.profile();
        let of = of.of(op);
        (of.random[0].low.count > 0 || of.random[1].low.count > 0)
            && (of.sequential[0].low.count > 0 || of.sequential[1].low.count > 0)
    };
    let covered = known(iogate_core::Op::Read) || known(iogate_core::Op::Write);
    let with = match prior {
        0 => false,
        1 => true,
        _ => covered,
    };
    let chooser = if with { chooser.beginning_with(Prior::committed()) } else { chooser };
    Auto::new(chooser, Pace::new(REQUESTS_PER_S, Time::ZERO)).learning(Meter::new(refit))
}

impl Paired {
    /// The mix with this number, after others on the same storage.
    pub fn new(set: Set, number: u64) -> Paired {
        let lives: u64 = std::env::var("LIVES").map_or(1, |n| n.parse().unwrap());
        let mut findings = learnt(&Mix::random_before(set, number, 1), None);
        for life in 2..=lives {
            let before = findings.clone();
            findings = learnt(&Mix::random_before(set, number, life), Some(&findings))
                .onto(&before, &Findings::default());
        }
        let mix = Mix::random(set, number);
        let base = run(&mix, &fifo(), None, u64::MAX);
        let with = |mut auto: Auto| Slowdowns::of(&run(&mix, &fifo(), Some(&mut auto), u64::MAX), &base);
        let ways = vec![
            with(auto(&mix, Known::Nothing)),
            with(auto_kept(&mix, &findings, 0)),
            with(auto_kept(&mix, &findings, 1)),
            with(auto_kept(&mix, &findings, 2)),
            with(auto(&mix, Known::Profile)),
        ];
        let seconds = base.ends.iter().copied().max().unwrap_or(0) as f64 / 1e9;
        Paired { storage: mix.storage.kind(), seconds, cells: findings.iter().count(), ways }
    }
}
