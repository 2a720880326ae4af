//! Solid-state drives against figures of their sheets that did not go into the models.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iogate_core::device::{Station, Transfer, parse};
use iogate_core::{Op, Time};

const KIB: u64 = 1 << 10;

/// Accesses of 4 KiB a second at random places with `n` at once, counted when the drive has been at it for a while.
fn rate(spec: &str, op: Op, n: usize) -> f64 {
    let mut station = Station::new(parse(spec).unwrap());
    let capacity = station.device().capacity();
    let (mut state, mut now) = (7u64, Time::ZERO);
    let (mut ends, mut from) = (BinaryHeap::new(), Time::ZERO);
    let (warm, counted) = (100_000, 100_000);
    for index in 0..warm + counted {
        if ends.len() == n {
            now = ends.pop().map_or(now, |Reverse(end)| end);
        }
        if index == warm {
            from = now;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = (state >> 11) % (capacity / (4 * KIB)) * 4 * KIB;
        let mut visit = station.begin(now);
        visit.serve(Transfer { op, address, bytes: 4 * KIB });
        ends.push(Reverse(visit.end()));
    }
    f64::from(counted) / now.since(from).as_secs_f64()
}

fn assert_near(what: &str, got: f64, sheet: f64, percent: f64) {
    assert!((got / sheet - 1.0).abs() <= percent / 100.0, "{what}: {got:.0}, the sheet says {sheet:.0}");
}

/// None of these is among the parameters: dies' times are MQSim's, and sizes and sequential rates the sheets'.
#[test]
fn latency_at_depth_one_and_the_knee_are_those_of_the_sheets() {
    for (spec, latency_us, knee, depth) in [
        // Lenovo's guide to the P4500: 85 us for a random read, 490,000 a second.
        ("nvme-p4500-2t", 85.0, 490_000.0, 128),
        // Micron's sheet of the 9200: 92 us, up to 840,000.
        ("nvme-9200-7t", 92.0, 840_000.0, 256),
        // Intel's specification of the S4500: 110 us, up to 72,000 at depth 32.
        ("ssd-s4500-960g", 110.0, 72_000.0, 32),
    ] {
        assert_near(spec, 1e6 / rate(spec, Op::Read, 1), latency_us, 15.0);
        assert_near(spec, rate(spec, Op::Read, depth), knee, 15.0);
    }
}

/// What the sheets say of random writes, with the drive written over at random before. It is not within 15 %, as no sheet says how much
/// flash there is: spare flash is what decides it.
#[test]
fn random_writes_of_a_drive_in_use_are_far_slower_than_those_of_a_fresh_one() {
    for (spec, sheet) in [("nvme-p4500-2t", 38_000.0), ("ssd-s4500-960g", 33_000.0)] {
        let (fresh, used) = (rate(spec, Op::Write, 32), rate(&format!("{spec}:state=random"), Op::Write, 32));
        assert!(used < 0.6 * fresh, "{spec}: {used}, {fresh}");
        assert!((0.5..2.0).contains(&(used / sheet)), "{spec}: {used}, the sheet says {sheet}");
    }
}

/// A read that finds its die at work waits for it to be suspended, and not for the whole program.
#[test]
fn reads_among_writes_wait_but_not_for_a_program() {
    let mut device = parse("nvme-p4500-2t").unwrap();
    let alone = device.serve(Time::ZERO, Transfer { op: Op::Read, address: 1 << 30, bytes: 4 * KIB });
    let now = Time::from_nanos(1_000_000);
    device.serve(now, Transfer { op: Op::Write, address: 0, bytes: 32 << 20 });
    let beside = device.serve(now, Transfer { op: Op::Read, address: 2 << 30, bytes: 4 * KIB });
    assert!(beside > alone && beside.as_nanos() <= alone.as_nanos() + 100_000 + 1_000, "{beside} {alone}");
}

#[test]
fn a_state_that_is_none_is_refused() {
    let refused = |spec: &str| parse(spec).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused("nvme-p4500-2t:state=full").contains("expected filled or random after 'state='"));
    assert!(
        refused("hdd:state=random").contains("hdd has none to be set"),
        "{}",
        refused("hdd:state=random")
    );
    assert!(parse("nvme-9200-7t:state=filled").is_ok());
}
