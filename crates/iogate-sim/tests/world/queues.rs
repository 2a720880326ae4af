//! Servers whose devices order by themselves what they hold, and whose file systems have rules of their own.

use iogate_core::device::Rules;
use iogate_core::{Span, Time};
use iogate_sim::scenario::{Fault, FaultKind, Pattern, Scenario, Sharing};

use super::common::{app, scenario};
use super::observe::{run, watch};

const PIECE: u32 = 4_096;

/// One process reads 400 pieces at random places, `outstanding` at once.
fn reader(device: &str, outstanding: u32) -> Scenario {
    let mut s = scenario(2, device, "fifo");
    s.cluster.servers.gate.depth = 64;
    s.apps = vec![app(1, 1, 400 * u64::from(PIECE), PIECE)];
    s.apps[0].workload.pattern = Pattern::Random {
        sharing: Sharing::Shared,
        bytes: 400 * u64::from(PIECE),
        request: PIECE,
        file_bytes: 64 << 30,
    };
    s.apps[0].workload.outstanding = Some(outstanding);
    s
}

#[test]
fn a_queue_pays_where_several_requests_are_in_it() {
    let took = |device, outstanding| run(&reader(device, outstanding)).makespan.as_secs_f64();
    let (plain, queued) = (took("hdd", 32), took("hdd:queue=31", 32));
    assert!(queued < 0.75 * plain, "{queued} s, {plain} s without a queue");
    let (plain, queued) = (took("hdd", 1), took("hdd:queue=31", 1));
    assert!((queued / plain - 1.0).abs() < 0.05, "{queued} s, {plain} s without a queue");
}

#[test]
fn everything_is_served_once_and_the_same_way_each_time() {
    let s = reader("sas-10k-600g", 32);
    let (result, seen) = watch(&s);
    assert_eq!((seen.served.len(), result.apps[0].calls, result.requests), (400, 400, 400));
    assert!(seen.served.iter().all(|served| served.start < served.end));
    let (again, seen_again) = watch(&s);
    assert_eq!(result.makespan, again.makespan);
    let ends =
        |seen: &super::observe::Seen| -> Vec<Time> { seen.served.iter().map(|served| served.end).collect() };
    assert_eq!(ends(&seen), ends(&seen_again));
}

#[test]
fn disks_of_different_servers_do_not_turn_in_step() {
    let mut s = reader("hdd:queue=31", 1);
    s.apps = vec![app(1, 1, 2 * 65_536, 2 * 65_536)];
    let (_, seen) = watch(&s);
    let ends: Vec<Time> = seen.served.iter().map(|served| served.end).collect();
    // Both read the same places of their disks from the same moment on.
    assert!(ends.len() == 2 && ends[0] != ends[1], "{ends:?}");
}

fn fault(from_ms: u64, until_ms: Option<u64>, kind: FaultKind) -> Fault {
    Fault { from: Span::from_millis(from_ms), until: until_ms.map(Span::from_millis), kind }
}

#[test]
fn a_stopped_device_stands_still_and_a_slow_one_is_slow_for_all_that_it_holds() {
    let alone = run(&reader("hdd:queue=31", 16)).makespan;
    let took = |faults: &[Fault]| {
        let mut s = reader("hdd:queue=31", 16);
        s.faults = faults.to_vec();
        let (result, seen) = watch(&s);
        assert_eq!(seen.served.len(), 400);
        (result.makespan, seen)
    };
    let both =
        |from, until, kind: fn(u32) -> FaultKind| [0, 1].map(|server| fault(from, until, kind(server)));
    let (stopped, seen) = took(&both(100, Some(600), |server| FaultKind::StoppedServer { server }));
    assert!(
        stopped.as_nanos().abs_diff((alone + Span::from_millis(500)).as_nanos()) < 2_000,
        "{stopped} {alone}"
    );
    let during = Time::from_nanos(100_000_001)..Time::from_nanos(600_000_000);
    assert!(!seen.served.iter().any(|served| during.contains(&served.end)));
    let (slow, _) = took(&both(0, None, |server| FaultKind::SlowServer { server, factor: 3.0 }));
    assert!((slow.as_secs_f64() / alone.as_secs_f64() - 3.0).abs() < 0.05, "{slow} {alone}");
}

/// Two applications write a file each by turns, then read them in sequence: what lies in pieces takes longer.
#[test]
fn files_that_grew_by_turns_are_read_more_slowly_where_windows_are_short() {
    let took = |allocation: Option<&str>| {
        let mut s = scenario(1, "hdd", "fifo");
        s.cluster.servers.allocation = allocation.map(|name| Rules::by_name(name).unwrap());
        s.apps = [1, 2].map(|id| app(id, 1, 16 << 20, 65_536)).into();
        for app in &mut s.apps {
            app.workload.op = iogate_core::Op::Write;
        }
        let mut reader = app(3, 1, 16 << 20, 65_536);
        reader.files = 1;
        reader.start = Span::from_secs(1_000);
        s.apps.push(reader);
        let result = run(&s);
        assert_eq!(result.requests, 3 * 256);
        (result.apps[2].end.since(result.apps[2].start), result.makespan)
    };
    assert_eq!(took(None), took(None));
    let (extents, ext3) = (took(None).0, took(Some("ext3")).0);
    assert!(ext3 > extents, "{ext3} {extents}");
    assert!(took(Some("xfs")).0 <= ext3);
}
