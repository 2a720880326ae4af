//! What locks of files promise: beside a table of bytes, among sessions, over restarts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Bytes that the naive locks know.
const BYTES: u64 = 20;

/// Who has each byte.
#[derive(Clone, Default)]
struct Naive(Vec<BTreeMap<u8, Kind>>);

impl Naive {
    fn new() -> Naive {
        Naive((0..BYTES).map(|_| BTreeMap::new()).collect())
    }

    fn may(&self, owner: u8, kind: Kind, range: ByteRange) -> bool {
        let fits =
            |(&other, &has): (&u8, &Kind)| other == owner || kind == Kind::Shared && has == Kind::Shared;
        (range.first()..=range.last()).all(|byte| self.0[byte as usize].iter().all(fits))
    }

    fn set(&mut self, owner: u8, kind: Option<Kind>, range: ByteRange) {
        for byte in range.first()..=range.last() {
            match kind {
                Some(kind) => self.0[byte as usize].insert(owner, kind),
                None => self.0[byte as usize].remove(&owner),
            };
        }
    }

    fn together(&self, byte: u64) -> Option<Kind> {
        let all = &self.0[byte as usize];
        let exclusive = all.values().find(|kind| **kind == Kind::Exclusive);
        exclusive.or_else(|| all.values().next()).copied()
    }

    fn of(locks: &RangeLocks<u8>) -> Vec<BTreeMap<u8, Kind>> {
        let mut naive = Naive::new();
        for held in locks.iter() {
            for byte in held.range.first()..=held.range.last() {
                let before = naive.0[byte as usize].insert(held.owner, held.kind);
                assert_eq!(before, None, "an owner has byte {byte} twice");
            }
        }
        naive.0
    }
}

fn wishes() -> impl Strategy<Value = (u8, Option<Kind>, ByteRange)> {
    let kinds = prop_oneof![Just(None), Just(Some(Kind::Shared)), Just(Some(Kind::Exclusive))];
    (0..4_u8, kinds, 0..BYTES, 0..BYTES).prop_map(|(owner, kind, one, other)| {
        (owner, kind, ByteRange::new(one.min(other), one.max(other)).unwrap())
    })
}

proptest! {
    /// Byte by byte, ranges say the same as a table of bytes.
    #[test]
    fn ranges_agree_with_bytes(wishes in prop::collection::vec(wishes(), 1..60)) {
        let (mut locks, mut naive) = (RangeLocks::default(), Naive::new());
        for (owner, kind, range) in wishes {
            match kind {
                None => {
                    locks.unlock(owner, range);
                    naive.set(owner, None, range);
                }
                Some(kind) => {
                    let may = naive.may(owner, kind, range);
                    let given = locks.lock(Held { owner, kind, range, process: 0 });
                    prop_assert_eq!(given.is_ok(), may);
                    if may {
                        naive.set(owner, Some(kind), range);
                    } else {
                        prop_assert_ne!(given.unwrap_err().owner, owner);
                    }
                }
            }
            prop_assert_eq!(Naive::of(&locks), naive.0.clone());
            let parts = locks.together(range);
            prop_assert!(parts.windows(2).all(|two| two[0].0 != two[1].0), "{parts:?}");
            let bytes = parts.iter().flat_map(|(kind, part)| (part.first()..=part.last()).map(move |byte| (byte, *kind)));
            let together = (range.first()..=range.last()).map(|byte| (byte, naive.together(byte)));
            prop_assert_eq!(bytes.collect::<Vec<_>>(), together.collect::<Vec<_>>());
            let all: Vec<_> = locks.iter().copied().collect();
            prop_assert!(all.is_sorted_by_key(|held| held.range.first()));
            for (index, one) in all.iter().enumerate() {
                let touches = |other: &Held<u8>| {
                    other.owner == one.owner && other.kind == one.kind && other.range.first() <= one.range.last() + 1
                };
                prop_assert!(!all[index + 1..].iter().any(touches), "{:?}", all);
            }
        }
    }
}

const FILE: Identity = Identity { inode: 1, generation: 2 };

fn bytes(kind: u8, owner: u64, first: u64, last: u64) -> Lock {
    Lock { space: lock::BYTES, kind, owner, first, last, process: 7 }
}

fn whole(kind: u8, owner: u64) -> Lock {
    Lock { space: lock::FILE, ..bytes(kind, owner, 0, u64::MAX) }
}

#[test]
fn owners_of_two_sessions_are_told_apart() {
    let mut locks = FileLocks::default();
    let now = Time::ZERO;
    locks.set(now, 1, FILE, &bytes(lock::EXCLUSIVE, 5, 0, 9), None).unwrap();
    let refused = locks.set(now, 2, FILE, &bytes(lock::SHARED, 5, 9, 9), None).unwrap_err();
    let Denied::Held(held) = refused else { panic!("{refused:?}") };
    assert_eq!((held.owner, held.range, held.process), ((1, 5), ByteRange::new(0, 9).unwrap(), 7));
    // The other kind of locks, and other files, are free.
    locks.set(now, 2, FILE, &whole(lock::EXCLUSIVE, 5), None).unwrap();
    locks.set(now, 2, Identity { inode: 2, ..FILE }, &bytes(lock::EXCLUSIVE, 5, 0, 9), None).unwrap();
    assert_eq!(locks.holder(1, FILE, &whole(lock::SHARED, 1)).unwrap().unwrap().owner, (2, 5));
    assert_eq!(locks.holder(1, FILE, &bytes(lock::EXCLUSIVE, 5, 0, 9)), Ok(None));
}

#[test]
fn a_session_that_ends_leaves_nothing() {
    let mut locks = FileLocks::default();
    let now = Time::ZERO;
    locks.set(now, 1, FILE, &bytes(lock::SHARED, 1, 0, 9), None).unwrap();
    locks.set(now, 2, FILE, &bytes(lock::SHARED, 1, 5, 20), None).unwrap();
    locks.end_session(1);
    locks.set(now, 3, FILE, &bytes(lock::EXCLUSIVE, 1, 0, 4), None).unwrap();
    assert!(matches!(locks.set(now, 3, FILE, &bytes(lock::EXCLUSIVE, 1, 0, 5), None), Err(Denied::Held(_))));
    locks.end_session(2);
    locks.end_session(3);
    assert!(locks.is_empty(now) && locks.counts.is_empty());
}

#[test]
fn after_a_restart_locks_are_for_those_who_had_them() {
    let end = Time::from_nanos(100);
    let mut locks = FileLocks::begin(5, Some(note(&[3, 4], &[41])), end);
    let early = Time::from_nanos(99);
    let wish = bytes(lock::EXCLUSIVE, 1, 0, 9);
    assert_eq!(locks.set(early, 1, FILE, &wish, None), Err(Denied::Grace));
    assert_eq!(locks.set(early, 1, FILE, &wish, Some((4, 40))), Ok(()));
    // Given back, it is nobody else's before the grace is over.
    assert_eq!(locks.set(early, 1, FILE, &bytes(lock::NONE, 1, 0, 9), None), Ok(()));
    assert_eq!(locks.set(early, 2, FILE, &wish, None), Err(Denied::Grace));
    assert!(!locks.is_empty(early));
    assert_eq!(locks.set(end, 2, FILE, &wish, None), Ok(()));
    assert_eq!(locks.set(end, 1, FILE, &bytes(lock::SHARED, 1, 20, 30), Some((4, 40))), Err(Denied::Lost));
    let mut locks = FileLocks::begin(5, Some(note(&[3, 4], &[41])), end);
    assert_eq!(locks.set(early, 1, FILE, &wish, Some((4, 41))), Err(Denied::Lost), "its session had ended");
    assert_eq!(locks.note(), Some(&note(&[3, 4, 5], &[41])));
    assert!(!locks.ends(1), "it has none");
    assert_eq!(locks.set(early, 1, FILE, &wish, Some((4, 40))), Ok(()));
    assert!(locks.ends(1) && locks.gives() && !locks.gives());
    assert_eq!(locks.note(), Some(&note(&[5], &[41, 1])));
    // From a process that is not noted: others may have had it since.
    let mut locks = FileLocks::begin(6, Some(note(&[5], &[])), end);
    assert_eq!(locks.set(early, 1, FILE, &wish, Some((4, 40))), Err(Denied::Lost));
    assert_eq!(locks.set(early, 1, FILE, &wish, Some((6, 40))), Err(Denied::Lost));
    // Of a server that was not started anew nobody has had a lock before.
    let mut locks = FileLocks::begin(7, None, end);
    assert_eq!(locks.note(), None);
    assert_eq!(locks.set(Time::ZERO, 1, FILE, &wish, Some((4, 40))), Err(Denied::Lost));
}

fn note(processes: &[u64], ended: &[u64]) -> Note {
    Note { processes: processes.to_vec(), ended: ended.to_vec() }
}

#[test]
fn a_note_is_read_as_it_was_written_and_nothing_else_is_believed() {
    for note in [note(&[], &[]), note(&[7], &[]), note(&[1, u64::MAX], &[3, 4, 5])] {
        assert_eq!(Note::from_bytes(&note.to_bytes()), note);
    }
    for bytes in [&b""[..], b"seven b", &[255; 8], &[255; 17]] {
        assert!(!Note::from_bytes(bytes).has((1, 1)));
    }
    let mut long = note(&[1], &[]);
    (0..NOTED_MAX as u64).for_each(|session| long.add(None, Some(session)));
    assert!(!long.has((1, u64::MAX)), "whose session it was is not known any more");
}

#[test]
fn what_is_no_lock_is_refused() {
    let mut locks = FileLocks::default();
    let malformed =
        [bytes(3, 1, 0, 9), bytes(lock::SHARED, 1, 9, 8), Lock { space: 2, ..bytes(lock::SHARED, 1, 0, 9) }];
    for wish in malformed {
        assert_eq!(locks.set(Time::ZERO, 1, FILE, &wish, None), Err(Denied::Malformed));
    }
    assert_eq!(locks.holder(1, FILE, &bytes(lock::NONE, 1, 0, 9)), Err(Denied::Malformed));
    assert!(locks.is_empty(Time::ZERO));
}

#[test]
fn a_session_has_so_many_and_no_more() {
    let mut locks = FileLocks::default();
    let file = |inode: u64| Identity { inode, ..FILE };
    let wish = whole(lock::SHARED, 1);
    for inode in 0..LOCKS_PER_SESSION_MAX as u64 {
        locks.set(Time::ZERO, 1, file(inode), &wish, None).unwrap();
    }
    let further = file(LOCKS_PER_SESSION_MAX as u64);
    assert_eq!(locks.set(Time::ZERO, 1, further, &wish, None), Err(Denied::TooMany));
    locks.set(Time::ZERO, 2, further, &wish, None).unwrap();
    locks.set(Time::ZERO, 1, file(0), &whole(lock::NONE, 1), None).unwrap();
    locks.set(Time::ZERO, 1, further, &wish, None).unwrap();
}

#[test]
fn who_has_locks_for_others_has_more() {
    let mut locks = FileLocks::default();
    let forwarder = Asker { session: 1, is_forwarder: true };
    for inode in 0..=LOCKS_PER_SESSION_MAX as u64 {
        locks.set(Time::ZERO, forwarder, Identity { inode, ..FILE }, &whole(lock::SHARED, 1), None).unwrap();
    }
}
