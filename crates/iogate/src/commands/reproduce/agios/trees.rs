//! Section 4 and tables IV to VI: decision trees with the paper's features, learnt from our own situations.

use iogate_report::Table;
use iogate_report::claims::{Interval, Tolerance};
use iogate_sim::tree::{Example, Feature, Kind, Options, Tree, errors, folds, predict_held_out};

use super::samples::{Outcome, Samples};
use super::situations::{Seen, Situation, Situations};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::figure::Figure;

/// How often the examples are dealt out to ten folds, each time with another seed.
pub(super) const DEALINGS: u64 = 10;
/// How far a share of situations may be from the paper's, in percentage points.
const SHARE_POINTS: f64 = 5.0;

/// Attributes 1 to 6 of the paper, in its order.
const FEATURES: [(&str, Kind); 6] = [
    ("operation", Kind::Category(2)),
    ("files", Kind::Number),
    ("bytes of a file", Kind::Number),
    ("spatiality", Kind::Category(2)),
    ("request size", Kind::Category(2)),
    ("sequential to random", Kind::Number),
];

/// A subset of the features.
struct Variant {
    name: &'static str,
    uses: &'static [usize],
    /// Whether files have the sizes of the paper's table VI instead of ours.
    published_sizes: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "T1", uses: &[0, 1, 2, 3, 4, 5], published_sizes: false },
    Variant { name: "T1, sizes of table VI", uses: &[0, 1, 2, 3, 4, 5], published_sizes: true },
    Variant { name: "T2", uses: &[0, 1, 3, 4, 5], published_sizes: false },
    Variant { name: "T3", uses: &[0, 3, 4, 5], published_sizes: false },
];

/// A tree, and what trees like it say of what they have not seen: a class for each situation.
pub(super) struct Learnt {
    pub(super) name: &'static str,
    features: Vec<Feature>,
    tree: Tree,
    examples: Vec<Example>,
    pub(super) trained: Vec<usize>,
    /// For each dealing.
    pub(super) ten_fold: Vec<Vec<usize>>,
    /// Learnt from the other number of processes.
    other_processes: Option<Vec<usize>>,
    /// Whether the trees of either number of processes are the same.
    same_trees: Option<bool>,
    /// Learnt from the other devices.
    pub(super) other_devices: Option<Vec<usize>>,
}

impl Learnt {
    fn new(variant: &Variant, situations: &Situations, dealings: u64) -> Learnt {
        let options = Options::default();
        let features: Vec<Feature> = (variant.uses.iter())
            .map(|&index| Feature { name: FEATURES[index].0.into(), kind: FEATURES[index].1 })
            .collect();
        let examples: Vec<Example> = (situations.all.iter())
            .map(|situation| Example { values: variant.values(&situation.seen), class: situation.right })
            .collect();
        let learn = |of: &dyn Fn(&Situation) -> bool| {
            let chosen = situations.all.iter().zip(&examples).filter(|(situation, _)| of(situation));
            Tree::learn(&features, &chosen.map(|(_, example)| example).collect::<Vec<_>>(), &options)
        };
        let tree = learn(&|_| true);
        let held_out = |groups: &[usize]| predict_held_out(&features, &examples, groups, &options);
        let ten_fold = (1..=dealings).map(|seed| held_out(&folds(&examples, 10, seed))).collect();
        let by = |key: &dyn Fn(&Situation) -> String| {
            let keys: Vec<String> = situations.all.iter().map(key).collect();
            let mut groups = keys.clone();
            groups.sort();
            groups.dedup();
            let group = |key| groups.iter().position(|group| group == key).unwrap_or(0);
            (groups.len() > 1).then(|| held_out(&keys.iter().map(group).collect::<Vec<_>>()))
        };
        let other_processes = by(&|situation| situation.processes.to_string());
        let with = |processes| learn(&move |situation: &Situation| situation.processes == processes);
        let same_trees = other_processes.as_ref().map(|_| with(8) == with(16));
        let other_devices = by(&|situation| situation.device.clone());
        let trained = examples.iter().map(|example| tree.classify(&example.values)).collect();
        let name = variant.name;
        Learnt {
            name,
            features,
            tree,
            examples,
            trained,
            ten_fold,
            other_processes,
            same_trees,
            other_devices,
        }
    }

    /// The share that is wrong, in percent, of the situations that `of` picks.
    fn wrong(
        &self,
        predicted: &[usize],
        situations: &Situations,
        of: impl Fn(&Situation) -> bool,
    ) -> Option<f64> {
        let picked = situations.all.iter().zip(self.examples.iter().zip(predicted));
        let picked: Vec<bool> = picked
            .filter(|(situation, _)| of(situation))
            .map(|(_, (example, class))| example.class != *class)
            .collect();
        let wrong = picked.iter().filter(|wrong| **wrong).count();
        (!picked.is_empty()).then(|| 100.0 * wrong as f64 / picked.len() as f64)
    }

    /// The shares that are wrong in each dealing: mean, lowest, highest.
    fn ten_fold_errors(&self) -> Option<[f64; 3]> {
        let share = |predicted: &Vec<usize>| {
            100.0 * errors(&self.examples, predicted) as f64 / self.examples.len() as f64
        };
        let shares: Vec<f64> = self.ten_fold.iter().map(share).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let (low, high) = crate::commands::reproduce::span(shares.into_iter())?;
        (!self.examples.is_empty()).then_some([mean, low, high])
    }

    fn asks_for_all(&self) -> bool {
        (0..self.features.len()).all(|feature| self.tree.asks_for(feature))
    }
}

impl Variant {
    fn values(&self, seen: &Seen) -> Vec<f64> {
        let bytes = if self.published_sizes { seen.published_file_bytes } else { seen.file_bytes };
        let all = [
            f64::from(u8::from(seen.write)),
            f64::from(seen.files),
            bytes as f64,
            f64::from(u8::from(seen.contiguous)),
            f64::from(u8::from(seen.large)),
            seen.sequential_to_random,
        ];
        self.uses.iter().map(|&index| all[index]).collect()
    }
}

/// The paper's three, and T1 with the paper's sizes.
pub(super) fn learn(situations: &Situations, dealings: u64) -> Vec<Learnt> {
    VARIANTS.iter().map(|variant| Learnt::new(variant, situations, dealings)).collect()
}

pub(super) fn figures<'a>(results: &'a [Experiment], samples: &Samples) -> Vec<Figure<'a>> {
    let figures =
        [learnt(&samples.whole), correct(samples), by_processes(samples), sizes(&samples.whole.situations)];
    figures.into_iter().map(|figure| Figure { results: results.iter().collect(), ..figure }).collect()
}

fn figure(
    title: &str,
    setup: &str,
    sheet: Sheet,
    tables: Vec<(String, Table)>,
    remarks: &str,
) -> Figure<'static> {
    Figure {
        title: title.into(),
        setup: setup.into(),
        sheet,
        tables,
        remarks: remarks.into(),
        ..Figure::default()
    }
}

fn learnt(whole: &Outcome) -> Figure<'static> {
    let Outcome { situations, trees, .. } = whole;
    let mut sheet = Sheet::of("section 4");
    for (name, rate, nodes, leaves) in
        [("T1", 8.85, 53u32, 27u32), ("T2", 8.33, 53, 27), ("T3", 30.21, 17, 9)]
    {
        let Some(tree) = whole.tree(name) else { continue };
        let ours = tree.ten_fold_errors().map(|[mean, low, high]| Interval { low, mean, high });
        sheet.percent(format!("{name}, ten-fold, misclassified"), rate, ours, SHARE_POINTS);
        let size = Tolerance::Percent(10.0);
        let exact = |count: usize| Some(Interval::exact(count as f64));
        sheet.number(format!("{name}, nodes"), nodes.into(), "", exact(tree.tree.nodes()), size);
        sheet.number(format!("{name}, leaves"), leaves.into(), "", exact(tree.tree.leaves()), size);
        if name != "T3" {
            sheet.fact(format!("{name} asks for all its features"), true, Some(tree.asks_for_all()));
        }
    }
    let mut devices: Vec<&str> = situations.all.iter().map(|situation| situation.device.as_str()).collect();
    devices.dedup();
    let header = ["", "training", "ten-fold (lowest to highest)", "leave one device out"].map(String::from);
    let mut table =
        Table::new(header.into_iter().chain(devices.iter().map(|name| format!("{name} left out"))));
    let shown = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.1} %"));
    for tree in trees {
        let ten_fold = tree.ten_fold_errors();
        let left_out = |device: Option<&str>| {
            let of = |situation: &Situation| device.is_none_or(|device| situation.device == device);
            shown(tree.other_devices.as_ref().and_then(|predicted| tree.wrong(predicted, situations, of)))
        };
        let first = [
            tree.name.to_owned(),
            shown(tree.wrong(&tree.trained, situations, |_| true)),
            ten_fold.map_or("-".into(), |[mean, low, high]| format!("{mean:.1} % ({low:.1} to {high:.1})")),
            left_out(None),
        ];
        table.row(first.into_iter().chain(devices.iter().map(|device| left_out(Some(device)))));
    }
    let caption = format!("Misclassified, of {} situations", situations.all.len());
    figure(
        "Section 4: decision trees",
        "The paper learns with J48 (Weka's C4.5) from one entry for each situation: operation, files, bytes of a file at a server, spatiality, \
         small or large requests, the device's sequential-to-random ratio, and as the right answer what its table III says. T1 has all of \
         these, T2 all but the bytes, T3 neither bytes nor files.",
        sheet,
        vec![(caption, table)],
        "Ours are learnt by the same algorithm with J48's defaults from what our own table III says. The ratio is that of the modelled device for \
         messages of the scenario's size. Ten-fold is the mean of ten dealings, each stratified and with a seed of its own. The two numbers of \
         processes of a pattern have the same right answer, and differ in the files or their size only: in ten-fold one of them is nearly always \
         there to learn the other from. A device that is left out is like a new one: nobody has tried anything on it.",
    )
}

/// Table IV; `where_` stands before each claim.
pub(super) fn correct_of(sheet: &mut Sheet, where_: &str, samples: &Samples) {
    let share = |right: usize, of: &Outcome| {
        let total = of.situations.all.len();
        (total > 0).then(|| 100.0 * right as f64 / total as f64)
    };
    let right = |of: &Outcome, scheduler: usize| {
        of.situations.all.iter().filter(|situation| situation.right == scheduler).count()
    };
    for (what, name, rate) in [("aIOLi only", "aioli", 31.0), ("SJF only", "sjf", 48.0)] {
        let always = |of: &Outcome| share(right(of, of.situations.scheduler(name)?), of);
        sheet.percent(format!("{where_}{what}"), rate, samples.share(always), SHARE_POINTS);
    }
    for (name, rate) in [("T1", 100.0), ("T2", 100.0), ("T3", 73.0)] {
        let trained = |of: &Outcome| {
            let tree = of.tree(name)?;
            share(tree.examples.len() - errors(&tree.examples, &tree.trained), of)
        };
        sheet.percent(format!("{where_}{name}"), rate, samples.share(trained), SHARE_POINTS);
    }
}

/// How often each is the right answer.
pub(super) fn answers(samples: &Samples) -> Table {
    let situations = &samples.whole.situations;
    let right = |scheduler| situations.all.iter().filter(|situation| situation.right == scheduler).count();
    let mut table = Table::new(["right answer", "situations"]);
    for (index, name) in situations.schedulers.iter().enumerate() {
        let name = if index == 0 { "none" } else { name };
        table.row([name.to_owned(), right(index).to_string()]);
    }
    table
}

fn correct(samples: &Samples) -> Figure<'static> {
    let mut sheet = Sheet::of("table IV");
    correct_of(&mut sheet, "", samples);
    figure(
        "Table IV: correct selections",
        "The paper counts how often each solution selects what its table III says, on the situations that the trees were learnt from.",
        sheet,
        vec![("What our table III says".into(), answers(samples))],
        "These are training figures: they say how much the features tell apart, not what a tree would do elsewhere.",
    )
}

fn by_processes(samples: &Samples) -> Figure<'static> {
    let mut sheet = Sheet::of("table V");
    let wrong = |of: &Outcome, name: &str, learnt_from: u32| {
        let tree = of.tree(name)?;
        let predicted = tree.other_processes.as_ref()?;
        tree.wrong(predicted, &of.situations, |situation| situation.processes != learnt_from)
    };
    let published = [
        ("T1", 18.75, 5.21),
        ("T1, sizes of table VI", 18.75, 5.21),
        ("T2", 5.21, 5.21),
        ("T3", 26.04, 26.04),
    ];
    for (name, with_8, with_16) in published {
        for (processes, rate) in [(8, with_8), (16, with_16)] {
            sheet.percent(
                format!("{name}, learnt with {processes} processes"),
                rate,
                samples.share(|of| wrong(of, name, processes)),
                SHARE_POINTS,
            );
        }
        if matches!(name, "T2" | "T3") {
            let same = samples.whole.tree(name).and_then(|tree| tree.same_trees);
            sheet.fact(format!("{name} is the same tree from both"), true, same);
        }
    }
    figure(
        "Table V: learnt with 8 processes, tested with 16, and the other way",
        "The paper learns each tree from the situations of one number of processes and classifies those of the other. T1 of 8 processes misreads \
         the sizes of files.",
        sheet,
        Vec::new(),
        "What T1 learns from sizes depends on what they are: files of a process are smaller here than the paper's (table VI), so it is learnt \
         with the paper's sizes, too.",
    )
}

fn sizes(situations: &Situations) -> Figure<'static> {
    const MIB: f64 = 1048576.0;
    let mut sheet = Sheet::of("table VI");
    let published = [
        (8, [(false, false, 128.0), (false, true, 256.0), (true, false, 128.0), (true, true, 128.0)]),
        (16, [(false, false, 256.0), (false, true, 256.0), (true, false, 256.0), (true, true, 128.0)]),
    ];
    for (processes, columns) in published {
        for (several, per_process, size) in columns {
            let is = |situation: &&Situation| {
                situation.processes == processes
                    && situation.seen.several == several
                    && situation.seen.per_process == per_process
            };
            let ours = situations.all.iter().find(is).map(|situation| situation.seen.file_bytes as f64 / MIB);
            let apps = if several { "four applications" } else { "one application" };
            let sharing = if per_process { "a file each" } else { "a shared file" };
            sheet.number(
                format!("{apps}, {sharing}, {processes} processes"),
                size,
                " MB",
                ours.map(Interval::exact),
                Tolerance::Percent(5.0),
            );
        }
    }
    figure(
        "Table VI: sizes of files at a server",
        "The paper's attribute 3.",
        sheet,
        Vec::new(),
        "The scenario says how large our files are; its notes say why.",
    )
}
