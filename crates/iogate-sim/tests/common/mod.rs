//! A small scenario to start from.

use iogate_core::sched::SchedulerConfig;
use iogate_core::{Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{
    App, Barrier, Clients, Cluster, Coordination, GateSpec, Network, Pattern, ProcessorSpec, Scenario,
    Servers, Sharing, Workload,
};

/// A gate that lets one dispatch through at a time.
pub(crate) fn gate(scheduler: &str) -> GateSpec {
    let scheduler = SchedulerConfig::by_name(scheduler).expect("a scheduler's name");
    GateSpec { scheduler, auto: false, own: None, depth: 1, queue: 1 << 20, fair: false, lot: None }
}

/// One client node and servers that take `device`'s time, no network to speak of, no applications yet.
pub(crate) fn scenario(servers: u32, device: &str, scheduler: &str) -> Scenario {
    Scenario {
        title: "test".into(),
        notes: Vec::new(),
        seed: 1,
        repetitions: 1,
        confidence: 0.95,
        time_max: Span::from_secs(1_000_000),
        alone: false,
        cluster: Cluster {
            clients: Clients { nodes: 1, gate: None, cache: None, slots: None },
            forwarders: Vec::new(),
            servers: Servers {
                nodes: servers,
                gate: gate(scheduler),
                device: device.into(),
                profile: None,
                stripe: 64 << 10,
                transfer: 64 << 10,
                extent: 256 << 20,
                allocation: None,
                processor: ProcessorSpec::default(),
                cache: None,
                elevator: None,
            },
        },
        network: Network {
            latency: Span::ZERO,
            jitter: Span::ZERO,
            bandwidth: None,
            buffer: None,
            retransmit: Span::from_millis(200),
            header: 0,
        },
        batch: None,
        apps: Vec::new(),
        jobs: None,
        coordination: Coordination::default(),
        global: None,
        groups: Vec::new(),
        faults: Vec::new(),
    }
}

/// An application with synchronous, contiguous reads of a shared file.
pub(crate) fn app(id: u32, processes: u32, bytes: u64, request: u32) -> App {
    App {
        name: format!("app{id}"),
        id,
        processes,
        first_node: 0,
        nodes: 1,
        start: Span::ZERO,
        walltime: None,
        files: id,
        entitlement: Default::default(),
        group: None,
        workload: Workload {
            pattern: Pattern::Contiguous { sharing: Sharing::Shared, bytes, request },
            op: Op::Read,
            iterations: 1,
            compute: Distribution::ZERO,
            think: Distribution::ZERO,
            outstanding: Some(1),
            barrier: Barrier::None,
            collective: None,
        },
    }
}
