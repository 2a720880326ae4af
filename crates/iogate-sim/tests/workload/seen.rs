//! What is said of the arrivals of applications: each pattern by its name, also where a tenth of the requests are of another one.

use iogate_core::auto::features::Features;
use iogate_core::auto::pattern::{Access, Pattern as Seen};
use iogate_core::{AppId, ClientId, FileId, Op, Request, RequestId, Span, Time};
use iogate_sim::scenario::{App, Pattern, Sharing};

use super::interpreter::{app, run};

const KIB: u32 = 1024;
const THINK: Span = Span::from_millis(3);

/// What is seen of an application whose processes issue their calls by turns, one at a time each; `noise` of 100 are elsewhere, and
/// `dropped` of 100 are not made.
fn seen(app: &App, noise: u64, dropped: u64) -> Seen {
    let done = run(app, 1);
    let mut calls: Vec<_> =
        (0..app.processes as usize).map(|rank| done.calls(rank).collect::<Vec<_>>().into_iter()).collect();
    let (mut features, mut now, mut state) = (Features::default(), Time::from_nanos(1 << 40), 1u64);
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    loop {
        let round: Vec<_> =
            (0u32..).zip(calls.iter_mut()).filter_map(|(rank, of)| Some((rank, of.next()?))).collect();
        if round.is_empty() {
            break;
        }
        let round: Vec<_> = round.into_iter().filter(|_| random() % 100 >= dropped).collect();
        for (rank, call) in &round {
            let elsewhere = random() % 100 < noise;
            let offset = if elsewhere { random() % (1 << 24) * 4096 } else { call.offset };
            let (file, op, bytes) = (call.file, call.op, call.bytes);
            let (app, client) = (AppId(app.id), ClientId(rank + 1));
            let request = Request {
                id: RequestId(0),
                file,
                op,
                offset,
                bytes,
                app,
                client,
                target: None,
                issued: None,
            };
            features.arrived(now, &request);
            now = now + Span::from_micros(1);
        }
        now = now + Span::from_micros(200);
        for (rank, _) in &round {
            features.completed(now, AppId(app.id), ClientId(rank + 1));
        }
        now = now + THINK;
    }
    Seen::of(&features.apps()[0]).expect("there were enough")
}

fn words(processes: u32, pattern: Pattern, noise: u64, dropped: u64) -> String {
    seen(&app(processes, pattern), noise, dropped).words
}

#[test]
fn each_pattern_has_its_words() {
    for noise in [0, 10] {
        let (bytes, request, sharing) = (1 << 20, 8 * KIB, Sharing::Shared);
        assert_eq!(
            words(8, Pattern::Strided { bytes, request }, noise, 0),
            "8 clients write 8 KiB pieces at a stride of 64 KiB, 3 ms between them"
        );
        assert_eq!(
            words(1, Pattern::Contiguous { sharing, bytes, request }, noise, 0),
            "1 client writes 8 KiB pieces contiguously, 3 ms between them"
        );
        assert_eq!(
            words(4, Pattern::Contiguous { sharing: Sharing::PerProcess, bytes, request }, noise, 0),
            "4 clients write 8 KiB pieces of 4 files contiguously, 3 ms between them"
        );
        assert_eq!(
            words(4, Pattern::Random { sharing, bytes, request, file_bytes: 1 << 34 }, noise, 0),
            "4 clients write 8 KiB pieces at random, 3 ms between them"
        );
    }
    let pattern = Pattern::Contiguous { sharing: Sharing::Shared, bytes: 4 << 20, request: 8 * KIB };
    let gaps = seen(&app(2, pattern), 0, 55);
    assert_eq!(gaps.access, Access::Sequential, "{}", gaps.words);
}

#[test]
fn numbers_go_with_the_words() {
    let mut strided = app(8, Pattern::Strided { bytes: 1 << 20, request: 8 * KIB });
    strided.workload.op = Op::Read;
    let seen = seen(&strided, 0, 0);
    assert_eq!((seen.access, seen.clients, seen.files), (Access::Strided(65_536), 8, 1));
    assert_eq!((seen.reads_percent, seen.bytes[1], seen.outstanding_tenths), (100, 8192, 10));
    assert_eq!(seen.width_tenths, 45, "as each of eight arrives, one to eight are in the gate");
    // A round: the first begins where the round before it ended, and each of the others where its neighbour ended.
    assert!(seen.contiguous_percent >= 99, "{}", seen.contiguous_percent);
    let think = seen.think_ns.unwrap();
    assert!(think.abs_diff(THINK.as_nanos()) <= THINK.as_nanos() / 8, "{think}");
}

#[test]
fn who_asks_for_many_small_files_is_seen() {
    let mut features = Features::default();
    for index in 0..200u64 {
        let (file, bytes) = (FileId(index), if index % 2 == 0 { 3_000 } else { 50_000 });
        let (id, op, app, client) = (RequestId(0), Op::Read, AppId(3), ClientId(9));
        let request = Request { id, file, op, offset: 0, bytes, app, client, target: None, issued: None };
        features.arrived(Time::from_nanos(index), &request);
    }
    let seen = Seen::of(&features.apps()[0]).unwrap();
    assert_eq!(seen.access, Access::Files);
    assert!(seen.words.starts_with("1 client reads pieces of 2 KiB to 64 KiB of "), "{}", seen.words);
}
