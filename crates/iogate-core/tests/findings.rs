//! What was learnt of storage outlives who has learnt it: cells that were measured, and no others.

use iogate_core::device::{Station, Transfer, parse};
use iogate_core::profile::{Class, Finding, Findings, Number, Profile, Refit, Sample, Streams};
use iogate_core::{Op, Time};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;

/// Reads from all over a device, and after each a few that go on, `in_flight` at a time.
fn read(refit: &mut Refit, device: &str, in_flight: usize, times: u64) {
    let mut station = Station::new(parse(device).unwrap());
    let (mut streams, mut now, mut ends) = (Streams::default(), Time::ZERO, Vec::new());
    for index in 0..times {
        let bytes = if index % 3 == 0 { 256 * KIB } else { 16 * KIB };
        let jump = (index / 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 36) / KIB * KIB;
        let address = jump + index % 4 * (1 << 20);
        if ends.len() == in_flight {
            now = ends.remove(0);
        }
        let class = streams.class(1, Op::Read, address, bytes);
        let mut visit = station.begin(now);
        visit.serve(Transfer { op: Op::Read, address, bytes });
        let end = visit.end();
        ends.push(end);
        ends.sort_unstable();
        let ns = end.since(now).as_nanos();
        refit.add(Sample { op: Op::Read, class, bytes, in_flight: in_flight as u32, ns });
    }
}

fn learnt(device: &str) -> Refit {
    let mut refit = Refit::from_nothing("", false);
    for in_flight in [1, 2, 4, 8, 16] {
        read(&mut refit, device, in_flight, 2_000);
    }
    refit
}

/// By how many percent one profile's reads differ from another's, at most.
fn apart(one: &Profile, other: &Profile) -> u64 {
    let [one, other] = [one, other].map(Profile::costs);
    let mut most = 0;
    for bytes in [16 * KIB, 256 * KIB] {
        for in_flight in [1, 2, 4, 8, 16] {
            let [one, other] = [&one, &other].map(|of| of.shared_ns(Op::Read, Class::Jump, bytes, in_flight));
            most = most.max(one.abs_diff(other) * 100 / other);
        }
    }
    most
}

#[test]
fn one_goes_on_where_another_has_ended() {
    for device in ["hdd", "pcie-ssd-100g", "memory", "unit:300us"] {
        let before = learnt(device);
        let again = Refit::from_findings("", false, &before.findings());
        assert_eq!(again.coverage(), before.coverage(), "{device}: probes are for what was not measured");
        assert!(again.dispatches() >= 9_000, "{device}: {}", again.dispatches());
        let apart = apart(&again.profile(), &before.profile());
        assert!(apart <= 1, "{device}: {apart} % apart");
        // Writes were never seen: they are assumed, as ever.
        assert_eq!(again.profile().write, Profile::assumed("", false).write, "{device}");
        assert!(
            again.findings().iter().all(|finding| finding.op == Op::Read && finding.ns.count > 0),
            "{device}"
        );
    }
}

#[test]
fn nothing_assumed_is_ever_a_finding() {
    let nothing = Refit::from_nothing("", true).findings();
    assert!(nothing.is_empty() && nothing.beside().next().is_none() && nothing.dispatches() == 0);
    assert_eq!(Refit::from_findings("", true, &nothing).profile(), Profile::assumed("", true));
    // A few that are no stretch yet.
    let mut refit = Refit::from_nothing("", true);
    let sample = Sample { op: Op::Write, class: Class::Next, bytes: KIB, in_flight: 1, ns: 1_000 };
    (0..15).for_each(|_| refit.add(sample));
    assert!(refit.findings().is_empty());
    refit.add(sample);
    let found: Vec<Finding> = refit.findings().iter().copied().collect();
    let ns = Number { value: 1_000, count: 16, spread: 1_700 };
    assert_eq!(found, [Finding { op: Op::Write, class: Class::Next, in_flight: 1, bytes: KIB, ns }]);
}

/// Somebody has put something else there, under the same name.
#[test]
fn what_is_not_so_any_more_is_learnt_anew() {
    for (before, now) in [("unit:100us", "unit:2ms"), ("unit:2ms", "unit:100us"), ("hdd", "pcie-ssd-100g")] {
        let mut refit = Refit::from_findings("", false, &learnt(before).findings());
        for in_flight in [1, 4] {
            read(&mut refit, now, in_flight, 4_000);
        }
        let mut anew = Refit::from_nothing("", false);
        for in_flight in [1, 4] {
            read(&mut anew, now, in_flight, 4_000);
        }
        let [refit, anew] = [refit, anew].map(|of| of.profile().costs());
        for in_flight in [1, 4] {
            let [one, other] =
                [&refit, &anew].map(|of| of.shared_ns(Op::Read, Class::Jump, 16 * KIB, in_flight));
            assert!(
                one.abs_diff(other) * 5 <= other,
                "{before}, {now}, {in_flight}: {one} ns, and not {other}"
            );
        }
    }
}

#[test]
fn of_several_each_adds_what_it_has_measured_itself() {
    let of = |op, ns| {
        let mut findings = Findings::default();
        let ns = Number { value: ns, count: 100, spread: 10 };
        assert!(findings.add(Finding { op, class: Class::Jump, in_flight: 1, bytes: 4 * KIB, ns }));
        findings
    };
    let values = |findings: &Findings| findings.iter().map(|of| (of.op, of.ns.value)).collect::<Vec<_>>();
    // Both began with a read; one has measured reads since, the other one writes.
    let start = of(Op::Read, 1_000);
    let one = of(Op::Read, 2_000);
    let mut other = start.clone();
    other.add(*of(Op::Write, 3_000).iter().next().unwrap());
    for [first, last] in [[&one, &other], [&other, &one]] {
        let kept = last.onto(&first.onto(&start, &start), &start);
        assert_eq!(values(&kept), [(Op::Read, 2_000), (Op::Write, 3_000)]);
    }
    // Of the same cell the last one counts.
    let kept = of(Op::Read, 5_000).onto(&one.onto(&start, &start), &start);
    assert_eq!(values(&kept), [(Op::Read, 5_000)]);
    // Who has measured nothing keeps nothing of his own, and loses nothing of others.
    assert_eq!(start.onto(&Findings::default(), &start), Findings::default());
    assert_eq!(start.onto(&one, &start), one);
}

proptest! {
    #[test]
    fn what_is_found_is_found_again(
        samples in prop::collection::vec((any::<bool>(), 0usize..5, any::<u64>(), 0u32..64, any::<u64>()), 0..400),
        rotational: bool,
    ) {
        let mut refit = Refit::from_nothing("", rotational);
        for (write, class, bytes, in_flight, ns) in samples {
            let op = if write { Op::Write } else { Op::Read };
            let bytes = bytes >> (bytes % 64);
            refit.add(Sample { op, class: Class::ALL[class], bytes, in_flight, ns: ns >> (ns % 64) });
        }
        let findings = refit.findings();
        let again = Refit::from_findings("", rotational, &findings);
        prop_assert_eq!(again.profile().check(), Ok(()));
        let kinds = |of: &Findings| {
            of.iter().map(|of| (of.op as u8, of.class as u8, of.in_flight, of.bytes)).collect::<Vec<_>>()
        };
        prop_assert_eq!(kinds(&again.findings()), kinds(&findings));
        for (one, other) in again.findings().iter().zip(findings.iter()) {
            // A part of an assumed time is no whole number of nanoseconds.
            prop_assert!(one.ns.value.abs_diff(other.ns.value) <= 1 + other.ns.value / 1_000, "{one:?} {other:?}");
        }
    }
}
