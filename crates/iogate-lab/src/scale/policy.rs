//! One policy over many gates, at the size of a large cluster: the core's holders and allotter, with messages that take a while, and a
//! clock for what the allotter costs. Gates serve what they are asked for as far as it is allotted; no request is there.

use std::fmt;

use iogate_core::global_policy::{Allotter, GateId, Grant, Holder, Report, Terms, Usage, level};
use iogate_core::policy::{Branch, Entitlement, Leaf, Policy, Rate};
use iogate_core::{AppId, Span, Time};
use iogate_sim::rng::Rng;

use crate::agenda::{Agenda, MS, SECOND, US};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct PolicyScale {
    /// Gates.
    pub gates: u32,
    /// Applications, each with a cap. Ten are at all gates, each other one at up to eight.
    pub applications: u32,
    /// Groups that they are in, in turns, each with a cap of half of what its applications may have together; 0: none.
    pub groups: u32,
    /// From a report to the next, in milliseconds.
    pub report_ms: u64,
    /// Whether a total is divided among all of them, too.
    pub has_total: bool,
    /// What times and demands are drawn from.
    pub seed: u64,
}

impl Default for PolicyScale {
    fn default() -> PolicyScale {
        PolicyScale {
            gates: 1_000,
            applications: 100_000,
            groups: 0,
            report_ms: 100,
            has_total: false,
            seed: 1,
        }
    }
}

/// What a run was like. Rates are of simulated seconds with a coordinator, from the first change on.
#[derive(Clone, Debug, Default)]
pub struct PolicyReport {
    /// Applications at gates.
    pub places: u64,
    /// Reports and grants a second, and their bytes.
    pub messages_per_s: u64,
    /// See there.
    pub bytes_per_s: u64,
    /// CPU time of the allotter a second, in nanoseconds.
    pub cpu_per_s: u64,
    /// How long after a change of half of all demands less than 2 % of what is due is missing, in nanoseconds.
    pub converged: Option<u64>,
    /// The longest that a gate went by one grant, in nanoseconds.
    pub staleness_max: u64,
    /// What is served, in thousandths of what is due: before the coordinator is gone, at least while it is, and after.
    pub served: [u64; 3],
    /// How long after it was back no less than before was served, but for 2 %, in nanoseconds.
    pub recovered: Option<u64>,
    /// How often a class, a group or all of them had more than their cap at all gates together: never.
    pub excesses: u64,
}

impl fmt::Display for PolicyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: Option<u64>| ns.map_or("never".into(), |ns| format!("{:.2} s", ns as f64 / 1e9));
        let percent = |thousandths: u64| format!("{:.1} %", thousandths as f64 / 10.0);
        writeln!(f, "| what | value |\n|---|---|")?;
        writeln!(f, "| applications at gates | {} |", self.places)?;
        writeln!(f, "| messages a second | {} |", self.messages_per_s)?;
        writeln!(f, "| their bytes a second | {:.1} MB |", self.bytes_per_s as f64 / 1e6)?;
        writeln!(f, "| CPU time of the allotter a second | {:.3} s |", self.cpu_per_s as f64 / 1e9)?;
        writeln!(
            f,
            "| half of all demands change: 98 % of what is due, after | {} |",
            seconds(self.converged)
        )?;
        writeln!(f, "| longest time by one grant | {} |", seconds(Some(self.staleness_max)))?;
        writeln!(f, "| served of what is due | {} |", percent(self.served[0]))?;
        writeln!(f, "| the same at least in a minute without a coordinator | {} |", percent(self.served[1]))?;
        writeln!(f, "| the same at the end | {} |", percent(self.served[2]))?;
        writeln!(f, "| as before after it was back, after | {} |", seconds(self.recovered))?;
        write!(f, "| a cap was exceeded | {} times |", self.excesses)
    }
}

impl PolicyScale {
    fn group(&self, app: u32) -> Option<u32> {
        app.checked_rem(self.groups)
    }

    fn leaf(&self, app: u32) -> Leaf {
        Leaf { app: AppId(app), within: self.group(app).map(group_class) }
    }
}

/// A number that no application has.
fn group_class(group: u32) -> AppId {
    AppId(1 << 31 | group)
}

enum Event {
    Tend(u32),
    Up(u32, Report),
    Down(u32, Grant),
    Look,
}

/// One application at one gate.
struct Place {
    leaf: Leaf,
    demand: u64,
    admitted: u64,
    capped: u64,
}

struct Gate {
    holder: Holder,
    places: Vec<Place>,
    counted: u64,
    applied: u64,
    /// When it is looked at next.
    wake: u64,
}

struct World<'a> {
    scale: PolicyScale,
    terms: Terms,
    now: u64,
    rng: Rng,
    agenda: Agenda<Event>,
    gates: Vec<Gate>,
    allotter: Option<Allotter>,
    cpu: &'a dyn Fn() -> u64,
    spent: u64,
    messages: u64,
    bytes: u64,
    /// What each place is due, by gate and place, as demands are now.
    due: Vec<Vec<u64>>,
    report: PolicyReport,
}

/// When half of the demands change, when the coordinator goes and is back, and when all is over.
const CHANGE: u64 = 5 * SECOND;
const GONE: u64 = 10 * SECOND;
const BACK: u64 = 70 * SECOND;
const END: u64 = 76 * SECOND;

/// Runs it. `cpu` says how much CPU time the thread has used, in nanoseconds.
pub fn run(scale: &PolicyScale, cpu: &dyn Fn() -> u64) -> PolicyReport {
    let mut world = world(scale, cpu);
    world.run();
    world.report
}

fn world<'a>(scale: &PolicyScale, cpu: &'a dyn Fn() -> u64) -> World<'a> {
    let mut rng = Rng::new(scale.seed, 1);
    let mut places: Vec<Vec<Place>> = (0..scale.gates).map(|_| Vec::new()).collect();
    let mut apps = Vec::new();
    for app in 1..=scale.applications {
        let leaf = scale.leaf(app);
        let at = if app <= 10 { scale.gates.into() } else { 1 + rng.below(8) };
        let max = Rate { bytes: (at * 10_000_000).try_into().ok(), requests: None };
        let capped = Entitlement { max, ..Entitlement::default() };
        apps.push((AppId(app), capped));
        for gate in 0..at {
            let gate = if app <= 10 { gate } else { rng.below(scale.gates.into()) };
            let is_new = places[gate as usize].last().is_none_or(|place| place.leaf != leaf);
            if is_new {
                let demand = draw(&mut rng);
                places[gate as usize].push(Place { leaf, demand, admitted: 0, capped: 0 });
            }
        }
    }
    let mut policy = Policy { apps: apps.into_iter().collect(), is_shared: true, ..Policy::default() };
    for group in 0..scale.groups {
        let within = policy.apps.iter().filter(|(app, _)| scale.group(app.0) == Some(group));
        let caps: u64 = within.filter_map(|(_, capped)| capped.max.bytes).map(|cap| cap.get()).sum();
        let max = Rate { bytes: (caps / 2).try_into().ok(), requests: None };
        let entitlement = Entitlement { max, ..Entitlement::default() };
        policy.branches.insert(group_class(group), Branch { entitlement, ..Branch::default() });
    }
    let mut terms = Terms { policy, every: Span::from_millis(scale.report_ms), ..Terms::default() };
    if scale.has_total {
        let caps = terms.policy.apps.values().filter_map(|capped| capped.max.bytes);
        terms.policy.total = (caps.map(|cap| cap.get()).sum::<u64>() / 2).try_into().ok();
    }
    let gate = |places| Gate {
        holder: Holder::new(terms.clone(), scale.gates, Time::ZERO),
        places,
        counted: 0,
        applied: 0,
        wake: u64::MAX,
    };
    let gates: Vec<Gate> = places.into_iter().map(gate).collect();
    World {
        scale: *scale,
        now: 0,
        rng,
        agenda: Agenda::default(),
        allotter: Some(Allotter::new(terms.clone(), Time::ZERO)),
        gates,
        terms,
        cpu,
        spent: 0,
        messages: 0,
        bytes: 0,
        due: Vec::new(),
        report: PolicyReport::default(),
    }
}

/// A demand: a third of the places has none, the others up to 40 MB/s: together more than most caps.
fn draw(rng: &mut Rng) -> u64 {
    if rng.below(3) == 0 { 0 } else { rng.below(40_000_000) }
}

impl World<'_> {
    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn run(&mut self) {
        self.report.places = self.gates.iter().map(|gate| gate.places.len() as u64).sum();
        for gate in 0..self.scale.gates {
            let at = self.rng.below(self.scale.report_ms * MS);
            self.gates[gate as usize].wake = at;
            self.agenda.plan(at, Event::Tend(gate));
        }
        self.find_due();
        self.agenda.plan(50 * MS, Event::Look);
        let (mut has_changed, mut from) = (false, (0, 0, 0));
        while let Some((at, event)) = self.agenda.take_next() {
            if at > END {
                break;
            }
            self.now = at;
            if at >= CHANGE && !has_changed {
                has_changed = true;
                self.change();
                from = (self.messages, self.bytes, self.spent);
            }
            if (GONE..BACK).contains(&at) {
                if self.allotter.take().is_some() {
                    let seconds = (GONE - CHANGE) / SECOND;
                    self.report.messages_per_s = (self.messages - from.0) / seconds;
                    self.report.bytes_per_s = (self.bytes - from.1) / seconds;
                    self.report.cpu_per_s = (self.spent - from.2) / seconds;
                }
            } else if self.allotter.is_none() {
                self.allotter = Some(Allotter::new(self.terms.clone(), self.time()));
            }
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Tend(gate) => self.tend(gate),
            Event::Up(gate, report) => {
                let Some(allotter) = &mut self.allotter else { return };
                let before = (self.cpu)();
                let grant = allotter.report(now, GateId(gate.into()), &report);
                self.spent += (self.cpu)() - before;
                if let Some(grant) = grant {
                    self.count(grant.classes.len());
                    let at = self.now + self.rng.between(20 * US, 500 * US);
                    self.agenda.plan(at, Event::Down(gate, grant));
                }
            }
            Event::Down(gate, grant) => {
                self.serve(gate);
                let this = &mut self.gates[gate as usize];
                if this.holder.granted(now, &grant) {
                    let age = self.now - this.applied;
                    if (CHANGE..GONE).contains(&self.now) {
                        self.report.staleness_max = self.report.staleness_max.max(age);
                    }
                    this.applied = self.now;
                }
                self.plan(gate);
            }
            Event::Look => self.look(),
        }
    }

    fn count(&mut self, classes: usize) {
        self.messages += 1;
        self.bytes += 64 + 32 * classes as u64;
    }

    /// A gate has served what it was asked for up to now, as far as it could.
    fn serve(&mut self, gate: u32) {
        let now = self.now;
        let this = &mut self.gates[gate as usize];
        let took = now - this.counted;
        // By the rates that were in force: they change only where this is called.
        let time = Time::from_nanos(this.counted);
        this.counted = now;
        for place in &mut this.places {
            let rate = this.holder.rate(time, place.leaf).unwrap_or(0);
            let served = u128::from(place.demand.min(rate)) * u128::from(took) / u128::from(SECOND);
            place.admitted += served as u64;
            place.capped += if place.demand > rate { took } else { 0 };
        }
    }

    fn tend(&mut self, gate: u32) {
        let now = self.time();
        let this = &mut self.gates[gate as usize];
        if this.wake > self.now {
            return;
        }
        this.wake = u64::MAX;
        self.serve(gate);
        let this = &mut self.gates[gate as usize];
        if this.holder.due() > now {
            return self.plan(gate);
        }
        let usage = |place: &Place| {
            let deferred = if place.demand > 0 && place.capped > 0 { 1 << 20 } else { 0 };
            let is_held_up = this.holder.rate(now, place.leaf).is_some_and(|rate| rate < place.demand);
            Usage {
                leaf: place.leaf,
                admitted: place.admitted,
                capped: Span::from_nanos(place.capped),
                deferred: if is_held_up { deferred } else { 0 },
            }
        };
        let usages: Vec<Usage> = this.places.iter().map(usage).collect();
        let report = this.holder.report(now, usages);
        self.count(report.classes.len());
        let at = self.now + self.rng.between(20 * US, 500 * US);
        self.agenda.plan(at, Event::Up(gate, report));
        self.plan(gate);
    }

    fn plan(&mut self, gate: u32) {
        let now = self.time();
        let this = &mut self.gates[gate as usize];
        let next = this.holder.due().min(this.holder.changes_at(now)).as_nanos().max(self.now + 1);
        if next < this.wake {
            this.wake = next;
            self.agenda.plan(next, Event::Tend(gate));
        }
    }

    /// Half of all demands are others.
    fn change(&mut self) {
        for gate in 0..self.scale.gates {
            self.serve(gate);
            for place in &mut self.gates[gate as usize].places {
                if self.rng.below(2) == 0 {
                    place.demand = draw(&mut self.rng);
                }
            }
        }
        self.find_due();
    }

    /// What each place would have if all were known.
    fn find_due(&mut self) {
        let mut demands: Vec<Vec<u64>> = vec![Vec::new(); self.scale.applications as usize + 1];
        for place in self.gates.iter().flat_map(|gate| &gate.places) {
            demands[place.leaf.app.0 as usize].push(place.demand);
        }
        let cap = |app: usize| self.terms.policy.of(AppId(app as u32)).max.bytes.map_or(0, |cap| cap.get());
        let mut wanted = vec![Vec::new(); self.scale.groups as usize];
        let mut wanted_of_total = Vec::new();
        for (app, demands) in demands.iter().enumerate().skip(1) {
            let wants = demands.iter().sum::<u64>().min(cap(app));
            match self.scale.group(app as u32) {
                Some(group) => wanted[group as usize].push(wants),
                None => wanted_of_total.push(wants),
            }
        }
        // Of a total each group has a share, and each application that is in none.
        let of_group =
            |(group, wanted): (usize, &Vec<u64>)| wanted.iter().sum::<u64>().min(self.group_cap(group));
        wanted_of_total.extend(wanted.iter().enumerate().map(of_group));
        let of_total = self.total().map_or(u64::MAX, |total| level(total, &mut wanted_of_total));
        let of_groups: Vec<u64> = wanted
            .iter_mut()
            .enumerate()
            .map(|(group, wanted)| level(self.group_cap(group).min(of_total), wanted))
            .collect();
        let level = |(app, demands): (usize, &mut Vec<u64>)| {
            let of_group = self.scale.group(app as u32).map_or(of_total, |group| of_groups[group as usize]);
            level(cap(app).min(of_group), demands)
        };
        let levels: Vec<u64> = demands.iter_mut().enumerate().map(level).collect();
        let due = |place: &Place| place.demand.min(levels[place.leaf.app.0 as usize]);
        self.due = self.gates.iter().map(|gate| gate.places.iter().map(due).collect()).collect();
    }

    fn total(&self) -> Option<u64> {
        self.terms.policy.total.map(|total| total.get())
    }

    fn group_cap(&self, group: usize) -> u64 {
        self.terms.policy.cap_around(Some(group_class(group as u32))).map_or(0, |cap| cap.get())
    }

    /// Compares what there is with what is due.
    fn look(&mut self) {
        let now = self.time();
        let mut held = vec![0u64; self.scale.applications as usize + 1];
        let mut of_groups = vec![0u64; self.scale.groups as usize];
        let (mut due, mut missing, mut served) = (0, 0, 0);
        for (gate, dues) in self.gates.iter().zip(&self.due) {
            for (place, own) in gate.places.iter().zip(dues) {
                let rate = gate.holder.rate(now, place.leaf).unwrap_or(0);
                held[place.leaf.app.0 as usize] += rate;
                if let Some(group) = self.scale.group(place.leaf.app.0) {
                    of_groups[group as usize] += rate;
                }
                due += own;
                missing += own.saturating_sub(rate);
                served += place.demand.min(rate);
            }
        }
        let is_over =
            |(app, held): (usize, &u64)| *held > self.terms.cap_of(self.scale.leaf(app as u32)).unwrap_or(0);
        self.report.excesses += held.iter().enumerate().skip(1).filter(|each| is_over(*each)).count() as u64;
        let are_over = of_groups.iter().enumerate().filter(|(group, held)| **held > self.group_cap(*group));
        self.report.excesses += are_over.count() as u64;
        self.report.excesses += u64::from(self.total().is_some_and(|total| held.iter().sum::<u64>() > total));
        let thousandths = served * 1000 / due.max(1);
        if (CHANGE..GONE).contains(&self.now) {
            if missing * 50 <= due {
                self.report.converged.get_or_insert(self.now - CHANGE);
            }
            self.report.served[0] = thousandths;
        } else if (GONE..BACK).contains(&self.now) {
            let least = if self.now < GONE + 100 * MS { 1000 } else { self.report.served[1] };
            self.report.served[1] = least.min(thousandths);
        } else if self.now >= BACK {
            self.report.served[2] = thousandths;
            if thousandths * 100 >= self.report.served[0] * 98 {
                self.report.recovered.get_or_insert(self.now - BACK);
            }
        }
        let next = if (GONE + 4 * SECOND..BACK).contains(&self.now) { SECOND } else { 50 * MS };
        self.agenda.plan(self.now + next, Event::Look);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn a_small_one_converges_and_exceeds_nothing() {
        for (groups, has_total) in [(0, false), (7, false), (0, true), (7, true)] {
            converges(&PolicyScale { groups, has_total, ..SMALL });
        }
    }

    #[test]
    fn who_divides_more_than_the_total_is_found() {
        let mut world = world(&PolicyScale { has_total: true, ..SMALL }, &|| 0);
        let total = world.total().and_then(|total| total.checked_mul(2)).and_then(NonZeroU64::new);
        let policy = Policy { total, ..world.terms.policy.clone() };
        world.allotter = Some(Allotter::new(Terms { policy, ..world.terms.clone() }, Time::ZERO));
        world.run();
        assert!(world.report.excesses > 0, "{}", world.report);
    }

    const SMALL: PolicyScale =
        PolicyScale { gates: 20, applications: 200, groups: 0, report_ms: 100, has_total: false, seed: 1 };

    fn converges(scale: &PolicyScale) {
        let report = run(scale, &|| 0);
        assert_eq!(report.excesses, 0, "{report}");
        assert!(report.converged.is_some_and(|after| after <= SECOND), "{report}");
        assert!(report.recovered.is_some_and(|after| after <= 3 * SECOND), "{report}");
        assert!(report.served[0] >= 980 && report.served[2] >= 980, "{report}");
        // Each gate then has the same part of every cap, also of those that are used elsewhere.
        assert!((1..report.served[0]).contains(&report.served[1]), "{report}");
    }
}
