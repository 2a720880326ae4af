//! The paper's situations: what is seen of each at a server, how long each scheduler takes, and which is the right one.

use std::collections::BTreeMap;

use iogate_core::Op;
use iogate_core::device::sequential_to_random_ratio;
use iogate_sim::scenario::{Pattern, Plan, Point, Sharing};

use iogate_report::claims::Interval;

use super::{BASE, DEVICE, OP, PATTERN, PROCESSES, SCHEDULER, SIGNIFICANT};
use crate::commands::reproduce::Settings;
use crate::commands::reproduce::claims::Cell;

/// Time with some settings over time with others, seed by seed, if there are results of both.
pub(super) type Ratio<'a> = dyn Fn(&Settings<'_>, &Settings<'_>) -> Option<Cell> + 'a;

/// The paper's numbers of processes in tables III to VII.
const COUNTED: [u32; 2] = [8, 16];

/// All situations that the results have.
pub(super) struct Situations {
    /// [`BASE`], which stands for none, and the others.
    pub(super) schedulers: Vec<String>,
    pub(super) all: Vec<Situation>,
}

/// One of the paper's 192: a pattern on a device by so many processes.
#[derive(Clone)]
pub(super) struct Situation {
    pub(super) device: String,
    pub(super) op: String,
    pub(super) pattern: String,
    pub(super) processes: u32,
    pub(super) seen: Seen,
    /// Time with each scheduler over time without one, seed by seed.
    by_seed: Vec<Cell>,
    /// Its mean for each scheduler.
    pub(super) ratios: Vec<Interval>,
    /// The scheduler that table III names, of the pattern on the device whatever the processes, and how much it gains.
    pub(super) right: usize,
    pub(super) gain: f64,
}

/// What the paper's trees are told: attributes 1 to 6.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) write: bool,
    pub(super) files: u32,
    /// Bytes of each file at a server.
    pub(super) file_bytes: u64,
    /// The same in the paper's experiments (table VI).
    pub(super) published_file_bytes: u64,
    pub(super) contiguous: bool,
    pub(super) large: bool,
    pub(super) sequential_to_random: f64,
    /// Whether several applications run, and whether each process has a file: what table VI distinguishes.
    pub(super) several: bool,
    pub(super) per_process: bool,
}

impl Situations {
    /// The situations of a plan, with the times that `ratio` knows. Those without a time for each scheduler are left out.
    pub(super) fn new(plan: &Plan, ratio: &Ratio<'_>) -> Situations {
        let values =
            |key: &str| plan.axes.iter().find(|axis| axis.key == key).map(|axis| axis.values.clone());
        let mut schedulers = values(SCHEDULER).unwrap_or_default();
        schedulers.sort_by_key(|name| name != BASE);
        let mut ratios = Ratios::new();
        let all = plan
            .points
            .iter()
            .filter_map(|point| Situation::of(point, &schedulers, ratio, &mut ratios))
            .collect();
        Situations { schedulers, all }.chosen()
    }

    /// With what table III says of them.
    fn chosen(mut self) -> Situations {
        for index in 0..self.all.len() {
            let (right, gain) = choice(&self.all, &self.all[index]);
            (self.all[index].right, self.all[index].gain) = (right, gain);
        }
        self
    }

    /// How many seeds all of them have.
    pub(super) fn seeds(&self) -> usize {
        self.cells().map(Cell::seeds).min().unwrap_or(0)
    }

    /// Of what confidence the intervals are.
    pub(super) fn level(&self) -> f64 {
        self.cells().next().map_or(0.0, Cell::level)
    }

    /// As they are without one of the seeds, with what table III says then.
    pub(super) fn without(&self, seed: usize) -> Situations {
        let less = |situation: &Situation| {
            let by_seed: Vec<Cell> = situation.by_seed.iter().map(|cell| cell.without(seed)).collect();
            let ratios = by_seed.iter().map(Cell::geometric).collect::<Option<_>>()?;
            Some(Situation { by_seed, ratios, ..situation.clone() })
        };
        let all = self.all.iter().filter_map(less).collect();
        Situations { schedulers: self.schedulers.clone(), all }.chosen()
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.all.iter().flat_map(|situation| &situation.by_seed)
    }

    /// The number of a scheduler.
    pub(super) fn scheduler(&self, name: &str) -> Option<usize> {
        self.schedulers.iter().position(|other| other == name)
    }
}

impl Situation {
    fn of(
        point: &Point,
        schedulers: &[String],
        ratio: &Ratio<'_>,
        devices: &mut Ratios,
    ) -> Option<Situation> {
        let set = |key: &str| Some(point.settings.iter().find(|(name, _)| name == key)?.1.as_str());
        let processes: u32 = set(PROCESSES)?.parse().ok()?;
        if set(SCHEDULER)? != BASE || !COUNTED.contains(&processes) {
            return None;
        }
        let with = |scheduler| -> Vec<(&str, &str)> {
            let settings = point.settings.iter().map(|(key, value)| match key.as_str() {
                SCHEDULER => (SCHEDULER, scheduler),
                key => (key, value.as_str()),
            });
            settings.collect()
        };
        let by_seed: Vec<Cell> =
            schedulers.iter().map(|name| ratio(&with(name), &with(BASE))).collect::<Option<_>>()?;
        let ratios = by_seed.iter().map(Cell::geometric).collect::<Option<_>>()?;
        Some(Situation {
            device: set(DEVICE)?.into(),
            op: set(OP)?.into(),
            pattern: set(PATTERN)?.into(),
            processes,
            seen: seen(point, processes, devices)?,
            by_seed,
            ratios,
            right: 0,
            gain: 0.0,
        })
    }

    /// The fastest of all, here alone.
    pub(super) fn fastest(&self) -> f64 {
        self.ratios.iter().map(|ratio| ratio.mean).fold(f64::INFINITY, f64::min)
    }
}

/// Sequential-to-random ratios that have been measured, by device and whether it is written to.
type Ratios = BTreeMap<(String, bool), Option<f64>>;

/// What a server sees of a scenario.
fn seen(point: &Point, processes: u32, devices: &mut Ratios) -> Option<Seen> {
    let scenario = &point.scenario;
    let apps = scenario.apps.len() as u32;
    let workload = &scenario.apps.first()?.workload;
    let (sharing, bytes, request, contiguous) = match workload.pattern {
        Pattern::Contiguous { sharing, bytes, request } => (sharing, bytes, request, true),
        Pattern::Strided { bytes, request } => (Sharing::Shared, bytes, request, false),
        _ => return None,
    };
    let per_process = sharing == Sharing::PerProcess;
    let (files, writers) = if per_process { (apps * processes, 1) } else { (apps, processes) };
    let servers = &scenario.cluster.servers;
    // Table II: 64 MB of each process in a shared file; 1 GB, or of four applications 512 MB, in its own.
    let published = if per_process { (1 << 30) >> u32::from(apps > 1) } else { 64 << 20 };
    let at_server = |bytes: u64| bytes * u64::from(writers) / u64::from(servers.nodes);
    let bytes_of_message = servers.transfer.into();
    let of_device = || sequential_to_random_ratio(&servers.device, workload.op, bytes_of_message, 1).ok();
    let ratio = devices.entry((servers.device.clone(), workload.op == Op::Write)).or_insert_with(of_device);
    Some(Seen {
        write: workload.op == Op::Write,
        files,
        file_bytes: at_server(bytes),
        published_file_bytes: at_server(published),
        contiguous,
        large: u64::from(request) > servers.stripe,
        sequential_to_random: (*ratio)?,
        several: apps > 1,
        per_process,
    })
}

/// Table III: the fastest for a pattern on a device, over all numbers of processes, and its gain; none below 10 %.
fn choice(all: &[Situation], of: &Situation) -> (usize, f64) {
    let same =
        |other: &&Situation| (&other.device, &other.op, &other.pattern) == (&of.device, &of.op, &of.pattern);
    let alike: Vec<&Situation> = all.iter().filter(same).collect();
    let mean = |scheduler: usize| {
        alike.iter().map(|situation| situation.ratios[scheduler].mean).sum::<f64>() / alike.len() as f64
    };
    let best = (1..of.ratios.len())
        .map(|scheduler| (scheduler, 1.0 - mean(scheduler)))
        .max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
    best.filter(|(_, gain)| *gain >= SIGNIFICANT).unwrap_or((0, 0.0))
}
