use iogate_core::sched::SchedulerConfig;
use iogate_core::{Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::*;
use iogate_sim::world::simulate;
fn main() {
    let coordination = std::env::args().nth(1).as_deref() == Some("coordination");
    let net = std::env::args().nth(2).is_some();
    for name in ["fifo", "to-agg", "sjf", "mlf", "aioli", "app-window"] {
        let gate = GateSpec { scheduler: SchedulerConfig::by_name(name).unwrap(), depth: 1, queue: 1 << 20 };
        let (servers, apps, procs) = if coordination { (64, 10, 32) } else { (1, 1, 16) };
        let scenario = Scenario {
            title: String::new(),
            notes: vec![],
            seed: 1,
            repetitions: 1,
            confidence: 0.95,
            time_max: Span::from_secs(1_000_000),
            alone: false,
            cluster: Cluster {
                clients: Clients { nodes: 64, gate: None },
                forwarders: vec![],
                servers: Servers {
                    nodes: servers,
                    gate,
                    device: if coordination { "sata-7200-250g" } else { "graphene" }.into(),
                    stripe: if coordination { 4096 } else { 32768 },
                    transfer: if coordination { 262144 } else { 8192 },
                    extent: 256 << 20,
                    overhead: Span::ZERO,
                },
            },
            network: Network {
                latency: if net { Span::from_micros(50) } else { Span::ZERO },
                jitter: Span::ZERO,
                bandwidth: net.then_some(125_000_000),
                buffer: None,
                retransmit: Span::from_millis(200),
                header: 0,
            },
            batch: None,
            jobs: None,
            faults: vec![],
            apps: (0..apps)
                .map(|i| App {
                    name: format!("a{i}"),
                    id: i + 1,
                    processes: procs,
                    first_node: 0,
                    nodes: 64,
                    start: Span::ZERO,
                    walltime: None,
                    files: i,
                    workload: Workload {
                        pattern: Pattern::Contiguous {
                            sharing: Sharing::Shared,
                            bytes: if coordination { 50 * 512 << 10 } else { 256 << 20 },
                            request: if coordination { 512 << 10 } else { 256 << 10 },
                        },
                        op: Op::Read,
                        iterations: 1,
                        compute: Distribution::ZERO,
                        think: Distribution::ZERO,
                        outstanding: Some(1),
                        barrier: if coordination { Barrier::Call } else { Barrier::None },
                        collective: None,
                    },
                })
                .collect(),
        };
        let t = std::time::Instant::now();
        let r = simulate(&scenario, 1, &mut ()).unwrap();
        let d = t.elapsed().as_secs_f64();
        println!(
            "{name:10} makespan {:8.3} requests {} dispatches {} seeks {} wall {:.2} -> {:.2} M/s",
            r.makespan.as_secs_f64(),
            r.requests,
            r.servers.iter().map(|s| s.dispatches).sum::<u64>(),
            r.servers.iter().map(|s| s.repositions).sum::<u64>(),
            d,
            r.requests as f64 / d / 1e6
        );
    }
}
