//! A run needs memory for what is in progress, not for what has been.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{app, scenario};
use iogate_core::{FileId, Op, Span, Time};
use iogate_sim::cache::{Access, Cache, CacheConfig, Kernel, PAGE, Step};
use iogate_sim::scenario::Scenario;
use iogate_sim::world::simulate;

struct Counting;

thread_local! {
    /// Bytes that this thread holds, and the most that it held.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    LIVE.with(|cell| {
        let (live, most) = cell.get();
        cell.set((live + bytes, most.max(live + bytes)));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most bytes that a run holds beyond what was there before.
fn most(scenario: &Scenario, requests: u64) -> f64 {
    let (live, _) = LIVE.get();
    LIVE.set((live, live));
    let result = simulate(scenario, 1, &mut ()).expect("it ends");
    assert_eq!(result.requests, requests);
    (LIVE.get().1 - live) as f64
}

/// 64 processes with one request in progress each.
fn busy(requests: u64) -> Scenario {
    let mut s = scenario(4, "unit:10", "fifo");
    s.apps = vec![app(1, 64, requests / 64 * 4_096, 4_096)];
    s
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let (short, long) = (most(&busy(200_000), 200_000), most(&busy(2_000_000), 2_000_000));
    assert!(short > 10_000.0, "the counter counts: {short}");
    assert!(long < 1.2 * short, "{long} bytes for ten times the requests, after {short}");
}

#[test]
fn nor_in_a_network_that_loses_and_times() {
    let lossy = |requests: u64| {
        let mut s = busy(requests);
        s.cluster.clients.nodes = 8;
        s.apps[0].nodes = 8;
        s.apps[0].workload.op = Op::Write;
        s.network.latency = Span::from_micros(20);
        s.network.bandwidth = Some(100_000_000);
        s.network.buffer = Some(20_000);
        // Longer than the run: no time-out may be left behind by what was acknowledged long ago.
        s.network.retransmit = Span::from_secs(3_600);
        most(&s, requests)
    };
    let (short, long) = (lossy(12_800), lossy(128_000));
    assert!(long < 1.2 * short, "{long} bytes for ten times the requests, after {short}");
}

/// Reads a file of 33 GiB from its beginning, a MiB at a time, through a cache of 32 GiB.
fn filled_cache() -> Cache {
    let memory: u64 = 32 << 30;
    let mut cache = Cache::new(&CacheConfig::new(Kernel::Modern, memory));
    let each: u64 = 1 << 20;
    for token in 0..(memory + (1 << 30)) / each {
        let (file, offset) = (FileId(1), token * each);
        cache.read(Access { token, whom: 1, stream: 1, file, offset, bytes: each }, 2 * memory);
        loop {
            match cache.next(Time::ZERO) {
                Step::Transfer(transfer) => cache.completed(Time::ZERO, transfer.io),
                Step::Done(done) => assert_eq!(done, token),
                _ => break,
            }
        }
    }
    assert!(cache.size().0 > memory / PAGE * 99 / 100, "{:?}", cache.size());
    cache
}

/// Byte by byte what the allocator has given: 64 servers whose caches of 32 GiB are full need less than 1 GiB.
#[test]
fn sixty_four_caches_of_32_gib_that_were_filled_in_order_fit_one_gib() {
    let (before, _) = LIVE.get();
    let first = filled_cache();
    let one = LIVE.get().0 - before;
    assert!(one > 10_000, "the counter counts: {one}");
    // Four more are as large; the others are, too.
    let more: Vec<Cache> = (0..3).map(|_| filled_cache()).collect();
    let four = LIVE.get().0 - before;
    assert!((3 * one..=5 * one).contains(&four), "{four} bytes for four, {one} for one");
    let all = 64 * one;
    assert!(all < 1 << 30, "{all} bytes");
    assert!(all < 64 << 20, "{all} bytes: docs/simulator.md says 64 MiB");
    drop((first, more));
}
