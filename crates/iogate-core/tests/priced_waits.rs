//! Waits that are priced, on modelled devices: worth what the best fixed wait is on a disk, and none on fast storage.

use iogate_core::device::{Device, Preset, Transfer, Unit};
use iogate_core::sched::Prices;
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, Span, Time, WaitReason,
};

const BYTES: u32 = 65_536;
const PIECES: u64 = 500;

/// Readers of one application, of a file each, from its beginning, piece after piece: long enough that the first chances, on which nobody
/// waits, weigh little.
struct Readers {
    count: u64,
    /// Mean time from a completion to the next read; it varies by half of it.
    think: Span,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What a read that continues another one saves against a random one, after none, two and eight random ones, as a profile would find it.
fn prices(mut device: Box<dyn Device>, rate: [u32; 6]) -> Prices {
    let (mut now, mut state, capacity) = (Time::ZERO, 1, device.capacity());
    let mut serve = |address| {
        let took = device.serve(now, Transfer { op: Op::Read, address, bytes: BYTES.into() });
        now = now + took;
        took.as_nanos()
    };
    let mut elsewhere = || (random(&mut state) % (capacity >> 16)) << 16;
    let jump = (0..400).map(|_| serve(elsewhere())).sum::<u64>() / 400;
    let saving = [0, 2, 8].map(|others| {
        let start = elsewhere();
        let mut next = |index| {
            for _ in 0..others {
                serve(elsewhere());
            }
            serve(start + index * u64::from(BYTES))
        };
        next(0);
        Span::from_nanos(jump.saturating_sub((1..=100).map(next).sum::<u64>() / 100))
    });
    Prices { saving: [saving; 2], rate }
}

/// When all have read everything, and how often the gate has waited for a next piece.
fn run(
    settings: &str,
    mut device: Box<dyn Device>,
    prices: Prices,
    readers: &Readers,
    depth: u32,
) -> (Span, u64) {
    let scheduler = SchedulerConfig::by_name("fifo").unwrap().changed(settings, 0).unwrap();
    let config = GateConfig { scheduler, queue_max: 1000, depth, layout: Layout::SINGLE };
    let mut gate = Gate::new(&config).unwrap();
    gate.set_prices(prices);
    let (mut now, mut state) = (Time::ZERO, 7);
    // The next read of each: when, and which piece. In service: until when.
    let mut next: Vec<(Time, u64)> = (0..readers.count).map(|_| (Time::ZERO, 0)).collect();
    let mut service = Vec::new();
    let mut free = Time::ZERO;
    loop {
        for (file, (due, piece)) in next.iter_mut().enumerate() {
            if *due <= now && *piece < PIECES {
                let request = Request {
                    id: RequestId(file as u64),
                    file: FileId(file as u64),
                    op: Op::Read,
                    offset: *piece * u64::from(BYTES),
                    bytes: BYTES,
                    app: AppId(1),
                    client: ClientId(0),
                    target: None,
                    issued: None,
                };
                gate.submit(now, &request).unwrap();
                (*due, *piece) = (Time::MAX, *piece + 1);
            }
        }
        let wake = loop {
            match gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    let address = dispatch.file.0 * (device.capacity() / readers.count) + dispatch.offset;
                    let begin = now.max(free);
                    free = begin
                        + device.serve(begin, Transfer { op: Op::Read, address, bytes: dispatch.bytes });
                    service.push((free, dispatch));
                }
                Decision::WaitUntil(until, _) => break until,
                Decision::Idle => break Time::MAX,
            }
        };
        let arrival = next.iter().map(|(due, _)| *due).min().unwrap();
        let end = service.iter().map(|(end, _)| *end).min().unwrap_or(Time::MAX);
        let event = wake.min(arrival).min(end);
        if event == Time::MAX {
            let finished = next.iter().all(|(_, piece)| *piece == PIECES);
            assert!(finished && gate.is_empty(), "{settings}: it stopped with {} in the gate", gate.len());
            return (now.since(Time::ZERO), gate.stats().waits[WaitReason::Contiguous as usize].count);
        }
        now = event;
        while let Some(at) = service.iter().position(|(end, _)| *end <= now) {
            let (_, dispatch) = service.remove(at);
            for part in gate.parts(dispatch.id) {
                let think = readers.think.as_nanos();
                let due = now + Span::from_nanos(think / 2 + random(&mut state) % think.max(1));
                let reader = &mut next[part.request.0 as usize];
                reader.0 = if reader.1 < PIECES { due } else { Time::MAX };
            }
            gate.complete(now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
        }
    }
}

fn device(name: &str) -> Box<dyn Device> {
    Preset::all().iter().find(|preset| preset.name == name).unwrap().build()
}

#[test]
fn on_a_disk_it_is_as_good_as_the_best_fixed_wait() {
    for name in ["hdd", "pastel", "graphene"] {
        let prices = prices(device(name), [100; 6]);
        let readers = Readers { count: 4, think: Span::from_micros(100) };
        let took = |settings: &str| run(settings, device(name), prices, &readers, 1).0.as_nanos();
        let fixed = |wait| took(&format!("scheduler=aioli,contiguous_wait={wait}"));
        let best = ["0ms", "300us", "1ms", "3ms", "10ms", "30ms"].into_iter().map(fixed).min().unwrap();
        for scheduler in ["aioli", "mlf"] {
            let priced = took(&format!("scheduler={scheduler},waits=priced"));
            assert!(
                priced <= best + best / 10,
                "{name}: {priced} ns with priced waits of {scheduler}, {best} ns with the best fixed one of aioli"
            );
        }
        let without = fixed("0ms");
        assert!(
            best * 3 < without * 2,
            "{name}: {best} ns, and {without} without waits: there is something to gain"
        );
    }
}

#[test]
fn on_fast_storage_nobody_is_waited_for() {
    let memory = || -> Box<dyn Device> { Box::new(Unit::new(Span::from_micros(5))) };
    let flash = || device("edel");
    let flash_prices = prices(flash(), [100, 190, 350, 600, 800, 800]);
    let memory_prices = prices(memory(), [100, 200, 400, 800, 1600, 1600]);
    for scheduler in ["aioli", "mlf"] {
        for depth in [1, 8] {
            for think in [5, 50, 500] {
                let readers = Readers { count: 8, think: Span::from_micros(think) };
                let settings = format!("scheduler={scheduler},waits=priced");
                let (_, waits) = run(&settings, memory(), memory_prices, &readers, depth);
                assert_eq!(waits, 0, "{scheduler} at depth {depth}, {think} us of think time, on memory");
            }
            // Reading ahead saves a flash drive something, but less than this.
            let readers = Readers { count: 8, think: Span::from_millis(2) };
            let (_, waits) =
                run(&format!("scheduler={scheduler},waits=priced"), flash(), flash_prices, &readers, depth);
            assert_eq!(waits, 0, "{scheduler} at depth {depth} on flash");
        }
    }
}

#[test]
fn a_slot_is_kept_for_each_stream_that_is_worth_it() {
    // Continuing saves as much after three others as after none, and nothing after more: each of four slots may be kept.
    let jump = Span::from_millis(8);
    let array = Prices { saving: [[jump, jump, Span::ZERO]; 2], rate: [100, 110, 120, 120, 120, 120] };
    let readers = Readers { count: 8, think: Span::from_micros(100) };
    let unit = || -> Box<dyn Device> { Box::new(Unit::new(Span::from_millis(1))) };
    let waits = |prices, depth| run("scheduler=mlf,waits=priced", unit(), prices, &readers, depth).1;
    assert!(waits(array, 4) > 0, "it keeps slots");
    assert!(waits(Prices::of_jumps([jump; 2], array.rate), 1) > 0, "one slot, and nobody between");
    assert_eq!(waits(Prices::of_jumps([jump; 2], array.rate), 4), 0, "others go ahead in the other slots");
}
