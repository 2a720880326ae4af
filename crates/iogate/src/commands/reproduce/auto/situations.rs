//! The situations of AGIOS's page, with the automatic choice beside its fixed schedulers: applications over several striped servers,
//! each of which chooses for itself, and devices from which no table was learnt.

use anyhow::Context;
use iogate_report::Table;
use iogate_report::reproduction::Section;
use iogate_sim::choice::evaluate::HARM;
use iogate_sim::scenario::Plan;
use iogate_sim::world::simulate;

use super::{KEPT, percent};
use crate::commands::progress::each;
use crate::commands::reproduce::Lab;
use crate::commands::reproduce::agios::{BASE, DEVICE, SCHEDULER};
use crate::commands::scenario::{built_in_plan, built_in_plan_of};
use crate::failure::Failure;

const SCENARIO: &str = "agios";
const AUTO: &str = "auto";
const SEED: u64 = 1;
/// As far from the best is as good as the best.
const WITHIN: f64 = 0.05;
/// What is to be reached: the share of situations that are as good as the best, mean regret, how many may be harmed, and the longest
/// time over that with `fifo`. What is to be kept of the gain is as on random mixes.
const SHARE: f64 = 0.90;
const REGRET: f64 = 0.03;
const HARMED: usize = 2;
const WORST: f64 = 1.15;

/// How long one situation takes.
struct Situation {
    device: String,
    /// Seconds with each fixed scheduler, in the order of [`Situations::schedulers`].
    fixed: Vec<f64>,
    auto: f64,
}

impl Situation {
    /// With [`BASE`].
    fn base(&self) -> f64 {
        self.fixed[0]
    }

    fn best(&self) -> f64 {
        self.fixed.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

pub(super) struct Situations {
    /// The fixed ones, [`BASE`] first.
    schedulers: Vec<String>,
    servers: u32,
    all: Vec<Situation>,
}

/// A goal, what was reached, and whether that is enough.
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) goal: String,
    pub(super) reached: String,
    pub(super) met: bool,
}

/// What one way of scheduling made of some situations.
struct Sum {
    situations: usize,
    /// The share of them in which it is as good as the best fixed one.
    near: f64,
    regret: f64,
    harmed: usize,
    /// The longest time over that with [`BASE`].
    worst: f64,
    /// The share of the best fixed ones' gain.
    kept: f64,
}

impl Sum {
    fn of<'a>(these: impl IntoIterator<Item = &'a Situation>, time: impl Fn(&Situation) -> f64) -> Sum {
        let mut sum = Sum { situations: 0, near: 0.0, regret: 0.0, harmed: 0, worst: 1.0, kept: 1.0 };
        let (mut gain, mut best_gain) = (0.0, 0.0);
        for of in these {
            let (time, best, base) = (time(of), of.best(), of.base());
            let regret = time / best - 1.0;
            sum.situations += 1;
            sum.near += f64::from(u8::from(regret <= WITHIN));
            sum.regret += regret;
            sum.harmed += usize::from(time / base > HARM);
            sum.worst = sum.worst.max(time / base);
            gain += (base / time).ln();
            best_gain += (base / best).ln();
        }
        let count = sum.situations.max(1) as f64;
        sum.near /= count;
        sum.regret /= count;
        if best_gain > 0.0 {
            sum.kept = gain / best_gain;
        }
        sum
    }

    fn cells(&self, name: &str) -> [String; 6] {
        [
            name.into(),
            percent(self.near),
            percent(self.regret),
            format!("{} of {}", self.harmed, self.situations),
            times(self.worst),
            percent(self.kept),
        ]
    }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

fn header() -> [String; 6] {
    let within = format!("within {:.0} % of the best", WITHIN * 100.0);
    ["".into(), within, "mean regret".into(), "with harm".into(), "worst".into(), "gain kept".into()]
}

impl Situations {
    pub(super) fn run(lab: &Lab<'_>) -> Result<Situations, Failure> {
        let axes = built_in_plan(SCENARIO, lab.quick)?.axes;
        let fixed = axes.into_iter().find(|axis| axis.key == SCHEDULER).map(|axis| axis.values);
        let mut schedulers = fixed.unwrap_or_default();
        schedulers.sort_by_key(|name| name != BASE);
        let with_auto: Vec<&str> = schedulers.iter().map(String::as_str).chain([AUTO]).collect();
        let plan = built_in_plan_of(SCENARIO, &[format!("{SCHEDULER}={with_auto:?}")], lab.quick)?;
        let times = each("auto, AGIOS's situations", plan.points.len(), lab.threads, |index| {
            simulate(&plan.points[index].scenario, SEED, &mut ())
        });
        let mut seconds = Vec::new();
        for (point, done) in plan.points.iter().zip(times) {
            let done = done.with_context(|| format!("{SCENARIO}: {}", point.label()))?;
            seconds.push(done.makespan.as_secs_f64());
        }
        Ok(Situations::new(&plan, schedulers, &seconds))
    }

    /// Of the times of a plan's points. A situation that lacks one is left out.
    fn new(plan: &Plan, schedulers: Vec<String>, seconds: &[f64]) -> Situations {
        // A situation is what is set beside the scheduler: points of one differ in nothing else.
        let without = |index: usize| {
            let settings = &plan.points[index].settings;
            settings.iter().filter(|(key, _)| key != SCHEDULER).collect::<Vec<_>>()
        };
        let set = |index: usize, key: &str| {
            let settings = &plan.points[index].settings;
            settings.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        };
        let points = || 0..plan.points.len().min(seconds.len());
        let found = points().filter(|&index| set(index, SCHEDULER) == Some(AUTO)).filter_map(|auto| {
            let of = without(auto);
            let same: Vec<usize> = points().filter(|&index| without(index) == of).collect();
            let time = |name: &String| {
                let index = same.iter().find(|&&index| set(index, SCHEDULER) == Some(name))?;
                Some(seconds[*index])
            };
            Some(Situation {
                device: set(auto, DEVICE)
                    .unwrap_or(&plan.points[auto].scenario.cluster.servers.device)
                    .into(),
                fixed: schedulers.iter().map(time).collect::<Option<_>>()?,
                auto: seconds[auto],
            })
        });
        let all = found.collect();
        let servers = plan.points.first().map_or(0, |point| point.scenario.cluster.servers.nodes);
        Situations { schedulers, servers, all }
    }

    fn chosen(&self) -> Sum {
        Sum::of(&self.all, |of| of.auto)
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        let sum = self.chosen();
        let goal = |what: &str, goal: String, reached: String, met: bool| Goal {
            what: format!("AGIOS's situations: {what}"),
            goal,
            reached,
            met,
        };
        vec![
            goal(
                &format!("within {:.0} % of the best", WITHIN * 100.0),
                format!("at least {}", percent(SHARE)),
                percent(sum.near),
                sum.near >= SHARE,
            ),
            goal(
                "mean regret",
                format!("at most {}", percent(REGRET)),
                percent(sum.regret),
                sum.regret <= REGRET,
            ),
            goal("with harm", format!("at most {HARMED}"), sum.harmed.to_string(), sum.harmed <= HARMED),
            goal("worst", format!("at most {}", times(WORST)), times(sum.worst), sum.worst <= WORST),
            goal("gain kept", format!("at least {}", percent(KEPT)), percent(sum.kept), sum.kept >= KEPT),
        ]
    }

    pub(super) fn section(&self) -> Section {
        let mut ways = Table::new(header());
        let sums = || (0..self.schedulers.len()).map(|index| Sum::of(&self.all, |of| of.fixed[index]));
        for (name, sum) in self.schedulers.iter().zip(sums()) {
            ways.row(sum.cells(name));
        }
        let chosen = self.chosen();
        ways.row(chosen.cells(&format!("`{AUTO}`")));
        let mut devices: Vec<&str> = Vec::new();
        for situation in &self.all {
            if !devices.contains(&situation.device.as_str()) {
                devices.push(&situation.device);
            }
        }
        let mut by_device = Table::new(header());
        for device in devices {
            let these = self.all.iter().filter(|of| of.device == device);
            by_device.row(Sum::of(these, |of| of.auto).cells(device));
        }
        let better = |is: &dyn Fn(&Sum) -> bool| sums().filter(is).count();
        Section {
            title: "AGIOS's situations".into(),
            scenarios: vec![SCENARIO.into()],
            paper: format!(
                "{} situations of [AGIOS's page](agios.md), one application or four over {} striped servers, are carried out once each (seed {SEED}) with each of that page's schedulers \
                 and with `{AUTO}`; no table is learnt from these devices, but one rule of the choice (what spares the storage) was found on these situations; servers choose for themselves and do not talk. Each knows what its device charges, but not what other mixes gained by. \
                 Regret is the time over that with the best fixed scheduler, less 1, as a mean; harm is a time that is more than {:.0} % longer than with `{BASE}`, and the worst is the longest by that; \
                 what is kept of the gain is the logarithms of the time with `{BASE}` over this one, summed, over those of the best fixed schedulers.",
                self.all.len(),
                self.servers,
                (HARM - 1.0) * 100.0
            ),
            tables: vec![
                ("Each scheduler for all of them, and the choice".into(), ways),
                (format!("`{AUTO}` by device"), by_device),
            ],
            pictures: Vec::new(),
            verdict: format!(
                "Of {} fixed schedulers, {} are as near to the best more often than `{AUTO}`, {} have less regret, and {} harm fewer situations.",
                self.schedulers.len(),
                better(&|sum| sum.near > chosen.near),
                better(&|sum| sum.regret < chosen.regret),
                better(&|sum| sum.harmed < chosen.harmed)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(device: &str, fixed: [f64; 2], auto: f64) -> Situation {
        Situation { device: device.into(), fixed: fixed.into(), auto }
    }

    fn by_hand(all: Vec<Situation>) -> Situations {
        Situations { schedulers: vec![BASE.into(), "sjf".into()], servers: 4, all }
    }

    #[test]
    fn one_at_the_best_and_one_harmed_are_counted_as_such() {
        let situations =
            by_hand(vec![situation("disk", [2.0, 1.0], 1.0), situation("flash", [1.0, 2.0], 1.25)]);
        let close = |one: f64, other: f64| (one - other).abs() < 1e-12;
        let sum = situations.chosen();
        assert_eq!((sum.situations, sum.harmed), (2, 1));
        assert!(close(sum.near, 0.5) && close(sum.regret, 0.125) && close(sum.worst, 1.25));
        assert!(close(sum.kept, 1.0 - 1.25f64.ln() / 2.0f64.ln()), "{}", sum.kept);
        let base = Sum::of(&situations.all, Situation::base);
        assert_eq!((base.harmed, base.worst, base.kept), (0, 1.0, 0.0));
        assert!(close(base.near, 0.5) && close(base.regret, 0.5));

        let met: Vec<bool> = situations.goals().iter().map(|goal| goal.met).collect();
        assert_eq!(met, [false, false, true, false, false]);
        let section = situations.section();
        let by_device = section.tables[1].1.markdown();
        assert!(by_device.contains("| disk | 100.0 % | 0.0 % | 0 of 1 | 1.00x | 100.0 % |"), "{by_device}");
        // With flash the best is `fifo`: there is no gain to keep.
        assert!(by_device.contains("| flash | 0.0 % | 25.0 % | 1 of 1 | 1.25x | 100.0 % |"), "{by_device}");
        let said = "Of 2 fixed schedulers, 0 are as near to the best more often than `auto`, 0 have less regret, and 1 harm fewer situations.";
        assert_eq!(section.verdict, said);
    }

    #[test]
    fn what_is_the_best_everywhere_meets_all_goals() {
        let situations = by_hand(vec![situation("disk", [2.0, 1.0], 1.0)]);
        assert!(situations.goals().iter().all(|goal| goal.met));
    }

    #[test]
    fn points_of_one_situation_are_found_whatever_their_order() {
        let schedulers = [AUTO, "sjf", BASE];
        let plan = built_in_plan_of(SCENARIO, &[format!("{SCHEDULER}={schedulers:?}")], true).unwrap();
        let seconds: Vec<f64> = (0..plan.points.len()).map(|index| 1.0 + index as f64).collect();
        let found = Situations::new(&plan, vec![BASE.into(), "sjf".into()], &seconds);
        assert_eq!(found.all.len() * schedulers.len(), plan.points.len());
        let at = |index: usize, name: &str| {
            let settings = &plan.points[index].settings;
            settings.iter().any(|(key, value)| key == SCHEDULER && value == name)
        };
        for of in &found.all {
            let index = |time: f64| time as usize - 1;
            assert!(
                at(index(of.auto), AUTO) && at(index(of.fixed[0]), BASE) && at(index(of.fixed[1]), "sjf")
            );
            assert_eq!(of.device, plan.points[index(of.auto)].scenario.cluster.servers.device);
        }
    }
}
