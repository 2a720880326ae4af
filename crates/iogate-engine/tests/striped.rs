//! A striped store over targets that are far away: one thread hears all their answers.

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
}

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
        let (near, file, (tell, told)) = (self.near.clone(), file.clone(), channel());
        self.answer(move || drop(tell.send(near.size(&file))));
        told.recv_timeout(Duration::from_secs(5)).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.near.sync(file, data_only)
    }
}

#[test]
fn a_short_read_learns_the_size_although_one_thread_hears_all_answers() {
    let (thread, answers) = channel::<Answer>();
    std::thread::spawn(move || answers.into_iter().for_each(|answer| answer()));
    let target = || -> Arc<dyn Store> {
        Arc::new(Far { near: Arc::new(MemoryStore::new()), thread: Mutex::new(thread.clone()) })
    };
    let layout = Layout { first_target: 0, stripe_bytes: 4, targets: 2 };
    let store = StripedStore::new(vec![target(), target()], layout).unwrap();
    let file = store.open(Path::new("f"), OpenMode { write: true, create: true }).unwrap();
    let transfer = |op, offset, memory: &mut [u8]| {
        let segments = vec![Segment { memory: memory.as_mut_ptr(), bytes: memory.len() }];
        let (target, origin) = (TargetId(0), Origin::default());
        let (tell, told) = channel();
        let io = Io { file: file.clone(), op, offset, target, origin, extends: false, segments };
        store.start(io, Box::new(move |_, result| tell.send(result).unwrap()));
        told.recv_timeout(Duration::from_secs(20)).unwrap()
    };
    // The second target's stripe is written, and that before it is a hole.
    assert_eq!(transfer(Op::Write, 4, &mut [7; 2]).unwrap(), 2);
    let mut memory = [9; 8];
    assert_eq!(transfer(Op::Read, 0, &mut memory).unwrap(), 6);
    assert_eq!(memory, [0, 0, 0, 0, 7, 7, 9, 9]);
}
