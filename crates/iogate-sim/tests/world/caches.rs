//! Caches of servers and clients, and slots, where the outcome can be worked out by hand.

use iogate_core::{FileId, Op, Span};
use iogate_sim::cache::{CacheConfig, CacheStats, Kernel, PAGE};
use iogate_sim::metrics::{APP, find};
use iogate_sim::result::RunResult;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Fault, FaultKind, Pattern, Scenario, ServerCache, Sharing};

use super::common::{app, scenario};
use super::observe::{run, watch};

const MIB: u64 = 1 << 20;

fn cached(kernel: Kernel, memory: u64, commits: bool) -> Option<ServerCache> {
    Some(ServerCache { config: CacheConfig::new(kernel, memory), commits })
}

/// One server, whose device takes 10 ms for any transfer, and clients with requests of 1 MiB.
fn one_server(clients: u32) -> Scenario {
    let mut s = scenario(1, "unit:10ms", "fifo");
    s.cluster.clients.nodes = clients;
    s.cluster.servers.stripe = MIB;
    s.cluster.servers.transfer = MIB as u32;
    s
}

fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

fn stats(result: &RunResult, layer: &str) -> CacheStats {
    let found = result.caches.iter().find(|(name, _)| name == layer);
    found.expect("the layer has caches").1
}

#[test]
fn what_has_been_read_is_read_from_memory() {
    let mut s = one_server(1);
    s.cluster.servers.cache = cached(Kernel::V2628, 1 << 30, true);
    s.apps = vec![app(1, 1, 64 * MIB, MIB as u32), app(2, 1, 64 * MIB, MIB as u32)];
    s.apps[1].files = 1;
    s.apps[1].start = Span::from_secs(60);
    let result = run(&s);
    let took = |index: usize| seconds(result.apps[index].end.since(result.apps[index].start));
    // Transfers of 128 KiB, 512 of them, and nothing twice.
    assert_eq!(result.servers[0].bytes, 64 * MIB);
    assert!(took(0) > 2.0 && took(0) < 5.2, "{} s", took(0));
    assert_eq!(took(1), 0.0);
    let stats = stats(&result, "servers");
    assert_eq!((stats.read, stats.fetched), (128 * MIB / PAGE, 64 * MIB / PAGE));
}

#[test]
fn writes_are_as_fast_as_memory_up_to_the_limit_and_all_is_written_back() {
    let mut s = one_server(1);
    s.cluster.servers.cache = cached(Kernel::V2628, 1 << 30, true);
    s.apps = vec![app(1, 1, 1 << 30, MIB as u32)];
    s.apps[0].workload.op = Op::Write;
    let result = run(&s);
    // Two transfers for each MiB that does not fit the limit of 10 %.
    let expected = (1_024.0 - 102.4) * 0.020;
    let took = seconds(result.makespan);
    assert!((took / expected - 1.0).abs() < 0.02, "{took} s, not {expected} s");
    assert_eq!(result.servers[0].bytes, 1 << 30, "all of it, once");
    assert!(result.servers[0].finish > result.apps[0].end, "some of it afterwards");
    // Small ones never wait.
    s.apps = vec![app(1, 1, 50 * MIB, MIB as u32)];
    s.apps[0].workload.op = Op::Write;
    let result = run(&s);
    assert_eq!((result.makespan, result.servers[0].bytes), (Span::ZERO, 50 * MIB));
}

/// Not by what a cache still writes back: also where a device has been given more than it has begun, or orders by itself.
#[test]
fn devices_are_measured_until_the_last_application_has_ended() {
    for device in ["unit:10ms", "hdd", "graphene", "hdd:queue=31", "sas-10k-600g"] {
        let mut s = one_server(1);
        s.cluster.servers.device = device.into();
        s.cluster.servers.cache = cached(Kernel::V2628, 1 << 30, true);
        s.apps = vec![app(1, 1, 2 << 30, MIB as u32)];
        s.apps[0].workload.op = Op::Write;
        let result = run(&s);
        let (took, busy) = (seconds(result.makespan), seconds(result.servers[0].busy));
        assert!(busy <= took && busy > 0.95 * took, "{device}: busy for {busy} of {took} s");
        // The same, cut off.
        s.time_max = Span::from_secs(2);
        let result = run(&s);
        let busy = seconds(result.servers[0].busy);
        assert!(result.cut_off && busy <= 2.0 && busy > 1.9, "{device}: busy for {busy} of 2 s");
    }
    // What is written at random into memory, and hardly begun on the disk.
    let mut s = one_server(1);
    s.cluster.servers.device = "hdd".into();
    s.cluster.servers.cache = cached(Kernel::V2628, 1 << 30, true);
    s.apps = vec![app(1, 1, MIB, MIB as u32)];
    s.apps[0].workload.op = Op::Write;
    let (bytes, request, file_bytes) = (80 * MIB, 64 << 10, 8 << 30);
    s.apps[0].workload.pattern = Pattern::Random { sharing: Sharing::Shared, bytes, request, file_bytes };
    let result = run(&s);
    let (took, seeks) = (seconds(result.makespan), result.servers[0].repositions);
    assert!(seeks as f64 <= 2.0 + took / 0.001, "{seeks} seeks in {took} s");
}

/// Of one that is cut off or lost, what it has taken until then.
#[test]
fn an_unfinished_phase_has_lasted_until_the_end() {
    let mut s = one_server(1);
    s.apps = vec![app(1, 1, 1 << 30, MIB as u32)];
    s.time_max = Span::from_secs(2);
    let phase = run(&s).apps[0].phases[0];
    assert_eq!(phase.end.since(phase.start), Span::from_secs(2));
    s.time_max = Span::from_secs(100);
    let kind = FaultKind::LostClient { node: 0 };
    s.faults = vec![Fault { from: Span::from_secs(3), until: None, kind }];
    let result = run(&s);
    let phase = result.apps[0].phases[0];
    assert_eq!(phase.end.since(phase.start), Span::from_secs(3));
    for name in ["io_time", "throughput", "io_core_hours"] {
        assert_eq!(find(APP, name).unwrap().of(&result.apps[0]), None, "{name} of what was lost");
    }
}

/// A client's calls that are underway at once, with a network that takes 1 ms each way.
fn outstanding(calls: u32, slots: Option<u32>) -> Scenario {
    let mut s = scenario(4, "unit:1us", "fifo");
    s.network.latency = Span::from_millis(1);
    s.cluster.clients.slots = slots;
    s.apps = vec![app(1, 1, 64 * (64 << 10), 64 << 10)];
    s.apps[0].workload.outstanding = Some(calls);
    s
}

#[test]
fn one_slot_is_sequential_and_slots_hide_latency() {
    let time = |calls, slots| run(&outstanding(calls, slots)).makespan;
    let sequential = time(1, None);
    assert_eq!(sequential, Span::from_micros(64 * 2_001));
    assert_eq!(time(64, Some(1)), sequential);
    assert_eq!(time(1, Some(16)), sequential);
    // Four rounds of sixteen, on four servers with four each.
    assert_eq!(time(64, Some(16)), Span::from_micros(4 * 2_000 + 4 * 4 - 3 * 3));
    assert!(time(64, None) < time(64, Some(16)));
}

/// A process of a node with a cache that writes 8 MiB.
fn closing(commits: bool) -> Scenario {
    let mut s = one_server(1);
    s.cluster.clients.cache = Some(CacheConfig::of_client(Kernel::Modern, 1 << 30, MIB));
    s.cluster.servers.cache = cached(Kernel::Modern, 1 << 30, commits);
    s.apps = vec![app(1, 1, 8 * MIB, 64 << 10)];
    s.apps[0].workload.op = Op::Write;
    s
}

#[test]
fn a_client_writes_at_the_end_of_a_phase_what_its_processes_wrote_and_waits_for_the_device() {
    let result = run(&closing(true));
    let (clients, servers) = (stats(&result, "clients"), stats(&result, "servers"));
    assert_eq!((clients.dirtied, clients.written_back), (8 * MIB / PAGE, 8 * MIB / PAGE));
    assert_eq!((servers.dirtied, servers.written_back), (8 * MIB / PAGE, 8 * MIB / PAGE));
    // 1280 KiB at a time, then the journal: seven and one transfers of 10 ms.
    assert_eq!(result.makespan, Span::from_millis(80));
    // The client's requests are of 1 MiB, not of 64 KiB: eight, and a COMMIT is none.
    assert_eq!(result.requests, 8);
    let lazy = run(&closing(false));
    assert_eq!(lazy.makespan, Span::ZERO, "COMMIT is answered at once");
    assert_eq!(lazy.servers[0].bytes, 8 * MIB);
}

#[test]
fn who_opens_a_file_sees_what_others_have_changed_and_keeps_what_nobody_has() {
    let mut s = closing(true);
    s.cluster.clients.nodes = 2;
    // A reader on node 0, twice; then a writer on node 1; then the reader again.
    let reader = |id: u32, start: u64| {
        let mut reader = app(id, 1, 4 * MIB, 1 << 20);
        (reader.files, reader.start) = (1, Span::from_secs(start));
        reader
    };
    let mut writer = reader(3, 20);
    (writer.workload.op, writer.first_node) = (Op::Write, 1);
    s.apps = vec![reader(1, 0), reader(2, 10), writer, reader(4, 40)];
    let result = run(&s);
    let fetched = stats(&result, "clients").fetched;
    assert_eq!(fetched, 2 * (4 * MIB / PAGE), "the second one hits, the fourth one reads again");
    s.apps.remove(2);
    let result = run(&s);
    assert_eq!(stats(&result, "clients").fetched, 4 * MIB / PAGE);
}

#[test]
fn what_a_writer_still_has_to_itself_changes_the_file_for_others_when_it_comes() {
    let mut s = closing(true);
    (s.cluster.clients.nodes, s.cluster.servers.cache) = (2, None);
    let reader = |id: u32, start: Span| {
        let mut reader = app(id, 1, 4 * MIB, 1 << 20);
        (reader.files, reader.start) = (1, start);
        reader
    };
    let mut writer = reader(2, Span::from_secs(20));
    (writer.workload.op, writer.first_node) = (Op::Write, 1);
    // A reader opens the file while the first of what the writer has written is on its way, which takes 10 ms, and then once more.
    let meanwhile = Span::from_secs(20) + Span::from_millis(1);
    s.apps = vec![reader(1, Span::ZERO), writer, reader(3, meanwhile), reader(4, Span::from_secs(60))];
    let result = run(&s);
    let took = |index: usize| result.apps[index].end.since(result.apps[index].start);
    assert!(took(3) > Span::ZERO, "it reads what the writer has written, not what was there before");
}

#[test]
fn a_lost_client_takes_what_it_has_not_sent_along() {
    let mut s = closing(true);
    s.apps[0].workload.iterations = 2;
    s.apps[0].workload.compute = Distribution::Constant(Span::from_secs(1));
    s.faults =
        vec![Fault { from: Span::from_millis(1_040), until: None, kind: FaultKind::LostClient { node: 0 } }];
    let result = run(&s);
    assert!(result.apps[0].lost);
    assert_eq!(result.servers[0].bytes, 8 * MIB + (16 << 10), "what it had sent is written, with a journal");
}

#[test]
fn a_phase_lasts_until_what_it_wrote_is_durable() {
    let result = run(&closing(true));
    let phase = &result.apps[0].phases[0];
    assert_eq!((phase.bytes, phase.end.since(phase.start)), (8 * MIB, Span::from_millis(80)));
}

#[test]
fn a_sync_s_journal_is_a_transfer_and_its_flush_keeps_the_device_busy() {
    let mut s = closing(true);
    s.cluster.servers.device = "hdd".into();
    for slowed in [false, true] {
        if slowed {
            let kind = FaultKind::SlowServer { server: 0, factor: 3.0 };
            s.faults = vec![Fault { from: Span::ZERO, until: None, kind }];
        }
        let (result, seen) = watch(&s);
        let (server, journal) = (&result.servers[0], 16 << 10);
        assert_eq!((server.bytes, server.dispatches), (8 * MIB + journal, seen.served.len() as u64));
        let last = seen.served.last().expect("something is served");
        assert_eq!((last.file, last.bytes), (FileId(u64::MAX), journal));
        // Written back, the journal, the flush: one after the other, without a pause.
        assert!(last.end < result.apps[0].end, "the flush takes time");
        assert_eq!(server.busy, result.makespan);
    }
}

/// A cache writes back 30 s later: who draws the run would have slots for that, too.
#[test]
fn nobody_is_told_of_what_is_written_back_after_the_end() {
    let (result, seen) = watch(&closing(false));
    let end = result.apps[0].end;
    assert!(result.servers[0].finish > end, "there is something to write back");
    assert!(seen.served.iter().all(|served| served.start <= end), "{:?}", seen.served.last());
}

#[test]
fn a_sync_on_a_disk_that_orders_by_itself_waits_for_its_journal() {
    let mut s = closing(true);
    s.cluster.servers.device = "hdd:queue=31".into();
    let result = run(&s);
    // The journal is a transfer like others there.
    assert_eq!(result.servers[0].bytes, 8 * MIB + (16 << 10));
    assert!(result.makespan >= result.servers[0].finish.since(iogate_core::Time::ZERO));
}
