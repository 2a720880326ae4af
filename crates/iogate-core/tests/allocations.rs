//! No device model allocates once it is built, and no gate once its queue has been as long as it gets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use iogate_core::device::{Preset, Transfer};
use iogate_core::sched::Prices;
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout as Striping, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, Time,
};

struct Counting;

thread_local! {
    /// Of this thread: the test harness allocates in another.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

#[test]
fn steady_state_allocates_nothing() {
    // An array makes several accesses of one, and keeps a list of them.
    let is_array = |preset: &&Preset| ["array-12t", "raid6-hdd"].contains(&preset.name);
    Preset::all().iter().filter(|preset| !is_array(preset)).for_each(serve);
    SchedulerKind::ALL.into_iter().for_each(|kind| schedule(&SchedulerConfig::new(kind)));
    for priced in ["scheduler=aioli,waits=priced", "scheduler=mlf,waits=priced"] {
        schedule(&SchedulerConfig::new(SchedulerKind::Fifo).changed(priced, 0).unwrap());
    }
}

fn serve(preset: &Preset) {
    let mut device = preset.build();
    let before = allocations();
    assert!(before > 0, "the counter counts");
    let (mut now, mut random) = (Time::ZERO, Rng(1));
    for index in 0..20_000u64 {
        let state = random.next();
        let op = if state >> 63 == 0 { Op::Read } else { Op::Write };
        let address = if index % 3 == 0 { state } else { index * 8192 };
        now = now + device.serve(now, Transfer { op, address, bytes: 8192 });
    }
    device.flush(now);
    assert_eq!(allocations(), before, "{}", preset.name);
}

/// Reads and writes of a few files, some of them in each other's way, with 1,000 in the gate.
fn schedule(scheduler: &SchedulerConfig) {
    let config = GateConfig {
        scheduler: scheduler.clone(),
        queue_max: 2_000,
        depth: 4,
        layout: Striping { first_target: 0, stripe_bytes: 65_536, targets: 4 },
    };
    let mut gate = Gate::new(&config).unwrap();
    gate.set_prices(Prices::of_jumps([Span::from_micros(100); 2], [100; 6]));
    let (mut now, mut random, mut id, mut before) = (Time::ZERO, Rng(2), 0, 0);
    for round in 0..200_000 {
        if round == 100_000 {
            before = allocations();
        }
        while gate.len() < 1_000 {
            let state = random.next();
            let request = Request {
                id: RequestId(id),
                file: FileId(state >> 62),
                op: if state >> 40 & 7 == 0 { Op::Write } else { Op::Read },
                offset: (state >> 20 & 0xFFFF) * 4096,
                bytes: 4096 << (state >> 50 & 1),
                app: AppId(id as u32 % 3),
                client: ClientId(0),
                target: None,
                issued: None,
            };
            gate.submit(now, &request).unwrap();
            id += 1;
        }
        now = now + Span::from_micros(20);
        match gate.next(now) {
            Decision::Dispatch(dispatch) => gate.complete(now, dispatch.id, Outcome::Done { bytes: 0 }),
            Decision::WaitUntil(until, _) => now = until,
            Decision::Idle => {}
        }
    }
    // A list may still become longer than ever before, ever more rarely; no request allocates.
    let grown = allocations() - before;
    assert!(grown <= 10, "{scheduler}: {grown} allocations in 100,000 rounds");
}
