//! Simulated requests per second on one core, and memory: the two workloads that the papers' sweeps are made of.
//!
//! `cargo bench -p iogate-sim --bench sim -- [--quick] [--json] [--rounds N]`. A request is one that reaches a server. Time is
//! the thread's CPU time; rounds of the cases are interleaved, and the table shows medians.

use iogate_core::sched::SchedulerConfig;
use iogate_core::{Op, SchedulerKind, Span};
use iogate_sim::cache::{CacheConfig, Kernel};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{
    App, Barrier, Clients, Cluster, Coordination, GateSpec, Network, Pattern, ProcessorSpec, Scenario,
    ServerCache, Servers, Sharing, Workload,
};
use iogate_sim::world::simulate;

const KIB: u32 = 1 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// AGIOS's on one server: 16 processes, calls of 256 KiB in messages of 8 KiB.
    OneServer,
    /// Server coordination's: 64 servers, ten applications of 32 processes, 8 KiB from each server in a call.
    SixtyFourServers,
    /// The same with a network that delays all messages equally.
    WithoutJitter,
    /// The first with a page cache on the server, and the second with one on each.
    OneCache,
    SixtyFourCaches,
    /// Writes to the first.
    OneCacheWritten,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::OneServer => "1 server, 16 processes",
            Work::SixtyFourServers => "64 servers, 320 processes",
            Work::WithoutJitter => "the same without jitter",
            Work::OneCache => "1 server with a cache",
            Work::SixtyFourCaches => "64 servers with caches",
            Work::OneCacheWritten => "1 server with a cache, writes",
        }
    }

    /// `calls` calls a process.
    fn scenario(self, kind: SchedulerKind, calls: u32) -> Scenario {
        let (servers, apps, processes, device, stripe, transfer, request) = match self {
            Work::OneServer | Work::OneCache | Work::OneCacheWritten => {
                (1, 1, 16, "graphene", 32 * KIB, 8 * KIB, 256 * KIB)
            }
            Work::SixtyFourServers | Work::WithoutJitter | Work::SixtyFourCaches => {
                (64, 10, 32, "sata-7200-250g", 4 * KIB, 256 * KIB, 512 * KIB)
            }
        };
        let gate = GateSpec {
            scheduler: SchedulerConfig::new(kind),
            auto: false,
            own: None,
            depth: 1,
            queue: 1 << 16,
            fair: false,
            lot: None,
        };
        let workload = Workload {
            pattern: Pattern::Contiguous {
                sharing: Sharing::Shared,
                bytes: u64::from(calls) * u64::from(request),
                request,
            },
            op: if self == Work::OneCacheWritten { Op::Write } else { Op::Read },
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
            workload: workload.clone(),
        };
        Scenario {
            title: self.name().into(),
            notes: Vec::new(),
            seed: 1,
            repetitions: 1,
            confidence: 0.95,
            time_max: Span::from_secs(1_000_000),
            alone: false,
            cluster: Cluster {
                clients: Clients { nodes: 32, gate: None, cache: None, slots: None },
                forwarders: Vec::new(),
                servers: Servers {
                    nodes: servers,
                    gate,
                    device: device.into(),
                    profile: None,
                    stripe: stripe.into(),
                    transfer,
                    extent: 256 << 20,
                    allocation: None,
                    processor: ProcessorSpec::default(),
                    cache: matches!(self, Work::OneCache | Work::OneCacheWritten | Work::SixtyFourCaches)
                        .then(|| ServerCache {
                            config: CacheConfig::new(Kernel::V2628, 4 << 30),
                            commits: true,
                        }),
                    elevator: None,
                },
            },
            network: Network {
                latency: Span::from_micros(50),
                jitter: Span::from_micros(if self == Work::WithoutJitter { 0 } else { 100 }),
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
    let kinds = [
        SchedulerKind::Fifo,
        SchedulerKind::ToAgg,
        SchedulerKind::Sjf,
        SchedulerKind::Mlf,
        SchedulerKind::Aioli,
        SchedulerKind::AppWindow,
    ];
    let mut cases: Vec<Case> = Vec::new();
    for (work, calls) in [
        (Work::OneServer, 1_024),
        (Work::SixtyFourServers, 25),
        (Work::WithoutJitter, 25),
        (Work::OneCache, 1_024),
        (Work::OneCacheWritten, 1_024),
        (Work::SixtyFourCaches, 25),
    ] {
        let calls = if quick { calls / 16 + 1 } else { calls };
        for kind in kinds {
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
            "{:<26} {:<12} {:>10} {:>10} {:>10}",
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
            println!("{work:<26} {kind:<12} {median:>10.0} {low:>10.0} {high:>10.0}");
        }
    }
}
