//! Ends against rules that a naive observer keeps.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::wire::range;

const FILE: Identity = Identity { inode: 7, generation: 50 };
const WALL: u64 = 10;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn ends() -> Ends {
    Ends::new(Rules::SERVER, at(0), WALL)
}

fn record(client: u8, number: u64, bytes: u32) -> AppendRecord {
    AppendRecord { client: [client; 16], number, step: 0, uid: 1, bytes }
}

fn append(client: u8, number: u64, bytes: u32) -> Wish {
    Wish::Append(vec![record(client, number, bytes)])
}

fn opened(ends: &mut Ends, elsewhere: bool) {
    if ends.open(FILE, elsewhere) {
        ends.learn(FILE, 0, None, &[]);
    }
}

/// The only answer, noted.
fn only(ends: &mut Ends, now: Time, mut all: Vec<Told>) -> Told {
    assert_eq!(all.len(), 1, "{all:?}");
    let one = all.remove(0);
    if one.note.is_some() {
        assert_eq!(ends.noted(now, FILE, one.ticket, true), []);
    }
    one
}

fn offset(told: &Told) -> u64 {
    match &told.answer {
        Answer::Ranges(ranges) => ranges[0].offset,
        other => panic!("{other:?}"),
    }
}

/// Asks, looks if told to, and gets a range.
fn range(ends: &mut Ends, now: Time, handle: HandleId, wish: Wish, size: u64) -> Told {
    let all = ends.ask(now, FILE, handle, handle, wish.clone());
    let one = only(ends, now, all);
    if one.answer != Answer::Look {
        return one;
    }
    let Wish::Append(records) = wish else { panic!() };
    let all = ends.looked(now, FILE, handle, handle, one.ticket, size, records);
    only(ends, now, all)
}

#[test]
fn one_after_another_gets_the_end() {
    let mut ends = ends();
    opened(&mut ends, false);
    opened(&mut ends, false);
    let first = range(&mut ends, at(1), 1, append(1, 1, 10), 100);
    assert_eq!(offset(&first), 100);
    assert_eq!(ends.ask(at(1), FILE, 2, 22, append(2, 1, 5)), []);
    let (note, all) = ends.settle(at(2), FILE, 1, first.ticket, 110);
    assert_eq!(note, None);
    let second = only(&mut ends, at(2), all);
    assert_eq!((second.waiter, offset(&second), second.writers), (22, 110, 0), "without a look");
    assert_eq!(second.note, Some(Note { mark: Some(115), ..Note::default() }));
}

#[test]
fn who_is_stopped_delays_others_and_keeps_its_range() {
    let mut ends = ends();
    (0..3).for_each(|_| opened(&mut ends, false));
    let first = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    assert_eq!(ends.ask(at(10), FILE, 2, 22, append(2, 1, 5)), []);
    assert_eq!(ends.reap(at(999)), []);
    let all = ends.reap(at(1000));
    let second = only(&mut ends, at(1000), all);
    assert_eq!(second.answer, Answer::Look);
    let all = ends.looked(at(1000), FILE, 2, 22, second.ticket, 0, vec![record(2, 1, 5)]);
    let second = only(&mut ends, at(1000), all);
    assert_eq!(offset(&second), 10);
    // A size waits for both, as long as they may be written to.
    assert_eq!(ends.ask(at(1100), FILE, 3, 33, Wish::Resize(0)), []);
    assert_eq!(ends.settle(at(1200), FILE, 2, second.ticket, 15), (None, vec![]));
    let (_, all) = ends.settle(at(1300), FILE, 1, first.ticket, 10);
    let third = only(&mut ends, at(1300), all);
    assert_eq!((third.waiter, &third.answer), (33, &Answer::Yours(None)));
    // The record is known, in another session too, though the file has been cut since.
    let (note, _) = ends.settle(at(1400), FILE, 3, third.ticket, 0);
    let mut note = note.unwrap();
    note.void.sort_by_key(|record| record.client);
    let void = vec![record(1, 1, 10), record(2, 1, 5)];
    assert_eq!(
        note,
        Note { void, begun: Some(None), mark: None },
        "nobody would know after a restart that it is there"
    );
    assert_eq!(ends.noted(at(1400), FILE, third.ticket, true), []);
    let again = range(&mut ends, at(1500), 2, append(1, 1, 10), 0);
    assert_eq!(again.answer, Answer::Ranges(vec![Range { offset: 0, is_there: 1 }]));
}

#[test]
fn who_sets_a_size_over_ranges_that_are_not_settled_is_told_until_it_is_set() {
    let mut ends = ends();
    (0..3).for_each(|_| opened(&mut ends, false));
    let late = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    assert_eq!(ends.ask(at(10), FILE, 2, 22, Wish::Resize(0)), []);
    assert_eq!(ends.reap(at(4999)), [], "it may still be written to");
    let all = ends.reap(at(5000));
    let cut = only(&mut ends, at(5000), all);
    assert_eq!((&cut.answer, cut.voids), (&Answer::Yours(None), true));
    // It could not be set everywhere.
    assert_eq!(ends.settle(at(5100), FILE, 2, cut.ticket, UNKNOWN), (None, vec![]));
    let all = ends.ask(at(5200), FILE, 3, 33, Wish::Take);
    let cut = only(&mut ends, at(5200), all);
    assert_eq!((&cut.answer, cut.voids), (&Answer::Yours(Some(0)), true));
    assert!(ends.settle(at(5300), FILE, 3, cut.ticket, 0).0.is_some());
    assert_eq!(ends.noted(at(5300), FILE, cut.ticket, true), []);
    // Who is late is told to write elsewhere; what is settled needs no such care.
    assert_eq!(ends.settle(at(5400), FILE, 1, late.ticket, 0), (None, vec![]));
    let again = range(&mut ends, at(5400), 1, append(1, 1, 10), 0);
    assert_eq!(again.answer, Answer::Ranges(vec![Range { offset: 0, is_there: range::NEW }]));
    ends.settle(at(5500), FILE, 1, again.ticket, 10);
    let all = ends.ask(at(5600), FILE, 2, 24, Wish::Resize(0));
    let cut = only(&mut ends, at(5600), all);
    assert_eq!((&cut.answer, cut.voids), (&Answer::Yours(None), false));
}

#[test]
fn a_range_that_was_lost_is_given_again_to_the_same_record() {
    let mut ends = ends();
    (0..2).for_each(|_| opened(&mut ends, false));
    let first = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    assert_eq!(offset(&first), 0);
    assert_eq!(ends.leave(at(10), FILE, 1, false), []);
    let other = range(&mut ends, at(20), 2, append(2, 1, 4), 0);
    assert_eq!(offset(&other), 10);
    ends.settle(at(20), FILE, 2, other.ticket, 14);
    let again = range(&mut ends, at(30), 2, append(1, 1, 10), 0);
    assert_eq!(again.answer, Answer::Ranges(vec![Range { offset: 0, is_there: range::EARLIER }]));
    ends.settle(at(30), FILE, 2, again.ticket, 14);
    let again = range(&mut ends, at(40), 2, append(1, 1, 10), 0);
    assert_eq!(again.answer, Answer::Ranges(vec![Range { offset: 0, is_there: 1 }]));
}

#[test]
fn the_end_is_looked_for_while_others_write_elsewhere() {
    let mut ends = ends();
    opened(&mut ends, false);
    let first = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    opened(&mut ends, true);
    ends.settle(at(0), FILE, 1, first.ticket, 10);
    let second = range(&mut ends, at(1), 1, append(1, 2, 10), 500);
    assert_eq!((offset(&second), second.writers), (500, 1));
    ends.settle(at(1), FILE, 1, second.ticket, 510);
    ends.leave(at(2), FILE, 2, true);
    let third = range(&mut ends, at(3), 1, append(1, 3, 10), 600);
    assert_eq!((offset(&third), third.writers), (600, 0), "it may have written last");
    ends.settle(at(3), FILE, 1, third.ticket, 610);
    assert_eq!(offset(&range(&mut ends, at(4), 1, append(1, 4, 10), 0)), 610, "and now nobody does");
    // A file from before the start, for a while.
    let old = Identity { inode: 1, generation: WALL };
    assert!(ends.open(old, false));
    ends.learn(old, 40, None, &[]);
    for (now, size, expected, looks) in
        [(5, 10, 40, true), (6, 90, 90, true), (70_000, 0, 91, true), (70_001, 0, 92, false)]
    {
        let all = ends.ask(at(now), old, 9, 9, append(9, now, 1));
        let mut one = all[0].clone();
        assert_eq!(one.answer == Answer::Look, looks);
        if looks {
            one = ends.looked(at(now), old, 9, 9, one.ticket, size, vec![record(9, now, 1)])[0].clone();
        }
        assert_eq!(offset(&one), expected);
        ends.noted(at(now), old, one.ticket, true);
        ends.settle(at(now), old, 9, one.ticket, expected + 1);
    }
}

#[test]
fn a_size_that_was_begun_is_finished_first() {
    let mut ends = ends();
    (0..2).for_each(|_| opened(&mut ends, false));
    let all = ends.ask(at(0), FILE, 1, 1, Wish::Resize(5));
    let first = only(&mut ends, at(0), all);
    assert_eq!(first.note, Some(Note { begun: Some(Some(5)), mark: Some(5), ..Note::default() }));
    assert_eq!(ends.ask(at(5000), FILE, 2, 2, append(2, 1, 1)), [], "it takes as long as it takes");
    let all = ends.leave(at(6000), FILE, 1, false);
    assert_eq!(only(&mut ends, at(6000), all).answer, Answer::Unfinished);
    assert_eq!(ends.begun(FILE), Some(5));
    let all = ends.ask(at(6000), FILE, 2, 2, Wish::Take);
    let taken = only(&mut ends, at(6000), all);
    assert_eq!(taken.answer, Answer::Yours(Some(5)));
    // Not done: it stays begun.
    assert_eq!(ends.settle(at(6000), FILE, 2, taken.ticket, UNKNOWN), (None, vec![]));
    assert_eq!(ends.begun(FILE), Some(5));
    let all = ends.ask(at(6000), FILE, 2, 2, Wish::Take);
    let taken = only(&mut ends, at(6000), all);
    let (note, _) = ends.settle(at(6000), FILE, 2, taken.ticket, 5);
    assert_eq!(note, Some(Note { begun: Some(None), ..Note::default() }));
    ends.noted(at(6000), FILE, taken.ticket, true);
    assert_eq!(offset(&range(&mut ends, at(6001), 2, append(2, 1, 1), 5)), 5);
}

#[test]
fn who_opens_a_file_takes_its_end_after_those_who_set_its_size() {
    let mut ends = ends();
    (0..2).for_each(|_| opened(&mut ends, true));
    let first = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    assert_eq!(ends.begun(FILE), None);
    // Whoever waits may be dead, and is given the end all the same.
    assert_eq!(ends.ask(at(0), FILE, 2, 2, Wish::Resize(5)), []);
    assert_eq!(ends.begun(FILE), Some(5), "it waits");
    let (_, all) = ends.settle(at(1), FILE, 1, first.ticket, 10);
    assert_eq!(ends.begun(FILE), Some(5), "it is being noted");
    let second = only(&mut ends, at(1), all);
    assert_eq!(ends.begun(FILE), Some(5), "it is being set");
    opened(&mut ends, true);
    assert_eq!(ends.ask(at(2), FILE, 3, 3, Wish::Take), []);
    ends.settle(at(3), FILE, 2, second.ticket, 5);
    assert_eq!(ends.begun(FILE), Some(5), "a server that is killed now finds it begun");
    let all = ends.noted(at(4), FILE, second.ticket, true);
    assert_eq!(only(&mut ends, at(4), all).answer, Answer::Yours(None));
    assert_eq!(ends.begun(FILE), None);
}

#[test]
fn what_was_given_before_the_start_is_not_given_to_others() {
    // Killed after a range was in the log, and before its end was noted with the file.
    let mut ends = ends();
    let file = Identity { generation: WALL - 1, ..FILE };
    assert!(ends.open(file, false));
    ends.learn(file, 100, None, &[EarlierRange { record: record(9, 1, 64), offset: 100 }]);
    let look = ends.ask(at(0), file, 1, 1, append(1, 2, 10))[0].clone();
    assert_eq!(look.answer, Answer::Look);
    let told = ends.looked(at(0), file, 1, 1, look.ticket, 100, vec![record(1, 2, 10)])[0].clone();
    assert_eq!(offset(&told), 164);
    ends.noted(at(0), file, told.ticket, true);
    ends.settle(at(0), file, 1, told.ticket, 174);
    // Whoever had the range may be about to write there.
    assert_eq!(ends.ask(at(4_999), file, 1, 3, Wish::Resize(0)), []);
    assert_eq!(ends.reap(at(5_000))[0].answer, Answer::Yours(None));
}

#[test]
fn what_is_not_there_when_it_is_settled_late_keeps_its_range() {
    let mut ends = ends();
    (0..2).for_each(|_| opened(&mut ends, false));
    let both = vec![record(1, 1, 10), record(1, 2, 10)];
    let late = range(&mut ends, at(0), 1, Wish::Append(both), 0);
    assert_eq!(ends.ask(at(500), FILE, 2, 2, append(2, 1, 5)), []);
    let look = ends.reap(at(1_000))[0].clone();
    let told = ends.looked(at(1_000), FILE, 2, 2, look.ticket, 0, vec![record(2, 1, 5)]);
    let next = only(&mut ends, at(1_000), told);
    assert_eq!(offset(&next), 20);
    ends.settle(at(1_000), FILE, 2, next.ticket, 25);
    // The first is there, of the second a part.
    ends.settle(at(1_500), FILE, 1, late.ticket, 15);
    for (number, offset, is_there) in [(1, 0, range::THERE), (2, 10, range::EARLIER)] {
        let again = range(&mut ends, at(2_000), 2, append(1, number, 10), 25);
        assert_eq!(again.answer, Answer::Ranges(vec![Range { offset, is_there }]));
        ends.settle(at(2_000), FILE, 2, again.ticket, UNKNOWN);
    }
}

#[test]
fn a_range_that_was_cut_off_is_not_given_again_to_its_record() {
    let mut ends = ends();
    // Had before the start, by some who ask again after the file is cut.
    let earlier = [(1, 0), (2, 10), (3, 20)];
    let earlier = earlier.map(|(number, offset)| EarlierRange { record: record(1, number, 10), offset });
    ends.open(FILE, false);
    ends.learn(FILE, 0, None, &earlier);
    let all = ends.ask(at(6_000), FILE, 2, 2, Wish::Resize(15));
    let cut = only(&mut ends, at(6_000), all);
    let (note, _) = ends.settle(at(6_000), FILE, 2, cut.ticket, 15);
    let mut void = note.unwrap().void;
    void.sort_by_key(|record| record.number);
    assert_eq!(
        void,
        [record(1, 2, 10), record(1, 3, 10)],
        "what lies before keeps its range, over a restart, too"
    );
    ends.noted(at(6_000), FILE, cut.ticket, true);
    for (now, number, expected) in [(6_003, 2, 15), (6_004, 1, 0), (6_005, 3, 25)] {
        let again = range(&mut ends, at(now), 2, append(1, number, 10), 15);
        assert_eq!(offset(&again), expected);
        ends.settle(at(now), FILE, 2, again.ticket, UNKNOWN);
        ends.noted(at(now), FILE, again.ticket, true);
    }
}

#[test]
fn what_a_dead_server_began_to_cut_off_is_cut_off_when_that_is_done() {
    for is_told_by_who_began in [true, false] {
        let mut ends = ends();
        ends.open(FILE, false);
        let ranges = [(1, 0), (2, 10)];
        let earlier = ranges.map(|(number, offset)| EarlierRange { record: record(1, number, 10), offset });
        ends.learn(FILE, 10, Some(10), &earlier);
        let ticket = if is_told_by_who_began {
            3
        } else {
            let all = ends.ask(at(6_000), FILE, 2, 2, Wish::Take);
            only(&mut ends, at(6_000), all).ticket
        };
        let (note, _) = ends.settle(at(6_000), FILE, 2, ticket, 10);
        let note = note.unwrap();
        assert_eq!((note.begun, note.void), (Some(None), vec![record(1, 2, 10)]));
        ends.noted(at(6_000), FILE, ticket, true);
        assert_eq!(offset(&range(&mut ends, at(6_001), 2, append(2, 1, 10), 10)), 10);
    }
}

#[test]
fn who_gives_ranges_back_makes_no_others_void() {
    let mut ends = ends();
    (0..3).for_each(|_| opened(&mut ends, false));
    let late = range(&mut ends, at(0), 1, append(1, 1, 10), 0);
    assert_eq!(ends.ask(at(500), FILE, 2, 2, append(2, 1, 5)), []);
    let look = ends.reap(at(1_000))[0].clone();
    let both = vec![record(2, 1, 5), record(2, 2, 5)];
    let told = ends.looked(at(1_000), FILE, 2, 2, look.ticket, 0, both);
    let next = only(&mut ends, at(1_000), told);
    assert_eq!(offset(&next), 10);
    // The second of its two could not be written.
    let (note, _) = ends.settle(at(1_100), FILE, 2, next.ticket, 15);
    assert_eq!(note, Some(Note { void: vec![record(2, 2, 5)], begun: None, mark: Some(15) }));
    assert_eq!(ends.noted(at(1_100), FILE, next.ticket, true), []);
    ends.settle(at(1_200), FILE, 1, late.ticket, 10);
    let again = range(&mut ends, at(1_300), 3, append(1, 1, 10), 15);
    assert_eq!(again.answer, Answer::Ranges(vec![Range { offset: 0, is_there: range::THERE }]));
}

#[test]
fn a_range_that_was_noted_for_one_who_left_is_not_given_to_others() {
    let mut ends = ends();
    (0..2).for_each(|_| opened(&mut ends, false));
    let look = ends.ask(at(0), FILE, 1, 1, append(1, 1, 10))[0].clone();
    let told = ends.looked(at(0), FILE, 1, 1, look.ticket, 0, vec![record(1, 1, 10)])[0].clone();
    assert!(told.note.is_some());
    assert_eq!(ends.leave(at(0), FILE, 1, false), []);
    assert_eq!(ends.noted(at(0), FILE, told.ticket, true), []);
    assert_eq!(offset(&range(&mut ends, at(1), 2, append(2, 1, 10), 0)), 10);
}

#[test]
fn what_could_not_be_noted_is_not_given() {
    let mut ends = ends();
    opened(&mut ends, false);
    let first = ends.ask(at(0), FILE, 1, 1, append(1, 1, 10));
    let told = ends.looked(at(0), FILE, 1, 1, first[0].ticket, 0, vec![record(1, 1, 10)]);
    assert_eq!(ends.noted(at(0), FILE, told[0].ticket, false), []);
    let again = range(&mut ends, at(1), 1, append(1, 2, 10), 0);
    assert_eq!(offset(&again), 0);
    assert!(again.note.is_some());
}

#[test]
fn an_end_that_could_not_be_noted_is_no_size_that_is_begun() {
    let mut ends = ends();
    opened(&mut ends, true);
    // The names-file cannot be as large as what was written elsewhere.
    let first = ends.ask(at(0), FILE, 1, 1, append(1, 1, 10));
    let told = ends.looked(at(0), FILE, 1, 1, first[0].ticket, 100, vec![record(1, 1, 10)]);
    assert_eq!(ends.noted(at(0), FILE, told[0].ticket, false), []);
    let all = ends.ask(at(1), FILE, 1, 1, Wish::Take);
    let taken = only(&mut ends, at(1), all);
    let (note, _) = ends.settle(at(1), FILE, 1, taken.ticket, UNKNOWN);
    assert_eq!(note, Some(Note { mark: Some(100), ..Note::default() }));
    assert_eq!(ends.noted(at(1), FILE, taken.ticket, false), []);
    assert_eq!(ends.begun(FILE), None);
    // What somebody has begun stays so.
    for is_noted in [false, true] {
        ends = Ends::new(Rules::SERVER, at(0), WALL);
        ends.open(FILE, true);
        ends.learn(FILE, 5, Some(5), &[]);
        let _ = ends.settle(at(1), FILE, 1, 3, 5);
        assert_eq!(ends.noted(at(1), FILE, 3, is_noted), []);
        assert_eq!(ends.begun(FILE), (!is_noted).then_some(5));
    }
}

/// What an observer of random use knows: which bytes have been given since the last size was set.
#[test]
fn no_byte_is_given_twice() {
    for seed in 1..200u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut ends = ends();
        let mut handles: Vec<(HandleId, bool)> = Vec::new();
        let (mut next_handle, mut waiter, mut number, mut now) = (1, 0, 0, 0);
        // Who waits, and for what; who has the end, and until where.
        let mut waiting: BTreeMap<Waiter, (HandleId, Vec<AppendRecord>, bool)> = BTreeMap::new();
        let mut holding: Vec<(HandleId, u64, u64)> = Vec::new();
        let mut given: Vec<(u64, u64)> = Vec::new();
        let (mut size, mut last_ticket) = (0, 0);
        for _ in 0..300 {
            now += draw(400);
            let mut all: VecDeque<Told> = match draw(8) {
                0 if handles.len() < 5 => {
                    let elsewhere = draw(4) == 0;
                    opened(&mut ends, elsewhere);
                    handles.push((next_handle, elsewhere));
                    next_handle += 1;
                    Vec::new()
                }
                1 if handles.len() > 2 => {
                    let (handle, elsewhere) = handles.remove(draw(handles.len() as u64) as usize);
                    holding.retain(|held| held.0 != handle);
                    ends.leave(at(now), FILE, handle, elsewhere)
                }
                2..=4 if !handles.is_empty() => {
                    let (handle, _) = handles[draw(handles.len() as u64) as usize];
                    waiter += 1;
                    let resizes = draw(8) == 0;
                    number += 1;
                    let records = vec![record(1, number, 1 + draw(50) as u32)];
                    waiting.insert(waiter, (handle, records.clone(), resizes));
                    let wish = if resizes { Wish::Take } else { Wish::Append(records) };
                    ends.ask(at(now), FILE, handle, waiter, wish)
                }
                5 | 6 if !holding.is_empty() => {
                    let (handle, ticket, end) = holding.remove(draw(holding.len() as u64) as usize);
                    size = size.max(end);
                    let (note, mut all) = ends.settle(at(now), FILE, handle, ticket, end);
                    if note.is_some() {
                        all.extend(ends.noted(at(now), FILE, ticket, true));
                    }
                    all
                }
                _ => ends.reap(at(now)),
            }
            .into();
            while let Some(one) = all.pop_front() {
                let (handle, records, _) = waiting.remove(&one.waiter).expect("each is told once");
                if one.note.is_some() {
                    all.extend(ends.noted(at(now), FILE, one.ticket, true));
                }
                match one.answer {
                    Answer::Look => {
                        assert!(one.ticket > last_ticket, "tickets grow");
                        last_ticket = one.ticket;
                        waiting.insert(one.waiter, (handle, records.clone(), false));
                        all.extend(ends.looked(at(now), FILE, handle, one.waiter, one.ticket, size, records));
                    }
                    Answer::Ranges(ranges) => {
                        let (from, to) = (ranges[0].offset, ranges[0].offset + u64::from(records[0].bytes));
                        assert!(from >= size, "behind what is there");
                        assert!(given.iter().all(|&(a, b)| to <= a || b <= from), "{from} is given twice");
                        given.push((from, to));
                        holding.push((handle, one.ticket, to));
                    }
                    Answer::Yours(begun) => {
                        assert_eq!(begun, None);
                        holding.push((handle, one.ticket, size));
                    }
                    Answer::Left => assert!(handles.iter().all(|&(other, _)| other != handle)),
                    other => panic!("{other:?}"),
                }
            }
        }
        // Nobody waits for ever.
        for (handle, elsewhere) in core::mem::take(&mut handles) {
            for told in ends.leave(at(now), FILE, handle, elsewhere) {
                waiting.remove(&told.waiter);
                if told.note.is_some() {
                    ends.noted(at(now), FILE, told.ticket, true);
                }
            }
        }
        assert!(waiting.is_empty() && !ends.are_waited_for());
        assert!(ends.files.is_empty());
    }
}
