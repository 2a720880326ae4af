//! Processors of servers and forwarders.

use iogate_core::{Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Pattern, ProcessorSpec, Sharing};

use super::common::{app, scenario};
use super::observe::run;

#[test]
fn processor_time_is_spent_request_by_request() {
    let mut s = scenario(1, "unit:1", "fifo");
    s.cluster.servers.processor = ProcessorSpec::each(Span::from_micros(50));
    s.apps = vec![app(1, 8, 65_536, 65_536)];
    assert_eq!(run(&s).makespan, Span::from_micros(8 * 50 + 1));
}

#[test]
fn reads_writes_and_open_connections_have_their_own_price() {
    let (read, write) = (Span::from_micros(30), Span::from_micros(50));
    let took = |op: Op, connection: u64, nodes: u32| {
        let mut s = scenario(1, "unit:1", "fifo");
        s.cluster.clients.nodes = 4;
        s.cluster.servers.processor =
            ProcessorSpec { read, write, connection: Span::from_micros(connection), dispatch: Span::ZERO };
        s.apps = vec![app(1, 4, 65_536, 65_536)];
        (s.apps[0].nodes, s.apps[0].workload.op) = (nodes, op);
        run(&s).makespan.as_nanos() / 1_000 - 1
    };
    assert_eq!((took(Op::Read, 0, 4), took(Op::Write, 0, 4)), (4 * 30, 4 * 50));
    // Each from a node of its own: one connection with the first, four with the last. All from one: one.
    assert_eq!((took(Op::Read, 2, 4), took(Op::Read, 2, 1)), (4 * 30 + 2 * (1 + 2 + 3 + 4), 4 * 30 + 2 * 4));
}

/// Eight processes read what adjoins. One by one that is eight calls of the kernel, joined it is one.
#[test]
fn a_call_is_paid_for_once_for_what_is_joined() {
    let took = |scheduler: &str| {
        let mut s = scenario(1, "unit:1", scheduler);
        s.cluster.servers.processor =
            ProcessorSpec { dispatch: Span::from_micros(50), ..ProcessorSpec::default() };
        s.apps = vec![app(1, 8, 4_096, 4_096)];
        run(&s).makespan
    };
    assert_eq!(took("fifo"), Span::from_micros(8 * (1 + 50)));
    assert_eq!(took("to-agg"), Span::from_micros(1 + 50));
}

/// The mean time of a call where only the processor takes any, with Poisson arrivals.
fn response(arrival_mean_us: u64, requests: u64) -> f64 {
    let mut s = scenario(1, "unit:0", "fifo");
    // One connection is open: 900 us and 100 us for that.
    let (read, connection) = (Span::from_micros(900), Span::from_micros(100));
    s.cluster.servers.processor = ProcessorSpec { read, connection, ..ProcessorSpec::default() };
    let mut open = app(1, 1, 0, 4_096);
    let (bytes, request, file_bytes) = (requests * 4_096, 4_096, 1 << 30);
    open.workload.pattern = Pattern::Random { sharing: Sharing::Shared, bytes, request, file_bytes };
    open.workload.think = Distribution::Exponential(Span::from_micros(arrival_mean_us));
    open.workload.outstanding = None;
    s.apps = vec![open];
    let app = &run(&s).apps[0];
    assert_eq!(app.calls, requests);
    app.call_time.as_secs_f64() / app.calls as f64
}

/// M/D/1: service D, load r: D + r D / (2 (1 - r)).
#[test]
fn requests_wait_for_a_processor_as_pollaczek_and_khinchine_say() {
    for (arrival, load) in [(2_000, 0.5), (1_250, 0.8)] {
        let expected = 1e-3 + load * 1e-3 / (2.0 * (1.0 - load));
        let found = response(arrival, 200_000);
        assert!((found / expected - 1.0).abs() < 0.04, "at {load}: {found}, not {expected}");
    }
}
