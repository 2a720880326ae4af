//! Whole replays: golden logs, conservation, equal times, depth, back-pressure.

use iogate_core::device::{Device, Placement, Transfer, Unit, parse_numbered};
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind, Span, Time};
use iogate_sim::{Backend, Dispatched, Replay, Totals, TraceReader, log};
use proptest::prelude::*;

const HEADER: &str = "time_us,app,client,file,op,offset,bytes";

fn gate(scheduler: &str, depth: u32) -> GateConfig {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    GateConfig { scheduler, queue_max: 1_000, depth, layout: Layout::SINGLE }
}

fn unit(us: u64) -> Backend {
    Backend::overlapping(Box::new(Unit::new(Span::from_micros(us))))
}

fn run(rows: &str, gate: &GateConfig, backend: Backend) -> (String, Vec<Dispatched>, Totals) {
    let text = format!("{HEADER}\n{rows}");
    let mut replay = Replay::new(TraceReader::new(text.as_bytes()).unwrap(), gate, backend).unwrap();
    let (mut out, mut all) = (Vec::new(), Vec::new());
    while let Some(dispatched) = replay.next_dispatch().unwrap() {
        log::write_line(&mut out, &dispatched, &replay.trace().files().name(dispatched.file)).unwrap();
        all.push(dispatched);
    }
    assert!(replay.gate().is_empty());
    (String::from_utf8(out).unwrap(), all, replay.totals())
}

#[test]
fn arrival_order_one_at_a_time() {
    let rows = "0,1,1,a,r,0,4096\n0,2,2,\"b,c\",w,0,512\n10,1,1,a,r,4096,4096\n1000.5,1,1,9,r,0,1\n";
    let (log, _, totals) = run(rows, &gate("fifo", 1), unit(100));
    assert_eq!(
        log,
        "0,100,a,r,0,4096,1,1\n\
         100,200,\"b,c\",w,0,512,1,2\n\
         200,300,a,r,4096,4096,1,3\n\
         1000.5,1100.5,9,r,0,1,1,4\n"
    );
    assert_eq!((totals.requests, totals.dispatches, totals.bytes), (4, 4, 8_705));
    assert_eq!(totals.makespan, Span::from_nanos(1_100_500));
    assert_eq!(totals.device_busy, Span::from_micros(400));
}

#[test]
fn a_unit_device_serves_all_that_are_in_flight() {
    let rows = "0,1,1,a,r,0,1\n0,1,1,b,r,0,1\n0,1,1,c,r,0,1\n";
    let (log, ..) = run(rows, &gate("fifo", 2), unit(100));
    assert_eq!(log, "0,100,a,r,0,1,1,1\n0,100,b,r,0,1,1,2\n100,200,c,r,0,1,1,3\n");
}

#[test]
fn any_other_device_serves_one_at_a_time_at_any_depth() {
    let rows = "0,1,1,a,r,0,1\n0,1,1,b,r,0,1\n0,1,1,c,r,0,1\n";
    let backend = Backend::striped(vec![Box::new(Unit::new(Span::from_micros(100)))], Layout::SINGLE);
    let (log, ..) = run(rows, &gate("fifo", 2), backend);
    assert_eq!(log, "0,100,a,r,0,1,1,1\n100,200,b,r,0,1,1,2\n200,300,c,r,0,1,1,3\n");
}

#[test]
fn a_row_of_more_pieces_than_the_gate_takes_is_refused() {
    let text = format!("{HEADER}\n0,1,1,a,r,0,4\n0,1,1,a,r,0,50\n");
    let mut scheduler = SchedulerConfig::by_name("twins").unwrap();
    scheduler.set("split", "true").unwrap();
    let layout = Layout { first_target: 0, stripe_bytes: 4, targets: 2 };
    let gate = GateConfig { scheduler, queue_max: 10, depth: 1, layout };
    let mut replay = Replay::new(TraceReader::new(text.as_bytes()).unwrap(), &gate, unit(100)).unwrap();
    assert!(replay.next_dispatch().unwrap().is_some());
    let error = replay.next_dispatch().unwrap_err().to_string();
    assert!(error.starts_with("row 2 is 13 requests once it is split"), "{error}");
}

/// Notes where transfers went; a byte takes a nanosecond.
#[derive(Clone, Default)]
struct Noting(std::sync::Arc<std::sync::Mutex<Vec<Transfer>>>);

impl Noting {
    fn seen(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap().iter().map(|transfer| (transfer.address, transfer.bytes)).collect()
    }
}

impl Device for Noting {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        self.0.lock().unwrap().push(transfer);
        Span::from_nanos(transfer.bytes)
    }
    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn repositions(&self) -> u64 {
        1
    }
}

#[test]
fn a_dispatch_is_cut_where_the_extents_of_its_file_end() {
    let seen = Noting::default();
    let backend = Backend::striped(vec![Box::new(seen.clone())], Layout::SINGLE);
    let extent = Placement::EXTENT_BYTES;
    // The second file begins before the first one goes on in an extent behind it.
    let rows = format!("0,1,1,a,r,0,1\n0,1,1,b,r,0,1\n10,1,1,a,r,{},30\n", extent - 10);
    run(&rows, &gate("fifo", 1), backend);
    assert_eq!(seen.seen(), [(0, 1), (extent, 1), (extent - 10, 10), (2 * extent, 20)]);
}

#[test]
fn stripes_are_served_by_their_targets_at_once() {
    let layout = Layout { first_target: 0, stripe_bytes: 1_000, targets: 2 };
    let seen = [(); 2].map(|()| Noting::default());
    let devices = seen.iter().map(|seen| Box::new(seen.clone()) as Box<dyn Device>).collect();
    let gate = GateConfig { layout, ..gate("fifo", 1) };
    // Stripes 0 (its end), 1, 2, 3 (its start): targets 0, 1, 0, 1.
    let (log, _, totals) = run("0,1,1,a,r,500,3000\n", &gate, Backend::striped(devices, layout));
    assert_eq!(seen.map(|seen| seen.seen()), [vec![(500, 1_500)], vec![(0, 1_500)]]);
    assert_eq!(log, "0,1.5,a,r,500,3000,1,1\n");
    assert_eq!((totals.device_busy, totals.repositions), (Span::from_nanos(3_000), 2));
}

#[test]
fn at_equal_times_completions_come_before_arrivals() {
    // Row 3 arrives when row 1 completes; the gate has room for two.
    let gate = GateConfig { queue_max: 2, ..gate("fifo", 1) };
    let (log, _, totals) = run("0,1,1,a,r,0,1\n0,1,1,b,r,0,1\n100,1,1,c,r,0,1\n", &gate, unit(100));
    assert_eq!(log, "0,100,a,r,0,1,1,1\n100,200,b,r,0,1,1,2\n200,300,c,r,0,1,1,3\n");
    assert_eq!(totals.held_back, 0);
}

#[test]
fn a_full_gate_holds_arrivals_back_and_counts_them() {
    let gate = GateConfig { queue_max: 1, ..gate("fifo", 1) };
    let (log, _, totals) = run("0,1,1,a,r,0,1\n10,1,1,b,r,0,1\n20,1,1,c,r,0,1\n", &gate, unit(100));
    assert_eq!(log, "0,100,a,r,0,1,1,1\n100,200,b,r,0,1,1,2\n200,300,c,r,0,1,1,3\n");
    assert_eq!((totals.held_back, totals.held_back_total), (2, Span::from_micros(90 + 180)));
}

#[test]
fn a_trace_without_rows_is_served_at_once() {
    let (log, _, totals) = run("", &gate("aioli", 1), unit(100));
    assert_eq!((log.as_str(), totals), ("", Totals::default()));
}

/// After the toy example of aIOLi, figure 3: two processes read file 1 together in 32 KiB pieces, two others files 2
/// and 3. A single request goes first; what file 1 gathers meanwhile is served as one run. Between 300 and 1300 us the
/// gate waits for what may follow file 2's last request.
#[test]
fn the_toy_example_of_aioli() {
    let mut rows: Vec<(u64, String)> = Vec::new();
    for round in 0..4u64 {
        let at = round * 50;
        for (client, file, offset) in [
            (1, 1, round * 65_536),
            (2, 1, round * 65_536 + 32_768),
            (3, 2, round * 32_768),
            (4, 3, round * 32_768),
        ] {
            rows.push((at, format!("{at},{client},{client},{file},r,{offset},32768\n")));
        }
    }
    let text: String = rows.into_iter().map(|(_, row)| row).collect();
    let (log, ..) = run(&text, &gate("aioli", 1), unit(100));
    assert_eq!(
        log,
        "0,100,2,r,0,32768,1,3\n\
         100,200,2,r,32768,65536,2,7+11\n\
         200,300,2,r,98304,32768,1,15\n\
         1300,1400,3,r,0,131072,4,4+8+12+16\n\
         1400,1500,1,r,0,262144,8,1+2+5+6+9+10+13+14\n"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Every row is served exactly once and not before it arrives; the same replay gives the same log.
    #[test]
    fn requests_are_conserved(
        rows in prop_oneof![
            // Many conflicts, and many requests that meet none.
            proptest::collection::vec((0u64..2_000, 0u32..4, 0u64..3, any::<bool>(), 0u64..40, 1u32..4), 1..120),
            proptest::collection::vec((0u64..20_000, 0u32..9, 0u64..5, any::<bool>(), 0u64..600, 1u32..3), 1..500),
        ],
        kind in 0..SchedulerKind::ALL.len(),
        depth in 1u32..4,
        queue_max in 1u32..200,
        targets in 1u32..4,
    ) {
        let mut rows = rows;
        rows.sort_by_key(|row| row.0);
        let text: String = rows.iter().map(|(at, app, file, write, piece, pieces)| {
            let op = if *write { 'w' } else { 'r' };
            format!("{at},{app},{app},{file},{op},{},{}\n", piece * 4096, pieces * 4096)
        }).collect();
        let layout = Layout { first_target: 0, stripe_bytes: 8192, targets };
        let scheduler = SchedulerConfig::new(SchedulerKind::ALL[kind]);
        let gate = GateConfig { scheduler, queue_max, depth, layout };
        let (log, dispatched, totals) = run(&text, &gate, unit(50));
        prop_assert_eq!(&run(&text, &gate, unit(50)).0, &log);

        let mut seen = vec![0u32; rows.len()];
        for d in &dispatched {
            let mut bytes = 0;
            for &id in &d.ids {
                let (at, _, file, write, piece, pieces) = rows[id as usize - 1];
                seen[id as usize - 1] += 1;
                bytes += u64::from(pieces) * 4096;
                prop_assert!(d.start >= Time::from_nanos(at * 1_000), "row {} before it arrives", id);
                prop_assert_eq!((d.file.0, d.op == iogate_core::Op::Write), (file, write));
                prop_assert!(piece * 4096 >= d.offset);
            }
            prop_assert_eq!(bytes, d.bytes);
        }
        prop_assert!(seen.iter().all(|count| *count == 1), "{:?}", seen);
        prop_assert!(dispatched.windows(2).all(|pair| pair[0].start <= pair[1].start));
        prop_assert_eq!(totals.requests, rows.len() as u64);
    }
}

#[test]
fn a_scheduler_can_be_chosen_while_a_trace_goes_on() {
    // Four readers in sequence, interleaved, four times as fast as they can be served one by one.
    let rows: String = (0..6_000_u64)
        .map(|row| {
            let (client, piece) = (row % 4 + 1, row / 4);
            format!("{},{client},{client},{client},r,{},4096\n", row * 250, piece * 4_096)
        })
        .collect();
    let text = format!("{HEADER}\n{rows}");
    let disk = || -> Box<dyn Device> { Box::new(Unit::new(Span::from_millis(1))) };
    let run = |auto: bool| {
        let trace = TraceReader::new(text.as_bytes()).unwrap();
        let config = GateConfig { queue_max: 60_000, ..gate("fifo", 4) };
        let mut replay = Replay::new(trace, &config, Backend::striped(vec![disk()], Layout::SINGLE)).unwrap();
        if auto {
            replay.choose(iogate_sim::replay::pricing(disk, false));
        }
        while replay.next_dispatch().unwrap().is_some() {}
        assert_eq!(replay.totals().requests, 6_000);
        (
            replay.totals().makespan,
            replay.choice().map(|choice| (choice.switches, choice.changes[0].why.clone())),
        )
    };
    let (pinned, none) = run(false);
    assert_eq!(none, None);
    let (chosen, choice) = run(true);
    let (switches, text) = choice.expect("it was to be chosen");
    assert!(switches > 0 && text.contains("predicted"), "{text}");
    assert!(chosen.as_nanos() * 2 < pinned.as_nanos(), "{chosen} against {pinned}");
    assert_eq!(chosen, run(true).0, "the same again");
}

/// A disk that orders by itself ends what it has in another order than it was given, each once, and sooner than in that order.
#[test]
fn a_device_that_orders_by_itself_is_replayed_too() {
    let rows: String =
        (0..200u64).map(|i| format!("0,1,1,f,r,{},4096\n", i * 7_919 % 200 * (1 << 24))).collect();
    let layout = |targets| Layout { first_target: 0, stripe_bytes: 1 << 16, targets };
    let replayed = |device: &str, targets: u32| {
        let devices = (0..u64::from(targets)).map(|number| parse_numbered(device, number).unwrap()).collect();
        let gate = GateConfig { layout: layout(targets), ..gate("fifo", 32) };
        run(&rows, &gate, Backend::striped(devices, layout(targets)))
    };
    for targets in [1, 3] {
        let (log, all, totals) = replayed("hdd:queue=31", targets);
        assert_eq!((log, all.clone(), totals), replayed("hdd:queue=31", targets));
        let mut ids: Vec<u64> = all.iter().flat_map(|dispatched| dispatched.ids.clone()).collect();
        assert!(!ids.is_sorted());
        ids.sort_unstable();
        assert!(ids.into_iter().eq(1..=200));
        assert!(all.iter().all(|dispatched| dispatched.start < dispatched.end));
        assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].end));
        let (_, _, in_order) = replayed("hdd", targets);
        assert!(totals.makespan.as_nanos() * 10 < in_order.makespan.as_nanos() * 8);
    }
}

/// What no device has room for would be served somewhere else on it, as fast as if it were there.
#[test]
fn a_row_that_reaches_further_than_its_device_is_refused() {
    let device = || parse_numbered("hdd", 0).unwrap();
    let replayed = |row: &str, targets: u32| {
        let header = format!("{HEADER},target");
        let text = format!("{header}\n0,1,1,a,r,0,4096,\n{row}\n");
        let layout = Layout { first_target: 0, stripe_bytes: 1 << 20, targets };
        let devices = (0..targets).map(|_| device()).collect();
        let config = GateConfig { layout, ..gate("fifo", 1) };
        let trace = TraceReader::new(text.as_bytes()).unwrap();
        let mut replay = Replay::new(trace, &config, Backend::striped(devices, layout)).unwrap();
        loop {
            match replay.next_dispatch() {
                Ok(Some(_)) => {}
                Ok(None) => return String::new(),
                Err(error) => return error.to_string(),
            }
        }
    };
    let capacity = device().capacity();
    let at = |offset: u64, target: &str| format!("0,1,1,a,r,{offset},4096,{target}");
    assert_eq!(replayed(&at(capacity - 4096, ""), 1), "");
    let said = replayed(&at(capacity, ""), 1);
    assert!(said.starts_with("row 2 reaches to ") && said.contains("its device has "), "{said}");
    // Half of it lies on each of two, but for what names its target.
    assert_eq!(replayed(&at(capacity, ""), 2), "");
    assert!(replayed(&at(capacity, "1"), 2).contains("its device has "));
}

#[test]
fn random_rows_that_first_use_draws_together_are_named() {
    let device = |name: &str| parse_numbered(name, 0).unwrap();
    let warned = |name: &str, rows: &str| {
        let text = format!("{HEADER}\n{rows}");
        let mut backend = Backend::striped(vec![device(name)], Layout::SINGLE);
        backend.watch_extents(device(name));
        let trace = TraceReader::new(text.as_bytes()).unwrap();
        let mut replay = Replay::new(trace, &gate("fifo", 1), backend).unwrap();
        while replay.next_dispatch().unwrap().is_some() {}
        replay.warnings().join("\n")
    };
    let rows = |count: u64, place: &dyn Fn(u64) -> u64| -> String {
        (0..count).map(|row| format!("0,1,{},f,r,{},4096\n", row % 2, place(row) << 20)).collect()
    };
    let random = |row: u64| row * 7_919 % 50_000;
    let said = warned("hdd", &rows(100, &random));
    assert!(said.starts_with("f: random accesses are faster here than on a disk: a target has "), "{said}");
    assert!(
        said.contains(" extents and gets 100 requests") && said.contains("servers.extent = \"64GiB\""),
        "{said}"
    );
    for (name, rows) in [
        ("ssd-s4500-960g", rows(100, &random)),
        // In order, by two who have a half each.
        ("hdd", rows(100, &|row| row % 2 * 25_000 + row)),
        // In one extent, and often in each.
        ("hdd", rows(100, &|row| random(row) % 200)),
        ("hdd", rows(4_000, &random)),
    ] {
        assert_eq!(warned(name, &rows), "");
    }
}
