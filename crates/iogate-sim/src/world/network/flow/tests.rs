//! A flow over a link of its own, without the rest of the network.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const LEAST: Span = Span::from_secs(1);

/// What carrying all messages over a link took.
#[derive(Debug, Default, PartialEq)]
struct Carried {
    delivered: Vec<usize>,
    lost: u32,
    timeouts: u32,
}

/// Carries messages over a link that keeps segments in order and loses those that `loses` says.
fn carry(sizes: &[u64], mut loses: impl FnMut() -> bool) -> Carried {
    let mut flow = Flow::new(0, 1);
    for (number, bytes) in sizes.iter().enumerate() {
        flow.push(*bytes, number);
    }
    let mut carried = Carried::default();
    let (mut now, mut alarms) = (Time::ZERO, BTreeSet::new());
    let mut link = VecDeque::new();
    loop {
        while let Some(segment) = flow.next_segment() {
            link.push_back(segment);
        }
        alarms.extend(flow.arm(now, LEAST));
        if let Some((start, bytes)) = link.pop_front() {
            if loses() {
                carried.lost += 1;
                continue;
            }
            flow.received(&Segment { flow: 0, start, bytes }, |message| carried.delivered.push(message));
            link.extend(flow.acknowledged());
        } else if flow.acked == flow.end {
            return carried;
        } else {
            now = alarms.pop_first().expect("while something is missing, an alarm is set");
            carried.timeouts += u32::from(flow.timed_out(now));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_messages_come_in_order_whatever_is_lost(
        sizes in prop::collection::vec(prop_oneof![1..10_000u64, 1..300_000u64], 1..8),
        losses in prop::collection::vec(any::<bool>(), 0..200),
        share in 1..8usize,
    ) {
        let mut losses = losses.into_iter().enumerate();
        // Of bursts, and of single segments.
        let carried = carry(&sizes, || losses.next().is_some_and(|(i, lost)| lost && i % share == 0));
        prop_assert_eq!(carried.delivered, (0..sizes.len()).collect::<Vec<_>>());
        prop_assert!(carried.timeouts <= carried.lost);
    }
}

/// A flow with more to send than any window lets through.
fn long_flow() -> Flow<()> {
    let mut flow = Flow::new(0, 1);
    flow.push(1 << 30, ());
    flow
}

/// Sends all that the window permits.
fn send(flow: &mut Flow<()>) -> Vec<Segment> {
    std::iter::from_fn(|| flow.next_segment())
        .map(|(start, bytes)| Segment { flow: 0, start, bytes })
        .collect()
}

/// Lets segments come in, and their acknowledgements; what is sent again.
fn come_in(flow: &mut Flow<()>, segments: &[Segment]) -> Vec<(u64, u32)> {
    let mut again = Vec::new();
    for segment in segments {
        flow.received(segment, |()| unreachable!("the message is longer"));
        again.extend(flow.acknowledged());
    }
    again
}

#[test]
fn the_window_doubles_each_round_trip_and_grows_by_a_segment_above_the_threshold() {
    let mut flow = long_flow();
    let mut rounds = Vec::new();
    for round in 0..7 {
        if round == 4 {
            flow.threshold = flow.window;
        }
        let segments = send(&mut flow);
        rounds.push(segments.len());
        assert!(come_in(&mut flow, &segments).is_empty());
    }
    assert_eq!(rounds, [10, 20, 40, 80, 160, 160, 161]);
}

#[test]
fn the_third_duplicate_has_the_missing_segment_sent_again_and_halves_the_window() {
    let mut flow = long_flow();
    for _ in 0..3 {
        let segments = send(&mut flow);
        come_in(&mut flow, &segments);
    }
    let segments = send(&mut flow);
    assert_eq!(segments.len(), 80);
    let missing = segments[2];
    assert_eq!(come_in(&mut flow, &segments[..2]), []);
    let sent_on = send(&mut flow);
    assert_eq!(come_in(&mut flow, &segments[3..5]), []);
    assert_eq!(come_in(&mut flow, &segments[5..6]), [(missing.start, missing.bytes)]);
    let on_their_way = (78 + sent_on.len() as u64) * SEGMENT_BYTES;
    assert_eq!(flow.window, on_their_way / 2);
    assert_eq!(come_in(&mut flow, &segments[6..]), [], "one loss is sent again once");
    assert_eq!(come_in(&mut flow, &sent_on), []);
    assert_eq!(come_in(&mut flow, &[missing]), []);
    assert_eq!(flow.acked, flow.next, "all is acknowledged at once");
    assert!(!flow.recovering);
}

#[test]
fn a_second_loss_of_the_same_window_is_sent_again_without_a_timeout() {
    let carried = |second| {
        let mut number = 0;
        carry(&[40 * SEGMENT_BYTES], || {
            number += 1;
            number == 8 || number == second
        })
    };
    assert_eq!(carried(10), Carried { delivered: vec![0], lost: 2, timeouts: 0 });
}

#[test]
fn the_time_out_doubles_up_to_a_bound_and_is_short_again_after_an_answer() {
    let mut flow = long_flow();
    let first = send(&mut flow);
    let mut now = Time::ZERO;
    let mut waits = Vec::new();
    for _ in 0..8 {
        let alarm = flow.arm(now, LEAST).expect("something is on its way");
        assert_eq!(flow.arm(now, LEAST), None, "it is set once");
        assert!(!flow.timed_out(Time::from_nanos(alarm.as_nanos() - 1)), "not before its time");
        waits.push(alarm.since(now).as_nanos() / LEAST.as_nanos());
        now = alarm;
        assert!(flow.timed_out(now));
        let again = send(&mut flow);
        assert_eq!((again.len(), again[0].start), (1, first[0].start));
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64]);
    come_in(&mut flow, &first[..1]);
    send(&mut flow);
    assert_eq!(flow.arm(now, LEAST), Some(now + LEAST));
}
