//! Simulated requests per second on one core: the two workloads that the papers' sweeps are made of, by themselves, with each model
//! of what lies around a server's gate, and with all of them.
//!
//! `cargo bench -p iogate-sim --bench sim -- [--quick] [--json] [--rounds N] [--only TEXT]`. A request is one that reaches a server.
//! Time is the thread's CPU time; rounds of the cases are interleaved, and the table shows medians. `--only` is a part of a
//! workload's name.

use iogate_core::device::Rules;
use iogate_core::sched::SchedulerConfig;
use iogate_core::{Op, SchedulerKind, Span};
use iogate_sim::cache::{CacheConfig, Kernel};
use iogate_sim::elevator::{ElevatorConfig, Threads};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{
    App, Barrier, Clients, Cluster, Coordination, Forwarders, GateSpec, ListSpec, Network, Pattern,
    ProcessorSpec, Scenario, ServerCache, Servers, Sharing, Spread, Workload,
};
use iogate_sim::world::simulate;

const KIB: u32 = 1 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Base {
    /// AGIOS's on one server: 16 processes, calls of 256 KiB in messages of 8 KiB.
    OneServer,
    /// Server coordination's: 64 servers, ten applications of 32 processes, 8 KiB from each server in a call.
    SixtyFourServers,
    /// The same with a network that delays all messages equally.
    WithoutJitter,
}

/// What a scenario has besides.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    Nothing,
    /// A page cache on each server; the processes read.
    Cache,
    /// The same, and they write.
    CacheWritten,
    Elevator,
    CommandQueue,
    /// Forwarders, one for each eight servers, that join dispatches to lists.
    Lists,
    /// ext3's blocks, for writes.
    Allocation,
    ClientCaches,
    Processor,
    /// All of these, for writes.
    All,
}

/// What the benchmark simulates.
#[derive(Clone, Copy)]
struct Work(Base, Model);

impl Work {
    fn name(self) -> String {
        let base = match self.0 {
            Base::OneServer => "1 server, 16 processes",
            Base::SixtyFourServers => "64 servers, 320 processes",
            Base::WithoutJitter => "64 servers without jitter",
        };
        let model = match self.1 {
            Model::Nothing => return base.into(),
            Model::Cache => "cache",
            Model::CacheWritten => "cache, writes",
            Model::Elevator => "elevator",
            Model::CommandQueue => "command queue",
            Model::Lists => "list I/O",
            Model::Allocation => "allocation",
            Model::ClientCaches => "clients' caches",
            Model::Processor => "processor",
            Model::All => "all models",
        };
        format!("{}: {model}", if self.0 == Base::OneServer { "1 server" } else { "64 servers" })
    }

    /// `calls` calls a process.
    fn scenario(self, kind: SchedulerKind, calls: u32) -> Scenario {
        let Work(base, model) = self;
        let (servers, apps, processes, mut device, stripe, transfer, request) = match base {
            Base::OneServer => (1u32, 1, 16, String::from("graphene"), 32 * KIB, 8 * KIB, 256 * KIB),
            Base::SixtyFourServers | Base::WithoutJitter => {
                (64, 10, 32, String::from("sata-7200-250g"), 4 * KIB, 256 * KIB, 512 * KIB)
            }
        };
        let has = |one: Model| model == one || model == Model::All;
        let writes = [Model::CacheWritten, Model::Allocation, Model::All].contains(&model);
        let orders = has(Model::Elevator) || has(Model::CommandQueue);
        if has(Model::CommandQueue) {
            device.push_str(":queue=31");
        }
        let processor = match has(Model::Processor) {
            true => ProcessorSpec {
                connection: Span::from_nanos(50),
                ..ProcessorSpec::each(Span::from_micros(5))
            },
            false => ProcessorSpec::default(),
        };
        // What it lets through is what is left to order below it.
        let gate_depth = if orders { 32 } else { 1 };
        let gate = GateSpec {
            scheduler: SchedulerConfig::new(kind),
            auto: false,
            own: None,
            depth: gate_depth,
            queue: 1 << 16,
            fair: false,
            lot: None,
        };
        let forwarders = Forwarders {
            name: "forwarders".into(),
            nodes: servers.div_ceil(8),
            gate: GateSpec { depth: 64, ..gate.clone() },
            spread: Spread::Client,
            transfer: 512 * KIB,
            processor,
            lists: Some(ListSpec { requests: 16, calls: 16 }),
        };
        let workload = Workload {
            pattern: Pattern::Contiguous {
                sharing: Sharing::Shared,
                bytes: u64::from(calls) * u64::from(request),
                request,
            },
            op: if writes { Op::Write } else { Op::Read },
            iterations: 1,
            compute: Distribution::ZERO,
            think: Distribution::ZERO,
            outstanding: Some(1),
            barrier: if servers == 1 { Barrier::None } else { Barrier::Call },
            collective: None,
        };
        let app = |index: u32| App {
            name: format!("app-{index}"),
            id: index + 1,
            processes,
            first_node: 0,
            nodes: 32,
            start: Span::ZERO,
            walltime: None,
            files: index,
            entitlement: Default::default(),
            group: None,
            workload: workload.clone(),
        };
        Scenario {
            title: self.name(),
            notes: Vec::new(),
            seed: 1,
            repetitions: 1,
            confidence: 0.95,
            time_max: Span::from_secs(1_000_000),
            alone: false,
            cluster: Cluster {
                clients: Clients {
                    nodes: 32,
                    gate: None,
                    cache: has(Model::ClientCaches).then(|| CacheConfig::new(Kernel::V2628, 1 << 30)),
                    slots: None,
                },
                forwarders: if has(Model::Lists) { vec![forwarders] } else { Vec::new() },
                servers: Servers {
                    nodes: servers,
                    gate,
                    device,
                    profile: None,
                    stripe: stripe.into(),
                    transfer,
                    extent: 256 << 20,
                    allocation: has(Model::Allocation).then_some(Rules::Ext3),
                    processor,
                    cache: (has(Model::Cache) || model == Model::CacheWritten).then(|| ServerCache {
                        config: CacheConfig::new(Kernel::V2628, 4 << 30),
                        commits: true,
                    }),
                    elevator: has(Model::Elevator).then(|| ElevatorConfig::slices(Threads::Request)),
                },
            },
            network: Network {
                latency: Span::from_micros(50),
                jitter: Span::from_micros(if base == Base::WithoutJitter { 0 } else { 100 }),
                bandwidth: Some(125_000_000),
                buffer: None,
                retransmit: Span::from_millis(200),
                header: 128,
            },
            batch: None,
            apps: (0..apps).map(app).collect(),
            jobs: None,
            coordination: Coordination::default(),
            global: None,
            groups: Vec::new(),
            faults: Vec::new(),
        }
    }
}

struct Case {
    work: Work,
    kind: SchedulerKind,
    scenario: Scenario,
    per_second: Vec<f64>,
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value = |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1);
    let (quick, json) = (has("--quick"), has("--json"));
    let rounds = value("--rounds").and_then(|n| n.parse().ok()).unwrap_or(if quick { 1 } else { 5 });
    let only = value("--only").map_or("", String::as_str);
    let all = [
        SchedulerKind::Fifo,
        SchedulerKind::ToAgg,
        SchedulerKind::Mlf,
        SchedulerKind::Sjf,
        SchedulerKind::Aioli,
        SchedulerKind::AppWindow,
    ];
    let works = [
        Work(Base::OneServer, Model::Nothing),
        Work(Base::SixtyFourServers, Model::Nothing),
        Work(Base::WithoutJitter, Model::Nothing),
    ];
    let models = [
        Model::Cache,
        Model::CacheWritten,
        Model::Elevator,
        Model::CommandQueue,
        Model::Lists,
        Model::Allocation,
        Model::ClientCaches,
        Model::Processor,
        Model::All,
    ];
    let with_models =
        models.into_iter().flat_map(|m| [Work(Base::OneServer, m), Work(Base::SixtyFourServers, m)]);
    let mut cases: Vec<Case> = Vec::new();
    for work in works.into_iter().chain(with_models).filter(|work| work.name().contains(only)) {
        let calls = if work.0 == Base::OneServer { 1_024 } else { 25 };
        let calls = if quick { calls / 16 + 1 } else { calls };
        // The cheapest scheduler, one that joins, and the dearest do for the models.
        let kinds = if work.1 == Model::Nothing { &all[..] } else { &all[..3] };
        for &kind in kinds {
            cases.push(Case { work, kind, scenario: work.scenario(kind, calls), per_second: Vec::new() });
        }
    }
    for _ in 0..rounds {
        for case in &mut cases {
            let begin = cpu_seconds();
            let result = simulate(&case.scenario, 1, &mut ()).expect("it ends");
            case.per_second.push(result.requests as f64 / (cpu_seconds() - begin));
        }
    }
    if !json {
        println!(
            "{:<28} {:<12} {:>10} {:>10} {:>10}",
            "workload", "scheduler", "requests/s", "lowest", "highest"
        );
    }
    for Case { work, kind, per_second, .. } in &mut cases {
        per_second.sort_by(f64::total_cmp);
        let (low, high) = (per_second[0], per_second[per_second.len() - 1]);
        let (median, work, kind) = (per_second[per_second.len() / 2], work.name(), kind.name());
        if json {
            println!(
                "{{\"workload\":\"{work}\",\"scheduler\":\"{kind}\",\"requests_per_s\":{median:.0},\
                 \"lowest\":{low:.0},\"highest\":{high:.0}}}"
            );
        } else {
            println!("{work:<28} {kind:<12} {median:>10.0} {low:>10.0} {high:>10.0}");
        }
    }
}
