//! Small recordings of which it is known what they would be without somebody.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::layout::Layout;
use crate::recording::Event;
use crate::request::{FileId, Op, RequestId};
use crate::sched::{SchedulerConfig, SchedulerKind};
use crate::time::Time;

fn at(us: u64) -> Time {
    Time::from_nanos(us * 1_000)
}

fn gate() -> GateConfig {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    GateConfig { scheduler, queue_max: 1_000, depth: 1, layout: Layout::SINGLE }
}

/// Clients behind a gate that serves one request after the other, `service` says for how long: each is an application with so many
/// requests at a time, and thinks so long after each. Until so many have completed.
fn record(clients: &[(usize, u64)], service: impl Fn(usize, u64) -> u64, all: u64) -> Vec<Event> {
    // When the next requests of each client come, and what is queued: when it came, and whose it is.
    let mut coming: Vec<(u64, usize)> = Vec::new();
    for (client, (outstanding, _)) in clients.iter().enumerate() {
        coming.extend((0..*outstanding).map(|_| (0, client)));
    }
    let (mut events, mut free, mut number) = (Vec::new(), 0, 0);
    while number < all {
        coming.sort_unstable();
        let (came, client) = coming.remove(0);
        let began = came.max(free);
        free = began + service(client, number);
        coming.push((free + clients[client].1, client));
        let (id, app) = (RequestId(number), AppId(client as u32 + 1));
        let (file, bytes) = (FileId(client as u64), 4_096);
        let offset = number * 1_000_003 * 4_096 % (1 << 40);
        let (time, op) = (at(came), Op::Read);
        events
            .push((came, Event::Arrived { id, time, app, client: ClientId(app.0), file, op, offset, bytes }));
        events.push((free, Event::Completed { id, time: at(free), began: Some(at(began)) }));
        number += 1;
    }
    events.sort_by_key(|(time, event)| (*time, matches!(event, Event::Arrived { .. })));
    events.into_iter().map(|(_, event)| event).collect()
}

fn without(events: &[Event], app: u32, by: u32) -> Result<Gain, Doubt> {
    let recording = Recording::new(events, None).unwrap();
    let counterfactual = Counterfactual::new(&recording, &gate(), Known::Recorded).unwrap();
    let said = counterfactual.without(AppId(by)).unwrap();
    said.into_iter().find(|(of, _)| of.0 == app).unwrap().1
}

/// What it would take, in thousandths of what it took.
fn part(gain: &Gain) -> u64 {
    thousandths(gain.without, gain.took)
}

#[test]
fn who_shares_with_another_one_takes_half_without_it() {
    let events = record(&[(1, 0), (1, 0)], |_, _| 1_000, 400);
    let gain = without(&events, 1, 2).unwrap();
    assert!((490..=510).contains(&part(&gain)), "{gain:?}");
    assert!((395_000_000..=401_000_000).contains(&gain.took.as_nanos()), "{gain:?}");
    // Sixteen of the other one's are before each of its own.
    let gain = without(&record(&[(1, 0), (16, 0)], |_, _| 1_000, 2_000), 1, 2).unwrap();
    assert!((50..=70).contains(&part(&gain)), "{gain:?}");
}

#[test]
fn who_thinks_gains_what_it_waits() {
    // It thinks for 5.3 ms, waits for 0.7 ms, and takes 1 ms.
    let events = record(&[(1, 5_300), (1, 0)], |_, _| 1_000, 2_000);
    let gain = without(&events, 1, 2).unwrap();
    assert!((890..910).contains(&part(&gain)), "{gain:?}");
    // Four threads that think by themselves come no faster than they think.
    let events = record(&[(4, 20_000), (8, 0)], |_, _| 1_000, 3_000);
    let gain = without(&events, 1, 2).unwrap();
    let requests =
        events.iter().filter(|event| matches!(event, Event::Arrived { app: AppId(1), .. })).count() as u64;
    assert!(gain.without.as_nanos() >= requests / 4 * 20_000_000, "{gain:?} {requests}");
    assert!(gain.without < gain.took);
}

#[test]
fn what_depends_on_something_else_is_not_said() {
    let uneven = |client: usize, number: u64| if client == 0 && number % 7 < 3 { 3_000 } else { 100 };
    let said = without(&record(&[(1, 0), (1, 0)], uneven, 800), 1, 2);
    assert!(matches!(said, Err(Doubt::Ambiguous { .. })), "{said:?}");
    let few = record(&[(1, 0), (16, 0)], |_, _| 1_000, 100);
    assert_eq!(without(&few, 1, 2), Err(Doubt::Little(6)));
}

#[test]
fn a_recording_has_to_be_whole() {
    let mut events = record(&[(1, 0), (1, 0)], |_, _| 1_000, 100);
    assert_eq!(Recording::new(&events[..1], None).unwrap_err(), RecordingDoubt::Empty);
    // What was in the gate before is not in it: the window begins when that is over.
    events.insert(60, Event::Completed { id: RequestId(999), time: at(14_000), began: None });
    let recording = Recording::new(&events, None).unwrap();
    let window = recording.window(Table::EXTENT_BYTES);
    assert!(window.len() < 90 && window.start >= at(14_000), "{} {:?}", window.len(), window.start);
    events.push(Event::Lost { arrivals: 3 });
    assert_eq!(Recording::new(&events, None).unwrap_err(), RecordingDoubt::Lost { arrivals: 3 });
}

/// Times, places and lengths as nobody records them: what comes from elsewhere may say anything.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..100_000_000_u64,
        Just(0),
        any::<u64>(),
        Just(u64::MAX),
        (0..64_u32).prop_map(|bits| 1 << bits)
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let arrived =
        (0..24_u64, any_number(), 0..4_u32, 0..3_u32, 0..3_u64, any::<bool>(), any_number(), any_number());
    let arrived = arrived.prop_map(|(id, time, app, client, file, is_read, offset, bytes)| {
        // What no gate takes is refused.
        let bytes = bytes.clamp(1, u64::from(u32::MAX)) as u32;
        Event::Arrived {
            id: RequestId(id),
            time: Time::from_nanos(time),
            app: AppId(app),
            client: ClientId(client),
            file: FileId(file),
            op: if is_read { Op::Read } else { Op::Write },
            offset: offset.min(u64::MAX - u64::from(bytes)),
            bytes,
        }
    });
    let completed = (0..24_u64, any_number(), any_number(), any::<bool>());
    let completed = completed.prop_map(|(id, time, began, is_known)| Event::Completed {
        id: RequestId(id),
        time: Time::from_nanos(time),
        began: is_known.then(|| Time::from_nanos(began)),
    });
    prop_oneof![arrived, completed]
}

#[test]
fn a_request_that_no_gate_takes_is_refused() {
    for (offset, bytes) in [(0, 0), (u64::MAX, 4_096), (u64::MAX, 1)] {
        let mut events = record(&[(1, 0)], |_, _| 100, 20);
        let Event::Arrived { offset: of, bytes: long, .. } = &mut events[0] else { panic!() };
        (*of, *long) = (offset, bytes);
        let refused = Recording::new(&events, None).unwrap_err();
        assert_eq!(refused, RecordingDoubt::Malformed { offset, bytes });
    }
}

proptest! {
    #[test]
    fn whatever_was_recorded_ends_and_panics_nowhere(events in prop::collection::vec(any_event(), 0..200)) {
        if let Ok(recording) = Recording::new(&events, None) {
            let profile = Profile::assumed("", false);
            for known in [Known::Recorded, Known::Profile(&profile)] {
                let counterfactual = Counterfactual::new(&recording, &gate(), known).unwrap();
                let apps: Vec<AppId> = counterfactual.apps().collect();
                apps.into_iter().for_each(|app| drop(counterfactual.without(app).unwrap()));
            }
        }
    }
}
