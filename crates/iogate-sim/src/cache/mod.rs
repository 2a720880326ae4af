//! The page cache of a server, or of a client: reads that are hits, read-ahead, writes that are answered from memory, write-back, syncs.
//!
//! A pure machine. It is told of reads, writes, syncs and of ends of transfers, and is asked by [`Cache::next`] what happens, until that is
//! nothing. What lies below it, a device or a network, is its driver's business, and so is time.
//!
//! What it charges:
//!
//! - A read is a hit, page by page, where the pages are there; it waits for those that are being read, and has others read, with what
//!   read-ahead adds (`read_ahead`). It goes on only when the page that it is at has come, as a thread that copies does.
//! - A write dirties pages at once. Above the limit of dirty memory the writer waits (`throttle`).
//! - Write-back goes file by file, from where it was in the file, so many MiB a turn: above the background limit until it is below, and of
//!   files that have been dirty for 30 s, when it wakes each 5 s. At most so many transfers are in flight.
//! - A sync writes back a file (all files, on ext3), waits for what is in flight, and then for the journal and a flush.
//! - What was used least recently goes when there is no more room; dirty pages do not go.
//!
//! Left out: the time of copies (a layer's `overhead` has processor time); reading a page that is written in part; the two lists of
//! the kernel, which keep what was used twice (here one, the least recently used first); memory for anything else; metadata
//! but for a sync's journal; transfers that fail. The window of a read-ahead is not cut where another stream's pages are.
//!
//! Sources: Linux 2.6.18, 2.6.28 and 5.4: `mm/filemap.c`, `mm/page-writeback.c`, `fs/fs-writeback.c`, `mm/readahead.c`, `fs/jbd`;
//! Documentation/sysctl/vm. The numbers are in `kernel`, each with its source.

mod extents;
mod kernel;
mod pages;
mod read_ahead;
mod throttle;
mod windows;
mod write_back;

use std::collections::{BTreeSet, VecDeque};

use iogate_core::{FileId, Op, Time};

pub use kernel::{CacheConfig, Kernel, PAGE, PARAMETERS, Parameter};
pub use pages::State;
pub use read_ahead::{Ahead, Window};

use self::pages::{File, Pages};
use self::throttle::{Level, Throttle};
use self::windows::Windows;
use self::write_back::DirtyFiles;
use crate::slab::Slab;

/// A read or a write.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Names it in [`Step::Done`].
    pub token: u64,
    /// For whom, as its driver numbers them.
    pub whom: u32,
    /// Whose reads follow each other: a process, or all of the file.
    pub stream: u64,
    /// The file.
    pub file: FileId,
    /// Its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Access {
    /// The pages that have its bytes.
    fn pages(&self) -> (u64, u64) {
        (self.offset / PAGE, (self.offset + self.bytes).div_ceil(PAGE))
    }
}

/// A transfer to what lies below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Names it in [`Cache::completed`].
    pub io: u32,
    /// For whom it is: of a write-back, who has written to the file last.
    pub whom: u32,
    /// Read or write.
    pub op: Op,
    /// The file.
    pub file: FileId,
    /// Its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether somebody waits for it: a read that is no read-ahead, a sync.
    pub waited_for: bool,
    /// What has caused it, as [`Step::Done`] names it: a read, a sync; 0 for write-back.
    pub by: u64,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A transfer begins.
    Transfer(Transfer),
    /// What was written back becomes durable: a journal and a flush, or a COMMIT. [`Cache::completed`] is told its end, too.
    Flush {
        /// Names it.
        io: u32,
        /// The file of the sync.
        file: FileId,
        /// For whom.
        whom: u32,
    },
    /// A read, a write or a sync is complete.
    Done(u64),
    /// Nothing before this time.
    WaitUntil(Time),
    /// Nothing until something happens.
    Idle,
}

/// What a cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CacheStats {
    /// Pages that reads wanted.
    pub read: u64,
    /// Of these, those that were not there, nor on their way.
    pub missed: u64,
    /// Pages that were read from below.
    pub fetched: u64,
    /// Pages that writes dirtied.
    pub dirtied: u64,
    /// Pages that were written back.
    pub written_back: u64,
    /// Writes that had to wait.
    pub throttled: u64,
    /// Most pages that were dirty or being written back.
    pub dirty_most: u64,
}

impl CacheStats {
    /// Adds what another one has done.
    pub fn add(&mut self, other: &CacheStats) {
        self.read += other.read;
        self.missed += other.missed;
        self.fetched += other.fetched;
        self.dirtied += other.dirtied;
        self.written_back += other.written_back;
        self.throttled += other.throttled;
        self.dirty_most = self.dirty_most.max(other.dirty_most);
    }
}

/// A read in progress.
#[derive(Clone, Copy, Debug)]
struct Reader {
    access: Access,
    file: File,
    /// The next page, and the one after the last.
    at: u64,
    end: u64,
    /// Where the older read-ahead asks again.
    ask: u64,
    /// Where the file ends.
    file_end: u64,
}

/// A transfer in progress.
#[derive(Clone, Debug)]
struct Io {
    file: File,
    start: u64,
    end: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Reads wait for it: most often one.
    Fetch { first: Option<u32>, others: Vec<u32> },
    /// Syncs wait for it.
    WriteBack(Vec<u32>),
    /// Syncs, by their tokens, are complete with it.
    Flush(Vec<u64>),
}

/// A sync in progress.
#[derive(Clone, Copy, Debug)]
struct Sync {
    token: u64,
    whom: u32,
    file: File,
    all: bool,
    /// Transfers that it waits for.
    open: u32,
    /// Whether it must look once more: for pages that were written to while they were written back.
    again: bool,
}

/// A page cache.
#[derive(Debug)]
pub struct Cache {
    config: CacheConfig,
    capacity: u64,
    background: u64,
    limit: u64,
    pages: Pages,
    windows: Windows,
    readers: Slab<Reader>,
    ios: Slab<Io>,
    syncs: Slab<Sync>,
    /// Files with changes that no flush has been begun for.
    unsynced: BTreeSet<File>,
    /// Flushes in progress, the oldest first, and the file that each is for; `None`: all.
    flushes: VecDeque<(u32, Option<File>)>,
    files: DirtyFiles,
    throttle: Throttle,
    steps: VecDeque<Step>,
    stats: CacheStats,
}

impl Cache {
    /// An empty cache.
    pub fn new(config: &CacheConfig) -> Cache {
        let capacity = (config.size / PAGE).max(1);
        let (background, limit) = config.limits();
        let grain = if config.grain == 0 { (capacity / 1_024).max(1) } else { config.grain };
        Cache {
            capacity,
            background,
            limit,
            pages: Pages::new(grain),
            windows: Windows::default(),
            readers: Slab::new(),
            ios: Slab::new(),
            syncs: Slab::new(),
            unsynced: BTreeSet::new(),
            flushes: VecDeque::new(),
            files: DirtyFiles::default(),
            throttle: Throttle::new(config.kernel),
            steps: VecDeque::new(),
            stats: CacheStats::default(),
            config: config.clone(),
        }
    }

    /// What it has done.
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Pages and extents that it holds.
    pub fn size(&self) -> (u64, usize) {
        (self.pages.len(), self.pages.extents())
    }

    /// What a page is doing; `None` if it is not there.
    pub fn state(&self, file: FileId, page: u64) -> Option<State> {
        let file = self.pages.known(file)?;
        self.pages.find(file, page).map(|(_, extent)| extent.state)
    }

    /// Pages that are dirty or being written back.
    pub fn dirty(&self) -> u64 {
        self.pages.dirty() + self.pages.writing()
    }

    /// Somebody reads; `file_bytes` is where the file ends, as far as that is known.
    pub fn read(&mut self, access: Access, file_bytes: u64) {
        let (at, end) = access.pages();
        self.stats.read += end - at;
        let file_end = file_bytes.div_ceil(PAGE).max(end);
        let file = self.pages.open(access.file);
        let reader = Reader { access, file, at, end, ask: at, file_end };
        if let Some((reader, io)) = self.go_on(reader) {
            let id = self.readers.add(reader);
            self.wait_for(id, io);
        }
    }

    /// Somebody writes.
    pub fn write(&mut self, now: Time, access: Access) {
        let Access { token, whom, .. } = access;
        let (file, range) = (self.pages.open(access.file), access.pages());
        self.pages.change(file, range, true, |old| match old {
            Some((State::Writing | State::Rewritten, io)) => Some((State::Rewritten, io)),
            _ => Some((State::Dirty, 0)),
        });
        self.unsynced.insert(file);
        self.files.dirtied(now, file, whom);
        self.stats.dirtied += range.1 - range.0;
        self.stats.dirty_most = self.stats.dirty_most.max(self.dirty());
        self.make_room();
        let level = self.level();
        if self.throttle.wrote(now, token, range.1 - range.0, level) {
            self.stats.throttled += 1;
        } else {
            self.steps.push_back(Step::Done(token));
        }
    }

    /// `whom` waits until all that was written to `file` is durable.
    pub fn sync(&mut self, token: u64, whom: u32, file: FileId) {
        let file = self.pages.open(file);
        if !self.unsynced.contains(&file) {
            self.wait_for_flush(token, file);
            return;
        }
        let sync = Sync { token, whom, file, all: self.config.ordered, open: 0, again: false };
        let id = self.syncs.add(sync);
        self.write_for(id);
    }

    /// What happens next; to be asked after anything that it is told, until it is [`Step::Idle`] or a time.
    pub fn next(&mut self, now: Time) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            let level = self.level();
            if let Some(token) = self.throttle.released(now, level) {
                return Step::Done(token);
            }
            if !self.write_back(now) {
                break;
            }
        }
        match (self.throttle.wake(), self.files.wake(self.config.wake)) {
            (None, None) => Step::Idle,
            (Some(at), None) | (None, Some(at)) => Step::WaitUntil(at),
            (Some(throttle), Some(files)) => Step::WaitUntil(throttle.min(files)),
        }
    }

    /// A transfer, or a flush, has ended.
    pub fn completed(&mut self, now: Time, io: u32) {
        let Io { file, start, end, ref mut what } = self.ios[io];
        let what = std::mem::replace(what, What::Flush(Vec::new()));
        self.ios.free(io);
        match what {
            What::Fetch { first, others } => {
                self.pages.change(file, (start, end), false, |old| match old {
                    Some((State::Reading, of)) if of == io => Some((State::Clean, 0)),
                    other => other,
                });
                // First who waits for them: else they could go before they are used.
                for reader in first.into_iter().chain(others) {
                    if let Some((this, io)) = self.go_on(self.readers[reader]) {
                        self.readers[reader] = this;
                        self.wait_for(reader, io);
                    } else {
                        self.readers.free(reader);
                    }
                }
                self.make_room();
            }
            What::WriteBack(syncs) => {
                self.pages.change(file, (start, end), false, |old| match old {
                    Some((State::Writing, of)) if of == io => Some((State::Clean, 0)),
                    Some((State::Rewritten, of)) if of == io => Some((State::Dirty, 0)),
                    other => other,
                });
                self.files.written(now, file, self.pages.dirty_run(file, 0, 1).is_some());
                self.throttle.written(now, end - start);
                self.stats.written_back += end - start;
                self.make_room();
                syncs.into_iter().for_each(|sync| self.transfer_of_sync_ended(sync));
            }
            What::Flush(syncs) => {
                self.flushes.retain(|(flush, _)| *flush != io);
                self.steps.extend(syncs.into_iter().map(Step::Done));
            }
        }
    }

    /// Forgets what it has of a file and could read again: for another has changed it.
    pub fn forget(&mut self, file: FileId) {
        if let Some(file) = self.pages.known(file) {
            self.pages.forget(file);
        }
    }

    fn level(&self) -> Level {
        Level { pages: self.dirty(), background: self.background, limit: self.limit }
    }

    /// Lets go what was used least recently, as far as there is too much.
    fn make_room(&mut self) {
        while self.pages.len() > self.capacity || self.pages.extents() as u64 > self.config.extents {
            if self.pages.evict().is_none() {
                return;
            }
        }
    }

    /// Lets a read go on to its end, or up to a page that is being read: then it is given back, with the transfer that the page is part of.
    fn go_on(&mut self, mut reader: Reader) -> Option<(Reader, u32)> {
        let (file, Access { token, stream, .. }) = (reader.file, reader.access);
        while reader.at < reader.end {
            let mut found = self.pages.find(file, reader.at);
            if self.look_ahead(&mut reader, found.is_none()) {
                found = self.pages.find(file, reader.at);
            }
            let Some((_, extent)) = found else { continue };
            if extent.state == State::Reading {
                return Some((reader, extent.io));
            }
            let (next, end) = (reader.at + 1, extent.end.min(reader.end));
            let upto = self.pages.next_mark(file, next, end.min(reader.ask.max(next)));
            if !self.pages.is_used_now(&extent) {
                self.pages.change(file, (reader.at, upto), true, |old| old);
            }
            reader.at = upto;
        }
        if self.config.read_ahead > 0 && self.config.kernel != Kernel::Rhel5 {
            self.windows.of(file, stream).has_read(reader.end);
        }
        self.steps.push_back(Step::Done(token));
        None
    }

    /// A read has come to a page: has it read if it is not there (`missing`), and what read-ahead adds. Whether anything is read.
    fn look_ahead(&mut self, reader: &mut Reader, missing: bool) -> bool {
        let (file, stream) = (reader.file, reader.access.stream);
        let (at, wanted) = (reader.at, reader.end - reader.at);
        let max = self.config.read_ahead / PAGE;
        if max == 0 {
            reader.ask = reader.end;
            if missing {
                self.fetch(reader, Ahead { start: at, pages: wanted, mark: None });
            }
            return missing;
        }
        let mut is_read = false;
        if self.config.kernel == Kernel::Rhel5 {
            if at == reader.ask {
                let mut ahead = Vec::new();
                let window = self.windows.of(file, stream);
                reader.ask = window.two_windows(at, wanted, max, &mut ahead).max(at + 1);
                is_read = !ahead.is_empty();
                ahead.into_iter().for_each(|ahead| self.fetch(reader, ahead));
            }
        } else {
            reader.ask = reader.end;
            let marked = !missing && self.pages.take_mark(file, at);
            if missing || marked {
                let gap = marked.then(|| self.pages.next_absent(file, at, at + max + 1));
                // Since 4.10 a read that is longer is not cut.
                let max = match self.config.kernel {
                    Kernel::Modern => max.max(wanted.min(self.config.io / PAGE)),
                    _ => max,
                };
                let window = self.windows.of(file, stream);
                if let Some(ahead) = window.on_demand(at, wanted, max, gap) {
                    is_read = true;
                    self.fetch(reader, ahead);
                }
            }
        }
        if missing && self.pages.find(file, at).is_none() {
            is_read = true;
            self.fetch(reader, Ahead { start: at, pages: 1, mark: None });
        }
        is_read
    }

    /// Reads what of a window is not there.
    fn fetch(&mut self, reader: &Reader, ahead: Ahead) {
        let Reader { access, file, at: wanted, end: wanted_end, file_end, .. } = *reader;
        let most = (self.config.io / PAGE).max(1);
        let end = (ahead.start + ahead.pages).min(file_end);
        let mut at = ahead.start;
        while at < end {
            let upto = self.pages.next_present(file, at, end.min(at + most));
            if upto == at {
                at = self.pages.next_absent(file, at, end);
                continue;
            }
            let what = What::Fetch { first: None, others: Vec::new() };
            let io = self.ios.add(Io { file, start: at, end: upto, what });
            self.pages.put(file, (at, upto), State::Reading, io, None);
            if let Some(mark) = ahead.mark.filter(|mark| (at..upto).contains(mark)) {
                self.pages.mark(file, mark);
            }
            self.stats.fetched += upto - at;
            self.stats.missed += upto.min(wanted_end).saturating_sub(at.max(wanted));
            self.steps.push_back(Step::Transfer(Transfer {
                io,
                whom: access.whom,
                op: Op::Read,
                file: access.file,
                offset: at * PAGE,
                bytes: (upto - at) * PAGE,
                waited_for: at < wanted_end && wanted < upto,
                by: access.token,
            }));
            at = upto;
        }
        self.make_room();
    }

    /// A read waits for a transfer.
    fn wait_for(&mut self, reader: u32, io: u32) {
        if let What::Fetch { first, others } = &mut self.ios[io].what {
            match first {
                None => *first = Some(reader),
                Some(_) => others.push(reader),
            }
        }
    }
}
