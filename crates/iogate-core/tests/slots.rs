//! Devices that serve several transfers at once: the rate X(n) with n in service, and who begins when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iogate_core::device::{Device, Ended, Preset, Station, Transfer, parse};
use iogate_core::{Op, Span, Time};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A deterministic sequence of addresses, multiples of `bytes`.
fn addresses(random: bool, bytes: u64, capacity: u64, requests: u64) -> impl Iterator<Item = u64> {
    let mut state = 7u64;
    (0..requests).map(move |index| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if random { (state >> 11) % (capacity / bytes) * bytes } else { index * bytes }
    })
}

/// Transfers a second with always `n` handed over and not complete; in a device of `spec`.
fn rate(spec: &str, n: u64, op: Op, random: bool, bytes: u64) -> f64 {
    let mut station = Station::new(parse(spec).unwrap());
    let capacity = station.device().capacity();
    let (mut ends, mut last) = (BinaryHeap::new(), Time::ZERO);
    let requests = 2_000;
    for address in addresses(random, bytes, capacity, requests) {
        let now = if (ends.len() as u64) < n {
            Time::ZERO
        } else {
            ends.pop().map_or(Time::ZERO, |Reverse(at)| at)
        };
        let mut visit = station.begin(now);
        visit.serve(Transfer { op, address, bytes });
        let end = visit.end();
        last = last.max(end);
        ends.push(Reverse(end));
    }
    requests as f64 / last.since(Time::ZERO).as_secs_f64()
}

/// The same by [`Station::submit`], for devices that order by themselves; and who waited longest.
fn queued_rate(spec: &str, n: u64, op: Op, random: bool, bytes: u64) -> (f64, Span) {
    let mut station = Station::new(parse(spec).unwrap());
    let capacity = station.device().capacity();
    let requests = 2_000;
    let (mut came, mut now, mut longest) = (vec![Time::ZERO; requests as usize], Time::ZERO, Span::ZERO);
    for (id, address) in (0..).zip(addresses(random, bytes, capacity, requests)) {
        if id >= n {
            let ended = next_end(&mut station);
            now = ended.end;
            longest = longest.max(now.since(came[ended.id as usize]));
        }
        came[id as usize] = now;
        station.submit(now, id, false, [Transfer { op, address, bytes }]);
    }
    for _ in 0..n.min(requests) {
        now = next_end(&mut station).end;
    }
    assert_eq!(station.next_event(), None);
    (requests as f64 / now.since(Time::ZERO).as_secs_f64(), longest)
}

fn next_end(station: &mut Station) -> Ended {
    loop {
        let at = station.next_event().expect("something is in service");
        if let Some(ended) = station.ended(at) {
            return ended;
        }
    }
}

/// The random-read rates that are published for 7200 rpm drives, with a queue and without. None of them was used to set the model.
#[test]
fn a_command_queue_gives_the_published_rates() {
    let rate = |spec: &str, n| queued_rate(spec, n, Op::Read, true, 4 * KIB).0;
    // Seagate, Exos 7E8 and X16 data sheets: 170 random reads a second of 4 KiB at depth 16, average latency 4.16 ms.
    let sixteen = rate("hdd:queue=31", 16);
    assert!((170.0 * 0.85..=170.0 * 1.15).contains(&sixteen), "{sixteen} a second at depth 16");
    // With one command it is the disk without a queue.
    let (queued, plain) = (rate("hdd:queue=31", 1), rate("hdd", 1));
    assert!((queued / plain - 1.0).abs() < 0.02, "{queued} {plain}");
    // The rate grows with the depth, as the logarithm does, and no further than the queue is deep. With two there is no choice: one
    // is on its way when the other comes.
    let rates: Vec<f64> = [2, 4, 8, 16, 31].map(|n| rate("hdd:queue=31", n)).to_vec();
    assert!(rates.windows(2).all(|pair| pair[0] * 1.15 < pair[1]), "{rates:?}");
    assert!((rates[0] / plain - 1.0).abs() < 0.02, "{rates:?}");
    let beyond = rate("hdd:queue=4", 31) / rate("hdd:queue=4", 4);
    assert!((0.99..1.01).contains(&beyond), "{beyond}");
}

#[test]
fn nobody_waits_much_longer_than_the_age_limit_and_a_queue() {
    let (_, longest) = queued_rate("hdd:queue=31", 31, Op::Read, true, 4 * KIB);
    assert!(longest < Span::from_millis(1_000), "{longest}");
}

#[test]
fn every_way_to_ask_a_station_gives_the_same_where_the_device_does_not_order() {
    for spec in ["edel", "memory", "suno", "unit:10us"] {
        for n in [1, 5, 40] {
            let (one, other) =
                (rate(spec, n, Op::Read, true, 4 * KIB), queued_rate(spec, n, Op::Read, true, 4 * KIB).0);
            assert!((one / other - 1.0).abs() < 0.01, "{spec} {n}: {one} {other}");
        }
    }
}

#[test]
fn a_queue_that_is_none_is_refused() {
    let refused = |spec: &str| parse(spec).err().map(|error| error.to_string()).unwrap_or_default();
    for spec in ["hdd:queue=0", "hdd:queue=32", "hdd:queue=", "hdd:queue=x"] {
        assert_eq!(refused(spec), format!("device '{spec}': expected a number from 1 to 31 after 'queue='"));
    }
    for spec in ["edel:queue=4", "memory:queue=1", "aioli-ide:queue=2"] {
        assert!(refused(spec).contains("has no command queue to be set"), "{}", refused(spec));
    }
    assert!(refused("hdx:queue=3").contains("did you mean 'hdd'"), "{}", refused("hdx:queue=3"));
    assert_eq!(parse("hdd:queue=31").unwrap().slots(), 31);
}

/// X(1) and X(32) of random reads of 4 KiB: what the structure of each device gives.
#[test]
fn more_in_service_is_faster_where_a_device_has_parts_that_work_at_the_same_time() {
    for (spec, least, most) in [
        ("unit:100us", 1.0, 1.0),
        ("hdd", 1.0, 1.0),
        ("pastel", 1.0, 1.0),
        // Two disks.
        ("suno", 1.7, 2.0),
        // 54 us alone; a command and its data keep the interface for 18.7 us.
        ("edel", 2.5, 3.1),
        // Four controllers with eight dies each.
        ("pcie-ssd-100g", 8.0, 32.0),
        // Eight cores.
        ("memory", 7.0, 8.0),
        ("memory:slots=1", 1.0, 1.0),
        ("edel:slots=1", 1.0, 1.0),
        ("edel:slots=2", 1.5, 2.0),
    ] {
        let gain = rate(spec, 32, Op::Read, true, 4 * KIB) / rate(spec, 1, Op::Read, true, 4 * KIB);
        assert!((least - 1e-9..=most + 1e-9).contains(&gain), "{spec}: {gain}");
    }
}

/// Sequential reads are bounded by the interface, and writes by the flash, however many are in service.
#[test]
fn a_shared_part_is_a_plateau() {
    for (spec, op, rate_max) in
        [("edel", Op::Read, 300e6), ("edel", Op::Write, 176e6), ("memory", Op::Read, 40_000e6)]
    {
        for n in [8, 32] {
            let bytes = rate(spec, n, op, false, 256 * KIB) * (256 * KIB) as f64;
            // What was written last may still be in the drive's buffer.
            let buffered = if op == Op::Write { 1.02 } else { 1.0 };
            assert!((0.9 * rate_max..=buffered * rate_max).contains(&bytes), "{spec} {op:?} {n}: {bytes}");
        }
    }
}

#[test]
fn the_rate_grows_to_its_plateau_and_never_beyond_n_times_that_of_one() {
    for spec in Preset::all().iter().map(|preset| preset.name).chain(["unit:50us", "edel:slots=4"]) {
        for (op, random, bytes) in [
            (Op::Read, true, 4 * KIB),
            (Op::Read, false, 4 * KIB),
            (Op::Write, true, 4 * KIB),
            (Op::Write, false, 64 * KIB),
            (Op::Read, true, 256 * KIB),
            (Op::Read, true, MIB),
        ] {
            let one = rate(spec, 1, op, random, bytes);
            let mut fewer = one;
            for n in [2, 4, 8, 16, 32] {
                let rate = rate(spec, n, op, random, bytes);
                let what = format!("{spec} {op:?} random={random} {bytes}: X({n}) = {rate}, X(1) = {one}");
                assert!(rate <= 1.02 * n as f64 * one, "{what}");
                assert!(rate >= 0.97 * fewer, "{what}, with fewer {fewer}");
                fewer = rate;
            }
        }
    }
}

#[test]
fn slots_are_bounded_by_the_device() {
    let refused = |spec: &str| parse(spec).err().map(|error| error.to_string()).unwrap_or_default();
    for spec in ["edel:slots=0", "edel:slots=33", "edel:slots=", "edel:slots=x"] {
        assert_eq!(
            refused(spec),
            format!(
                "device '{spec}': expected a number from 1 to 32 after 'slots=': edel serves at most 32 at once"
            )
        );
    }
    assert!(refused("hdd:slots=2").contains("expected 1 after"));
    assert!(refused("edle:slots=2").contains("did you mean 'edel'"), "{}", refused("edle:slots=2"));
    assert_eq!(parse("pcie-ssd-100g:slots=3").unwrap().slots(), 3);
}

/// Takes as long as the transfer has bytes, on each of its slots.
struct Plain(u32);

impl Device for Plain {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        Span::from_nanos(transfer.bytes)
    }
    fn flush(&mut self, _now: Time) -> Span {
        Span::from_nanos(5)
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn repositions(&self) -> u64 {
        0
    }
    fn slots(&self) -> u32 {
        self.0
    }
    fn hand_over(&self) -> Span {
        Span::from_nanos(100)
    }
}

#[test]
fn a_dispatch_waits_for_a_slot_and_not_for_those_before_it() {
    let mut station = Station::new(Box::new(Plain(2)));
    let mut serve = |now: u64, bytes: u64, queued: bool| {
        let mut visit = station.begin(Time::from_nanos(now));
        visit.serve(Transfer { op: Op::Read, address: 0, bytes });
        if queued {
            visit.hand_over();
        }
        (visit.begin().as_nanos(), visit.end().as_nanos())
    };
    assert_eq!(serve(0, 50, false), (0, 50));
    assert_eq!(serve(10, 10, false), (10, 20));
    assert_eq!(serve(11, 10, false), (20, 30), "the first free slot");
    assert_eq!(serve(12, 5, true), (30, 135), "a hand-over takes its slot, too");
    assert_eq!(serve(0, 5, false), (50, 55), "a clock that goes back does not");
    assert_eq!(station.busy(), Span::from_nanos(135));
    assert_eq!(station.flush(Time::from_nanos(130)), Span::from_nanos(10));
    let by = |at| station.busy_by(Time::from_nanos(at)).as_nanos();
    assert_eq!([by(135), by(138), by(200)], [135, 138, 140], "a flush keeps a device busy");
}

proptest! {
    #[test]
    fn no_slot_is_used_twice_and_none_is_free_while_somebody_waits(
        slots in 1u32..5, calls in prop::collection::vec((0u64..30, 1u64..40), 1..60),
    ) {
        let mut station = Station::new(Box::new(Plain(slots)));
        // By the definition: a list of ends, one for each slot.
        let (mut now, mut free, mut began) = (0, vec![0u64; slots as usize], 0);
        for (pause, bytes) in calls {
            now += pause;
            let mut visit = station.begin(Time::from_nanos(now));
            visit.serve(Transfer { op: Op::Read, address: 0, bytes });
            let first = free.iter_mut().min().unwrap();
            began = now.max(*first).max(began);
            *first = began + bytes;
            prop_assert_eq!((visit.begin().as_nanos(), visit.end().as_nanos()), (began, began + bytes));
        }
    }

    #[test]
    fn every_device_serves_several_at_once_the_same_way_each_time_and_none_faster_than_alone(
        preset in 0..Preset::all().len(), n in 1usize..40,
        calls in prop::collection::vec((any::<bool>(), 0u64..1 << 20, 1u64..256), 1..80),
    ) {
        let preset = Preset::all()[preset];
        let run = || {
            let mut station = Station::new(preset.build());
            let mut ends = BinaryHeap::new();
            let mut log = Vec::new();
            for &(write, address, blocks) in &calls {
                let now = if ends.len() < n { Time::ZERO } else { ends.pop().map_or(Time::ZERO, |Reverse(at)| at) };
                let mut visit = station.begin(now);
                let op = if write { Op::Write } else { Op::Read };
                visit.serve(Transfer { op, address: address * 64 * KIB, bytes: blocks * 512 });
                log.push((visit.begin(), visit.span()));
                ends.push(Reverse(visit.end()));
            }
            (log, station.device().repositions())
        };
        let (log, repositions) = run();
        prop_assert_eq!(&(log.clone(), repositions), &run());
        prop_assert!(log.windows(2).all(|pair| pair[0].0 <= pair[1].0), "beginnings are in order");
        prop_assert!(log.iter().all(|(_, span)| *span > Span::ZERO));
    }
}
