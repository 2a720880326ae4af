//! What a waiting claim takes of memory: as many bytes as [`iogate_core::coord::Table`] says, at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use iogate_core::coord::{Claim, CoordConfig, Decision, PlaceId, SessionId, Table, Targets, Token};
use iogate_core::{Span, Time};

struct Counting;

thread_local! {
    /// Bytes allocated and not freed by this thread: the test harness allocates in another.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.with(|bytes| bytes.set(bytes.get().wrapping_add(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.with(|bytes| bytes.set(bytes.get().wrapping_sub(layout.size())));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn bytes() -> usize {
    BYTES.with(Cell::get)
}

/// What has come since then. A thread may free what another has allocated, so the count itself may be below zero.
fn since(before: usize) -> usize {
    bytes().wrapping_sub(before)
}

const CLAIMS: u64 = 10_000;

/// Bytes a claim, with this many waiting, each of another session.
fn each(rules: &str, members: fn(u64) -> Vec<u32>, party: u64) -> usize {
    let before = bytes();
    let mut table = Table::new(CoordConfig::parse(rules).expect("valid rules"), Token(0));
    for session in 0..CLAIMS {
        let claim = Claim {
            session: SessionId(session),
            request: 1,
            targets: Targets { place: PlaceId(0), members: members(session) },
            party: party * (session + 1),
            bytes: session * 7919 % 1000,
            period: Span::from_secs(100),
            ..Claim::default()
        };
        table.claim(Time::ZERO, claim).expect("there is room");
        while let Decision::Granted(_) = table.next(Time::ZERO) {}
        table.changes().for_each(drop);
    }
    let each = since(before) / CLAIMS as usize;
    println!("{each} bytes a claim: {rules}, party {party}, targets as {:?}", members(1));
    each
}

#[test]
fn a_waiting_claim_takes_less_than_400_bytes() {
    let any_of = |session: u64| vec![(session * 7919 % 64) as u32];
    let four_of = |session: u64| (0..4).map(|index| (session % 16) as u32 + 16 * index).collect();
    for rules in ["order=fcfs", "order=fcfs,passing=relaxed"] {
        for members in [|_| vec![], any_of] {
            assert!(each(rules, members, 0) < 400);
            assert!(each(rules, members, 1) < 400);
        }
        assert!(each(rules, four_of, 0) < 400);
        assert!(each(rules, four_of, 1) < 400 + 3 * 80, "80 for each further target of a party's claim");
    }
    for order in ["order=shortest", "order=weighted", "order=sets"] {
        assert!(each(order, any_of, 1) < 400 + 250, "250 for what is remembered of a party");
    }
}

/// Nothing stays behind of claims that are over, but the last few thousand parties where the order goes by what they did before.
#[test]
fn what_is_over_is_forgotten() {
    for rules in ["order=fcfs", "order=fcfs,passing=relaxed", "order=weighted", "order=sets"] {
        let before = bytes();
        let mut table = Table::new(CoordConfig::parse(rules).expect("valid rules"), Token(0));
        for session in 0..20_000 {
            let targets = Targets { place: PlaceId(0), members: vec![session as u32] };
            let session = SessionId(session);
            let now = Time::from_nanos(session.0);
            table
                .claim(now, Claim { session, request: 1, targets, ..Claim::default() })
                .expect("there is room");
            let Decision::Granted(grant) = table.next(now) else { panic!("it is free") };
            table.disconnected(now, session);
            table.release(now, session, grant.token, 0).expect("it is held");
            assert_eq!(table.next(now), Decision::Idle);
            table.changes().for_each(drop);
        }
        let left = since(before);
        assert!(left < 2 << 20, "{rules}: {left} bytes");
    }
}

/// Names of places cost nothing once nobody has been there for long.
#[test]
fn places_of_the_past_are_forgotten() {
    for rules in ["order=fcfs", "order=shortest", "order=weighted", "order=sets"] {
        let mut table = Table::new(CoordConfig::parse(rules).expect("valid rules"), Token(0));
        let mut turns = |places: std::ops::Range<u32>| {
            for place in places {
                let now = Time::from_nanos(u64::from(place));
                let (session, targets) = (SessionId(1), Targets::all_of(PlaceId(place)));
                table
                    .claim(now, Claim { session, request: 1, targets, ..Claim::default() })
                    .expect("there is room");
                let Decision::Granted(grant) = table.next(now) else { panic!("it is free") };
                table.release(now, session, grant.token, 0).expect("it is held");
                table.changes().for_each(drop);
            }
        };
        turns(0..10_000);
        let before = bytes();
        turns(10_000..100_000);
        let grown = since(before) as isize;
        assert!(grown < 64 << 10, "{rules}: {grown} bytes");
    }
}
