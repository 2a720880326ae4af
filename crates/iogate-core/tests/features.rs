//! What is seen of arrivals, against counting over the whole stream.

use std::collections::BTreeSet;

use iogate_core::auto::features::{APPS_MAX, AppSeen, ENDS, EPOCH, Features};
use iogate_core::auto::pattern::patterns;
use iogate_core::{AppId, ClientId, FileId, Op, Request, RequestId, Time};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival { app: u32, client: u32, file: u64, read: bool, at: At, bytes: u32 },
    Completion { app: u32, client: u32 },
}

#[derive(Clone, Copy, Debug)]
enum At {
    Block(u64),
    /// Where the last but so many arrivals to any file ended.
    Behind(usize),
    /// So many blocks from the start of the last arrival.
    Step(u64),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let at = prop_oneof![
        (0u64..40).prop_map(At::Block),
        (0usize..12).prop_map(At::Behind),
        (1u64..4).prop_map(At::Step)
    ];
    let bytes = prop_oneof![Just(4096u32), Just(4096), 1u32..100_000];
    let arrival = (0u32..3, 0u32..5, 0u64..3, any::<bool>(), at, bytes).prop_map(
        |(app, client, file, read, at, bytes)| Event::Arrival { app, client, file, read, at, bytes },
    );
    let completion = (0u32..3, 0u32..5).prop_map(|(app, client)| Event::Completion { app, client });
    let delay = prop_oneof![Just(0u64), 1u64..5_000, 100_000u64..50_000_000];
    vec((delay, prop_oneof![3 => arrival, 2 => completion]), 0..900)
}

/// Everything that happened, with its time; arrivals as requests.
type Log = Vec<(Time, Result<Request, (AppId, ClientId)>)>;

fn play(events: &[(u64, Event)]) -> (Features, Log) {
    let (mut features, mut log, mut now) = (Features::default(), Log::new(), Time::ZERO);
    for &(delay, event) in events {
        now = Time::from_nanos(now.as_nanos() + delay);
        match event {
            Event::Arrival { app, client, file, read, at, bytes } => {
                let last =
                    |back: usize| log.iter().rev().filter_map(|(_, what)| what.as_ref().ok()).nth(back);
                let offset = match at {
                    At::Block(block) => block * 4096,
                    At::Behind(back) => last(back).map_or(0, Request::end),
                    At::Step(blocks) => last(0).map_or(0, |last| last.offset + blocks * 4096),
                };
                let op = if read { Op::Read } else { Op::Write };
                let (id, file, app, client) = (RequestId(0), FileId(file), AppId(app), ClientId(client));
                let request =
                    Request { id, file, op, offset, bytes, app, client, target: None, issued: None };
                features.arrived(now, &request);
                log.push((now, Ok(request)));
            }
            Event::Completion { app, client } => {
                features.completed(now, AppId(app), ClientId(client));
                log.push((now, Err((AppId(app), ClientId(client)))));
            }
        }
    }
    (features, log)
}

/// Requests that a client has in the gate after the first `until` events, and when its last one was completed.
fn outstanding(log: &Log, until: usize, app: AppId, client: ClientId) -> (u32, Option<Time>) {
    let (mut count, mut idle) = (0, None);
    for (now, what) in &log[..until] {
        match what {
            Ok(request) if (request.app, request.client) == (app, client) => count += 1,
            Err(who) if *who == (app, client) && count > 0 => (count, idle) = (count - 1, Some(*now)),
            _ => {}
        }
    }
    (count, idle)
}

#[derive(Debug, Default, PartialEq)]
struct Naive {
    arrivals: u32,
    reads: u32,
    contiguous: u32,
    steps: u32,
    follows: u32,
    ascending: u32,
    outstanding: u32,
    width: u32,
    clients: u32,
    files: u32,
}

impl Naive {
    fn of(seen: &AppSeen) -> Naive {
        Naive {
            arrivals: seen.arrivals,
            reads: seen.reads,
            contiguous: seen.contiguous,
            steps: seen.steps,
            follows: seen.follows,
            ascending: seen.ascending,
            outstanding: seen.outstanding,
            width: seen.width,
            clients: seen.clients(),
            files: seen.files(),
        }
    }
}

/// Counts an application's arrivals anew; also all sizes, distances and think times.
fn count(log: &Log, app: AppId) -> (Naive, Vec<u64>, Vec<i64>, Vec<u64>) {
    let mut naive = Naive::default();
    let (mut sizes, mut strides, mut thinks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut clients, mut files) = (BTreeSet::new(), BTreeSet::new());
    for (index, (now, what)) in log.iter().enumerate() {
        let Ok(request) = what else { continue };
        if request.app != app {
            continue;
        }
        let before = || log[..index].iter().rev().filter_map(|(_, what)| what.as_ref().ok());
        naive.arrivals += 1;
        naive.reads += u32::from(request.op == Op::Read);
        let mut ends = before().filter(|other| other.file == request.file).take(ENDS);
        naive.contiguous += u32::from(ends.any(|other| other.end() == request.offset));
        let mut own = before().filter(|other| (other.app, other.client) == (app, request.client));
        if let Some(last) = own.next().filter(|last| last.file == request.file) {
            naive.steps += 1;
            naive.follows += u32::from(last.end() == request.offset);
            naive.ascending += u32::from(last.end() <= request.offset);
            strides.push(request.offset as i64 - last.offset as i64);
        }
        if let (0, Some(idle)) = outstanding(log, index, app, request.client) {
            thinks.push(now.since(idle).as_nanos());
        }
        naive.outstanding += outstanding(log, index + 1, app, request.client).0;
        clients.insert(request.client);
        files.insert(request.file);
        naive.width +=
            (0..5).filter(|&client| outstanding(log, index + 1, app, ClientId(client)).0 > 0).count() as u32;
        sizes.push(request.bytes.into());
    }
    (naive.clients, naive.files) = (clients.len() as u32, files.len() as u32);
    (naive, sizes, strides, thinks)
}

fn near(quantile: u64, values: &mut [u64], percent: usize) -> bool {
    values.sort_unstable();
    let Some(&exact) = values.get((values.len() * percent).div_ceil(100).max(1) - 1) else {
        return quantile == 0;
    };
    quantile.abs_diff(exact.max(4)) * 8 <= exact.max(4)
}

#[test]
fn counts_are_those_of_the_whole_stream() {
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) }, |(events in events())| {
        let (features, log) = play(&events);
        for seen in features.apps() {
            let (naive, mut sizes, strides, mut thinks) = count(&log, seen.app);
            prop_assert_eq!(Naive::of(seen), naive, "application {}", seen.app);
            prop_assert!(near(seen.sizes.quantile(50), &mut sizes, 50) && near(seen.sizes.quantile(90), &mut sizes, 90));
            prop_assert!(near(seen.thinks.quantile(50), &mut thinks, 50), "{} of {thinks:?}", seen.thinks.quantile(50));
            let most = strides.iter().find(|&&one| strides.iter().filter(|&&other| other == one).count() * 2 > strides.len());
            if let Some(&most) = most {
                prop_assert_eq!(seen.stride.value, most, "the distance of most");
            }
        }
    });
}

fn arrival(app: u32, client: u32, file: u64, offset: u64) -> Request {
    let (id, op, bytes, file) = (RequestId(0), Op::Read, 4096, FileId(file));
    Request {
        id,
        file,
        op,
        offset,
        bytes,
        app: AppId(app),
        client: ClientId(client),
        target: None,
        issued: None,
    }
}

#[test]
fn what_was_long_ago_counts_less() {
    let mut features = Features::default();
    for index in 0..u64::from(EPOCH) * 4 {
        let late = index >= u64::from(EPOCH) * 2;
        let offset = if late { index * 4096 } else { index * 7919 % 1_000_003 * 4096 };
        features.arrived(Time::from_nanos(index), &arrival(1, 1, 1, offset));
    }
    let words = &patterns(features.apps())[0].words;
    assert!(words.contains("contiguously"), "{words}");
    assert!(features.apps()[0].arrivals < EPOCH);
}

/// What a script does that starts a program for each file: nobody has a thousand programs.
#[test]
fn short_processes_are_not_told_as_so_many_programs() {
    let said = |processes: u32, requests: u64, at_once: u32| {
        let mut features = Features::default();
        let mut time = 0;
        let mut next = || {
            time += 1_000;
            Time::from_nanos(time)
        };
        for first in (0..processes).step_by(at_once as usize) {
            let those = first..first + at_once;
            for piece in 0..requests {
                for client in those.clone() {
                    features.arrived(next(), &arrival(1, client, 1, u64::from(client) << 20 | piece << 12));
                }
                those.clone().for_each(|client| features.completed(next(), AppId(1), ClientId(client)));
            }
        }
        let words = &patterns(features.apps())[0].words;
        words.split(" read").next().unwrap().to_owned()
    };
    assert_eq!(said(3_000, 1, 1), "many clients, one after another,");
    assert_eq!(said(30, 2, 1), "30 clients, one after another,");
    assert_eq!(said(90, 2, 3), "90 clients, 2 of them at once,", "the mean, while they come");
    assert_eq!(said(30, 30, 1), "30 clients", "each has been there for long");
    assert_eq!(said(32, 2, 32), "32 clients", "all of them are there");
}

/// In a table with one entry for each place these two would drive each other out.
#[test]
fn who_shares_a_place_with_another_one_is_counted_once() {
    let mut features = Features::default();
    for index in 0..u64::from(EPOCH) {
        let [client, file] = if index % 2 == 0 { [29, 7] } else { [34, 19] };
        features.arrived(Time::from_nanos(index), &arrival(1, client as u32, file, index * 4096));
    }
    let seen = &features.apps()[0];
    assert_eq!((seen.clients(), seen.files()), (2, 2));
}

#[test]
fn who_is_driven_out_by_another_application_is_not_busy_for_ever() {
    let mut features = Features::default();
    let both = [(AppId(1), ClientId(23)), (AppId(2), ClientId(17))];
    for index in 0..u64::from(EPOCH) / 2 {
        for (app, client) in both {
            features.arrived(Time::from_nanos(index), &arrival(app.0, client.0, 1, index * 4096));
        }
        for (app, client) in both {
            features.completed(Time::from_nanos(index), app, client);
        }
    }
    for seen in features.apps() {
        assert_eq!((seen.width, seen.outstanding), (seen.arrivals, seen.arrivals), "{}", seen.app);
    }
    // Many more than there is room for come once each, and one goes on: beside it there are no more than there is room for.
    for index in 0..100_000u32 {
        features.arrived(Time::from_nanos(1_000 + u64::from(index)), &arrival(1, 100 + index, 1, 0));
        features.arrived(Time::from_nanos(1_000 + u64::from(index)), &arrival(2, 100 + index, 1, 0));
    }
    for seen in features.apps() {
        assert!(seen.width / seen.arrivals <= 1_024, "{}: {} of {}", seen.app, seen.width, seen.arrivals);
    }
}

#[test]
fn as_many_clients_and_files_as_there_are_places_for_are_counted_well() {
    let mut features = Features::default();
    let mut random = 1u64;
    let mut ids = |count: usize| -> Vec<u32> {
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as u32
        };
        (0..count).map(|_| next()).collect()
    };
    let (clients, files) = (ids(256), ids(128));
    for index in 0..u64::from(EPOCH) {
        let (client, file) = (clients[index as usize % 256], files[index as usize % 128]);
        features.arrived(Time::from_nanos(index), &arrival(1, client, file.into(), index * 4096));
    }
    let seen = &features.apps()[0];
    assert!((256..=264).contains(&seen.clients()), "{}", seen.clients());
    assert!((128..=132).contains(&seen.files()), "{}", seen.files());
}

#[test]
fn memory_is_bounded_and_who_comes_now_has_a_place() {
    let mut features = Features::default();
    let mut before = 0;
    for index in 0..200_000u64 {
        if index == 100_000 {
            before = features.allocated_bytes();
        }
        let app = (index / 20) as u32;
        features.arrived(Time::from_nanos(index), &arrival(app, index as u32, index, index));
    }
    assert_eq!(features.allocated_bytes(), before);
    assert!(before < 512 << 10, "{before} bytes");
    assert!(features.apps().len() == APPS_MAX);
    // An application that stays gets a place soon.
    for index in 0..100u64 {
        features.arrived(Time::from_nanos(1 << 30 | index), &arrival(u32::MAX, 1, 1, index * 4096));
    }
    assert!(features.apps().iter().any(|seen| seen.app == AppId(u32::MAX)));
}
