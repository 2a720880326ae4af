//! Random worlds with random faults: first nothing may go wrong in them, then they must come to an end.
//!
//! `SWARM_SEEDS=from..to` chooses other seeds than the default ones; a failure names its seed.

mod common;

use std::collections::HashMap;

use common::{app, gate, scenario};
use iogate_core::coord::backoff::BackoffConfig;
use iogate_core::coord::{CoordConfig, Order, Passing};
use iogate_core::device::{Device, Rules};
use iogate_core::{AppId, FileId, Op, SchedulerKind, Span, Time};
use iogate_sim::cache::{CacheConfig, Kernel};
use iogate_sim::elevator::{ElevatorConfig, Threads};
use iogate_sim::rng::{Distribution, Rng};
use iogate_sim::scenario::{
    App, Barrier, Collective, Coordination, Fault, FaultKind, Forwarders, ListSpec, Pattern, ProcessorSpec,
    Scenario, ServerCache, Sharing, Spread,
};
use iogate_sim::world::{Arrived, Observer, Served, server_device, simulate};

fn one_of<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

fn some_gate(rng: &mut Rng) -> iogate_sim::scenario::GateSpec {
    let kind = one_of(rng, &SchedulerKind::ALL);
    let mut gate = gate(kind.name());
    gate.depth = one_of(rng, &[1, 2, 16]);
    // Room for every piece of a request that is split.
    gate.queue = one_of(rng, &[300, 1 << 16]);
    gate
}

fn some_app(rng: &mut Rng, id: u32, clients: u32) -> App {
    let mut this = app(id, 1 + rng.below(6) as u32, 0, 0);
    let request = 1 << (10 + rng.below(10));
    let bytes = u64::from(request) * rng.below(9) + rng.below(2) * 777;
    let sharing = one_of(rng, &[Sharing::Shared, Sharing::PerProcess]);
    let pattern = match rng.below(5) {
        0 => Pattern::Contiguous { sharing, bytes, request },
        1 => Pattern::Strided { bytes, request },
        2 => Pattern::Random { sharing, bytes, request, file_bytes: 1 << 22 },
        3 => Pattern::Tile { columns: 1, width: 100, height: 1 + rng.below(9) as u32, element: 64 },
        _ => Pattern::Noncontiguous { bytes, piece: 1_000, pieces: 1 + rng.below(8) as u32 },
    };
    let collectable = !matches!(pattern, Pattern::Random { .. })
        && !matches!(pattern, Pattern::Contiguous { sharing: Sharing::PerProcess, .. });
    let workload = &mut this.workload;
    workload.pattern = pattern;
    workload.op = one_of(rng, &[Op::Read, Op::Write]);
    workload.iterations = 1 + rng.below(3) as u32;
    workload.compute = one_of(rng, &[Distribution::ZERO, Distribution::Exponential(Span::from_millis(5))]);
    workload.think =
        one_of(rng, &[Distribution::ZERO, Distribution::Uniform(Span::ZERO, Span::from_millis(1))]);
    workload.outstanding = one_of(rng, &[Some(1), Some(3), None]);
    workload.barrier = one_of(rng, &[Barrier::None, Barrier::Phase, Barrier::Call]);
    if collectable && rng.below(4) == 0 {
        let aggregators = 1 + rng.below(this.processes.into()) as u32;
        workload.collective = Some(Collective { aggregators, buffer: 1 << (12 + rng.below(6)) });
    }
    this.first_node = rng.below(clients.into()) as u32;
    this.nodes = 1 + rng.below(u64::from(clients - this.first_node)) as u32;
    this.start = Span::from_millis(rng.below(30));
    // Several applications on the same files: their writes conflict.
    this.files = rng.below(2) as u32;
    this
}

fn some_fault(rng: &mut Rng, servers: u32, clients: u32, layers: u32) -> Fault {
    let from = Span::from_millis(rng.below(100));
    let until = Some(from + Span::from_millis(1 + rng.below(2_000)));
    let server = rng.below(servers.into()) as u32;
    let kind = match rng.below(8) {
        0 | 1 => FaultKind::SlowServer { server, factor: 1.0 + rng.unit() * 20.0 },
        2 | 3 => FaultKind::StoppedServer { server },
        4 | 5 => FaultKind::Delay { extra: Span::from_millis(rng.below(50)) },
        6 => FaultKind::LostClient { node: rng.below(clients.into()) as u32 },
        _ => FaultKind::Skew {
            layer: rng.below(layers.into()) as u32,
            node: 0,
            ahead_ns: rng.below(4_000_000_000) as i64 - 2_000_000_000,
        },
    };
    Fault { from, until, kind }
}

fn some_coordination(seed: u64) -> Coordination {
    let rng = &mut Rng::new(seed, 98);
    let lock = CoordConfig {
        order: one_of(rng, &[Order::Fcfs, Order::Shortest { ageing: 1 << 20 }, Order::Weighted, Order::Sets]),
        passing: one_of(rng, &[Passing::Preserve, Passing::Relaxed]),
        block_max: Span::from_millis(1 + rng.below(200)),
        slots: 1 + rng.below(2) as u32,
        // Sometimes too short for messages that are delayed.
        lease: Span::from_millis(1 + rng.below(100)),
        ..CoordConfig::default()
    };
    let backoff = BackoffConfig {
        probe_bytes: 1 + rng.below(200_000),
        prime_bytes: rng.below(2) * 5_000,
        probes: 1 + rng.below(3) as u32,
        pause: Span::from_millis(rng.below(5)),
        attempts_max: 1 + rng.below(4) as u32,
        sleep_unit: Span::from_millis(rng.below(10)),
        sleep_fixed: Span::from_millis(rng.below(2)),
        ..BackoffConfig::default()
    };
    Coordination {
        lock: (rng.below(3) == 0).then_some(lock),
        backoff: (rng.below(3) == 0).then_some(backoff),
    }
}

fn some_world(seed: u64) -> Scenario {
    let rng = &mut Rng::new(seed, 99);
    let servers = 1 + rng.below(5) as u32;
    let device = one_of(rng, &["unit:200", "hdd", "edel", "exponential:500", "hdd:queue=31", "sas-10k-600g"]);
    let mut s = scenario(servers, device, "fifo");
    let clients = 1 + rng.below(6) as u32;
    s.cluster.clients.nodes = clients;
    s.cluster.clients.gate = (rng.below(4) == 0).then(|| some_gate(rng));
    s.cluster.servers.gate = some_gate(rng);
    // Drawn by itself, so that kept seeds stay what they are.
    s.cluster.servers.gate.auto = Rng::new(seed, 97).below(4) == 0;
    s.cluster.servers.stripe = 1 << (13 + rng.below(6));
    s.cluster.servers.transfer = 1 << (12 + rng.below(8));
    s.cluster.servers.processor = ProcessorSpec::each(Span::from_micros(rng.below(2) * 20));
    for layer in 0..rng.below(3) {
        s.cluster.forwarders.push(Forwarders {
            name: format!("layer{layer}"),
            nodes: 1 + rng.below(4) as u32,
            gate: some_gate(rng),
            spread: one_of(rng, &[Spread::Client, Spread::File, Spread::Target]),
            transfer: 1 << (13 + rng.below(8)),
            processor: ProcessorSpec::each(Span::from_micros(rng.below(2) * 10)),
            lists: None,
        });
    }
    s.network.latency = Span::from_micros(rng.below(3) * 40);
    s.network.jitter = Span::from_micros(rng.below(2) * 300);
    s.network.bandwidth = one_of(rng, &[None, Some(50_000_000), Some(1_000_000_000)]);
    if s.network.bandwidth.is_some() {
        s.network.buffer = one_of(rng, &[None, Some(32 << 10)]);
    }
    s.network.header = rng.below(2) as u32 * 128;
    s.apps = (0..1 + rng.below(4)).map(|i| some_app(rng, i as u32 + 1, clients)).collect();
    let layers = 2 + s.cluster.forwarders.len() as u32;
    s.faults = (0..rng.below(4)).map(|_| some_fault(rng, servers, clients, layers)).collect();
    s.coordination = some_coordination(seed);
    if s.coordination != Coordination::default() {
        for app in s.apps.iter_mut().filter(|app| app.workload.barrier == Barrier::None) {
            app.workload.barrier = Barrier::Phase;
        }
    }
    s
}

/// Sees that each server serves no more dispatches at a time than its device has slots, and conflicting requests in the order
/// in which they came.
#[derive(Default)]
struct Judge {
    waiting: HashMap<(u32, FileId), Vec<Arrived>>,
    slots: usize,
    in_service: HashMap<u32, Vec<Time>>,
    arrived: u64,
    served: u64,
    bytes: HashMap<AppId, u64>,
}

/// Finds waiting requests that make up a dispatch from `at` on, the oldest where several would do.
fn cover(waiting: &[Arrived], served: &Served, at: u64, taken: &mut Vec<usize>) -> bool {
    let end = served.offset + served.bytes;
    if at == end || taken.len() == served.requests as usize {
        return at == end && taken.len() == served.requests as usize;
    }
    for (index, other) in waiting.iter().enumerate() {
        let next = at + u64::from(other.bytes);
        if other.op == served.op && other.offset == at && next <= end && !taken.contains(&index) {
            taken.push(index);
            if cover(waiting, served, next, taken) {
                return true;
            }
            taken.pop();
        }
    }
    false
}

impl Observer for Judge {
    fn arrived(&mut self, arrived: &Arrived) {
        self.waiting.entry((arrived.server, arrived.file)).or_default().push(*arrived);
        self.arrived += 1;
        *self.bytes.entry(arrived.app).or_default() += u64::from(arrived.bytes);
    }

    fn served(&mut self, served: &Served) {
        let in_service = self.in_service.entry(served.server).or_default();
        in_service.retain(|end| *end > served.start);
        in_service.push(served.end);
        assert!(in_service.len() <= self.slots, "{served:?} has no slot: {in_service:?}");
        let waiting = self.waiting.entry((served.server, served.file)).or_default();
        let mut taken = Vec::new();
        let found = cover(waiting, served, served.offset, &mut taken);
        assert!(found, "{served:?} is made of requests that wait: {waiting:?}");
        for &index in &taken {
            let this = &waiting[index];
            for (_, other) in waiting[..index].iter().enumerate().filter(|(index, _)| !taken.contains(index))
            {
                let overlaps = other.offset < this.offset + u64::from(this.bytes)
                    && this.offset < other.offset + u64::from(other.bytes);
                assert!(
                    !(overlaps && this.op.conflicts(other.op)),
                    "{this:?} is served before the earlier {other:?}"
                );
            }
        }
        taken.sort_unstable();
        for index in taken.into_iter().rev() {
            waiting.remove(index);
            self.served += 1;
        }
    }
}

fn expected_bytes(app: &App) -> u64 {
    let of_one = match app.workload.pattern {
        Pattern::Contiguous { bytes, .. }
        | Pattern::Strided { bytes, .. }
        | Pattern::Random { bytes, .. }
        | Pattern::Noncontiguous { bytes, .. } => bytes,
        Pattern::Tile { width, height, element, .. } => {
            u64::from(width) * u64::from(height) * u64::from(element)
        }
        Pattern::Trace { .. } => unreachable!("not made here"),
    };
    of_one * u64::from(app.processes) * u64::from(app.workload.iterations)
}

fn some_elevator(rng: &mut Rng) -> Option<ElevatorConfig> {
    let threads = one_of(rng, &[Threads::Request, Threads::File]);
    let idle = one_of(rng, &[Span::ZERO, Span::from_millis(8)]);
    one_of(rng, &[Some(ElevatorConfig::Deadline), Some(ElevatorConfig::Slices { threads, idle })])
}

/// What devices have served.
#[derive(Default)]
struct Account {
    bytes: u64,
    transfers: u64,
}

impl Observer for Account {
    fn served(&mut self, served: &Served) {
        assert!(served.start <= served.end);
        self.bytes += served.bytes;
        self.transfers += 1;
    }

    fn served_late(&mut self, served: &Served) {
        self.served(served);
    }
}

/// The same worlds with elevators, with and without caches: nothing is lost in them, nothing is served twice, each run is the same.
#[test]
fn random_worlds_with_elevators_serve_everything_once() {
    for seed in 0..200 {
        let mut world = some_world(seed);
        let rng = &mut Rng::new(seed, 98);
        world.cluster.servers.elevator = some_elevator(rng);
        let cached = rng.below(2) == 0;
        if cached {
            let config = CacheConfig::new(one_of(rng, &Kernel::ALL), 1 << (16 + rng.below(10)));
            world.cluster.servers.cache = Some(ServerCache { config, commits: rng.below(2) == 0 });
        }
        let mut seen = Account::default();
        let result = simulate(&world, seed, &mut seen).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(!result.cut_off, "seed {seed} does not end");
        let served: u64 = result.servers.iter().map(|server| server.bytes).sum();
        assert_eq!(
            (served, result.servers.iter().map(|server| server.dispatches).sum()),
            (seen.bytes, seen.transfers)
        );
        for (spec, app) in world.apps.iter().zip(&result.apps) {
            let expected = expected_bytes(spec);
            assert!(app.bytes == expected || (app.lost && app.bytes < expected), "seed {seed}: {}", app.name);
        }
        if !cached {
            let mut without = world.clone();
            without.cluster.servers.elevator = None;
            let mut plain = Account::default();
            let of_plain = simulate(&without, seed, &mut plain).expect("it ends");
            // How a gate cuts what it dispatches, and how far probes and lost clients come, is a matter of time.
            let same = world.faults.is_empty() && world.coordination == Coordination::default();
            assert!(!same || seen.bytes == plain.bytes, "seed {seed}: {} and {}", seen.bytes, plain.bytes);
            assert_eq!(of_plain.apps.len(), result.apps.len());
        }
        let again = simulate(&world, seed, &mut ()).expect("it ended before");
        assert_eq!(format!("{again:?}"), format!("{result:?}"), "seed {seed}");
    }
}

/// The same worlds with caches: as far as a client is lost, what it has not sent is gone.
#[test]
fn random_worlds_with_caches_end_and_write_back_what_they_have() {
    for seed in 0..150 {
        let mut world = some_world(seed);
        let rng = &mut Rng::new(seed, 97);
        let commits = rng.below(2) == 0;
        world.cluster.servers.cache =
            (rng.below(4) > 0).then(|| ServerCache { config: some_cache(rng), commits });
        if rng.below(2) == 0 {
            world.cluster.clients.gate = None;
            world.cluster.clients.cache = Some(some_cache(rng));
        }
        world.cluster.clients.slots = one_of(rng, &[None, Some(1), Some(16)]);
        let result = simulate(&world, seed, &mut ()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(!result.cut_off, "seed {seed} does not end");
        for (spec, app) in world.apps.iter().zip(&result.apps) {
            let expected = expected_bytes(spec);
            assert!(app.bytes == expected || (app.lost && app.bytes < expected), "seed {seed}: {}", app.name);
        }
        for (layer, stats) in &result.caches {
            assert!(stats.written_back <= stats.dirtied, "seed {seed}: {layer}");
            assert!(stats.dirtied == 0 || stats.written_back > 0, "seed {seed}: {layer} {stats:?}");
        }
        let again = simulate(&world, seed, &mut ()).expect("it ended before");
        assert_eq!(format!("{again:?}"), format!("{result:?}"), "seed {seed}");
    }
}

/// A cache of a random kernel and size.
fn some_cache(rng: &mut Rng) -> CacheConfig {
    let mut config = CacheConfig::new(one_of(rng, &Kernel::ALL), 1 << (16 + rng.below(10)));
    config.expire = Span::from_millis(1 + rng.below(3_000));
    config.read_ahead = one_of(rng, &[0, 32 << 10, 128 << 10]);
    config.in_flight = 1 + rng.below(8);
    config
}

/// The same worlds with all models at once: caches, slots, lists, processors, allocation, elevators, and devices that queue or are arrays.
#[test]
fn random_worlds_with_all_models_lose_nothing_and_are_the_same_each_time() {
    for seed in 0..200 {
        let mut world = some_world(seed);
        let rng = &mut Rng::new(seed, 96);
        let cluster = &mut world.cluster;
        cluster.clients.gate = None;
        cluster.clients.cache = (rng.below(2) == 0).then(|| some_cache(rng));
        cluster.clients.slots = Some(1 + rng.below(16) as u32);
        for layer in &mut cluster.forwarders {
            layer.lists =
                Some(ListSpec { requests: 1 + rng.below(16) as u32, calls: 1 + rng.below(4) as u32 });
        }
        let [read, write, connection, dispatch] = std::array::from_fn(|_| Span::from_micros(rng.below(30)));
        cluster.servers.processor = ProcessorSpec { read, write, connection, dispatch };
        cluster.servers.cache = Some(ServerCache { config: some_cache(rng), commits: rng.below(2) == 0 });
        cluster.servers.elevator = some_elevator(rng);
        cluster.servers.allocation = Some(one_of(rng, &[Rules::Ext3, Rules::Ext4, Rules::Xfs]));
        cluster.servers.device =
            one_of(rng, &["hdd:queue=31", "sas-10k-600g", "array-12t", "nvme-p4500-2t"]).into();
        let (cached, plain) = (
            world.cluster.clients.cache.is_some(),
            world.faults.is_empty() && world.coordination == Coordination::default(),
        );
        let mut seen = Judged::default();
        let result = simulate(&world, seed, &mut seen).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(!result.cut_off, "seed {seed} does not end");
        let mut bytes = 0;
        for (spec, app) in world.apps.iter().zip(&result.apps) {
            let expected = expected_bytes(spec);
            assert!(app.bytes == expected || (app.lost && app.bytes < expected), "seed {seed}: {}", app.name);
            bytes += app.bytes;
        }
        // What comes to the servers is what was called for, where no cache answers, nobody is lost and nobody probes.
        assert!(cached || !plain || seen.arrived == bytes, "seed {seed}: {} of {bytes}", seen.arrived);
        let served: u64 = result.servers.iter().map(|server| server.bytes).sum();
        assert_eq!(served, seen.account.bytes, "seed {seed}");
        for (layer, stats) in &result.caches {
            assert!(stats.written_back <= stats.dirtied, "seed {seed}: {layer}");
            assert!(stats.dirtied == 0 || stats.written_back > 0, "seed {seed}: {layer} {stats:?}");
        }
        let again = simulate(&world, seed, &mut ()).expect("it ended before");
        assert_eq!(format!("{again:?}"), format!("{result:?}"), "seed {seed}");
    }
}

/// What has come to servers, and what their devices have served.
#[derive(Default)]
struct Judged {
    arrived: u64,
    account: Account,
}

impl Observer for Judged {
    fn arrived(&mut self, arrived: &Arrived) {
        self.arrived += u64::from(arrived.bytes);
    }

    fn served(&mut self, served: &Served) {
        self.account.served(served);
    }

    fn served_late(&mut self, served: &Served) {
        self.account.served(served);
    }
}

#[test]
fn random_worlds_are_safe_and_come_to_an_end() {
    let seeds = match std::env::var("SWARM_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").expect("SWARM_SEEDS=from..to");
            from.parse().expect("a number")..to.parse().expect("a number")
        }
        Err(_) => 0..400,
    };
    for seed in seeds {
        let world = some_world(seed);
        if std::env::var("SWARM_SHOW").is_ok() {
            println!("{world:#?}");
        }
        let slots = server_device(&world.cluster.servers, 0, seed).expect("a device").slots() as usize;
        let mut judge = Judge { slots, ..Judge::default() };
        let run =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulate(&world, seed, &mut judge)));
        let result = run.unwrap_or_else(|_| panic!("seed {seed}: see above")).unwrap_or_else(|error| {
            panic!("seed {seed}: {error}");
        });
        assert!(!result.cut_off, "seed {seed} does not end");
        assert_eq!(judge.served, judge.arrived, "seed {seed}: every request that arrives is served");
        assert_eq!(judge.arrived, result.requests, "seed {seed}");
        for (spec, app) in world.apps.iter().zip(&result.apps) {
            let expected = expected_bytes(spec);
            if app.lost {
                assert!(app.bytes <= expected, "seed {seed}: {}", app.name);
            } else {
                assert_eq!(app.bytes, expected, "seed {seed}: {} moved all its bytes", app.name);
            }
        }
        let moved: u64 = result.servers.iter().map(|server| server.bytes).sum();
        assert_eq!(moved, judge.bytes.values().sum::<u64>(), "seed {seed}: bytes are conserved");
        let again = simulate(&world, seed, &mut ()).expect("it ended before");
        assert_eq!(
            format!("{again:?}"),
            format!("{result:?}"),
            "seed {seed}: the same seed gives the same result"
        );
    }
}
