//! From a scenario to a world, and from a world that has ended to a result.

use std::collections::BTreeMap;

use iogate_core::device::{self, Device, Transfer};
use iogate_core::hash::HashMap;
use iogate_core::profile::Profiled;
use iogate_core::stats::Stats;
use iogate_core::{Gate, GateConfig, Layout, Span, Time, units};

use super::block::Block;
use super::cached::NodeCache;
use super::choosing::Choosing;
use super::classes::Classes;
use super::event::EventQueue;
use super::fair::{self, Shares};
use super::fault::{Delays, DeviceFaults};
use super::global::Global;
use super::lent::Lent;
use super::list::ListQueue;
use super::network::Net;
use super::node::Node;
use super::process::{AppRun, Process, Waiting};
use super::slots::Slots;
use super::turns::Turns;
use super::{Event, Observer, SimError, World};
use crate::batch::BatchScheduler;
use crate::cache::CacheStats;
use crate::result::{AppResult, LayerResult, RunResult};
use crate::rng::{Distribution, Rng};
use crate::scenario::{App, Fault, FaultKind, GateSpec, OWN, ProcessorSpec, Scenario, Servers};
use crate::slab::Slab;
use crate::striping::Striping;
use crate::workload::{self, Program};

/// Streams of random numbers; those of processes and servers count on from theirs.
const NETWORK: u64 = 1;
const JOBS: u64 = 2;
const DEVICES: u64 = 1 << 32;

impl<'a> World<'a> {
    pub(super) fn build(
        scenario: &'a Scenario,
        seed: u64,
        observer: &'a mut dyn Observer,
        lent: Lent<'a>,
    ) -> Result<World<'a>, SimError> {
        let cluster = &scenario.cluster;
        let mut layers = vec![0, cluster.clients.nodes];
        for count in cluster.forwarders.iter().map(|layer| layer.nodes).chain([cluster.servers.nodes]) {
            layers.push(layers[layers.len() - 1] + count);
        }
        let mut world = World {
            scenario,
            seed,
            queue: EventQueue::new(),
            net: Net::new(
                &scenario.network,
                Delays::new(&scenario.faults),
                // The coordinator's is the last.
                layers[layers.len() - 1] as usize + 1,
                Rng::new(seed, NETWORK),
            ),
            nodes: Vec::new(),
            layers,
            touched: Vec::new(),
            striping: Striping { stripe: cluster.servers.stripe, servers: cluster.servers.nodes.into() },
            lengths: HashMap::default(),
            changes: HashMap::default(),
            apps: Vec::new(),
            processes: Vec::new(),
            app_of: Vec::new(),
            batch: scenario
                .batch
                .as_ref()
                .map(|batch| BatchScheduler::new(cluster.clients.nodes, batch.backfill)),
            calls: Slab::new(),
            pieces: Slab::new(),
            list_calls: Slab::new(),
            list_messages: Slab::new(),
            notes: Slab::new(),
            turns: Turns::new(scenario, seed, lent)?,
            global: None,
            classes: Classes::default(),
            requests: 0,
            observer,
            lent,
            has_own: cluster.gates().flatten().any(|spec| spec.own.is_some()),
            have_ended: false,
            has_called: false,
            specs: apps(scenario, seed),
        };
        world.global = Global::new(scenario, &world.specs, &world.layers);
        world.classes = Classes::new(&scenario.groups, &world.specs);
        world.add_nodes()?;
        world.add_apps();
        world.add_lengths();
        for fault in &scenario.faults {
            if let FaultKind::LostClient { node } = fault.kind {
                world.queue.add(Time::ZERO + fault.from, Event::Lost(node));
            }
        }
        Ok(world)
    }

    fn add_nodes(&mut self) -> Result<(), SimError> {
        let (cluster, apps) = (&self.scenario.cluster, &self.specs);
        let clock = clocks(&self.scenario.faults);
        let shares = |layer: usize| Shares {
            apps,
            groups: &self.scenario.groups,
            global: self.scenario.global.as_ref().filter(|global| global.layer as usize == layer),
        };
        let striped =
            Layout { first_target: 0, stripe_bytes: cluster.servers.stripe, targets: cluster.servers.nodes };
        for node in 0..cluster.clients.nodes {
            let (spec, clock) = (cluster.clients.gate.as_ref(), clock(0, node));
            let gate = spec
                .map(|spec| gate("clients", spec, node, striped, shares(0), None, self.lent))
                .transpose()?;
            let chooses = spec.is_some_and(|spec| spec.auto);
            let mut node = Node::new(gate, clock, ProcessorSpec::default(), None);
            node.choose(chooses, |config| Choosing::learning(config, clock));
            node.cache = cluster.clients.cache.as_ref().map(|config| Box::new(NodeCache::new(config)));
            node.slots = cluster.clients.slots.map(Slots::new);
            self.nodes.push(node);
        }
        for (index, layer) in cluster.forwarders.iter().enumerate() {
            for node in 0..layer.nodes {
                let gate = gate(&layer.name, &layer.gate, node, striped, shares(1 + index), None, self.lent)?;
                let clock = clock(1 + index, node);
                let mut node = Node::new(Some(gate), clock, layer.processor, None);
                node.lists = layer.lists.map(ListQueue::new);
                node.choose(layer.gate.auto, |config| Choosing::learning(config, clock));
                self.nodes.push(node);
            }
        }
        let servers = &cluster.servers;
        let layer = 1 + cluster.forwarders.len();
        for node in 0..servers.nodes {
            // Below a page cache or an elevator what a gate hands over is not what the device gets.
            let is_bare = servers.cache.is_none() && servers.elevator.is_none();
            let mut known = is_bare.then(|| server_device(servers, node, self.seed)).transpose()?;
            let device = known.as_mut().map(|device| &mut **device as &mut dyn Device);
            let gate =
                gate("servers", &servers.gate, node, Layout::SINGLE, shares(layer), device, self.lent)?;
            let block = Block::new(
                server_device(servers, node, self.seed)?,
                servers.placement(),
                DeviceFaults::new(&self.scenario.faults, node),
                servers.elevator.as_ref(),
            );
            let (number, clock, seed) = (node, clock(layer, node), self.seed);
            let mut node = Node::new(Some(gate), clock, servers.processor, Some(block));
            node.choose(servers.gate.auto, |config| Choosing::server(config, servers, number, seed, clock));
            node.cache = servers.cache.as_ref().map(|cache| Box::new(NodeCache::new(&cache.config)));
            self.nodes.push(node);
        }
        Ok(())
    }

    /// Caches read no further ahead than a file goes.
    fn add_lengths(&mut self) {
        if self.nodes.iter().all(|node| node.cache.is_none()) {
            return;
        }
        for (file, bytes) in self.specs.iter().flat_map(workload::files_needed) {
            let length = self.lengths.entry(file).or_default();
            *length = bytes.max(*length);
        }
    }

    fn add_apps(&mut self) {
        let servers = self.scenario.cluster.servers.nodes as usize;
        for (index, app) in self.specs.iter().enumerate() {
            let submitted = Time::ZERO + app.start;
            let first = self.processes.len() as u32;
            self.apps.push(AppRun::new(first, app.processes, submitted, servers));
            for rank in 0..app.processes {
                self.app_of.push(index as u32);
                self.processes.push(Process {
                    app: index as u32,
                    rank,
                    node: app.first_node,
                    program: Program::new(app, rank, self.seed),
                    waiting: Waiting::Running,
                    calls: 0,
                    messages: 0,
                    phases: 0,
                    in_phase: false,
                    since: Time::ZERO,
                    opened: Vec::new(),
                    closing: 0,
                    step: None,
                });
            }
            self.queue.add(submitted, Event::Submit(index as u32));
        }
    }

    /// That nothing was lost: what was sent has been answered, and who began has ended.
    pub(super) fn check(&self, cut_off: bool) -> Result<(), SimError> {
        if cut_off {
            return Ok(());
        }
        let stuck = |(spec, run): (&App, &AppRun)| {
            if run.start.is_none() {
                return format!("{} waits for {} nodes", spec.name, spec.nodes);
            }
            let processes = self.processes[run.first as usize..(run.first + run.count) as usize].iter();
            let waiting = processes.map(|process| process.waiting);
            // Who waits for a request keeps the others waiting.
            let first = waiting.filter(|waiting| *waiting != Waiting::Ended).min();
            let what = first.map_or("", Waiting::what);
            format!("{} of {} processes of {} wait, the first {what}", run.alive, run.count, spec.name)
        };
        let unfinished = self.specs.iter().zip(&self.apps).filter(|(_, run)| run.end.is_none());
        let mut waiting: Vec<String> = unfinished.map(stuck).take(3).collect();
        if self.pieces.len() + self.calls.len() > 0 {
            waiting.push(format!(
                "{} requests of {} calls are unanswered",
                self.pieces.len(),
                self.calls.len()
            ));
        }
        match waiting.is_empty() {
            true => Ok(()),
            false => Err(SimError::Stalled { at_s: self.now().as_secs_f64(), waiting: waiting.join("; ") }),
        }
    }

    fn now(&self) -> Span {
        self.queue.now().since(Time::ZERO)
    }

    pub(super) fn layer_name(&self, node: u32) -> String {
        match self.layer_of(node) {
            0 => "clients".into(),
            layer => match self.scenario.cluster.forwarders.get(layer - 1) {
                Some(forwarders) => forwarders.name.clone(),
                None => "servers".into(),
            },
        }
    }

    pub(super) fn result(mut self, cut_off: bool) -> RunResult {
        let now = if cut_off { Time::ZERO + self.scenario.time_max } else { self.queue.now() };
        self.nodes.iter_mut().filter_map(|node| node.block.as_mut()).for_each(|block| block.end_at(now));
        self.end_phases(now);
        let mut first_start = Time::MAX;
        let mut last_end = Time::ZERO;
        let classes = self.classes.results(&self.specs, &self.apps, now);
        let runs = std::mem::take(&mut self.apps);
        let apps = self.specs.iter().zip(runs).map(|(spec, run)| {
            // One that was not yet submitted when the run was cut off has taken no time.
            let start = run.start.unwrap_or(now.max(run.submitted));
            let end = run.end.unwrap_or(now).max(start);
            first_start = first_start.min(run.submitted);
            last_end = last_end.max(end);
            AppResult {
                name: spec.name.clone(),
                id: spec.id,
                submitted: run.submitted,
                start,
                end,
                lost: run.lost,
                processes: run.count,
                calls: run.calls,
                bytes: run.bytes,
                call_time: run.call_time,
                call_time_max: run.call_time_max,
                call_times: run.call_times,
                step_time: run.step_time,
                steps: run.steps,
                phases: run.phases,
                server_finish: run.server_finish,
                turns: run.turns,
                alone: None,
            }
        });
        let apps: Vec<AppResult> = apps.collect();
        RunResult {
            seed: self.seed,
            makespan: last_end.since(first_start),
            apps,
            classes,
            servers: self.nodes.iter().filter_map(|node| Some(node.block.as_ref()?.result())).collect(),
            layers: self.layers.windows(2).filter_map(|range| self.layer(range[0], range[1])).collect(),
            caches: self.caches(),
            network: self.net.result,
            requests: self.requests,
            cut_off,
        }
    }

    /// I/O phases that a process was in when its application was lost, or all was cut off, have lasted until then.
    fn end_phases(&mut self, now: Time) {
        for process in self.processes.iter().filter(|process| process.in_phase) {
            let run = &mut self.apps[process.app as usize];
            let end = run.end.unwrap_or(now);
            if let Some(phase) = run.phases.get_mut(process.phases.saturating_sub(1) as usize) {
                phase.end = phase.end.max(end);
            }
        }
    }

    fn caches(&self) -> Vec<(String, CacheStats)> {
        let mut caches = Vec::new();
        for range in self.layers.windows(2) {
            let nodes = &self.nodes[range[0] as usize..range[1] as usize];
            let mut of_layer = nodes.iter().filter_map(|node| node.cache.as_ref());
            let Some(first) = of_layer.next() else { continue };
            let mut sum = first.stats();
            of_layer.for_each(|cache| sum.add(&cache.stats()));
            caches.push((self.layer_name(range[0]), sum));
        }
        caches
    }

    fn layer(&self, first: u32, after: u32) -> Option<LayerResult> {
        let nodes = &self.nodes[first as usize..after as usize];
        let gates: Vec<&Gate> = nodes.iter().filter_map(|node| node.gate.as_ref()).collect();
        let choosing =
            || (0..).zip(nodes).filter_map(|(index, node)| Some((index, node, node.choosing.as_ref()?)));
        let scheduler = match choosing().next() {
            Some(_) => "auto".into(),
            None => match self.scenario.cluster.gates().nth(self.layer_of(first)) {
                Some(Some(GateSpec { own: Some(own), .. })) => format!("{OWN}{own}"),
                _ => gates.first()?.scheduler().to_string(),
            },
        };
        let stats: Vec<&Stats> = gates.iter().map(|gate| gate.stats()).collect();
        let held_back = nodes.iter().map(|node| node.held_back);
        let held_back = held_back.fold((0, Span::ZERO), |sum, node| (sum.0 + node.0, sum.1 + node.1));
        let mut layer = LayerResult::of(self.layer_name(first), scheduler, &stats, held_back)?;
        for (calls, bytes) in nodes.iter().filter_map(|node| Some(node.lists.as_ref()?.sent)) {
            layer.lists += calls;
            layer.list_bytes += bytes;
        }
        layer.chosen =
            choosing().flat_map(|(index, node, choosing)| choosing.chosen(index, node.clock)).collect();
        layer.chosen.sort_by_key(|chosen| (chosen.at, chosen.node));
        layer.changes = choosing().next().map(|_| choosing().map(|(.., choosing)| choosing.switches()).sum());
        Some(layer)
    }
}

/// What the clock of each node of each layer shows at the start: far enough from zero for the clock that is most behind.
fn clocks(faults: &[Fault]) -> impl Fn(usize, u32) -> Time {
    let mut ahead: BTreeMap<(usize, u32), i64> = BTreeMap::new();
    for fault in faults {
        if let FaultKind::Skew { layer, node, ahead_ns } = fault.kind {
            let sum = ahead.entry((layer as usize, node)).or_default();
            *sum = sum.saturating_add(ahead_ns);
        }
    }
    let behind = ahead.values().map(|ahead| ahead.min(&0).unsigned_abs()).max().unwrap_or(0);
    move |layer, node| {
        let ahead = ahead.get(&(layer, node)).copied().unwrap_or(0);
        Time::from_nanos(behind.saturating_add_signed(ahead))
    }
}

/// The applications of a run: those of the scenario, then those drawn for this seed.
pub fn apps(scenario: &Scenario, seed: u64) -> Vec<App> {
    let mut apps = scenario.apps.clone();
    if let Some(jobs) = &scenario.jobs {
        let first = apps.iter().map(|app| app.id).max().unwrap_or(0) + 1;
        apps.extend(workload::jobs::generate(jobs, first, &mut Rng::new(seed, JOBS)));
    }
    apps
}

/// The device of a data server in a run with `seed`.
///
/// # Errors
/// If there is no device of this name.
pub fn server_device(servers: &Servers, server: u32, seed: u64) -> Result<Box<dyn Device>, SimError> {
    if let Some(profile) = &servers.profile {
        return Ok(Box::new(Profiled::new(profile)));
    }
    parse_device(&servers.device, server, Rng::new(seed, DEVICES + u64::from(server)))
}

impl GateSpec {
    /// Its scheduler and parameters, as in `aioli quantum_base=32KiB`; `auto` if it is chosen, and `own:NAME` if it is the caller's own.
    pub fn name(&self) -> String {
        match &self.own {
            Some(own) => format!("{OWN}{own}"),
            None if self.auto => "auto".into(),
            None => self.scheduler.to_string(),
        }
    }

    /// The settings of the gate on the `node`-th node of a layer: with twins each starts at another target.
    pub fn config(&self, node: u32, layout: Layout) -> GateConfig {
        let mut scheduler = self.scheduler.clone();
        scheduler.set_node(node);
        GateConfig { scheduler, queue_max: self.queue, depth: self.depth, layout }
    }
}

fn gate(
    layer: &str,
    spec: &GateSpec,
    node: u32,
    layout: Layout,
    shares: Shares<'_>,
    device: Option<&mut dyn Device>,
    lent: Lent<'_>,
) -> Result<Gate, SimError> {
    let own = lent.own(layer, spec)?;
    let config = spec.config(node, layout);
    let gate = match own {
        Some(own) => Gate::with_own(&config, own),
        None => Gate::new(&config),
    };
    let gate = gate.and_then(|mut gate| fair::divide(&mut gate, spec, shares, device).map(|()| gate));
    let mut gate = gate.map_err(|source| SimError::Gate { layer: layer.to_owned(), source })?;
    // A result has the distributions of a layer's first gate, and sums of all.
    if node > 0 {
        gate.count_sums_only();
    }
    Ok(gate)
}

/// A device by its text: one of the core's, or `exponential:T`.
fn parse_device(text: &str, number: u32, rng: Rng) -> Result<Box<dyn Device>, SimError> {
    let refused = |error: &dyn std::fmt::Display| SimError::Device(error.to_string());
    match text.strip_prefix("exponential:") {
        Some(mean) => {
            // As in scenarios, or as the unit device has it: in microseconds.
            let mean = units::parse_time(mean).or_else(|| units::parse_micros(mean));
            let mean =
                mean.ok_or_else(|| refused(&format!("device '{text}': expected a time behind the colon")))?;
            Ok(Box::new(Exponential { mean: Distribution::Exponential(Span::from_nanos(mean)), rng }))
        }
        None => device::parse_numbered(text, number.into()).map_err(|error| refused(&error)),
    }
}

/// A device whose times are exponentially distributed, whatever it is asked for: for comparison with queueing theory.
struct Exponential {
    mean: Distribution,
    rng: Rng,
}

impl Device for Exponential {
    fn serve(&mut self, _now: Time, _transfer: Transfer) -> Span {
        self.rng.span(self.mean)
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn repositions(&self) -> u64 {
        0
    }
}
