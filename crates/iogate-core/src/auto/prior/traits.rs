//! What a prior asks for: numbers without a scale, of the first requests and of the storage.

use crate::auto::pricing::Pricing;
use crate::auto::reference::Reference;
use crate::auto::window::{After, Window, Work};
use crate::hash::HashMap;
use crate::request::{FileId, Op};

/// How many of a file's last requests one may continue.
const ENDS: usize = 8;

/// One of them. Shares and ratios are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// The rate of the storage with as many in flight as the gate lets through, over that with one.
    Speedup,
    /// What the requests cost anywhere on the storage, over what they cost one behind the other.
    Jump,
    /// The share of what the requests cost that they would cost with 4 KiB each.
    Fixed,
    /// The share of requests that begin where one of the file's last eight ended.
    Contiguous,
    /// The share of reads.
    Reads,
    /// How many applications there are.
    Apps,
    /// How many clients there are.
    Clients,
    /// How many requests are in the gate on the average, over how many it lets through.
    Queued,
    /// What a request of the application with the dearest ones costs, over that of the one with the cheapest.
    Spread,
    /// The share of what the requests cost of the application that has most.
    Largest,
    /// How long clients think, over how long requests are in the gate.
    Think,
    /// The share of requests that waited for their whole application.
    Rounds,
}

impl Trait {
    /// All of them.
    pub const ALL: [Trait; 12] = [
        Trait::Speedup,
        Trait::Jump,
        Trait::Fixed,
        Trait::Contiguous,
        Trait::Reads,
        Trait::Apps,
        Trait::Clients,
        Trait::Queued,
        Trait::Spread,
        Trait::Largest,
        Trait::Think,
        Trait::Rounds,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Trait::Speedup => "speedup",
            Trait::Jump => "jump",
            Trait::Fixed => "fixed",
            Trait::Contiguous => "contiguous",
            Trait::Reads => "reads",
            Trait::Apps => "apps",
            Trait::Clients => "clients",
            Trait::Queued => "queued",
            Trait::Spread => "spread",
            Trait::Largest => "largest",
            Trait::Think => "think",
            Trait::Rounds => "rounds",
        }
    }
}

/// What is seen of a situation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits([u64; Trait::ALL.len()]);

impl Traits {
    /// The value of one.
    pub fn get(&self, of: Trait) -> u64 {
        self.0[of as usize]
    }

    /// Sets the value of one.
    pub fn set(&mut self, of: Trait, value: u64) {
        self.0[of as usize] = value;
    }

    /// Those of a window in front of storage that charges as `pricing` says, behind a gate that lets `depth` dispatches through.
    pub(in crate::auto) fn of(window: &Window, pricing: &dyn Pricing, depth: u32) -> Traits {
        let (far, near) = (Reference::of(pricing), Reference::in_sequence(pricing));
        let cost = |of: &Reference, work: &Work| of.cost(work.op, 1, work.bytes.into());
        let (mut all, mut in_sequence, mut small, mut reads) = (0, 0, 0, 0);
        let (mut thought, mut thinkers, mut rounds) = (0, 0, 0);
        let mut apps = alloc::vec![(0, 0); window.apps.len()];
        for work in &window.work {
            let cost_far = cost(&far, work);
            all += cost_far;
            in_sequence += cost(&near, work);
            small += far.cost(work.op, 1, 4 << 10);
            reads += u64::from(work.op == Op::Read);
            let app = &mut apps[work.app as usize];
            *app = (app.0 + cost_far, app.1 + 1);
            if let After::Client(_, think) | After::App(_, think) = work.after {
                (thought, thinkers) = (thought + think.as_nanos(), thinkers + 1);
            }
            rounds += u64::from(matches!(work.after, After::App(..)));
        }
        let requests = window.len() as u64;
        let mean = |app: &(u64, u64)| app.0 / app.1.max(1);
        let waited = window.waited.as_nanos();
        let mut traits = Traits::default();
        traits.set(Trait::Speedup, thousandths(pricing.rate(depth), pricing.rate(1)));
        traits.set(Trait::Jump, thousandths(all, in_sequence));
        traits.set(Trait::Fixed, thousandths(small, all));
        traits.set(Trait::Contiguous, thousandths(continued(window), requests));
        traits.set(Trait::Reads, thousandths(reads, requests));
        traits.set(Trait::Apps, window.apps.len() as u64);
        traits.set(Trait::Clients, window.clients.len() as u64);
        traits.set(Trait::Queued, thousandths(waited / u64::from(depth.max(1)), window.span.as_nanos()));
        let means = || apps.iter().map(mean);
        traits.set(Trait::Spread, thousandths(means().max().unwrap_or(0), means().min().unwrap_or(0)));
        let largest = apps.iter().map(|app| app.0).max().unwrap_or(0);
        traits.set(Trait::Largest, thousandths(largest, all));
        let wait = waited / (window.completed() as u64).max(1);
        traits.set(Trait::Think, thousandths(thought / thinkers.max(1), wait));
        traits.set(Trait::Rounds, thousandths(rounds, requests));
        traits
    }
}

/// `part` of `all`, in thousandths; at most a million times as much.
fn thousandths(part: u64, all: u64) -> u64 {
    (u128::from(part) * 1_000 / u128::from(all.max(1))).min(1_000_000_000) as u64
}

/// How many requests of a window continue one of the file's last ones.
fn continued(window: &Window) -> u64 {
    let mut files: HashMap<FileId, ([u64; ENDS], usize)> = HashMap::default();
    let mut count = 0;
    for work in &window.work {
        let (ends, next) = files.entry(work.file).or_insert(([u64::MAX; ENDS], 0));
        count += u64::from(ends.contains(&work.offset));
        ends[*next % ENDS] = work.offset + u64::from(work.bytes);
        *next += 1;
    }
    count
}
