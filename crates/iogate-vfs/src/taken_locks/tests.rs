//! Locks that a table decides about are on the file, too, whatever is asked for: beside a naive table of bytes.

use std::fs::File;
use std::path::Path;

use iogate_engine::store::DirectoryStore;
use proptest::prelude::*;

use super::*;
use crate::{Caller, DirectoryTree, OpenHow, Tree};

/// Bytes that are looked at.
const BYTES: u64 = 12;

struct Place {
    folder: tempfile::TempDir,
    locks: TakenLocks,
    file: Arc<dyn TreeFile>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(DirectoryStore::new(folder.path()).unwrap());
        let tree = DirectoryTree::new(folder.path(), store).unwrap();
        let flags =
            iogate_core::wire::open::READ | iogate_core::wire::open::WRITE | iogate_core::wire::open::CREATE;
        let how = OpenHow { flags, mode: 0o644, ..OpenHow::default() };
        let caller = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let file = tree.open(caller, "file".as_ref(), how).unwrap();
        Place { folder, locks: TakenLocks::default(), file }
    }

    fn set(&self, session: u64, wish: &Lock) -> Result<(), NotTaken> {
        self.locks.set(Time::ZERO, session.into(), &*self.file, wish, None, || true)
    }

    /// Somebody who uses the file past the table.
    fn outsider(&self) -> OutsideLocks {
        outsider(&self.folder.path().join("file"))
    }

    /// Of each byte, what an outsider finds in the way of a shared lock, and of an exclusive one.
    fn on_the_file(&self) -> Vec<Option<Kind>> {
        let outsider = self.outsider();
        let is_free =
            |kind, byte| outsider.in_the_way(kind, ByteRange::new(byte, byte).unwrap()).unwrap().is_none();
        let found = |byte| match (is_free(Kind::Shared, byte), is_free(Kind::Exclusive, byte)) {
            (false, _) => Some(Kind::Exclusive),
            (true, false) => Some(Kind::Shared),
            (true, true) => None,
        };
        (0..BYTES).map(found).collect()
    }

    fn in_the_table(&self) -> Vec<Option<Kind>> {
        let of = |byte| {
            let range = ByteRange::new(byte, byte).unwrap();
            self.locks.table().together(self.file.identity(), kinds::BYTES.into(), range)[0].0
        };
        (0..BYTES).map(of).collect()
    }
}

fn outsider(path: &Path) -> OutsideLocks {
    OutsideLocks::new(File::options().read(true).write(true).open(path).unwrap().into(), false)
}

fn bytes(kind: u8, owner: u64, first: u64, last: u64) -> Lock {
    Lock { space: kinds::BYTES, kind, owner, first, last, process: 3 }
}

fn whole(kind: u8, owner: u64) -> Lock {
    Lock { space: kinds::FILE, ..bytes(kind, owner, 0, u64::MAX) }
}

fn is_outside(result: &Result<(), NotTaken>) -> bool {
    matches!(result, Err(NotTaken::Denied(Denied::Outside)))
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64, Lock),
    End(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let set =
        (1..4_u64, 1..3_u64, 0..3_u8, 0..BYTES, 0..=BYTES).prop_map(|(session, owner, kind, one, other)| {
            // To the end of all, now and then.
            let last = if other == BYTES { i64::MAX as u64 } else { one.max(other) };
            Step::Set(session, bytes(kind, owner, one.min(other), last))
        });
    prop_oneof![9 => set, 1 => (1..4_u64).prop_map(Step::End)]
}

proptest! {
    /// Whatever sessions take, give back and leave: on the file is what the table has, and no descriptor is left when it has nothing.
    #[test]
    fn what_all_have_together_is_on_the_file(steps in prop::collection::vec(steps(), 1..40)) {
        let place = Place::new();
        for step in steps {
            match step {
                Step::Set(session, wish) => drop(place.set(session, &wish)),
                Step::End(session) => place.locks.end_session(session),
            }
            prop_assert_eq!(place.on_the_file(), place.in_the_table());
            let is_free = place.locks.table().is_free(place.file.identity());
            prop_assert_eq!(lock(&place.locks.files).is_empty(), is_free);
        }
    }
}

#[test]
fn who_is_outside_is_in_the_way_and_kept_out() {
    let place = Place::new();
    let outsider = place.outsider();
    let range = |first, last| ByteRange::new(first, last).unwrap();
    assert!(outsider.set(Some(Kind::Exclusive), range(10, 19)).unwrap());
    assert!(is_outside(&place.set(1, &bytes(kinds::SHARED, 1, 0, 10))));
    let found = place.locks.get(1, &*place.file, &bytes(kinds::SHARED, 1, 0, 30)).unwrap();
    assert_eq!((found.kind, found.first, found.last, found.process), (kinds::EXCLUSIVE, 10, 19, 0));
    place.set(1, &bytes(kinds::EXCLUSIVE, 1, 0, 9)).unwrap();
    assert!(!outsider.set(Some(Kind::Shared), range(9, 19)).unwrap());
    // What was refused has left what there was.
    assert!(is_outside(&place.set(1, &bytes(kinds::SHARED, 1, 5, 10))));
    assert_eq!(place.on_the_file()[..10], [Some(Kind::Exclusive); 10]);
    place.locks.end_session(1);
    assert!(outsider.set(Some(Kind::Exclusive), ByteRange::ALL).unwrap());
}

#[test]
fn the_lock_of_an_open_file_is_taken_as_well() {
    let place = Place::new();
    let outsider = place.outsider();
    place.set(1, &whole(kinds::SHARED, 1)).unwrap();
    place.set(2, &whole(kinds::SHARED, 1)).unwrap();
    assert!(!outsider.set_whole(Some(Kind::Exclusive)).unwrap());
    place.set(1, &whole(kinds::NONE, 1)).unwrap();
    assert!(!outsider.set_whole(Some(Kind::Exclusive)).unwrap(), "the other one still has it");
    // An upgrade that somebody outside prevents: it keeps what it had, as that one shares it.
    assert!(outsider.set_whole(Some(Kind::Shared)).unwrap());
    assert!(is_outside(&place.set(2, &whole(kinds::EXCLUSIVE, 1))));
    assert!(!outsider.set_whole(Some(Kind::Exclusive)).unwrap());
    place.locks.end_session(2);
    assert!(outsider.set_whole(Some(Kind::Exclusive)).unwrap());
    assert!(is_outside(&place.set(2, &whole(kinds::SHARED, 1))));
}

#[test]
fn of_what_is_closed_meanwhile_nothing_is_taken() {
    let place = Place::new();
    let wish = bytes(kinds::EXCLUSIVE, 1, 0, 9);
    let taken = place.locks.set(Time::ZERO, 1.into(), &*place.file, &wish, None, || false);
    assert!(matches!(taken, Err(NotTaken::Denied(Denied::Lost))), "{taken:?}");
    assert!(place.outsider().set(Some(Kind::Exclusive), ByteRange::ALL).unwrap());
}

#[test]
fn threads_that_lock_one_file_leave_nothing_behind() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for session in 1..5 {
            let place = &place;
            scope.spawn(move || {
                for round in 0..300 {
                    let first = (round + session) % 8;
                    let _ = place.set(session, &bytes(kinds::EXCLUSIVE, 1, first, first + 3));
                    if round % 3 == 0 {
                        place.locks.end_session(session);
                    } else {
                        place.set(session, &bytes(kinds::NONE, 1, 0, 20)).unwrap();
                    }
                }
            });
        }
    });
    assert!(place.locks.table().is_free(place.file.identity()) && lock(&place.locks.files).is_empty());
    assert!(place.outsider().set(Some(Kind::Exclusive), ByteRange::ALL).unwrap());
}
