//! The papers' worked examples, as tables. The naive gate must give them as well.

use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, TargetId, Time,
};
use iogate_testkit::closed_loop::{Process, Served, run, table};
use iogate_testkit::harness::Subject;
use iogate_testkit::reference::ReferenceGate;

const KIB: u64 = 1024;
const PIECE: u64 = 32 * KIB;
/// The store takes this long for a piece of 32 KiB.
const UNIT: Span = Span::from_millis(1);

fn gate_config(kind: SchedulerKind, settings: &[(&str, &str)]) -> GateConfig {
    let mut scheduler = SchedulerConfig::new(kind);
    for (name, value) in settings {
        scheduler.set(name, value).expect("valid settings");
    }
    GateConfig { scheduler, queue_max: 1000, depth: 1, layout: Layout::SINGLE }
}

fn reader(name: &'static str, file: u64, pieces: &[u64], outstanding: usize) -> Process {
    Process {
        name,
        app: AppId(0),
        file: FileId(file),
        reads: pieces.iter().map(|piece| (piece * PIECE, PIECE as u32)).collect(),
        outstanding,
        start: Time::ZERO,
    }
}

/// Both gates give this table, where one unit of time is 32 KiB of service and `#` begins a comment.
fn expect(config: &GateConfig, processes: &[Process], expected: &str) {
    let service =
        |dispatch: &iogate_core::Dispatch| Span::from_nanos(dispatch.bytes.div_ceil(PIECE) * UNIT.as_nanos());
    let line = |line: &str| line.split('#').next().unwrap_or_default().trim().to_string();
    let trim = |text: &str| text.trim().lines().map(line).collect::<Vec<_>>().join("\n");
    let real = table(&run::<Gate>(config, processes, service), UNIT);
    let naive = table(&run::<ReferenceGate>(config, processes, service), UNIT);
    assert_eq!(trim(&real), trim(expected), "the gate:\n{real}");
    assert_eq!(trim(&naive), trim(expected), "the naive gate:\n{naive}");
}

/// aIOLi, figure 3. A1 and A2 read file 1 in pieces of 32 KiB with strides of 128 KiB, two pieces each at a time;
/// A3 and A4 read files 2 and 3 a piece after the other. The base quantum is 32 KiB.
fn toy_example() -> [Process; 4] {
    [
        reader("A1", 1, &[0, 1, 4, 5], 2),
        reader("A2", 1, &[2, 3, 6, 7], 2),
        reader("A3", 2, &[0, 1, 2, 3, 4, 5], 1),
        reader("A4", 3, &[0, 1, 2, 3, 4, 5], 1),
    ]
}

#[test]
fn aioli_serves_small_requests_first_and_long_runs_whole() {
    expect(
        &gate_config(SchedulerKind::Aioli, &[("quantum_base", "32KiB")]),
        &toy_example(),
        "
     0-1  file 2   0-32  A3           # after one step single pieces are ready,
     1-2  file 3   0-32  A4           # and file 1's run of four is not
     2-3  file 3  32-64  A4           # two steps: a quantum of 64 KiB, spent on what follows
     3-4  file 2  32-64  A3           # file 2's factor is two: 128 KiB in two steps
     4-5  file 2  64-96  A3
     5-6  file 2  96-128 A3
     6-7  file 2 128-160 A3
     7-11 file 1   0-128 A1 A1 A2 A2  # four steps: ready, and the oldest
    11-12 file 3  64-96  A4
    12-13 file 3  96-128 A4
    13-14 file 3 128-160 A4
    14-15 file 3 160-192 A4           # A4 has ended: waited for in vain
    16-17 file 2 160-192 A3           # A3 too
    18-22 file 1 128-256 A1 A1 A2 A2
    ",
    );
}

#[test]
fn mlf_serves_small_requests_first_and_long_runs_whole() {
    expect(
        &gate_config(SchedulerKind::Mlf, &[("quantum_base", "32KiB")]),
        &toy_example(),
        "
     0-1  file 2   0-32  A3
     1-2  file 3   0-32  A4
     2-3  file 3  32-64  A4
     3-4  file 2  32-64  A3
     4-5  file 2  64-96  A3
     5-6  file 2  96-128 A3
     6-7  file 2 128-160 A3
     7-11 file 1   0-128 A1 A1 A2 A2
    11-12 file 3  64-96  A4
    12-13 file 3  96-128 A4
    13-14 file 3 128-160 A4
    14-15 file 3 160-192 A4           # nobody waits for A4 and A3
    15-16 file 2 160-192 A3
    16-20 file 1 128-256 A1 A1 A2 A2
    ",
    );
}

#[test]
fn fifo_breaks_the_runs_up() {
    expect(
        &gate_config(SchedulerKind::Fifo, &[]),
        &toy_example(),
        "
     0-1  file 1   0-32  A1
     1-2  file 1  32-64  A1
     2-3  file 1  64-96  A2
     3-4  file 1  96-128 A2
     4-5  file 2   0-32  A3
     5-6  file 3   0-32  A4
     6-7  file 1 128-160 A1
     7-8  file 1 160-192 A1
     8-9  file 1 192-224 A2
     9-10 file 1 224-256 A2
    10-11 file 2  32-64  A3
    11-12 file 3  32-64  A4
    12-13 file 2  64-96  A3
    13-14 file 3  64-96  A4
    14-15 file 2  96-128 A3
    15-16 file 3  96-128 A4
    16-17 file 2 128-160 A3
    17-18 file 3 128-160 A4
    18-19 file 2 160-192 A3
    19-20 file 3 160-192 A4
    ",
    );
}

/// Requests of these files, first pieces first, all there at the beginning.
fn piles(piles: &[(&'static str, u64, &[u64])]) -> Vec<Process> {
    piles.iter().map(|(name, file, pieces)| reader(name, *file, pieces, pieces.len())).collect()
}

#[test]
fn hbrr_gives_each_file_its_quantum() {
    // A has ten requests: six contiguous ones, and four with gaps. The quantum is eight.
    let files = piles(&[
        ("A", 1, &[0, 1, 2, 3, 4, 5, 10, 12, 14, 16]),
        ("B", 2, &[9, 3, 4]),
        ("C", 3, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ]);
    expect(
        &gate_config(SchedulerKind::Hbrr, &[]),
        &files,
        "
     0-6  file 1   0-192 A A A A A A
     6-7  file 1 320-352 A
     7-8  file 1 384-416 A            # eight
     8-10 file 2  96-160 B B
    10-11 file 2 288-320 B            # all it had
    11-19 file 3   0-256 C C C C C C C C
    19-20 file 1 448-480 A
    20-21 file 1 512-544 A
    21-22 file 3 256-288 C
    ",
    );
}

#[test]
fn sjf_serves_the_shortest_queue_first() {
    let files = piles(&[("A", 1, &[0, 1, 2, 3]), ("B", 2, &[5, 7, 6]), ("C", 3, &[8]), ("D", 4, &[2, 0])]);
    expect(
        &gate_config(SchedulerKind::Sjf, &[]),
        &files,
        "
     0-1  file 3 256-288 C
     1-2  file 4   0-32  D
     2-3  file 4  64-96  D
     3-6  file 2 160-256 B B B
     6-10 file 1   0-128 A A A A
    ",
    );
}

#[test]
fn to_agg_serves_runs_in_the_order_of_their_oldest_request() {
    let files = piles(&[("A", 1, &[7, 1]), ("B", 2, &[0, 1, 3]), ("C", 1, &[0, 6, 2])]);
    expect(
        &gate_config(SchedulerKind::ToAgg, &[]),
        &files,
        "
     0-2  file 1 192-256 C A          # 7 arrived first, and 6 precedes it
     2-5  file 1   0-96  C A C        # 1 arrived second, between 0 and 2
     5-7  file 2   0-64  B B
     7-8  file 2  96-128 B
    ",
    );
}

/// Server coordination, figure 2: the requests of the applications A, B and C, in the order in which they arrive
/// at each of four file servers. The service of one takes t.
const FIGURE_2: [&str; 4] = ["ABCA", "BACC", "CABB", "A"];

/// The order in which a server serves, and when each application has its last answer from any server, in t.
fn figure_2<S: Subject>(kind: SchedulerKind) -> (Vec<String>, [u64; 3]) {
    let config = gate_config(kind, &[]);
    let (mut orders, mut ends) = (Vec::new(), [0; 3]);
    for arrivals in FIGURE_2 {
        let processes: Vec<Process> = (arrivals.char_indices())
            .map(|(place, app)| {
                let app = "ABC".find(app).expect("one of the three");
                let reads = vec![(place as u64 * 2 * PIECE, PIECE as u32)];
                let (name, app) = (["A", "B", "C"][app], AppId(app as u32 + 1));
                Process { name, app, file: FileId(app.0.into()), reads, outstanding: 1, start: Time::ZERO }
            })
            .collect();
        let served: Vec<Served> = run::<S>(&config, &processes, |_| UNIT);
        orders.push(served.iter().flat_map(|served| served.names.clone()).collect());
        for Served { end, dispatch, .. } in &served {
            let app = dispatch.app.0 as usize - 1;
            ends[app] = ends[app].max(end.as_nanos() / UNIT.as_nanos());
        }
    }
    (orders, ends)
}

#[test]
fn independent_servers_delay_every_application() {
    let (orders, ends) = figure_2::<Gate>(SchedulerKind::Fifo);
    assert_eq!(orders, FIGURE_2);
    assert_eq!(ends, [4, 4, 4], "the average is 4t");
    assert_eq!(figure_2::<ReferenceGate>(SchedulerKind::Fifo), (orders, ends));
}

#[test]
fn app_window_serves_one_application_after_the_other_on_all_servers() {
    let (orders, ends) = figure_2::<Gate>(SchedulerKind::AppWindow);
    assert_eq!(orders, ["AABC", "ABCC", "ABBC", "A"]);
    assert_eq!(ends, [2, 3, 4], "the average is 3t");
    assert_eq!(figure_2::<ReferenceGate>(SchedulerKind::AppWindow), (orders, ends));
}

/// Four nodes with requests for all of four targets: which target each node serves in each window.
fn rotation<S: Subject>() -> Vec<[u32; 4]> {
    let mut nodes: Vec<S> = (0..4)
        .map(|node| {
            let mut config = gate_config(SchedulerKind::Twins, &[("node", &node.to_string())]);
            config.layout = Layout { first_target: 0, stripe_bytes: PIECE, targets: 4 };
            S::with(&config)
        })
        .collect();
    let start = Time::from_nanos(1_700_000_000_000_000_000);
    for gate in &mut nodes {
        for id in 0..16 {
            let request = Request {
                id: RequestId(id),
                file: FileId(1),
                op: Op::Write,
                offset: id * PIECE,
                bytes: PIECE as u32,
                app: AppId(0),
                client: ClientId(0),
                target: None,
                issued: None,
            };
            gate.submit(start, &request).expect("there is room");
        }
    }
    let window = |index: u64| start + Span::from_millis(index);
    (0..5)
        .map(|index| {
            std::array::from_fn(|node| {
                let mut targets: Vec<TargetId> = Vec::new();
                // Each node has four requests for each target, and a window has time for two.
                for _ in 0..2 {
                    let now = window(index);
                    let (Decision::Dispatch(dispatch), _) = nodes[node].next(now) else { break };
                    targets.push(dispatch.target);
                    nodes[node].complete(now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
                }
                targets.dedup();
                assert_eq!(targets.len(), 1, "one target in a window");
                targets[0].0
            })
        })
        .collect()
}

#[test]
fn twins_nodes_never_meet_on_a_target() {
    let expected = [
        // node 0, 1, 2, 3
        [0, 1, 2, 3],
        [1, 2, 3, 0],
        [2, 3, 0, 1],
        [3, 0, 1, 2],
        [0, 1, 2, 3],
    ];
    assert_eq!(rotation::<Gate>(), expected);
    assert_eq!(rotation::<ReferenceGate>(), expected);
}
