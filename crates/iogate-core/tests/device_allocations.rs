//! No device model allocates once it is built.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use iogate_core::device::{Preset, Transfer};
use iogate_core::{Op, Time};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

// The only test of this file, as the count is of the whole process.
#[test]
fn serving_allocates_nothing() {
    for preset in Preset::all() {
        let mut device = preset.build();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0);
        let (mut now, mut state) = (Time::ZERO, 1u64);
        for index in 0..20_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let op = if state >> 63 == 0 { Op::Read } else { Op::Write };
            let address = if index % 3 == 0 { state } else { index * 8192 };
            now = now + device.serve(now, Transfer { op, address, bytes: 8192 });
        }
        device.flush(now);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{}", preset.name);
    }
}
