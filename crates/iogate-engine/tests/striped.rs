//! A striped store over targets that are far away: one thread hears all their answers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iogate_core::{Layout, Op, TargetId};
use iogate_engine::store::{FileHandle, Io, IoDone, MemoryStore, OpenMode, Segment, StripedStore};
use iogate_engine::{Origin, Store};

type Answer = Box<dyn FnOnce() + Send>;

/// A store whose answers, to transfers and to questions, come on one thread.
struct Far {
    near: Arc<MemoryStore>,
    thread: Mutex<Sender<Answer>>,
    /// What somebody else does before a size is asked for: the first one, the second, and so on.
    meanwhile: Meanwhile,
}

type Meanwhile = Arc<Mutex<VecDeque<Answer>>>;

impl Far {
    fn answer(&self, answer: impl FnOnce() + Send + 'static) {
        self.thread.lock().unwrap().send(Box::new(answer)).unwrap();
    }
}

impl Store for Far {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.near.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.near.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        let near = self.near.clone();
        self.answer(move || near.start(io, done));
    }

    fn asks_afar(&self) -> bool {
        true
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        let happens = self.meanwhile.lock().unwrap().pop_front();
        happens.into_iter().for_each(|happens| happens());
        let (near, file, (tell, told)) = (self.near.clone(), file.clone(), channel());
        self.answer(move || drop(tell.send(near.size(&file))));
        told.recv_timeout(Duration::from_secs(5)).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.near.sync(file, data_only)
    }
}

/// Two targets, stripes of four bytes, and an open file.
struct Place {
    store: Arc<StripedStore>,
    file: FileHandle,
    near: [Arc<MemoryStore>; 2],
    meanwhile: Meanwhile,
}

fn place() -> Place {
    let (thread, answers) = channel::<Answer>();
    std::thread::spawn(move || answers.into_iter().for_each(|answer| answer()));
    let near = [(); 2].map(|()| Arc::new(MemoryStore::new()));
    let meanwhile = Meanwhile::default();
    let far = |near: &Arc<MemoryStore>| -> Arc<dyn Store> {
        Arc::new(Far { near: near.clone(), thread: Mutex::new(thread.clone()), meanwhile: meanwhile.clone() })
    };
    let layout = Layout { first_target: 0, stripe_bytes: 4, targets: 2 };
    let store = Arc::new(StripedStore::new(near.iter().map(far).collect(), layout).unwrap());
    let file = store.open(Path::new("f"), OpenMode { write: true, create: true }).unwrap();
    Place { store, file, near, meanwhile }
}

impl Place {
    fn transfer(&self, op: Op, offset: u64, memory: &mut [u8]) -> u64 {
        transfer(&*self.store, &self.file, op, offset, memory)
    }

    /// Has a target's part written behind the store's back, before the next size but `after` is asked for.
    fn write_meanwhile(&self, after: usize, target: usize, bytes: &'static [u8]) {
        let near = self.near[target].clone();
        let mut meanwhile = self.meanwhile.lock().unwrap();
        meanwhile.resize_with(after, || Box::new(|| {}));
        meanwhile.push_back(Box::new(move || {
            let file = near.open(Path::new("f"), OpenMode { write: true, create: true }).unwrap();
            transfer(&*near, &file, Op::Write, 0, &mut bytes.to_vec());
        }));
    }
}

fn transfer(store: &dyn Store, file: &FileHandle, op: Op, offset: u64, memory: &mut [u8]) -> u64 {
    let segments = vec![Segment { memory: memory.as_mut_ptr(), bytes: memory.len() }];
    let (target, origin) = (TargetId(0), Origin::default());
    let (tell, told) = channel();
    let io = Io { file: file.clone(), op, offset, target, origin, extends: false, segments };
    store.start(io, Box::new(move |_, result| tell.send(result).unwrap()));
    told.recv_timeout(Duration::from_secs(20)).unwrap().unwrap()
}

#[test]
fn a_short_read_learns_the_size_although_one_thread_hears_all_answers() {
    let place = place();
    // The second target's stripe is written, and that before it is a hole.
    assert_eq!(place.transfer(Op::Write, 4, &mut [7; 2]), 2);
    let mut memory = [9; 8];
    assert_eq!(place.transfer(Op::Read, 0, &mut memory), 6);
    assert_eq!(memory, [0, 0, 0, 0, 7, 7, 9, 9]);
}

#[test]
fn what_comes_while_it_is_read_is_not_a_hole() {
    // One target has nothing when it is asked, and the other one has the end of the record. The rest arrives meanwhile.
    let place = place();
    assert_eq!(place.transfer(Op::Write, 4, &mut [7; 2]), 2);
    place.write_meanwhile(0, 0, b"abcd");
    let mut memory = [9; 8];
    assert_eq!(place.transfer(Op::Read, 0, &mut memory), 6);
    assert_eq!(memory, *b"abcd\x07\x07\x09\x09");
}

#[test]
fn nothing_is_filled_behind_the_end_that_was_there_before() {
    // After the second attempt, and before the size is asked for again, the second target gets the end of a record whose other bytes
    // are still on their way.
    let place = place();
    assert_eq!(place.transfer(Op::Write, 4, &mut [7; 1]), 1);
    place.write_meanwhile(2, 1, &[7; 8]);
    let mut memory = [9; 16];
    assert_eq!(place.transfer(Op::Read, 0, &mut memory), 5);
    assert_eq!(memory[..5], [0, 0, 0, 0, 7]);
}
