//! Where theory gives a number, the simulator gives the same.

mod common;

use common::{app, gate, scenario};
use iogate_core::{Op, Span};
use iogate_sim::result::RunResult;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Forwarders, Pattern, ProcessorSpec, Scenario, Sharing, Spread};
use iogate_sim::world::simulate;

fn run(scenario: &Scenario, seed: u64) -> RunResult {
    simulate(scenario, seed, &mut ()).expect("it ends")
}

#[test]
fn a_unit_device_serves_one_request_after_the_other() {
    let mut s = scenario(1, "unit:100", "fifo");
    s.apps = vec![app(1, 7, 10 * 65_536, 65_536)];
    let result = run(&s, 1);
    assert_eq!(result.makespan, Span::from_micros(7 * 10 * 100));
    assert_eq!(result.servers[0].busy, result.makespan);
    assert_eq!((result.requests, result.apps[0].bytes), (70, 70 * 65_536));
}

#[test]
fn servers_work_side_by_side() {
    let mut s = scenario(4, "unit:100", "fifo");
    s.apps = vec![app(1, 1, 10 * 4 * 65_536, 4 * 65_536)];
    assert_eq!(run(&s, 1).makespan, Span::from_micros(10 * 100));
}

/// 100 MB/s: 64 KiB take 655.36 us.
const WIRE_NS: u64 = 655_360;

fn with_network(mut s: Scenario) -> Scenario {
    s.network.latency = Span::from_micros(50);
    s.network.bandwidth = Some(100_000_000);
    s
}

#[test]
fn a_write_takes_the_wire_the_device_and_two_latencies() {
    let mut s = with_network(scenario(1, "unit:100", "fifo"));
    let mut writer = app(1, 1, 8 * 65_536, 8 * 65_536);
    writer.workload.op = Op::Write;
    s.apps = vec![writer];
    // Eight pieces back to back; the device is done with each before the next has come in.
    let expected = 50_000 + 8 * WIRE_NS + 100_000 + 50_000;
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(expected));
}

#[test]
fn a_read_over_a_slow_device_takes_the_device_and_one_piece_of_wire() {
    let mut s = with_network(scenario(1, "unit:5000", "fifo"));
    s.apps = vec![app(1, 1, 8 * 65_536, 8 * 65_536)];
    let expected = 50_000 + 8 * 5_000_000 + 50_000 + WIRE_NS;
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(expected));
}

#[test]
fn a_forwarder_adds_its_wire_and_its_latencies() {
    let mut s = with_network(scenario(1, "unit:100", "fifo"));
    let mut writer = app(1, 1, 65_536, 65_536);
    writer.workload.op = Op::Write;
    s.apps = vec![writer];
    let direct = run(&s, 1).makespan;
    s.cluster.forwarders = vec![Forwarders {
        name: "ion".into(),
        nodes: 1,
        gate: gate("fifo"),
        spread: Spread::Client,
        transfer: 1 << 20,
        processor: ProcessorSpec::default(),
        lists: None,
    }];
    assert_eq!(run(&s, 1).makespan, direct + Span::from_nanos(WIRE_NS + 100_000));
}

/// Replies of one call come in through one port one after the other, and all but the last are only counted.
#[test]
fn a_read_of_several_servers_ends_when_the_last_reply_has_come_in() {
    let mut s = with_network(scenario(4, "unit:100", "fifo"));
    s.apps = vec![app(1, 1, 2 * 4 * 65_536, 4 * 65_536)];
    let call = 50_000 + 100_000 + 50_000 + 4 * WIRE_NS;
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(2 * call));
    // One request of the node may be unanswered: the next one goes when a reply has come in.
    s.cluster.clients.slots = Some(1);
    let each = 50_000 + 100_000 + 50_000 + WIRE_NS;
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(2 * 4 * each));
    // The replies are of a forwarder's dispatch, which then sends all of it on.
    s.cluster.clients.slots = None;
    s.cluster.forwarders = vec![Forwarders {
        name: "ion".into(),
        nodes: 1,
        gate: gate("fifo"),
        spread: Spread::Client,
        transfer: 1 << 20,
        processor: ProcessorSpec::default(),
        lists: None,
    }];
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(2 * (50_000 + call + 50_000 + 4 * WIRE_NS)));
}

#[test]
fn writers_to_one_server_share_its_port() {
    let mut s = with_network(scenario(1, "unit:1", "fifo"));
    s.cluster.clients.nodes = 10;
    s.apps = (0..10)
        .map(|i| {
            let mut writer = app(i + 1, 1, 65_536, 65_536);
            (writer.first_node, writer.workload.op) = (i, Op::Write);
            writer
        })
        .collect();
    assert_eq!(run(&s, 1).makespan, Span::from_nanos(50_000 + 10 * WIRE_NS + 1_000 + 50_000));
}

/// The mean response time of a single server with Poisson arrivals, in seconds.
fn response(device: &str, arrival_mean_us: u64, requests: u64) -> f64 {
    let mut s = scenario(1, device, "fifo");
    let mut open = app(1, 1, 0, 4096);
    open.workload.pattern = Pattern::Random {
        sharing: Sharing::Shared,
        bytes: requests * 4096,
        request: 4096,
        file_bytes: 1 << 30,
    };
    open.workload.think = Distribution::Exponential(Span::from_micros(arrival_mean_us));
    open.workload.outstanding = None;
    s.apps = vec![open];
    let app = &run(&s, 11).apps[0];
    assert_eq!(app.calls, requests);
    app.call_time.as_secs_f64() / app.calls as f64
}

#[test]
fn waiting_is_as_pollaczek_and_khinchine_say() {
    // M/D/1: service D, load r: D + r D / (2 (1 - r)); M/M/1 with service mean S: S / (1 - r).
    for (arrival, load) in [(2_000, 0.5), (1_250, 0.8)] {
        let service = 1e-3;
        let deterministic = response("unit:1000", arrival, 300_000);
        let expected = service + load * service / (2.0 * (1.0 - load));
        assert!(
            (deterministic / expected - 1.0).abs() < 0.03,
            "M/D/1 at {load}: {deterministic} not {expected}"
        );
        let exponential = response("exponential:1000", arrival, 300_000);
        let expected = service / (1.0 - load);
        assert!((exponential / expected - 1.0).abs() < 0.05, "M/M/1 at {load}: {exponential} not {expected}");
    }
}

/// Server coordination, 3.2: `m` applications send a request to each of `n` servers at the same time, and each takes `t`. The mean
/// completion time, in units of `t`, over all applications and seeds, with its standard error.
fn completion(scheduler: &str, m: u32, n: u32, seeds: u64) -> (f64, f64) {
    const T_US: u64 = 100_000;
    let piece = 64 << 10;
    let mut s = scenario(n, "unit:100000", scheduler);
    // Messages come in any order, long before the first request, which keeps all servers busy meanwhile, is served.
    s.network.jitter = Span::from_micros(1_000);
    let call = n * piece;
    let first = app(1, 1, call.into(), call);
    let others = (0..m).map(|i| {
        let mut other = app(2 + i, 1, call.into(), call);
        (other.first_node, other.start) = (1 + i, Span::from_millis(50));
        other
    });
    s.cluster.clients.nodes = 1 + m;
    s.apps = [first].into_iter().chain(others).collect();
    let means: Vec<f64> = (0..seeds)
        .map(|seed| {
            let result = run(&s, seed);
            let all =
                result.apps[1..].iter().map(|app| app.end.as_nanos() as f64 / (T_US as f64 * 1e3) - 1.0);
            all.sum::<f64>() / f64::from(m)
        })
        .collect();
    let mean = means.iter().sum::<f64>() / seeds as f64;
    let variance = means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
    (mean, (variance / seeds as f64).sqrt())
}

#[test]
fn completion_times_follow_the_formulas_of_server_coordination() {
    for m in [2, 4, 8, 16] {
        for n in [1, 2, 4, 16, 64] {
            let (independent, error) = completion("fifo", m, n, 24);
            let (mf, nf) = (f64::from(m), f64::from(n));
            let formula_1 = mf - (1..m).map(|k| (f64::from(k) / mf).powf(nf)).sum::<f64>();
            // Jitter comes on top: at most 2 ms of 100.
            assert!(
                (independent - formula_1).abs() < 3.5 * error + 0.025,
                "m {m}, n {n}: {independent} +- {error}, formula (1) {formula_1}"
            );
            let (coordinated, error) = completion("app-window", m, n, 3);
            let formula_2 = (mf + 1.0) / 2.0;
            assert!(
                (coordinated - formula_2).abs() < 0.025,
                "m {m}, n {n}: {coordinated} +- {error}, formula (2) {formula_2}"
            );
        }
    }
}

#[test]
fn a_device_alone_is_as_fast_in_the_simulator_as_by_itself() {
    use iogate_core::Time;
    use iogate_core::device::{Transfer, parse};
    for (device, request) in [("hdd", 256 << 10), ("graphene", 64 << 10), ("edel", 64 << 10)] {
        let total: u64 = 64 << 20;
        let mut s = scenario(1, device, "fifo");
        s.cluster.servers.transfer = 1 << 20;
        s.apps = vec![app(1, 1, total, request)];
        let simulated = run(&s, 1).makespan;
        let (mut model, mut now) = (parse(device).expect("a device"), Time::ZERO);
        for address in (0..total).step_by(request as usize) {
            now = now + model.serve(now, Transfer { op: Op::Read, address, bytes: request.into() });
        }
        assert_eq!(simulated, now.since(Time::ZERO), "{device}");
    }
}

#[test]
fn random_accesses_take_what_the_device_takes_for_them() {
    use iogate_core::device::{Transfer, parse};
    use iogate_sim::world::{Observer, Served};
    #[derive(Default)]
    struct Seen(Vec<Served>);
    impl Observer for Seen {
        fn served(&mut self, served: &Served) {
            self.0.push(*served);
        }
    }
    for device in ["hdd", "pastel", "suno", "edel"] {
        let mut s = scenario(1, device, "fifo");
        let mut reader = app(1, 3, 0, 0);
        let (bytes, request, file_bytes) = (200 * 4096, 4096, 128 << 20);
        reader.workload.pattern = Pattern::Random { sharing: Sharing::Shared, bytes, request, file_bytes };
        s.apps = vec![reader];
        let mut seen = Seen::default();
        let result = simulate(&s, 5, &mut seen).expect("it ends");
        assert_eq!(seen.0.len(), 600);
        // The file is the first on the device and fits an extent: its offsets are addresses.
        let mut model = parse(device).expect("a device");
        for served in &seen.0 {
            let transfer = Transfer { op: served.op, address: served.offset, bytes: served.bytes };
            assert_eq!(served.end, served.start + model.serve(served.start, transfer), "{device}");
        }
        assert_eq!(result.servers[0].repositions, model.repositions(), "{device}");
    }
}
