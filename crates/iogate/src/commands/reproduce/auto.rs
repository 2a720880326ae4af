//! How good the automatic choice is: random mixes on random storage, against each candidate as a fixed scheduler, and AGIOS's situations.

mod situations;

use std::fmt::Write;

use iogate_core::auto::ring::COMPLETIONS_MIN;
use iogate_report::Table;
use iogate_report::html::lines::{Lines, Series, lines};
use iogate_report::reproduction::{Page, Section};
use iogate_sim::choice::again::{Again, PAUSE, ROUNDS};
use iogate_sim::choice::evaluate::{HARM, Judged, Known, MOMENT, Slowdowns};
use iogate_sim::choice::mix::{Mix, Set};
use iogate_sim::choice::phases::{Change, PERIODS};
use iogate_sim::choice::run::SLICE;
use iogate_sim::choice::saying::{Saying, WAYS, Word};
use iogate_sim::metrics::Unit;

use self::situations::{Goal, Situations};
use super::Lab;
use crate::commands::progress::each;
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

/// Mixes, and mixes with a change, of the whole form and of the quick one.
const MIXES: [usize; 2] = [160, 6];
const CHANGES: [usize; 2] = [60, 3];
/// What is to be reached: mean regret with a profile and without, the share of mixes and of applications that are harmed, the share of
/// the bounded best's gain that is kept, the share of the best rate after a change.
const REGRETS: [f64; 2] = [0.05, 0.10];
const HARMED_MIXES: f64 = 0.01;
const HARMED_APPS: f64 = 0.02;
const KEPT: f64 = 0.90;
const AFTER_CHANGE: f64 = 0.90;
/// How long a mix takes with `fifo` at least, in seconds, for which a moment is short.
const LONG_S: f64 = 5.0;
/// The columns of [`Judged::chosen`].
const COLUMNS: [&str; 2] = ["`auto` with a profile", "`auto` without a profile"];

/// The page, and what became of each mix as rows of CSV.
pub(super) fn page(lab: &Lab<'_>) -> Result<(Page, String), Failure> {
    let form = usize::from(lab.quick);
    // Whatever is improved is improved on the others.
    let set = if lab.quick { Set::Tuning } else { Set::Testing };
    let judged =
        each("auto, mixes", MIXES[form], lab.threads, |index| Judged::new(&Mix::random(set, index as u64)));
    let again = each("auto, again", MIXES[form], lab.threads, |index| Again::new(set, index as u64));
    let saying = each("auto, saying", MIXES[form], lab.threads, |index| Saying::new(set, index as u64));
    let changes = each("auto, changes", CHANGES[form], lab.threads, |index| Change::new(set, index as u64));
    let changes: Vec<Change> = changes.into_iter().flatten().collect();
    let situations = Situations::run(lab)?;
    // A small look is at what was improved on, so that nobody improves on the others.
    let stated = match set {
        Set::Testing => {
            "What the choice was improved on has no seed and no number in common with these (a test keeps that)."
        }
        Set::Tuning => {
            "These are some of the mixes that the choice was improved on: they do not tell how good it is."
        }
    };
    let page = Page {
        title: "How good the automatic choice is".into(),
        notes: vec![
            format!(
                "Random mixes of one to four applications on random storage: disks, arrays of disks, flash, memory, constant times, and \
                 storage of which only prices are known, with the rate that several in flight reach. Each mix is carried out in full with \
                 each candidate as a fixed scheduler, and with `auto`, in virtual time. {stated}"
            ),
            "An application's slowdown is the logarithm of its time over its time with `fifo`; a mix's is the mean over its applications. \
             Regret is what that is above the best fixed candidate's, as a percentage of time. *Bounded* is the best that makes no application \
             more than 10 % slower than `fifo`: who promises that cannot have more. Many of these serve one application before the others, and harm nobody because \
             that one is over soon: nobody can choose them who does not know how long applications are. *Sustained* is the best of the bounded ones that makes no \
             application slower either if none comes to an end while the mix takes. *Guarded* is the best of these and of what a guard makes of each \
             candidate: it is in force while no application is behind `fifo` by more than may be, else `fifo` is. The guard knows to the request what `fifo` would have carried out, \
             and only the best candidate counts: who chooses knows neither. Yet it does not know how long applications are, and that is what the rest of the gain takes. `auto` begins with `fifo`. With a profile it \
             goes by what other mixes gained after 32 completions; without one it knows nothing of a mix, so that a run of a few seconds is mostly over before it can have chosen."
                .into(),
        ],
        sections: vec![
            goals(&judged, &changes, situations.goals()),
            mixes(&judged),
            parts(&judged),
            moments(&judged),
            coming_again(&judged, &again),
            declared(&judged, &saying),
            phases(&changes),
            situations.section(),
        ],
        program: PROGRAM.into(),
    };
    Ok((page, rows(&judged)))
}

/// What one way of scheduling made of all mixes.
struct Sum {
    regret: f64,
    bounded: f64,
    kept: f64,
    mixes: usize,
    apps: usize,
    all_apps: usize,
    worst: f64,
}

impl Sum {
    fn of<'a>(judged: &'a [Judged], way: impl Fn(&'a Judged) -> &'a Slowdowns) -> Sum {
        let count = judged.len().max(1) as f64;
        let mean = |of: &dyn Fn(&'a Judged) -> f64| judged.iter().map(of).sum::<f64>() / count;
        let bounded = mean(&|of| of.best(true).1.mean());
        let this = mean(&|of| way(of).mean());
        Sum {
            regret: this - mean(&|of| of.best(false).1.mean()),
            bounded: this - bounded,
            kept: if bounded < 0.0 { this / bounded } else { 1.0 },
            mixes: judged.iter().filter(|of| way(of).harmed() > 0).count(),
            apps: judged.iter().map(|of| way(of).harmed()).sum(),
            all_apps: judged.iter().map(|of| way(of).0.len()).sum(),
            worst: judged.iter().map(|of| way(of).worst()).fold(1.0, f64::max),
        }
    }

    fn cells(&self, name: &str) -> [String; 7] {
        [
            name.into(),
            percent(self.regret.exp() - 1.0),
            percent(self.bounded.exp() - 1.0),
            percent(self.kept),
            self.mixes.to_string(),
            format!("{} of {}", self.apps, self.all_apps),
            format!("{:.2}x", self.worst),
        ]
    }
}

fn percent(share: f64) -> String {
    // Adding 0 makes 0 of -0.
    format!("{:.1} %", (share * 1_000.0).round() / 10.0 + 0.0)
}

fn goals(judged: &[Judged], changes: &[Change], situations: Vec<Goal>) -> Section {
    let mut table = Table::new(["measure", "goal", "with a profile", "", "without", ""]);
    let sums = [0, 1].map(|column| Sum::of(judged, |of| &of.chosen[column].0));
    let mixes = judged.len().max(1) as f64;
    let mut missed = Vec::new();
    let mut add = |what: &str, goal: String, of: [Option<(String, bool)>; 2]| {
        missed.extend(of.iter().flatten().any(|(_, met)| !met).then(|| what.to_owned()));
        let cells = of.into_iter().flat_map(|of| match of {
            Some((reached, met)) => [reached, if met { "met" } else { "not met" }.to_owned()],
            None => ["-", "-"].map(String::from),
        });
        table.row([what.to_owned(), goal].into_iter().chain(cells));
    };
    let mut row = |what: &str, goal: String, of: [(f64, bool); 2]| {
        add(what, goal, of.map(|(share, met)| Some((percent(share), met))));
    };
    let regret = |column: usize| {
        let regret = sums[column].regret.exp() - 1.0;
        (regret, regret <= REGRETS[column])
    };
    row(
        "mean regret",
        format!("at most {}, {} without", percent(REGRETS[0]), percent(REGRETS[1])),
        [regret(0), regret(1)],
    );
    let shares = |most: f64, of: &dyn Fn(&Sum) -> f64| {
        [0, 1].map(|column| (of(&sums[column]), of(&sums[column]) <= most))
    };
    let of_mixes = shares(HARMED_MIXES, &|sum| sum.mixes as f64 / mixes);
    row("mixes with harm", format!("at most {}", percent(HARMED_MIXES)), of_mixes);
    let of_apps = shares(HARMED_APPS, &|sum| sum.apps as f64 / sum.all_apps.max(1) as f64);
    row("applications harmed", format!("at most {}", percent(HARMED_APPS)), of_apps);
    let kept = [0, 1].map(|column| (sums[column].kept, sums[column].kept >= KEPT));
    row("gain of the bounded best kept", format!("at least {}", percent(KEPT)), kept);
    let after = [1, 2].map(|way| {
        let share = mean_share(changes, way, 3);
        (share, share >= AFTER_CHANGE)
    });
    row(
        "of the best rate, 2 to 4 s after a change of phase",
        format!("at least {}", percent(AFTER_CHANGE)),
        after,
    );
    // There a server knows what its device charges, and there is no other way.
    for Goal { what, goal, reached, met } in situations {
        add(&what, goal, [Some((reached, met)), None]);
    }
    Section {
        title: "What is to be reached".into(),
        scenarios: Vec::new(),
        paper: "The goals for an automatic choice, and what it reaches on these mixes and in AGIOS's situations, where servers know what their devices charge."
            .into(),
        tables: vec![(String::new(), table)],
        pictures: Vec::new(),
        verdict: match missed.is_empty() {
            true => "All of it is met.".into(),
            false => format!("Not met: {}.", missed.join("; ")),
        },
    }
}

fn mixes(judged: &[Judged]) -> Section {
    let header = ["", "regret", "against bounded", "gain kept", "mixes with harm", "applications", "worst"];
    let mut table = Table::new(header);
    let names = judged.first().map_or(&[][..], |of| &of.fixed);
    for (index, (name, _)) in names.iter().enumerate() {
        table.row(Sum::of(judged, |of| &of.fixed[index].1).cells(name));
    }
    table.row(Sum::of(judged, |of| &of.best(true).1).cells("bounded best"));
    let sustained = Sum::of(judged, |of| &of.best_sustained().1);
    table.row(sustained.cells("sustained best"));
    table.row(Sum::of(judged, |of| &of.best_guarded().1).cells("guarded best"));
    for (column, name) in COLUMNS.iter().enumerate() {
        table.row(Sum::of(judged, |of| &of.chosen[column].0).cells(name));
    }
    let worse = |column: usize| {
        let chosen = Sum::of(judged, |of| &of.chosen[column].0);
        let fixed = (0..names.len()).map(|index| Sum::of(judged, |of| &of.fixed[index].1));
        let (mut faster, mut safer) = (0, 0);
        for sum in fixed {
            faster += usize::from(sum.regret < chosen.regret);
            safer += usize::from(sum.mixes < chosen.mixes);
        }
        format!(
            "{}: {faster} of {} fixed schedulers have less regret, {safer} harm fewer mixes",
            COLUMNS[column],
            names.len()
        )
    };
    let gain = |way: &dyn Fn(&Judged) -> &Slowdowns| -judged.iter().map(|of| way(of).mean()).sum::<f64>();
    let [sustained, guarded] = [gain(&|of| &of.best_sustained().1), gain(&|of| &of.best_guarded().1)];
    let [with, without] = [0, 1].map(|column| gain(&|of| &of.chosen[column].0));
    Section {
        title: format!("{} random mixes", judged.len()),
        scenarios: Vec::new(),
        paper: format!(
            "Harm is an application that takes more than {:.0} % longer than with `fifo`. `auto.csv` has each mix.",
            (HARM - 1.0) * 100.0
        ),
        tables: vec![(String::new(), table)],
        pictures: Vec::new(),
        verdict: format!(
            "{}; {}. Of the gain of the sustained best, `auto` has {} with a profile and {} without, of that of the guarded best {} and {}; of that of the bounded best, the sustained best has {} and the guarded best {}.",
            worse(0),
            worse(1),
            percent(with / sustained),
            percent(without / sustained),
            percent(with / guarded),
            percent(without / guarded),
            percent(sustained / gain(&|of| &of.best(true).1)),
            percent(guarded / gain(&|of| &of.best(true).1)),
        ),
    }
}

/// Regret by what is behind the gate, and by how long there is to learn.
fn parts(judged: &[Judged]) -> Section {
    let header = ["", "mixes", "`fifo`", "bounded best", "with a profile", "harmed", "without", "harmed"];
    let mut table = Table::new(header);
    let mut row = |name: String, of: &dyn Fn(&Judged) -> bool| {
        let these: Vec<Judged> = judged.iter().filter(|judged| of(judged)).cloned().collect();
        let regret = |sum: &Sum| percent(sum.regret.exp() - 1.0);
        let chosen = [0, 1].map(|column| Sum::of(&these, |of| &of.chosen[column].0));
        table.row([
            name,
            these.len().to_string(),
            regret(&Sum::of(&these, |of| &of.fixed[0].1)),
            regret(&Sum::of(&these, |of| &of.best(true).1)),
            regret(&chosen[0]),
            chosen[0].mixes.to_string(),
            regret(&chosen[1]),
            chosen[1].mixes.to_string(),
        ]);
    };
    for kind in ["disk", "array", "flash", "memory", "constant", "priced"] {
        row(kind.into(), &|of| of.storage == kind);
    }
    for (from, to) in [(0.0, 1.0), (1.0, 5.0), (5.0, 15.0), (15.0, f64::INFINITY)] {
        let name = if to < 100.0 {
            format!("{from} to {to} s with `fifo`")
        } else {
            format!("longer than {from} s")
        };
        row(name, &|of| of.seconds >= from && of.seconds < to);
    }
    Section {
        title: "By storage, and by how long a mix takes".into(),
        scenarios: Vec::new(),
        paper: format!(
            "A window is at least {COMPLETIONS_MIN} completions and a quarter of a second; what is over before the first one cannot gain."
        ),
        tables: vec![("Mean regret, and mixes with harm".into(), table)],
        pictures: Vec::new(),
        verdict: format!(
            "{} of {} mixes take less than 5 s with `fifo`.",
            judged.iter().filter(|of| of.seconds < 5.0).count(),
            judged.len()
        ),
    }
}

/// What is harmed where nothing is chosen, and something else is in force for a moment.
fn moments(judged: &[Judged]) -> Section {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (from, span) = (seconds(MOMENT.0.as_nanos()), seconds(MOMENT.1.as_nanos()));
    let long: Vec<Judged> = judged.iter().filter(|of| of.seconds >= LONG_S).cloned().collect();
    let header = ["a moment of", "mixes with harm", "applications", "worst", "mean over mixes"];
    let mut table = Table::new(header);
    let names = judged.first().map_or(&[][..], |of| &of.disturbed);
    let mut most = 0;
    for (index, (name, _)) in names.iter().enumerate() {
        let sum = Sum::of(&long, |of| &of.disturbed[index].1);
        most = most.max(sum.mixes);
        let mean = long.iter().map(|of| of.disturbed[index].1.mean()).sum::<f64>() / long.len().max(1) as f64;
        table.row([
            name.clone(),
            sum.mixes.to_string(),
            format!("{} of {}", sum.apps, sum.all_apps),
            format!("{:.2}x", sum.worst),
            percent(mean.exp() - 1.0),
        ]);
    }
    let both = |column: usize| {
        let harmed = |of: &&Judged| of.chosen[column].0.harmed() > 0;
        let alike = |of: &&Judged| of.disturbed.iter().any(|(_, slowdowns)| slowdowns.harmed() > 0);
        let all = long.iter().filter(harmed).count();
        format!("{} of {all} of {}", long.iter().filter(harmed).filter(alike).count(), COLUMNS[column])
    };
    Section {
        title: "A moment of another scheduler".into(),
        scenarios: Vec::new(),
        paper: format!(
            "A control for harm: all is with `fifo`, but for {span} s from {from} s on, and nothing is chosen. Mixes that take at least {LONG_S} s \
             with `fifo`: what is lost in that moment itself is at most {} of them. Processes that wait for their requests come back in the order in \
             which they were served, and `fifo` keeps that order. So what a moment has mixed up stays mixed up: requests that came one behind the \
             other do not any more, and nothing that is chosen afterwards is the `fifo` that one compares with.",
            percent(span / LONG_S)
        ),
        tables: vec![(format!("{} mixes", long.len()), table)],
        pictures: Vec::new(),
        verdict: format!(
            "A moment of another scheduler harms up to {most} of {} mixes. Of those that a choice harms, a moment of one of these harms as well: {}, {}.",
            long.len(),
            both(0),
            both(1)
        ),
    }
}

/// What it is worth that applications end as they did before.
fn coming_again(judged: &[Judged], again: &[Again]) -> Section {
    let ways = [COLUMNS[0], "the same, expecting no ends", COLUMNS[1], "the same, expecting no ends"];
    // Until the third time nobody has had two bursts that are alike.
    let expected = 2..ROUNDS as usize;
    let bounded = -judged.iter().map(|of| of.best(true).1.mean()).sum::<f64>();
    let of = |way: usize, rounds: std::ops::Range<usize>| {
        let all = || again.iter().flat_map(|of| &of.ways[way][rounds.clone()]);
        let gain = -all().map(Slowdowns::mean).sum::<f64>() / rounds.len() as f64;
        let harmed = all().filter(|of| of.harmed() > 0).count();
        let worst = all().map(Slowdowns::worst).fold(1.0, f64::max);
        (if bounded > 0.0 { gain / bounded } else { 0.0 }, harmed, worst)
    };
    let mut table = Table::new(["", "first time", "second", "third and fourth", "harmed then", "worst then"]);
    for (way, name) in ways.iter().enumerate() {
        let (kept, harmed, worst) = of(way, expected.clone());
        table.row([
            (*name).into(),
            percent(of(way, 0..1).0),
            percent(of(way, 1..2).0),
            percent(kept),
            format!("{harmed} of {}", again.len() * expected.len()),
            format!("{worst:.2}x"),
        ]);
    }
    let [with, blind, without, blind_without] = [0, 1, 2, 3].map(|way| of(way, expected.clone()));
    Section {
        title: "Applications that come again".into(),
        scenarios: Vec::new(),
        paper: format!(
            "Each mix is carried out {ROUNDS} times, with {} s between. An application whose last two bursts were alike is expected to have another one of that size, \
             so from the third time on it is known when each ends, and small ones may go first where nobody is later in the end. Against the same round \
             with `fifo`; as shares of what the bounded best gains. The choice goes on from round to round: that alone is what the second and the fourth row show.",
            PAUSE.as_secs_f64()
        ),
        tables: vec![("Gain kept, and mixes with harm".into(), table)],
        pictures: Vec::new(),
        verdict: format!(
            "Where ends are expected {} of the bounded best's gain is kept with a profile, and {} without expecting them; without a profile {} and {}. \
             Mixes with harm: {} and {}; without a profile {} and {}.",
            percent(with.0),
            percent(blind.0),
            percent(without.0),
            percent(blind_without.0),
            with.1,
            blind.1,
            without.1,
            blind_without.1
        ),
    }
}

/// What it is worth that applications say how much they move.
fn declared(judged: &[Judged], saying: &[Saying]) -> Section {
    let bounded = -judged.iter().map(|of| of.best(true).1.mean()).sum::<f64>();
    let mut table =
        Table::new(["", "gain kept", "mixes with harm", "applications", "of them honest", "worst"]);
    let mut row = |name: String, of: &dyn Fn(usize) -> Slowdowns, honest: Option<usize>| {
        let all: Vec<Slowdowns> = (0..judged.len()).map(of).collect();
        let gain = -all.iter().map(Slowdowns::mean).sum::<f64>();
        let kept = if bounded > 0.0 { gain / bounded } else { 0.0 };
        let (mixes, apps) = (
            all.iter().filter(|of| of.harmed() > 0).count(),
            all.iter().map(Slowdowns::harmed).sum::<usize>(),
        );
        let worst = all.iter().map(Slowdowns::worst).fold(1.0, f64::max);
        let honest = honest.map_or_else(|| "-".into(), |count| count.to_string());
        table.row([name, percent(kept), mixes.to_string(), apps.to_string(), honest, format!("{worst:.2}x")]);
        (kept, mixes)
    };
    // Without, with the truth, and where half of them lie.
    let mut ways = [0, 1].map(|column| {
        let silent = row(COLUMNS[column].into(), &|mix| judged[mix].chosen[column].0.clone(), None);
        [silent; 3]
    });
    for (way, (known, lies)) in WAYS.iter().enumerate() {
        let column = usize::from(*known == Known::Nothing);
        let said = if *lies { "half of the applications lie" } else { "told the true sizes" };
        let honest = lies.then(|| saying.iter().map(|of| of.honest_harmed(way)).sum());
        ways[column][1 + usize::from(*lies)] =
            row(format!("{}, {said}", COLUMNS[column]), &|mix| saying[mix].ways[way].clone(), honest);
    }
    let words = || saying.iter().flat_map(|of| &of.words);
    let count = |word: Word| words().filter(|other| **other == word).count();
    let [with, without] = ways;
    Section {
        title: "Applications that say how much they move".into(),
        scenarios: Vec::new(),
        paper: format!(
            "The same {} mixes, carried out once; with `IOGATE_BURST` each application says how many bytes it moves in all, so that from its first request on it is \
             known when it ends. Where some lie, {} of {} applications say half of the truth and {} twice as much. As shares of what the bounded best gains; \
             *honest* are those that say the truth where others lie.",
            saying.len(),
            count(Word::Half),
            words().count(),
            count(Word::Twice)
        ),
        tables: vec![("Gain kept, and harm".into(), table)],
        pictures: Vec::new(),
        verdict: format!(
            "With a profile {} of the bounded best's gain is kept where sizes are said, {} where some lie, and {} where nobody says anything; without a profile {}, {} and {}. \
             Mixes with harm: {}, {} and {}; without a profile {}, {} and {}.",
            percent(with[1].0),
            percent(with[2].0),
            percent(with[0].0),
            percent(without[1].0),
            percent(without[2].0),
            percent(without[0].0),
            with[1].1,
            with[2].1,
            with[0].1,
            without[1].1,
            without[2].1,
            without[0].1
        ),
    }
}

/// The geometric mean over changes of what one way reaches in a period.
fn mean_share(changes: &[Change], way: usize, period: usize) -> f64 {
    let sum: f64 = changes.iter().map(|change| change.shares[way][period].ln()).sum();
    (sum / changes.len().max(1) as f64).exp()
}

fn phases(changes: &[Change]) -> Section {
    let seconds = |slices: usize| slices as f64 * SLICE.as_nanos() as f64 / 1e9;
    let mut table = Table::new([
        "since the change",
        "`fifo`",
        COLUMNS[0],
        "of mixes >= 90 %",
        COLUMNS[1],
        "of mixes >= 90 %",
    ]);
    let names = ["fifo", "with a profile", "without a profile"];
    let mut series = names.map(|name| Series { name: name.into(), points: Vec::new() });
    for (period, (from, to)) in PERIODS.iter().enumerate() {
        let reached = |way: usize| {
            let count = changes.iter().filter(|change| change.shares[way][period] >= AFTER_CHANGE).count();
            percent(count as f64 / changes.len().max(1) as f64)
        };
        let shares = [0, 1, 2].map(|way| mean_share(changes, way, period));
        let name = format!("{} to {} s", seconds(*from), seconds(*to));
        table.row([name, percent(shares[0]), percent(shares[1]), reached(1), percent(shares[2]), reached(2)]);
        for (line, share) in series.iter_mut().zip(shares) {
            line.points.push((seconds(*to), share, 0.0));
        }
    }
    let ticks = PERIODS.iter().map(|(_, to)| (seconds(*to), format!("{}", seconds(*to)))).collect();
    let picture = Lines {
        title: "Rate after a change, by that of the best fixed candidate".into(),
        x_label: "seconds since the change".into(),
        x_ticks: ticks,
        y_label: String::new(),
        unit: Unit::Ratio,
        series: series.into(),
    };
    let last = PERIODS.len() - 1;
    Section {
        title: "After a change of phase".into(),
        scenarios: Vec::new(),
        paper: "After 10 s all applications go over to another kind of requests, of another mix. What they get carried out, as a part of what \
                the best bounded candidate of that phase does in the same time since (geometric means over applications and mixes)."
            .into(),
        tables: vec![(format!("{} mixes with at most 120,000 requests", changes.len()), table)],
        pictures: vec![(picture.title.clone(), lines(&picture))],
        verdict: format!(
            "4 to 10 s after the change it is {} with a profile, {} without, {} with `fifo`.",
            percent(mean_share(changes, 1, last)),
            percent(mean_share(changes, 2, last)),
            percent(mean_share(changes, 0, last))
        ),
    }
}

/// One row a mix.
fn rows(judged: &[Judged]) -> String {
    let mut out = "mix,storage,seconds_with_fifo,way,mean_ln,worst,harmed,apps,changes\n".to_owned();
    for (index, of) in judged.iter().enumerate() {
        let mut row = |way: &str, slowdowns: &Slowdowns, changes: usize| {
            let Judged { storage, seconds, .. } = of;
            let (mean, worst) = (slowdowns.mean() + 0.0, slowdowns.worst());
            let (harmed, apps) = (slowdowns.harmed(), slowdowns.0.len());
            writeln!(
                out,
                "{index},{storage},{seconds:.3},\"{way}\",{mean:.4},{worst:.3},{harmed},{apps},{changes}"
            )
            .expect("text grows");
        };
        for (name, slowdowns) in &of.fixed {
            row(name, slowdowns, 0);
        }
        row("guarded best", &of.best_guarded().1, 0);
        for (name, slowdowns) in &of.disturbed {
            row(&format!("a moment of {name}"), slowdowns, 2);
        }
        for (name, (slowdowns, ran)) in
            ["auto with a profile", "auto without a profile"].iter().zip(&of.chosen)
        {
            row(name, slowdowns, ran.switches.len());
        }
    }
    out
}
