//! The elevators by themselves, in front of a device whose times can be worked out by hand.

use std::collections::BTreeSet;

use iogate_core::{Op, Span, Time};
use iogate_sim::elevator::{Choice, Deadline, Elevator, Entry, PARAMETERS, Slices};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const IDLE: Span = Span::from_millis(8);

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// An elevator, and a device that takes `service` for each request, one at a time.
struct Rig {
    elevator: Box<dyn Elevator>,
    service: Span,
    now: Time,
    entries: Vec<(Entry, Time)>,
}

impl Rig {
    fn new(elevator: impl Elevator + 'static, service_ms: u64) -> Rig {
        let service = Span::from_millis(service_ms);
        Rig { elevator: Box::new(elevator), service, now: Time::ZERO, entries: Vec::new() }
    }

    fn add(&mut self, op: Op, waited_for: bool, thread: u64, address: u64) -> u32 {
        let id = self.entries.len() as u32;
        let entry = Entry { id, op, waited_for, thread, address, bytes: 64 * KIB };
        self.entries.push((entry, self.now));
        self.elevator.add(self.now, entry);
        id
    }

    fn read(&mut self, thread: u64, address: u64) -> u32 {
        self.add(Op::Read, true, thread, address)
    }

    fn write_back(&mut self, thread: u64, address: u64) -> u32 {
        self.add(Op::Write, false, thread, address)
    }

    /// The next request that begins, however long it takes until then; `None` if none is there.
    fn begin(&mut self) -> Option<Entry> {
        for _ in 0..2 {
            match self.elevator.next(self.now) {
                Choice::Begin(id) => return Some(self.entries[id as usize].0),
                Choice::WaitUntil(at) => self.now = at,
                Choice::Idle => return None,
            }
        }
        None
    }

    /// Serves a request, and how long it had waited when it began.
    fn serve(&mut self) -> Option<(Entry, Span)> {
        let entry = self.begin()?;
        let waited = self.now.since(self.entries[entry.id as usize].1);
        self.now = self.now + self.service;
        self.elevator.ended(self.now, &entry);
        Some((entry, waited))
    }

    fn serve_all(&mut self) -> Vec<Entry> {
        std::iter::from_fn(|| self.serve()).map(|(entry, _)| entry).collect()
    }
}

fn addresses(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.address / KIB).collect()
}

#[test]
fn each_number_has_a_source_and_lies_in_its_range() {
    let mut names = BTreeSet::new();
    for row in PARAMETERS {
        assert!(row.source.len() > 10, "{} has no source", row.name);
        assert!(names.insert(row.name), "{} is there twice", row.name);
        assert!((row.range.0..=row.range.1).contains(&row.value) && row.value > 0, "{}", row.name);
    }
}

#[test]
fn deadline_begins_with_the_oldest_goes_up_and_around() {
    let mut rig = Rig::new(Deadline::new(), 1);
    for place in [500, 900, 100, 700, 300] {
        rig.read(0, place * KIB);
    }
    assert_eq!(addresses(&rig.serve_all()), [500, 700, 900, 100, 300]);
}

#[test]
fn a_write_is_behind_three_batches_of_reads_at_most() {
    for running in 0..40 {
        let mut rig = Rig::new(Deadline::new(), 1);
        let mut end = 0;
        let mut read = |rig: &mut Rig| {
            rig.read(0, end);
            end += 64 * KIB;
        };
        (0..40).for_each(|_| read(&mut rig));
        for _ in 0..running {
            rig.serve();
            read(&mut rig);
        }
        rig.write_back(0, 7 * GIB);
        let mut behind = 0;
        while behind < 1_000 && rig.serve().is_some_and(|(entry, _)| entry.op == Op::Read) {
            read(&mut rig);
            behind += 1;
        }
        assert!((32..=48).contains(&behind), "{behind} reads after {running}");
    }
}

#[test]
fn deadlines_are_kept_but_for_a_batch() {
    let mut rig = Rig::new(Deadline::new(), 10);
    let mut end = GIB;
    for _ in 0..4 {
        rig.read(0, end);
        end += 64 * KIB;
    }
    rig.serve();
    let behind = rig.read(0, 0);
    for _ in 0..200 {
        rig.read(0, end);
        end += 64 * KIB;
        let (entry, waited) = rig.serve().expect("there are two");
        if entry.id == behind {
            assert!(
                waited >= Span::from_millis(500) && waited <= Span::from_millis(500 + 16 * 10),
                "{waited}"
            );
            return;
        }
    }
    panic!("it waits for ever");
}

#[test]
fn what_a_thread_has_queued_goes_in_offset_order_and_around() {
    for idle in [Span::ZERO, IDLE] {
        let mut rig = Rig::new(Slices::new(idle), 1);
        rig.read(0, 400 * KIB);
        rig.serve();
        for place in [500, 900, 100, 700, 300] {
            rig.read(0, place * KIB);
        }
        assert_eq!(addresses(&rig.serve_all()), [500, 700, 900, 100, 300]);
    }
}

/// Two threads that read their own file, each 1 ms after its last request has ended; how often the device went from one to the
/// other in 400 requests, and how long it stood idle.
fn two_readers(idle: Span, think: Span, step: u64) -> (usize, Span) {
    let mut elevator = Slices::new(idle);
    let service = Span::from_millis(2);
    let (mut now, mut busy, mut last, mut switches) = (Time::ZERO, Span::ZERO, None, 0);
    // Of each thread: when it issues its next request, and where.
    let mut next = [(Time::ZERO, 0), (Time::ZERO, 100 * GIB)];
    let mut entries: Vec<Entry> = Vec::new();
    let mut served = 0;
    while served < 400 {
        for (thread, (at, address)) in next.iter_mut().enumerate().filter(|(_, (at, _))| *at <= now) {
            let id = entries.len() as u32;
            let (op, waited_for, bytes) = (Op::Read, true, 64 * KIB);
            let entry = Entry { id, op, waited_for, thread: thread as u64, address: *address, bytes };
            elevator.add(now, entry);
            entries.push(entry);
            *address += step;
            *at = Time::MAX;
        }
        let comes = next.iter().map(|(at, _)| *at).min().expect("there are two");
        match elevator.next(now) {
            Choice::Begin(id) => {
                let entry = entries[id as usize];
                switches += usize::from(last.replace(entry.thread).is_some_and(|last| last != entry.thread));
                // What comes meanwhile is told a little late: nothing else could begin before.
                now = now + service;
                busy += service;
                elevator.ended(now, &entry);
                next[entry.thread as usize].0 = now + think;
                served += 1;
            }
            Choice::WaitUntil(at) => now = at.min(comes),
            Choice::Idle => now = comes,
        }
    }
    (switches, Span::from_nanos(now.since(Time::ZERO).as_nanos() - busy.as_nanos()))
}

#[test]
fn a_device_waits_for_a_thread_that_reads_on_and_only_then() {
    let think = Span::from_millis(1);
    // A turn has 100 ms, or 33 requests.
    let (switches, stood) = two_readers(IDLE, think, 64 * KIB);
    assert!((8..=16).contains(&switches), "{switches}");
    assert!(stood >= Span::from_millis(300), "{stood}");
    // By turns otherwise, and the device does not stand still but at the beginning.
    let (switches, stood) = two_readers(Span::ZERO, think, 64 * KIB);
    assert!(switches > 390 && stood <= Span::from_millis(2), "{switches} {stood}");
}

/// An elevator that waits for whoever had the last request is a toy.
#[test]
fn a_device_does_not_wait_for_a_thread_that_seeks_or_thinks_long() {
    let seeking = two_readers(IDLE, Span::from_millis(1), GIB);
    assert!(seeking.0 > 380 && seeking.1 <= Span::from_millis(40), "{seeking:?}");
    let (switches, _) = two_readers(IDLE, Span::from_millis(12), 64 * KIB);
    assert!(switches > 380, "{switches}");
}

#[test]
fn write_back_has_one_queue_whoever_has_written_and_16_requests_a_turn() {
    let mut rig = Rig::new(Slices::new(IDLE), 1);
    for piece in (0..40).rev() {
        rig.write_back(piece % 5, piece * 64 * KIB);
    }
    let first = rig.serve_all();
    assert_eq!(
        first.iter().map(|entry| entry.address / (64 * KIB)).collect::<Vec<_>>(),
        (0..40).collect::<Vec<_>>()
    );
    // A synchronous write is the thread's own, and its turn ends write-back's.
    for piece in 0..40 {
        rig.write_back(0, piece * 64 * KIB);
    }
    assert_eq!(rig.serve().expect("it is there").0.thread, 0);
    let sync = rig.add(Op::Write, true, 3, GIB);
    assert_eq!(rig.serve().expect("it is there").0.id, sync);
    // Where somebody waits who cannot take the turn: no more than so many.
    let begun: Vec<u32> = rig.serve_all().iter().map(|entry| entry.id).collect();
    assert_eq!(begun.len(), 39);
}

/// Threads that always have requests, and write-back: how long anything waits.
#[test]
fn nobody_starves() {
    for threads in [1, 2, 5] {
        let mut rig = Rig::new(Slices::new(IDLE), 10);
        let mut at = vec![0; threads];
        let mut longest = [Span::ZERO; 2];
        let mut served = [0; 2];
        let mut piece = 0;
        let mut behind = None;
        for (thread, at) in (0..).zip(&mut at) {
            for _ in 0..4 {
                rig.read(thread, thread * GIB + *at * 64 * KIB);
                *at += 1;
            }
        }
        for piece in 0..4 {
            rig.write_back(0, 50 * GIB + piece * 64 * KIB);
        }
        for step in 0..6_000 {
            let (entry, waited) = rig.serve().expect("there is always something");
            let is_read = usize::from(entry.op == Op::Read);
            longest[is_read] = longest[is_read].max(waited);
            served[is_read] += 1;
            if step == 1_000 {
                // Behind where its thread goes on and on.
                behind = Some(rig.read(0, 0));
            }
            if behind == Some(entry.id) {
                behind = None;
                continue;
            }
            match entry.op {
                Op::Read => {
                    let thread = entry.thread;
                    let address = thread * GIB + at[thread as usize] * 64 * KIB;
                    rig.read(thread, address);
                    at[thread as usize] += 1;
                }
                Op::Write => {
                    piece += 1;
                    rig.write_back(0, 50 * GIB + (4 + piece) * 64 * KIB);
                }
            }
        }
        assert_eq!(behind, None, "it was served");
        // A round of all turns, as far behind as a queue may be put, and one turn more.
        let queues = threads as u64 + 1;
        let bound = Span::from_millis(queues * (100 + 10) + queues * 140 + 110);
        assert!(longest[0] <= bound && longest[1] <= bound + bound, "{threads}: {longest:?}, {bound}");
        assert!(served[0] > 6_000 / (threads * 20), "{threads}: {served:?}");
    }
}

/// Two threads that read one file by turns: who takes the turn has what is left of it.
#[test]
fn who_reads_on_where_another_left_off_takes_its_turn_and_not_more() {
    let mut rig = Rig::new(Slices::new(IDLE), 4);
    let mut at = 0;
    let mut next = |rig: &mut Rig, thread: u64| {
        rig.read(thread, at);
        at += 64 * KIB;
    };
    next(&mut rig, 0);
    let far = 100 * GIB;
    let (mut waited_most, mut far_served) = (Span::ZERO, 0);
    let mut far_waiting = false;
    for step in 0..1_000_u64 {
        if step == 10 || (step > 10 && !far_waiting) {
            rig.read(9, far + step * 64 * KIB);
            far_waiting = true;
        }
        let Some((entry, waited)) = rig.serve() else { panic!("nothing at {step}") };
        if entry.thread == 9 {
            (far_waiting, far_served) = (false, far_served + 1);
            waited_most = waited_most.max(waited);
        } else {
            next(&mut rig, 1 - entry.thread);
        }
    }
    assert!(far_served > 20 && waited_most <= Span::from_millis(2 * 110), "{far_served} {waited_most}");
}

#[test]
fn four_of_a_thread_are_in_the_device_where_others_wait_and_sixteen_alone() {
    let begun = |others: bool| {
        let mut rig = Rig::new(Slices::new(IDLE), 1);
        for piece in 0..40 {
            rig.read(0, piece * 64 * KIB);
        }
        if others {
            rig.read(1, GIB);
        }
        std::iter::from_fn(|| rig.begin()).count()
    };
    assert_eq!((begun(true), begun(false)), (4, 16));
}

#[test]
fn who_is_known_to_think_long_is_not_waited_for() {
    let mut rig = Rig::new(Slices::new(IDLE), 1);
    for piece in 0..5 {
        rig.read(0, piece * 64 * KIB);
        rig.serve();
        rig.now = rig.now + Span::from_millis(12);
    }
    rig.read(0, 5 * 64 * KIB);
    let other = rig.read(1, GIB);
    rig.serve();
    assert_eq!(rig.elevator.next(rig.now), Choice::Begin(other));
}

#[test]
fn who_is_behind_where_its_thread_goes_on_does_not_wait_for_ever() {
    let mut rig = Rig::new(Slices::new(IDLE), 10);
    let mut end = GIB;
    for _ in 0..4 {
        rig.read(0, end);
        end += 64 * KIB;
    }
    rig.serve();
    let behind = rig.read(0, 0);
    for _ in 0..200 {
        rig.read(0, end);
        end += 64 * KIB;
        let (entry, waited) = rig.serve().expect("there are several");
        if entry.id == behind {
            assert!(waited <= Span::from_millis(125 + 110), "{waited}");
            return;
        }
    }
    panic!("it waits for ever");
}

#[test]
fn write_back_that_has_its_turn_begins_something_in_it() {
    let mut rig = Rig::new(Slices::new(Span::ZERO), 1);
    rig.read(0, 0);
    let in_device = rig.begin().expect("it is there");
    let write_back = rig.write_back(0, GIB);
    assert_eq!(rig.elevator.next(rig.now), Choice::Idle, "while somebody waits for the device");
    rig.read(1, 2 * GIB);
    rig.elevator.ended(rig.now, &in_device);
    assert_eq!(rig.elevator.next(rig.now), Choice::Begin(write_back));
}

#[test]
fn a_device_is_asked_again_when_waiting_is_over() {
    let mut elevator = Slices::new(IDLE);
    let entry = |id: u32, thread: u64| {
        let (op, waited_for, address, bytes) = (Op::Read, true, thread * GIB, 4_096);
        Entry { id, op, waited_for, thread, address, bytes }
    };
    elevator.add(ms(0), entry(0, 0));
    elevator.add(ms(0), entry(1, 1));
    assert_eq!(elevator.next(ms(0)), Choice::Begin(0));
    assert_eq!(elevator.next(ms(0)), Choice::Idle, "the thread's next request may come");
    elevator.ended(ms(5), &entry(0, 0));
    assert_eq!(elevator.next(ms(5)), Choice::WaitUntil(ms(13)));
    assert_eq!(elevator.next(ms(13)), Choice::Begin(1));
    elevator.ended(ms(20), &entry(1, 1));
    assert_eq!(elevator.next(ms(20)), Choice::Idle, "nobody else is there");
}
