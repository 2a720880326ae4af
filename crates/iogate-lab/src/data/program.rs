//! What programs do: cells in files of their own, which others read, and records in files of all.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iogate_core::wire::{Change, RequestOrigin, open, set};
use iogate_engine::Origin;
use iogate_sim::rng::Rng;
use iogate_testkit::data::{Answer, Event as Happened, Op};
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};

use super::contents::{self, CELL};
use super::network::MS;
use super::operations::errno;
use super::store;
use super::world::{CALM, FAULTS, STRIPE_BYTES, Shared, lock, sleep};

const CALLER: Caller = Caller::new(0, 0);
/// Cells of a file.
const CELLS: u64 = 20;
/// Files of records, and from where on they are numbered.
const LOGS: u64 = 2;
const FIRST_LOG: u64 = 1_000_000;
/// Most records of a program.
const RECORDS_MAX: u64 = 150;
/// How far behind the end a record is placed.
const FAR: u64 = 256 << 10;

/// What programs do, of all that they can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    truncates: bool,
    replaces: bool,
    removes: bool,
    empties: bool,
    places: bool,
    collapses: bool,
    shares: bool,
    /// The mean time between two calls.
    pause: u64,
}

impl Features {
    pub(super) fn new(rng: &mut Rng) -> Features {
        let mut is = |one_in: u64| rng.below(one_in) == 0;
        let (empties, places) = (is(3), is(4));
        Features {
            truncates: is(2),
            replaces: is(2),
            removes: is(4),
            empties,
            places: places && !empties,
            collapses: is(2),
            shares: is(2),
            pause: rng.between(5 * MS, 40 * MS),
        }
    }
}

/// What a program knows over its lives.
pub(super) struct Book {
    rng: Rng,
    number: u64,
    records: u64,
    places: u64,
    /// The connections of its process, if there is one.
    pub(super) links: Vec<usize>,
    pub(super) is_done: bool,
}

impl Book {
    pub(super) fn new(number: u64, bits: u64) -> Book {
        Book {
            rng: Rng::new(bits, number),
            number: 0,
            records: 0,
            places: 0,
            links: Vec::new(),
            is_done: false,
        }
    }
}

/// An open file, as the checker knows it.
struct Held {
    file: Arc<dyn TreeFile>,
    id: u64,
    handle: u64,
}

/// One life of a program.
pub(super) struct Program {
    shared: Shared,
    number: usize,
    link: usize,
    fiber: usize,
    tree: Arc<dyn Tree>,
    mine: Option<Held>,
    /// Another handle on the same file.
    other: Option<Held>,
    /// Somebody else's.
    theirs: Option<Held>,
    logs: Vec<Option<Held>>,
}

fn named(name: &str) -> &Path {
    Path::new(OsStr::new(name))
}

fn how(flags: u32) -> OpenHow {
    OpenHow { flags, mode: 0o644, ..OpenHow::default() }
}

impl Program {
    pub(super) fn new(
        shared: Shared,
        number: usize,
        link: usize,
        fiber: usize,
        tree: Arc<dyn Tree>,
    ) -> Program {
        let logs = (0..LOGS).map(|_| None).collect();
        Program { shared, number, link, fiber, tree, mine: None, other: None, theirs: None, logs }
    }

    fn is_dead(&self) -> bool {
        let world = lock(&self.shared);
        world.net.is_over || world.links[self.link].is_dead
    }

    fn below(&self, n: u64) -> u64 {
        lock(&self.shared).books[self.number].rng.below(n)
    }

    fn next_number(&self) -> u64 {
        let mut world = lock(&self.shared);
        let book = &mut world.books[self.number];
        book.number += 1;
        book.number
    }

    /// Makes a call that the checker hears of, and its answer.
    fn does(
        &self,
        (file, handle): (u64, u64),
        op: Op,
        call: impl FnOnce() -> io::Result<Answer>,
    ) -> Option<Answer> {
        let number = {
            let mut world = lock(&self.shared);
            if world.net.is_over || world.links[self.link].is_dead {
                return None;
            }
            let number = world.net.new_call();
            let client = self.link as u64;
            world.net.happened(&Happened::Call { call: number, client, handle, file, op });
            number
        };
        let answer = call().unwrap_or_else(|error| Answer::Failed(errno(&error)));
        let mut world = lock(&self.shared);
        if world.net.is_over || world.links[self.link].is_dead {
            return None;
        }
        match answer {
            Answer::Failed(_) => world.net.report.failed_calls += 1,
            _ => world.net.report.calls += 1,
        }
        world.net.happened(&Happened::Return { call: number, answer: answer.clone() });
        Some(answer)
    }

    /// Opens a file that is known, or `new`.
    fn open(&self, path: &Path, flags: u32, new: Option<u64>) -> io::Result<Held> {
        let file = self.tree.open(CALLER, path, how(flags))?;
        let mut world = lock(&self.shared);
        if let Some(id) = new {
            world.files.insert(file.identity(), id);
        }
        let id = world.files.get(&file.identity()).copied();
        let handle = world.net.new_call();
        drop(world);
        let id = id.ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))?;
        let held = Held { file, id, handle };
        self.does((id, handle), Op::Open, || Ok(Answer::Done));
        Ok(held)
    }

    fn close(&self, held: Option<Held>) {
        let Some(Held { file, id, handle }) = held else { return };
        self.does((id, handle), Op::Close, || {
            file.tell_losses()?;
            file.close();
            Ok(Answer::Done)
        });
    }

    fn own_name(&self) -> String {
        format!("c{}", self.number)
    }

    /// Its own file: as it is, or a new one.
    fn take_mine(&mut self) {
        if self.mine.is_some() {
            return;
        }
        let flags = open::READ | open::WRITE;
        match self.open(named(&self.own_name()), flags, None) {
            Ok(held) => self.mine = Some(held),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => self.replace(),
            Err(_) => {}
        }
    }

    /// Writes a new file, and gives it the name of the own one.
    fn replace(&mut self) {
        let id = {
            let mut world = lock(&self.shared);
            world.last_file += 1;
            world.last_file
        };
        let name = PathBuf::from(format!("n{id}"));
        let flags = open::READ | open::WRITE | open::CREATE | open::EXCLUSIVE;
        let Ok(held) = self.open(&name, flags, Some(id)) else { return };
        self.write(&held, 0, CELLS);
        if self.below(2) == 0 {
            self.sync(&held);
        }
        if self.tree.rename(CALLER, &name, named(&self.own_name()), 0).is_ok() {
            let before = [self.other.take(), self.mine.replace(held)];
            before.into_iter().for_each(|before| self.close(before));
        } else {
            self.close(Some(held));
        }
    }

    fn write(&self, held: &Held, first: u64, cells: u64) {
        let number = self.next_number();
        let bytes = contents::cell(held.id, number).repeat(cells as usize);
        self.does((held.id, held.handle), Op::Write { first, cells, number }, || {
            let store = self.tree.store();
            let offset = first * CELL as u64;
            let count = store::write(&*store, held.file.data(), offset, &bytes, false)?;
            Ok(if count == bytes.len() { Answer::Done } else { Answer::Failed(libc::ENOSPC) })
        });
    }

    fn read(&self, held: &Held, first: u64, cells: u64) -> Option<Answer> {
        self.does((held.id, held.handle), Op::Read { first, cells }, || {
            let store = self.tree.store();
            let bytes = cells as usize * CELL;
            let found = store::read(&*store, held.file.data(), first * CELL as u64, bytes)?;
            Ok(Answer::Cells(contents::cells(&found, cells as usize)))
        })
    }

    fn sync(&self, held: &Held) -> Option<Answer> {
        self.does((held.id, held.handle), Op::Sync, || held.file.sync(false).map(|_| Answer::Done))
    }

    fn set_size(&self, held: &Held, op: Op, size: u64) -> Option<Answer> {
        let change = Change { which: set::SIZE, size, ..Change::default() };
        self.does((held.id, held.handle), op, || held.file.set_attr(CALLER, &change).map(|_| Answer::Done))
    }

    /// A file of records.
    fn take_log(&mut self, log: usize) -> bool {
        if self.logs[log].is_none() {
            let flags = open::READ | open::WRITE | open::CREATE | open::APPEND;
            let id = FIRST_LOG + log as u64;
            self.logs[log] = self.open(named(&format!("a{log}")), flags, Some(id)).ok();
        }
        self.logs[log].is_some()
    }

    /// The number of its next record, if it may write one more.
    fn next_record(&self) -> Option<u64> {
        let mut world = lock(&self.shared);
        let book = &mut world.books[self.number];
        book.records += 1;
        (book.records <= RECORDS_MAX).then_some(book.records)
    }

    fn append(&self, held: &Held) -> Option<Answer> {
        let (number, writer) = (self.next_record()?, self.number as u64);
        let bytes = contents::record(held.id, writer, number, 24 + self.below(600) as usize);
        self.does((held.id, held.handle), Op::Append { writer, number }, || {
            let caller = CALLER.with_origin(self.origin(number));
            let appended = held.file.append(caller, Origin::default(), &bytes);
            appended.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EBADF))).map(|_| Answer::Done)
        })
    }

    /// By what a record of this process is known, wherever it goes.
    fn origin(&self, number: u64) -> RequestOrigin {
        let mut client = [1; 16];
        client[..8].copy_from_slice(&(self.link as u64).to_le_bytes());
        RequestOrigin { client, number, step: 0, unanswered: 0 }
    }

    /// Writes a record by its offset, far behind all that others may append meanwhile, and within a stripe: over several, it would be
    /// several writes, and what is appended behind the first one could be overwritten by the next.
    fn place(&self, log: usize) {
        let is_one_more = {
            let mut world = lock(&self.shared);
            let book = &mut world.books[self.number];
            book.places += 1;
            book.places <= 2
        };
        let (true, Some(number)) = (is_one_more, self.next_record()) else { return };
        let (id, writer) = (FIRST_LOG + log as u64, self.number as u64);
        let Ok(held) = self.open(named(&format!("a{log}")), open::READ | open::WRITE, Some(id)) else {
            return;
        };
        let bytes = contents::record(id, writer, number, 200);
        self.does((id, held.handle), Op::Place { writer, number }, || {
            let offset = (held.file.attr()?.size + FAR).next_multiple_of(STRIPE_BYTES);
            let count = store::write(&*self.tree.store(), held.file.data(), offset, &bytes, false)?;
            Ok(if count == bytes.len() { Answer::Done } else { Answer::Failed(libc::ENOSPC) })
        });
        self.close(Some(held));
    }

    fn read_all(&self, held: &Held) -> Option<Answer> {
        self.does((held.id, held.handle), Op::ReadAll, || {
            let most = held.file.attr()?.size as usize + (64 << 10);
            let found = store::read(&*self.tree.store(), held.file.data(), 0, most)?;
            // There is more than was meant to be read, perhaps only a part of a record.
            if found.len() == most {
                return Ok(Answer::Failed(libc::EAGAIN));
            }
            Ok(Answer::Records(contents::pieces(&found)))
        })
    }

    /// Cells are taken out of a file that nobody else uses.
    fn collapse(&self) {
        let id = {
            let mut world = lock(&self.shared);
            world.last_file += 1;
            world.last_file
        };
        let flags = open::READ | open::WRITE | open::CREATE | open::EXCLUSIVE;
        let Ok(held) = self.open(named(&format!("k{id}")), flags, Some(id)) else { return };
        (0..6).for_each(|cell| self.write(&held, cell, 1));
        let (mode, bytes) = (libc::FALLOC_FL_COLLAPSE_RANGE as u32, CELL as u64);
        for _ in 0..2 {
            self.does((id, held.handle), Op::Collapse { first: 0, cells: 1 }, || {
                held.file.allocate(mode, 0, bytes).map(|()| Answer::Done)
            });
        }
        self.read(&held, 0, 6);
        self.close(Some(held));
    }

    /// Looks into another program's file.
    fn look(&mut self) {
        if self.theirs.is_none() {
            let others = lock(&self.shared).books.len() as u64;
            let name = format!("c{}", self.below(others));
            self.theirs = self.open(named(&name), open::READ, None).ok();
        }
        if let Some(held) = &self.theirs {
            let answer = self.read(held, self.below(CELLS), 1 + self.below(4));
            let is_bad = matches!(answer, Some(Answer::Failed(_)));
            if is_bad || self.below(10) == 0 {
                let theirs = self.theirs.take();
                self.close(theirs);
            }
        }
    }

    fn cells(&mut self, features: Features) {
        self.take_mine();
        let (first, cells) = (self.below(CELLS), 1 + self.below(4));
        if self.other.is_none() && features.shares && self.mine.is_some() {
            let other = self.open(named(&self.own_name()), open::READ | open::WRITE, None).ok();
            // The name may lead elsewhere by now.
            let is_same = |held: &Held| self.mine.as_ref().is_some_and(|mine| mine.id == held.id);
            match other {
                Some(other) if is_same(&other) => self.other = Some(other),
                other => self.close(other),
            }
        }
        let Some(mine) = &self.mine else { return };
        let held = self.other.as_ref().filter(|_| self.below(2) == 0).unwrap_or(mine);
        let answer = match self.below(10) {
            0..5 => {
                self.write(held, first, cells);
                None
            }
            5 | 6 => self.read(held, first, cells),
            7 => self.sync(held),
            8 if features.truncates => {
                self.set_size(held, Op::Truncate { cells: first }, first * CELL as u64)
            }
            9 if self.below(4) == 0 => Some(Answer::Failed(libc::EBADF)),
            _ => None,
        };
        if matches!(answer, Some(Answer::Failed(error)) if error != libc::EIO) {
            let (other, mine) = (self.other.take(), self.mine.take());
            self.close(other);
            self.close(mine);
        }
    }

    fn records(&mut self, features: Features) {
        let log = self.below(LOGS) as usize;
        if !self.take_log(log) {
            return;
        }
        let Some(held) = &self.logs[log] else { return };
        let answer = match self.below(20) {
            0 => self.sync(held),
            1 => self.read_all(held),
            2 if features.empties => self.set_size(held, Op::Empty, 0),
            3 if features.places && self.number == log => {
                self.place(log);
                None
            }
            4 => {
                let held = self.logs[log].take();
                self.close(held);
                None
            }
            _ => self.append(held),
        };
        if matches!(answer, Some(Answer::Failed(libc::EBADF | libc::ESTALE))) {
            let held = self.logs[log].take();
            self.close(held);
        }
    }

    fn step(&mut self, features: Features) {
        match self.below(20) {
            0 if features.replaces => self.replace(),
            1 if features.removes => {
                let _ = self.tree.unlink(CALLER, named(&self.own_name()), false);
            }
            2 | 3 if features.collapses => self.collapse(),
            3..8 => self.look(),
            8..14 => self.cells(features),
            _ => self.records(features),
        }
    }

    /// Does this and that until the faults have been over for a while; then everything must be readable.
    pub(super) fn run(mut self) {
        let features = lock(&self.shared).features;
        while !self.is_dead() && lock(&self.shared).net.now < FAULTS + CALM {
            self.step(features);
            let pause = self.below(2 * features.pause);
            sleep(&self.shared, self.fiber, pause);
        }
        self.finish();
    }

    fn finish(mut self) {
        // Some handles may not have survived their server's restart.
        let held = [self.other.take(), self.theirs.take(), self.mine.take()];
        let held = held.into_iter().chain(self.logs.iter_mut().map(Option::take));
        held.collect::<Vec<_>>().into_iter().for_each(|held| self.close(held));
        self.take_mine();
        if let Some(mine) = self.mine.take() {
            self.sync(&mine);
            self.must(&mine, self.read(&mine, 0, CELLS).as_ref());
            self.close(Some(mine));
        }
        for log in 0..LOGS as usize {
            if !self.take_log(log) {
                continue;
            }
            let Some(held) = self.logs[log].take() else { continue };
            self.sync(&held);
            self.must(&held, self.read_all(&held).as_ref());
            self.close(Some(held));
        }
        if !self.is_dead() {
            lock(&self.shared).books[self.number].is_done = true;
        }
    }

    /// Nothing is wrong any more.
    fn must(&self, held: &Held, answer: Option<&Answer>) {
        if let Some(&Answer::Failed(errno)) = answer
            && ![libc::ESTALE, libc::EAGAIN].contains(&errno)
        {
            let what = format!("file {} cannot be read although nothing is wrong: errno {errno}", held.id);
            lock(&self.shared).net.found(&what);
        }
    }
}
