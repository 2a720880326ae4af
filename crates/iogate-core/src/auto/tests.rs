//! Forged windows, of which it is known by hand what they are under another device or scheduler.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::candidates::Candidates;
use super::driver::Pace;
use super::prior::{Trait, Traits};
use super::ring::{Limits, Ring, SPAN_MAX};
use super::shadow::Shadow;
use super::turns::Turns;
use super::window::{Reader, Reading, Window};
use crate::device::{Device, Unit};
use crate::gate::{GateConfig, Present};
use crate::layout::Layout;
use crate::request::{AppId, ClientId, FileId, Op, Request, RequestId};
use crate::sched::SchedulerConfig;
use crate::sched::param::AGE_MAX;
use crate::time::{Span, Time};

const MS: u64 = 1_000_000;
const STEPS: u64 = 256;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// Requests of 4 KiB; client `c` reads file `c` in sequence.
fn request(id: u64, app: u32, client: u32) -> Request {
    Request {
        id: RequestId(id),
        file: FileId(client.into()),
        op: Op::Read,
        offset: id * 4_096,
        bytes: 4_096,
        app: AppId(app),
        client: ClientId(client),
        target: None,
        issued: None,
    }
}

fn fifo(depth: u32) -> GateConfig {
    let scheduler = SchedulerConfig::by_name("fifo").unwrap();
    GateConfig { scheduler, queue_max: 1_000, depth, layout: Layout::SINGLE }
}

fn unit(ms: u64) -> impl Fn() -> Box<dyn Device> + Send + Sync {
    move || Box::new(Unit::new(Span::from_millis(ms)))
}

/// How long the applications of a window take with a device that takes so long for each dispatch, under a scheduler.
fn predict(window: &Window, scheduler: &str, service_ms: u64) -> Vec<u64> {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    let mut shadow =
        Shadow::new(window, &fifo(1), &scheduler, &unit(service_ms), window.len() as u32).unwrap();
    let (mut completed, mut steps) = (0, 0);
    loop {
        let (done, over) = shadow.run(window, 10);
        (completed, steps) = (completed + done, steps + 1);
        if over {
            break;
        }
        assert!(steps < 10_000, "{completed} of {}", window.len());
    }
    assert!(completed >= window.len() as u64);
    shadow.times(window).map(|times| times.all.as_nanos() / MS).collect()
}

fn whole(reader: &mut Reader, ring: &Ring, now: Time) -> Window {
    match reader.read(ring, now, usize::MAX) {
        Reading::Window(window) => window,
        other => panic!("{other:?}"),
    }
}

fn read(ring: &Ring, now: Time) -> Window {
    assert!(ring.is_ripe(now));
    whole(&mut Reader::default(), ring, now)
}

#[test]
fn a_client_that_thinks_goes_on_after_its_completion() {
    // Service of 2 ms, thinking of 3 ms.
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    let mut now = 0;
    for step in 0..STEPS {
        ring.arrived(ms(now), &request(step, 1, 1));
        ring.completed(ms(now + 2), RequestId(step), 4_096);
        now += 5;
    }
    let window = read(&ring, ms(now));
    assert_eq!(window.apps[0].measured, Span::from_millis(5 * STEPS - 3));
    assert_eq!(predict(&window, "fifo", 2), [5 * STEPS - 3]);
    // With a device that takes 7 ms each step takes 10; by the clock, requests would queue up and it would be 7.
    assert_eq!(predict(&window, "fifo", 7), [10 * STEPS - 3]);
}

#[test]
fn a_client_with_several_outstanding_keeps_as_many() {
    // Four at once, each after the fourth completion before it; the device takes 1 ms for each.
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    for id in 0..4 {
        ring.arrived(Time::ZERO, &request(id, 1, 1));
    }
    for id in 0..STEPS {
        ring.completed(ms(id + 1), RequestId(id), 4_096);
        ring.arrived(ms(id + 1), &request(id + 4, 1, 1));
    }
    let window = read(&ring, ms(STEPS));
    assert_eq!(predict(&window, "fifo", 1), [STEPS + 4]);
    assert_eq!(predict(&window, "fifo", 5), [5 * (STEPS + 4)]);
}

#[test]
fn what_requests_wait_is_known_and_bounds_follow_it() {
    // Four at once, 1 ms each: each waits for the three before it.
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    (0..4).for_each(|id| ring.arrived(Time::ZERO, &request(id, 1, 1)));
    for id in 0..STEPS {
        ring.completed(ms(id + 1), RequestId(id), 4_096);
        ring.arrived(ms(id + 1), &request(id + 4, 1, 1));
    }
    let window = read(&ring, ms(STEPS));
    let mut shadow =
        Shadow::new(&window, &fifo(1), &fifo(1).scheduler, &unit(1), window.len() as u32).unwrap();
    while !shadow.run(&window, 10).1 {}
    let wait = shadow.mean_wait();
    assert!((3_900_000..=4_000_000).contains(&wait.as_nanos()), "{wait:?}");

    let candidates = Candidates::every();
    let patient: Vec<usize> = (0..candidates.len()).filter(|index| candidates.is_patient(*index)).collect();
    assert!(!patient.is_empty());
    for index in patient {
        let age = |wait| candidates.with_wait(index, wait).span(&AGE_MAX).as_nanos();
        let (short, long) = (age(Span::from_millis(4)), age(Span::from_millis(400)));
        assert!((2_000_000..=5_000_000).contains(&short) && long == short * 100, "{index}: {short} {long}");
        // No bound at all is 0: nobody gets that by waiting for nothing.
        assert!(age(Span::ZERO) > 0);
    }
    for index in (0..candidates.len()).filter(|index| !candidates.is_patient(*index)) {
        assert_eq!(candidates.with_wait(index, Span::ZERO), candidates.with_wait(index, wait));
    }
}

/// Two clients of one application issue a request each, and the next ones 1 ms after both have completed.
fn with_barriers(apps: [u32; 2]) -> Window {
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    let mut now = 0;
    for step in 0..STEPS / 2 {
        for client in 0..2 {
            ring.arrived(ms(now), &request(2 * step + client, apps[client as usize], client as u32 + 1));
        }
        ring.completed(ms(now + 1), RequestId(2 * step), 4_096);
        ring.completed(ms(now + 2), RequestId(2 * step + 1), 4_096);
        now += 3;
    }
    read(&ring, ms(now))
}

#[test]
fn who_waits_at_a_barrier_waits_for_all_of_its_application() {
    let window = with_barriers([1, 1]);
    assert_eq!(predict(&window, "fifo", 1), [3 * STEPS / 2 - 1]);
    // 10 ms for each of both, and 1 ms; the first client does not go on 2 ms after its own completion.
    assert_eq!(predict(&window, "fifo", 10), [21 * STEPS / 2 - 1]);
    // Applications of their own do not wait for each other: the first client comes back while the second one is served.
    let apart = predict(&with_barriers([1, 2]), "fifo", 10);
    assert_eq!(apart[1], 20 * STEPS / 2, "the device is never idle");
}

/// A slice of turns is twice as long as the window before, and no longer than a window may be.
#[test]
fn turns_take_no_longer_than_windows_may() {
    for (pace, expected) in [(10, Span::from_millis(2 * 10 * STEPS)), (100, SPAN_MAX)] {
        let mut ring = Ring::new();
        ring.begin(Time::ZERO, Limits::USUAL, []);
        for id in 0..STEPS {
            ring.arrived(ms(id * pace), &request(id, 1, 1));
            ring.completed(ms((id + 1) * pace), RequestId(id), 4_096);
        }
        let window = read(&ring, ms(STEPS * pace));
        let to_agg = SchedulerConfig::by_name("to-agg").unwrap();
        let turns = Turns::new((1, to_agg), (0, 0), &window, &unit(10)).unwrap();
        assert_eq!(turns.longest, expected);
    }
}

/// What a prior is told of a window, by hand.
#[test]
fn traits_are_what_is_in_the_window() {
    let of = |window: &Window, trait_: Trait| Traits::of(window, &unit(10), 2).get(trait_);
    let window = with_barriers([1, 1]);
    // Each client reads its file in sequence, every other 4 KiB of it; both wait for each other from the second step on.
    assert_eq!([Trait::Apps, Trait::Clients, Trait::Reads].map(|trait_| of(&window, trait_)), [1, 2, 1_000]);
    assert_eq!(of(&window, Trait::Contiguous), 0);
    assert_eq!(of(&window, Trait::Rounds), (STEPS - 2) * 1_000 / STEPS);
    // Of 3 ms in a step one is in the gate for one, and one for two: half a request for each of the two slots.
    assert!(of(&window, Trait::Queued).abs_diff(500) < 5, "{}", of(&window, Trait::Queued));
    // A millisecond from a completion to the next request, and 1.5 ms in the gate.
    assert!(of(&window, Trait::Think).abs_diff(1_000 * 2 / 3) < 5, "{}", of(&window, Trait::Think));
    // Neither distance nor size nor company counts on this device.
    for trait_ in [Trait::Speedup, Trait::Jump, Trait::Fixed, Trait::Spread, Trait::Largest] {
        assert_eq!(of(&window, trait_), 1_000, "{trait_:?}");
    }
    let apart = with_barriers([1, 2]);
    assert_eq!([Trait::Apps, Trait::Largest].map(|trait_| of(&apart, trait_)), [2, 500]);
}

#[test]
fn what_is_in_the_gate_at_the_beginning_is_served_too() {
    let mut ring = Ring::new();
    let present = |id, in_service| {
        let Request { file, op, offset, bytes, app, client, .. } = request(id, 1, 1);
        (Present { id: RequestId(id), file, op, offset, bytes, app, arrival: ms(90), in_service }, client)
    };
    // One has been in service for 4 of 10 ms, one waits.
    ring.begin(ms(100), Limits::USUAL, [present(1_000, Some(ms(96))), present(1_001, None)]);
    for (id, end) in [(1_000, 106), (1_001, 116)] {
        ring.completed(ms(end), RequestId(id), 4_096);
    }
    let mut now = 116;
    for id in 0..STEPS {
        ring.arrived(ms(now), &request(id, 1, 1));
        now += 10;
        ring.completed(ms(now), RequestId(id), 4_096);
    }
    let window = read(&ring, ms(now));
    assert_eq!(window.apps[0].measured, Span::from_millis(now - 100));
    assert_eq!(predict(&window, "fifo", 10), [now - 100]);
}

#[test]
fn runs_are_served_as_one() {
    // Two requests at a time, contiguous; what aggregates them needs half of the dispatches.
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    for step in 0..STEPS / 2 {
        for id in [2 * step, 2 * step + 1] {
            ring.arrived(ms(2 * step), &request(id, 1, 1));
        }
        ring.completed(ms(2 * step + 1), RequestId(2 * step), 4_096);
        ring.completed(ms(2 * step + 2), RequestId(2 * step + 1), 4_096);
    }
    let window = read(&ring, ms(STEPS));
    assert_eq!(predict(&window, "fifo", 1), [STEPS]);
    assert_eq!(predict(&window, "to-agg", 1), [STEPS / 2]);
}

#[test]
fn a_window_begins_anew_where_the_load_becomes_another_one() {
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    let mut reader = Reader::default();
    for id in 0..2 * STEPS {
        let mut request = request(id, 1, 1);
        if id >= STEPS {
            request.op = Op::Write;
        }
        ring.arrived(ms(id), &request);
        ring.completed(ms(id + 1), RequestId(id), 4_096);
    }
    let window = whole(&mut reader, &ring, ms(2 * STEPS));
    assert!(window.changed);
    assert_eq!((window.len() as u64, window.start), (STEPS, ms(STEPS)));
    assert!(window.work.iter().all(|work| work.op == Op::Write));
    ring.begin(ms(1_000), Limits::USUAL, []);
    for id in 0..STEPS {
        ring.arrived(ms(1_000 + id), &Request { op: Op::Write, ..request(id, 1, 1) });
        ring.completed(ms(1_001 + id), RequestId(id), 4_096);
    }
    assert!(!whole(&mut reader, &ring, ms(2_000)).changed);
}

/// A ring in which so many requests come, one each millisecond, and so many of them complete, for each of these loads.
fn ring_of(loads: &[(Op, u32, u64, u64)]) -> Ring {
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    let mut id = 0;
    for &(op, bytes, arrivals, completions) in loads {
        for step in 0..arrivals {
            ring.arrived(ms(id), &Request { op, bytes, ..request(id, 1, 1) });
            if step < completions {
                ring.completed(ms(id + 1), RequestId(id), bytes);
            }
            id += 1;
        }
    }
    ring
}

#[test]
fn a_load_that_changes_too_late_for_this_window_changes_in_the_next_one() {
    const READS: (Op, u32, u64, u64) = (Op::Read, 4_096, STEPS, STEPS);
    const WRITES: (Op, u32, u64, u64) = (Op::Write, 4_096, STEPS, STEPS);
    let now = ms(10_000);
    let mut reader = Reader::default();
    assert!(!whole(&mut reader, &ring_of(&[READS]), now).changed);
    let late = whole(&mut reader, &ring_of(&[READS, (Op::Write, 4_096, 128, 64)]), now);
    assert!(!late.changed && late.start == Time::ZERO);
    assert!(whole(&mut reader, &ring_of(&[WRITES]), now).changed);
    assert!(!whole(&mut reader, &ring_of(&[WRITES]), now).changed);

    // Of two changes one has enough behind it: the window is of what came between them.
    let mut reader = Reader::default();
    let large = 1 << 20;
    let window = whole(&mut reader, &ring_of(&[READS, WRITES, (Op::Write, large, 128, 64)]), now);
    assert!(window.changed);
    assert_eq!(window.start, ms(STEPS));
    assert!(whole(&mut reader, &ring_of(&[(Op::Write, large, STEPS, STEPS)]), now).changed);
}

#[test]
fn the_kind_of_load_is_known_of_windows_shorter_than_a_block() {
    let (most, now) = (127, ms(10_000));
    let mut reader = Reader::default();
    let mut changed = |op| match reader.read(&ring_of(&[(op, 4_096, most, most)]), now, most as usize) {
        Reading::Window(window) => {
            assert_eq!((window.len() as u64, window.start), (most, Time::ZERO));
            (window.changed, reader.kind().is_some())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!([Op::Read; 2].map(&mut changed), [(false, false), (false, true)]);
    // The first writes are of a block that is of reads, too.
    let writes = [Op::Write; 4].map(&mut changed);
    assert_eq!(writes.iter().filter(|(changed, _)| *changed).count(), 1, "{writes:?}");
}

#[test]
fn a_window_goes_on_while_most_clients_see_nothing() {
    let mut ring = Ring::new();
    ring.begin(Time::ZERO, Limits::USUAL, []);
    (0..3).for_each(|client| ring.arrived(Time::ZERO, &request(1_000 + client, 1, client as u32 + 2)));
    for id in 0..STEPS {
        ring.arrived(ms(id), &request(id, 1, 1));
        ring.completed(ms(id + 1), RequestId(id), 4_096);
    }
    let mut reader = Reader::default();
    assert!(ring.is_ripe(ms(STEPS)));
    assert!(matches!(reader.read(&ring, ms(STEPS), usize::MAX), Reading::NotYet));
    ring.go_on(Limits::USUAL);
    assert!(!ring.is_ripe(ms(STEPS)));
    (0..3).for_each(|client| ring.completed(ms(STEPS + 1), RequestId(1_000 + client), 4_096));
    assert_eq!(whole(&mut reader, &ring, ms(STEPS + 1)).len() as u64, STEPS + 3);
}

#[test]
fn a_pace_that_goes_on_has_no_more_than_was_saved_and_earned() {
    let second = Time::ZERO + Span::from_secs(1);
    let mut pace = Pace::new(10, Time::ZERO);
    pace.spend(pace.clone().granted(Time::ZERO));
    assert_eq!(pace.at(10).granted(second), 10);
    assert_eq!(pace.at(0).granted(second), 0);
    assert!(pace.at(10).is_any() && !pace.at(0).is_any());
}
