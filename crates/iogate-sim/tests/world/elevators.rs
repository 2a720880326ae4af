//! Servers with elevators: who gets how much of a device, and who waits for whom.

use iogate_core::{AppId, Op, Span, Time};
use iogate_sim::cache::{CacheConfig, Kernel};
use iogate_sim::elevator::{ElevatorConfig, Threads};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Pattern, Scenario, ServerCache, Sharing};

use super::common::{app, scenario};
use super::observe::{run, watch};

const MIB: u64 = 1 << 20;
const NO_IDLE: Option<ElevatorConfig> =
    Some(ElevatorConfig::Slices { threads: Threads::File, idle: Span::ZERO });

fn slices(threads: Threads) -> Option<ElevatorConfig> {
    Some(ElevatorConfig::slices(threads))
}

/// One server, and applications with so many processes each, which read a file each from its beginning, 64 KiB at a time.
fn readers(processes: &[u32], device: &str, elevator: Option<ElevatorConfig>) -> Scenario {
    let mut s = scenario(1, device, "fifo");
    // As many at once as there are processes: what waits, waits in the elevator.
    s.cluster.servers.gate.depth = 16;
    s.cluster.servers.elevator = elevator;
    s.network.latency = Span::from_micros(100);
    for (index, count) in processes.iter().enumerate() {
        let mut app = app(index as u32 + 1, *count, 128 * MIB, 64 << 10);
        app.workload.pattern =
            Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 128 * MIB, request: 64 << 10 };
        s.apps.push(app);
    }
    s
}

/// The share of the first application in what is served before the first application has ended.
fn first_share(s: &Scenario) -> f64 {
    let (result, seen) = watch(s);
    let end = result.apps.iter().map(|app| app.end).min().expect("there are applications");
    let until: Vec<_> = seen.served.iter().filter(|served| served.end <= end).collect();
    let of = |app: Option<AppId>| -> u64 {
        until.iter().filter(|served| app.is_none_or(|app| app == served.app)).map(|served| served.bytes).sum()
    };
    of(Some(AppId(1))) as f64 / of(None) as f64
}

/// By applications, each would have half: a toy, as no elevator knows them.
#[test]
fn slices_are_of_threads_and_not_of_applications() {
    for threads in [Threads::File, Threads::Request] {
        let share = first_share(&readers(&[3, 1], "hdd", slices(threads)));
        assert!((0.70..=0.80).contains(&share), "{threads:?}: {share}");
    }
}

#[test]
fn slices_save_seeks_of_those_who_read_on() {
    let repositions = |elevator| {
        let result = run(&readers(&[1, 1], "hdd", elevator));
        (result.servers[0].repositions, result.makespan.as_secs_f64())
    };
    let (none, slices, no_idle) =
        (repositions(None), repositions(slices(Threads::File)), repositions(NO_IDLE));
    assert!(10 * slices.0 < none.0 && slices.1 < 0.7 * none.1, "{slices:?} {none:?}");
    // Without waiting both go by turns, as without an elevator.
    assert!((no_idle.1 / none.1 - 1.0).abs() < 0.1, "{no_idle:?} {none:?}");
}

/// One process writes 100 pieces at random places at once, and a device serves one at a time.
#[test]
fn what_is_there_at_once_goes_in_offset_order_without_waiting() {
    // Once around; deadline goes on from the oldest one, again and again, which halves what is left.
    for (elevator, most) in [(NO_IDLE, 2), (Some(ElevatorConfig::Deadline), 10)] {
        let mut s = readers(&[1], "unit:1ms", elevator);
        s.cluster.servers.gate.depth = 1_000;
        s.apps[0].workload.pattern = Pattern::Random {
            sharing: Sharing::Shared,
            bytes: 100 * 4_096,
            request: 4_096,
            file_bytes: 64 * MIB,
        };
        s.apps[0].workload.outstanding = None;
        let (result, seen) = watch(&s);
        let offsets: Vec<u64> = seen.served.iter().map(|served| served.offset).collect();
        assert_eq!(result.requests as usize, offsets.len());
        let descents = offsets.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(descents <= most, "{descents}: {offsets:?}");
        let busy = result.servers[0].busy;
        assert_eq!(busy, Span::from_millis(seen.served.len() as u64));
        assert!(result.makespan <= busy + Span::from_millis(1), "it never stands still");
    }
}

/// Somebody reads while 1600 MiB of another one are written back.
#[test]
fn who_reads_does_not_wait_for_all_that_is_written_back() {
    let took = |elevator| {
        let mut s = readers(&[], "hdd", elevator);
        s.cluster.servers.cache =
            Some(ServerCache { config: CacheConfig::new(Kernel::V2628, 1 << 30), commits: false });
        let mut writer = app(1, 1, 1_600 * MIB, 64 << 10);
        writer.workload.op = Op::Write;
        let mut reader = app(2, 1, 256 << 10, 4_096);
        reader.workload.pattern = Pattern::Random {
            sharing: Sharing::Shared,
            bytes: 64 * 4_096,
            request: 4_096,
            file_bytes: 1 << 30,
        };
        reader.start = Span::from_secs(1);
        s.apps = vec![writer, reader];
        let result = run(&s);
        assert_eq!(result.servers[0].bytes, 1_600 * MIB + result.caches[0].1.fetched * 4_096);
        let [writer, reader] = &result.apps[..] else { panic!("two") };
        [writer, reader].map(|app| app.end.since(app.start).as_secs_f64())
    };
    let (none, deadline, slices) =
        (took(None), took(Some(ElevatorConfig::Deadline)), took(slices(Threads::Request)));
    assert!(deadline[1] < 0.5 * none[1] && slices[1] < 0.5 * none[1], "{none:?} {deadline:?} {slices:?}");
}

#[test]
fn an_elevator_keeps_to_a_device_that_orders_by_itself_and_to_one_with_slots() {
    for device in ["hdd:queue=31", "sas-10k-600g", "edel", "nvme"] {
        if iogate_core::device::parse(device).is_err() {
            continue;
        }
        for elevator in [Some(ElevatorConfig::Deadline), slices(Threads::Request), slices(Threads::File)] {
            let mut s = readers(&[4, 2], device, elevator);
            s.apps.iter_mut().for_each(|app| {
                app.workload.outstanding = Some(4);
                app.workload.think = Distribution::Exponential(Span::from_micros(500));
                app.workload.pattern =
                    Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 2 * MIB, request: 64 << 10 };
            });
            let (result, seen) = watch(&s);
            assert_eq!((result.requests, seen.served.len()), (6 * 32, 6 * 32), "{device}");
        }
    }
}

#[test]
fn a_sync_waits_for_its_journal_below_an_elevator() {
    for device in ["unit:10ms", "hdd:queue=31"] {
        let mut s = readers(&[], device, slices(Threads::Request));
        s.cluster.clients.cache = Some(CacheConfig::of_client(Kernel::Modern, 1 << 30, MIB));
        s.cluster.servers.cache =
            Some(ServerCache { config: CacheConfig::new(Kernel::Modern, 1 << 30), commits: true });
        s.apps = vec![app(1, 2, 8 * MIB, 64 << 10)];
        s.apps[0].workload.op = Op::Write;
        let result = run(&s);
        assert!(result.servers[0].bytes >= 16 * MIB, "{}", result.servers[0].bytes);
        assert!(result.makespan >= result.servers[0].finish.since(Time::ZERO), "{}", result.makespan);
    }
}
