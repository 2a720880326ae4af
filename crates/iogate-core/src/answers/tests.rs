//! What a server remembers, held against a naive model, bounds, and bytes that stay as they are.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::wire::{Identity, Record, Request};

fn key(uid: u32, client: u8, number: u64) -> Key {
    Key { uid, client: [client; 16], number, step: 0 }
}

fn note(key: Key, below: u64, time: u64, state: State, bytes: &[u8]) -> Note<'_> {
    Note { key, below, time, state, bytes }
}

#[test]
fn the_log_is_what_it_was() {
    let header = Header { id: [0x11; 16], boot: [0x22; 16] };
    let mut log = header.to_bytes().to_vec();
    let asked = Key { uid: 1000, client: [0x33; 16], number: 7, step: 2 };
    note(asked, 5, 1_700_000_000, State::Intent, b"intent").encode(&mut log);
    note(asked, 5, 1_700_000_001, State::Outcome, b"").encode(&mut log);
    let hex: std::string::String = log.iter().map(|byte| std::format!("{byte:02x}")).collect();
    let expected = [
        "696f676174654131",
        "11111111111111111111111111111111",
        "22222222222222222222222222222222",
        "9359e9eb00000000",
        "a931ed7d06000100e803000002000000",
        "33333333333333333333333333333333",
        "07000000000000000500000000000000",
        "00f153650000000000000000",
        "696e74656e74",
        "801e83c700000200e803000002000000",
        "33333333333333333333333333333333",
        "07000000000000000500000000000000",
        "01f153650000000000000000",
    ];
    assert_eq!(hex, expected.concat());
    assert_eq!(Header::from_bytes(&log), Some(header));
    let (first, rest) = Note::split_from(&log[HEADER_BYTES..]).unwrap();
    assert_eq!(first, note(asked, 5, 1_700_000_000, State::Intent, b"intent"));
    let (second, rest) = Note::split_from(rest).unwrap();
    assert_eq!((second.state, second.bytes, rest), (State::Outcome, &b""[..], &b""[..]));
}

#[test]
fn intents_and_outcomes_are_what_they_were() {
    let file = Identity { inode: 1, generation: 2 };
    let mut bytes = Vec::new();
    let intent = NameIntent { kind: 28, file, other: Identity::default(), had: 1, path: b"a", to: b"bc" };
    intent.encode(&mut bytes);
    let numbers = [&[28, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], &[0; 16], &[1]].concat();
    assert_eq!(bytes, [&numbers[..], b"\x01\0a", b"\x02\0bc"].concat());
    assert_eq!(NameIntent::decode(&bytes), Ok(intent));
    bytes.clear();
    Outcome { kind: 27, errno: 2, fields: b"xyz" }.encode(&mut bytes);
    assert_eq!(bytes, b"\x1b\0\x02\0\x03\0xyz");
    bytes.clear();
    AppendIntent { kind: 13, file, place: 3, bytes: 4, crc: 5, head: 6, head_crc: 7 }.encode(&mut bytes);
    let numbers: Vec<u8> = [1u64, 2, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
    let words: Vec<u8> = [4u32, 5, 6, 7].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(bytes, [std::vec![13, 0], numbers, words].concat());
}

#[test]
fn the_kinds_are_those_of_requests() {
    let kinds = [
        (Request::OPEN, "Open"),
        (Request::WRITE, "Write"),
        (Request::MAKE_NODE, "MakeNode"),
        (Request::SYMLINK, "Symlink"),
        (Request::LINK, "Link"),
        (Request::UNLINK, "Unlink"),
        (Request::RENAME, "Rename"),
        (Request::SET_XATTR, "SetXattr"),
        (Request::REMOVE_XATTR, "RemoveXattr"),
    ];
    assert!(kinds.iter().all(|kind| Request::KINDS.contains(kind)));
}

#[test]
fn what_a_client_has_the_answer_to_is_forgotten() {
    let mut table = Table::new(Limits::default());
    table.note(&note(key(1, 1, 5), 3, 0, State::Intent, b"i"));
    assert_eq!(table.look(&key(1, 1, 5)), Memory::Noted(State::Intent, b"i"));
    assert_eq!(table.look(&key(1, 1, 4)), Memory::Nothing);
    assert_eq!(table.look(&key(1, 1, 2)), Memory::Forgotten, "a late one that was repeated elsewhere");
    table.note(&note(key(1, 1, 5), 3, 0, State::Outcome, b"o"));
    assert_eq!(table.look(&key(1, 1, 5)), Memory::Noted(State::Outcome, b"o"));
    assert_eq!(table.look(&key(2, 1, 5)), Memory::Nothing, "another user's");
    assert_eq!(table.look(&key(1, 2, 5)), Memory::Nothing, "another client's");
    table.note(&note(key(1, 1, 9), 6, 0, State::Intent, b"i"));
    assert_eq!(table.look(&key(1, 1, 5)), Memory::Forgotten);
    table.note(&note(key(1, 1, 9), 6, 0, State::Void, b""));
    assert_eq!(table.look(&key(1, 1, 9)), Memory::Nothing);
    assert!(table.is_empty());
}

#[test]
fn a_user_with_too_much_loses_its_own_and_is_told_so() {
    let mut table = Table::new(Limits { entries: 100, bytes: 1 << 20, seconds: 60, ..Limits::default() });
    for number in 1..=10 {
        table.note(&note(key(1, 1, number), 1, number, State::Outcome, b"mine"));
    }
    for number in 1..=1000u64 {
        let client = (number % 7) as u8;
        table.note(&note(key(2, client, number), 1, number, State::Outcome, b"flood"));
        assert!(table.len() <= 100);
    }
    for number in 1..=10 {
        assert_eq!(table.look(&key(1, 1, number)), Memory::Noted(State::Outcome, b"mine"));
    }
    assert_eq!(table.look(&key(2, 1, 1)), Memory::Forgotten, "not carried out again");
    assert_eq!(table.look(&key(2, (1000 % 7) as u8, 1000)), Memory::Noted(State::Outcome, b"flood"));
    table.expire(30 + 60);
    assert_eq!(table.look(&key(1, 1, 10)), Memory::Nothing, "so is its client, after that time");
    table.expire(u64::MAX);
    assert!(table.is_empty() && table.notes().next().is_none());
}

/// Of clients that have all their answers there is a record each.
#[test]
fn clients_without_an_entry_are_bounded_too() {
    let client = |number: u64| {
        let mut client = [0; 16];
        client[..8].copy_from_slice(&number.to_le_bytes());
        client
    };
    for unordered in [None, Some(2)] {
        let limits = Limits { entries: 100, bytes: 1 << 20, seconds: 60, unordered, recent: 0 };
        let mut table = Table::new(limits);
        table.note(&note(key(1, 1, 1), 1, 0, State::Outcome, b"mine"));
        for number in 1..=1000 {
            let key = Key { uid: 2, client: client(number), number: 5, step: 0 };
            table.note(&note(key, 5, number, State::Intent, b"flood"));
            table.note(&note(key, 6, number, State::Void, b""));
            assert!(table.notes().count() <= 102, "{unordered:?}: {}", table.notes().count());
        }
        assert_eq!(table.look(&key(1, 1, 1)), Memory::Noted(State::Outcome, b"mine"));
        let mut log = Vec::new();
        table.notes().for_each(|note| note.encode(&mut log));
        let bytes = table.log_bytes();
        assert!((bytes..=bytes + 2 * NOTE_BYTES).contains(&log.len()), "{} of {bytes}", log.len());
        if unordered.is_none() {
            let last = Key { uid: 2, client: client(1000), number: 5, step: 0 };
            assert_eq!(table.look(&last), Memory::Forgotten, "the last ones are known");
        }
    }
}

#[test]
fn a_busy_client_without_an_order_loses_its_own_and_what_is_lost_is_new() {
    let limits = Limits { entries: 100, bytes: 1 << 20, seconds: 60, unordered: Some(2), recent: 0 };
    let mut table = Table::new(limits);
    // Numbers that go down, as those of a client whose numbers have begun again.
    for time in 0..5 {
        table.note(&note(key(0, 1, 90 - time), 0, time, State::Outcome, b"quiet"));
    }
    for time in 0..1000 {
        table.note(&note(key(0, 2, 5000 - time), 0, 100 + time, State::Outcome, b"busy"));
        assert!(table.len() <= 100);
    }
    for number in 86..=90 {
        assert_eq!(table.look(&key(0, 1, number)), Memory::Noted(State::Outcome, b"quiet"));
    }
    assert_eq!(table.look(&key(0, 2, 4001)), Memory::Noted(State::Outcome, b"busy"), "its last");
    assert_eq!(table.look(&key(0, 2, 5000)), Memory::Nothing, "its first");
    assert_eq!(table.look(&key(0, 2, 1)), Memory::Nothing, "smaller numbers may come");
    table.expire(10_000);
    assert_eq!(table.len(), 4, "the last two of each, however old");
    assert_eq!(table.look(&key(0, 1, 86)), Memory::Noted(State::Outcome, b"quiet"));
    assert_eq!(table.look(&key(0, 1, 90)), Memory::Nothing);
}

/// And one with a small number may come after one with a large number.
#[test]
fn what_nobody_waits_for_stays_however_old_it_is() {
    for unordered in [None, Some(1)] {
        let limits = Limits { entries: 100, unordered, ..Limits::default() };
        let mut table = Table::new(limits);
        let nobody = |number| Key { client: NOBODY, ..key(0, 0, number) };
        let value = |number, time| note(nobody(number), 0, time, State::Value, b"v");
        table.note(&value(1000, 0));
        table.note(&value(1001, 0));
        table.expire(1_000_000);
        table.note(&value(5, 1_000_000));
        let again = |table: &Table| {
            let mut again = Table::new(limits);
            table.notes().for_each(|note| drop(again.note(&note)));
            again
        };
        for number in [5, 1000, 1001] {
            assert_eq!(again(&table).look(&nobody(number)), Memory::Noted(State::Value, b"v"));
        }
        // Too many are too many; those that are left stay.
        for number in (2000..2100).rev() {
            table.note(&value(number, 1_000_001));
        }
        assert!(table.len() <= 100 && table.len() > 40);
        assert_eq!(again(&table).len(), table.len());
    }
}

#[test]
fn a_clock_that_is_put_back_drops_nothing() {
    let mut table = Table::new(Limits::default());
    table.note(&note(key(1, 1, 1), 1, 5000, State::Outcome, b"o"));
    table.expire(10);
    assert_eq!(table.len(), 1);
}

fn id(inode: u64) -> Identity {
    Identity { inode, generation: inode }
}

fn judged(kind: u16, before: (u64, u64, u8), after: (u64, u64, bool)) -> Verdict {
    let intent =
        NameIntent { kind, file: id(before.0), other: id(before.1), had: before.2, path: b"", to: b"" };
    intent.judge(&Found { file: id(after.0), other: id(after.1), has: after.2 })
}

#[test]
fn an_intent_is_judged_by_what_it_noted() {
    use Verdict::{Done, NotDone, Unknown};
    for kind in [Request::OPEN, Request::MAKE_NODE, Request::SYMLINK] {
        assert_eq!(judged(kind, (0, 0, 0), (7, 0, false)), Done);
        assert_eq!(judged(kind, (0, 0, 0), (0, 0, false)), NotDone);
        assert_eq!(judged(kind, (6, 0, 0), (6, 0, false)), NotDone, "it was to fail with EEXIST");
    }
    assert_eq!(judged(Request::LINK, (5, 0, 0), (5, 5, false)), Done);
    assert_eq!(judged(Request::LINK, (5, 0, 0), (5, 0, false)), NotDone);
    assert_eq!(judged(Request::LINK, (5, 5, 0), (5, 5, false)), NotDone);
    assert_eq!(judged(Request::UNLINK, (5, 0, 0), (0, 0, false)), Done);
    assert_eq!(judged(Request::UNLINK, (5, 0, 0), (6, 0, false)), Done);
    assert_eq!(judged(Request::UNLINK, (5, 0, 0), (5, 0, false)), NotDone);
    assert_eq!(judged(Request::UNLINK, (0, 0, 0), (0, 0, false)), NotDone, "it was to fail with ENOENT");
    assert_eq!(judged(Request::RENAME, (5, 6, 0), (0, 5, false)), Done);
    assert_eq!(judged(Request::RENAME, (5, 6, 0), (6, 5, false)), Done, "exchanged");
    assert_eq!(judged(Request::RENAME, (5, 6, 0), (5, 6, false)), NotDone);
    assert_eq!(judged(Request::RENAME, (5, 0, 0), (5, 0, false)), NotDone);
    assert_eq!(judged(Request::RENAME, (5, 6, 0), (0, 6, false)), Unknown);
    assert_eq!(judged(Request::RENAME, (5, 5, 0), (5, 5, false)), NotDone, "two names of one file stay");
    assert_eq!(judged(Request::SET_XATTR, (5, 0, 0), (5, 0, true)), Done);
    assert_eq!(judged(Request::SET_XATTR, (5, 0, 1), (5, 0, true)), NotDone);
    assert_eq!(judged(Request::REMOVE_XATTR, (5, 0, 1), (5, 0, false)), Done);
    assert_eq!(judged(Request::REMOVE_XATTR, (5, 0, 1), (5, 0, true)), NotDone);
    assert_eq!(judged(Request::WRITE, (5, 0, 0), (5, 0, false)), Unknown);
}

#[test]
fn a_record_is_found_or_torn_or_not_there() {
    let record: Vec<u8> = (0..10_000u32).map(|n| (n * 7) as u8).collect();
    let intent = AppendIntent::new(id(1), 5000, &record, 4096);
    assert_eq!(intent.head, 8192 - 5000);
    let there = |size: u64| &record[..(size.saturating_sub(5000) as usize).min(record.len())];
    assert_eq!(intent.judge(4000, b""), Lies::Nothing);
    assert_eq!(intent.judge(5000, b""), Lies::Nothing);
    assert_eq!(intent.judge(15_000, there(15_000)), Lies::Whole);
    assert_eq!(intent.judge(20_000, &record), Lies::Whole, "others follow");
    assert_eq!(intent.judge(8192, there(8192)), Lies::Torn);
    assert_eq!(intent.judge(12_288, there(12_288)), Lies::Torn);
    assert_eq!(intent.judge(5010, &record[..10]), Lies::Other, "a kill tears at the end of a page");
    assert_eq!(intent.judge(12_288, &[9; 7288]), Lies::Other, "somebody else has appended");
    assert_eq!(intent.judge(20_000, &[9; 10_000]), Lies::Other);
    let short = AppendIntent::new(id(1), 100, b"line\n", 4096);
    assert_eq!((short.head, short.judge(105, b"line\n")), (5, Lies::Whole));
    assert_eq!(short.judge(103, b"lin"), Lies::Other);
}

/// Everything in a list, and nothing clever.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Key, (State, Vec<u8>)>,
    below: BTreeMap<(u32, [u8; 16]), u64>,
}

impl Model {
    fn note(&mut self, note: &Note<'_>) {
        let below = self.below.entry((note.key.uid, note.key.client)).or_default();
        *below = (*below).max(note.below);
        let below = *below;
        let client = (note.key.uid, note.key.client);
        self.entries.retain(|key, _| (key.uid, key.client) != client || key.number >= below);
        match note.state {
            State::Client => {}
            State::Void => drop(self.entries.remove(&note.key)),
            _ if note.key.number < below => {}
            state => drop(self.entries.insert(note.key, (state, note.bytes.to_vec()))),
        }
    }

    fn look(&self, key: &Key) -> Memory<'_> {
        match self.entries.get(key) {
            Some((state, bytes)) => Memory::Noted(*state, bytes),
            None if self.below.get(&(key.uid, key.client)).is_some_and(|below| key.number < *below) => {
                Memory::Forgotten
            }
            None => Memory::Nothing,
        }
    }
}

type Step = (u32, u8, u64, u16, u64, usize, Vec<u8>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec((0u32..3, 0u8..3, 0u64..20, 0u16..2, 0u64..6, 0usize..5, bytes), 0..200)
}

fn noted(step: &Step) -> Note<'_> {
    let (uid, client, number, step, behind, state, bytes) = step;
    let states = [State::Intent, State::Outcome, State::Value, State::Void, State::Client];
    let key = Key { uid: *uid, client: [*client; 16], number: *number, step: *step };
    let below = number.saturating_sub(*behind);
    Note { key, below, time: 9, state: states[*state], bytes }
}

fn keys() -> impl Iterator<Item = Key> {
    (0..3 * 3 * 20 * 2u32).map(|n| Key {
        uid: n % 3,
        client: [(n / 3 % 3) as u8; 16],
        number: u64::from(n / 9 % 20),
        step: (n / 180) as u16,
    })
}

proptest! {
    #[test]
    fn agrees_with_a_naive_model_and_with_its_own_log(steps in steps()) {
        let (mut table, mut model) = (Table::new(Limits::default()), Model::default());
        let mut log = Vec::new();
        for step in &steps {
            let note = noted(step);
            table.note(&note);
            model.note(&note);
            note.encode(&mut log);
        }
        let mut compacted = Vec::new();
        table.notes().for_each(|note| note.encode(&mut compacted));
        let replayed = |log: &[u8]| {
            let (mut table, mut rest) = (Table::new(Limits::default()), log);
            while let Some((note, behind)) = Note::split_from(rest) {
                table.note(&note);
                rest = behind;
            }
            (table, rest.len())
        };
        let ((from_log, left), (from_notes, left_of_notes)) = (replayed(&log), replayed(&compacted));
        prop_assert_eq!((left, left_of_notes), (0, 0));
        for key in keys() {
            prop_assert_eq!(table.look(&key), model.look(&key));
            prop_assert_eq!(from_log.look(&key), model.look(&key));
            prop_assert_eq!(from_notes.look(&key), model.look(&key));
        }
        prop_assert_eq!(table.len(), model.entries.len());
        prop_assert_eq!(from_notes.log_bytes(), table.log_bytes());
    }

    #[test]
    fn a_torn_end_is_cut_and_nothing_else(steps in steps(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
        let mut log = Vec::new();
        let mut ends = std::vec![0];
        for step in &steps {
            noted(step).encode(&mut log);
            ends.push(log.len());
        }
        let at = cut.index(log.len() + 1);
        let mut torn = log[..at].to_vec();
        torn.extend_from_slice(&[flip; 3]);
        let mut rest = &torn[..];
        while let Some((_, behind)) = Note::split_from(rest) {
            rest = behind;
        }
        // The bytes behind the cut may by chance be those that were there.
        let same = torn.iter().zip(&log).take_while(|(one, other)| one == other).count();
        let whole = ends.iter().rfind(|end| **end <= same).unwrap();
        prop_assert_eq!(torn.len() - rest.len(), *whole);
    }

    #[test]
    fn bounds_hold_and_nothing_that_was_done_is_new_again(steps in steps(), entries in 1usize..40) {
        let mut table = Table::new(Limits { entries, bytes: 300, seconds: 60, ..Limits::default() });
        for step in &steps {
            let note = noted(step);
            table.note(&note);
            prop_assert!(table.len() <= entries);
            if !matches!(note.state, State::Void | State::Client) {
                prop_assert_ne!(table.look(&note.key), Memory::Nothing);
            }
        }
    }
}
