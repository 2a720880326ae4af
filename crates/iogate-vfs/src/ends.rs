//! The ends of the striped files of a tree with names: what the decider says is noted with the names-file, then told to who waits.
//!
//! The lock is held for deciding only. What is to be noted, and who is to be told, comes out as [`Work`], which the caller does, or has
//! a worker do.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use iogate_core::Time;
use iogate_core::ends::{Answer, EarlierRange, Note, Rules, Told, UNKNOWN, Waiter, Wish};
use iogate_core::wire::{AppendRecord, Change, Identity, Range, Reserved, range, set};

use crate::{Caller, Clock, TreeFile};

/// In whose name it is noted: the process's own.
const OWN: Caller = Caller::new(0, 0);
/// The attribute of a names-file that has the size which somebody has begun to set; empty when it is set.
const BEGUN: &[u8] = b"user.iogate.resize";
/// In that attribute, between a size and the verifier of the names-file. If that is another one now, the machine has booted: the size may
/// have been set before that, by one who has been told so, and others may have written since.
const WHILE: char = '@';
/// How often one who waits in this process looks whether it has waited for long enough.
const ROUND: Duration = Duration::from_millis(100);

/// What is given to who asks for the end of a file.
#[derive(Clone, Debug)]
pub struct Given {
    /// How long it is given, and by which ticket to settle it.
    pub reserved: Reserved,
    /// Of a reservation: where each record goes.
    pub ranges: Vec<Range>,
    /// Of an end without a reservation: the size that is to be set now, which somebody else has begun to set.
    pub begun: Option<u64>,
}

/// Remembers the ranges that records were given, over restarts of the process. What it remembers never overlaps: a range that is given
/// again is forgotten first.
pub trait RangeLog: Send + Sync {
    /// The ranges that records of a file were given before the process started, without those that have been forgotten since.
    fn earlier(&self, file: Identity) -> Vec<EarlierRange>;

    /// Remembers new ranges, when this returns; of the others, it does.
    fn keep(&self, file: Identity, records: &[AppendRecord], ranges: &[Range]) -> io::Result<()>;

    /// The ranges of these records are given to others after all. Forgets them, when this returns.
    fn forget(&self, file: Identity, records: &[AppendRecord]) -> io::Result<()>;
}

/// Told what is given, or why nothing is; `None`: the server stops, and whoever asks may ask its successor.
type Then = Box<dyn FnOnce(Option<io::Result<Given>>) + Send>;

/// The ends of a tree's files.
pub struct Ends {
    state: Mutex<State>,
    rules: Rules,
    clock: Clock,
    /// Ranges over restarts; `None`: a process that dies forgets them.
    log: Option<Arc<dyn RangeLog>>,
}

struct State {
    table: iogate_core::ends::Ends,
    waiting: HashMap<Waiter, Waiting>,
    /// The last number of a handle, or of who waits.
    last: u64,
}

struct Waiting {
    /// The names-file.
    file: Arc<dyn TreeFile>,
    /// Those that are to be given ranges.
    records: Vec<AppendRecord>,
    then: Then,
}

enum Step {
    Tell(Told, Waiting),
    /// Something settled, with what is told then.
    Note(Identity, u64, Note, Arc<dyn TreeFile>, Box<dyn FnOnce(io::Result<()>) + Send>),
}

/// What is to be done outside of the lock.
#[must_use]
pub struct Work(VecDeque<Step>);

impl Work {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl State {
    /// Who is told what. Those who do not wait any more are not.
    fn told(&mut self, all: Vec<Told>) -> VecDeque<Step> {
        let told = |told: Told| self.waiting.remove(&told.waiter).map(|waiting| Step::Tell(told, waiting));
        all.into_iter().filter_map(told).collect()
    }

    fn wait(&mut self, file: Arc<dyn TreeFile>, records: Vec<AppendRecord>, then: Then) -> Waiter {
        self.last += 1;
        self.waiting.insert(self.last, Waiting { file, records, then });
        self.last
    }
}

impl Ends {
    /// Ends by these rules; with a log, of ranges that are remembered there.
    pub fn new(rules: Rules, log: Option<Arc<dyn RangeLog>>, clock: Clock) -> Arc<Ends> {
        let table = iogate_core::ends::Ends::new(rules, clock.now(), clock.wall());
        let state = State { table, waiting: HashMap::new(), last: 0 };
        Arc::new(Ends { state: Mutex::new(state), rules, clock, log })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// A names-file has been opened for writing; `elsewhere`: by who may write elsewhere than at its end. Also returns a size that is to
    /// be set before anything is written through the handle: whoever is at it may be dead.
    pub fn open(
        self: &Arc<Self>,
        file: &dyn TreeFile,
        elsewhere: bool,
    ) -> io::Result<(EndHandle, Option<u64>)> {
        let identity = file.identity();
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        let is_new = state.table.open(identity, elsewhere);
        drop(state);
        let end_handle = EndHandle { ends: Arc::clone(self), identity, number, elsewhere };
        if is_new {
            let mark = file.attr()?.size;
            let (begun, is_pending) = begun(file)?;
            // Who is told to set a size is told so when it is the mark, too: before, nobody is at it.
            let pending = begun.filter(|&size| is_pending && size == mark);
            let mut earlier = self.log.as_ref().map_or_else(Vec::new, |log| log.earlier(identity));
            // Nobody can tell whether ranges behind such a size were given before it was set.
            earlier.retain(|range| is_pending || begun.is_none_or(|size| range.end() <= size));
            self.lock().table.learn(identity, mark, pending, &earlier);
        }
        let begun = self.lock().table.begun(identity);
        Ok((end_handle, begun))
    }

    /// Lets those go on who have waited for long enough.
    pub fn reap(&self) -> Work {
        let mut state = self.lock();
        if !state.table.are_waited_for() {
            return Work(VecDeque::new());
        }
        let told = state.table.reap(self.now());
        Work(state.told(told))
    }

    /// The server stops: nobody is given anything any more.
    pub fn close(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_values().for_each(|waiting| (waiting.then)(None));
    }

    /// Notes what is to be noted, and tells who waits. May take as long as the names' disk does.
    pub fn perform(&self, work: Work) {
        let mut steps = work.0;
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Tell(told, Waiting { file, records, then }) => {
                    let kept = match (&self.log, &told.answer) {
                        (Some(log), Answer::Ranges(ranges)) => log.keep(told.file, &records, ranges),
                        _ => Ok(()),
                    };
                    let noted = match told.note.clone() {
                        Some(note) => {
                            let noted = kept.and_then(|()| {
                                write(&*file, &note).inspect_err(|_| self.forget_given(&records, &told))
                            });
                            steps.extend(self.noted(told.file, told.ticket, noted.is_ok()));
                            noted
                        }
                        None => kept,
                    };
                    then(Some(noted.and_then(|()| self.given(told))));
                }
                Step::Note(identity, ticket, note, file, then) => {
                    let forgotten = self.forget(identity, &note.void);
                    let noted = forgotten.and_then(|()| write(&*file, &note));
                    if let Err(error) = &noted {
                        tracing::error!(?identity, %error, "the size of a striped file could not be noted");
                    }
                    steps.extend(self.noted(identity, ticket, noted.is_ok()));
                    then(noted);
                }
            }
        }
    }

    fn forget(&self, file: Identity, records: &[AppendRecord]) -> io::Result<()> {
        match &self.log {
            Some(log) if !records.is_empty() => log.forget(file, records),
            _ => Ok(()),
        }
    }

    /// Ranges are not given, though the log has them.
    fn forget_given(&self, records: &[AppendRecord], told: &Told) {
        let Answer::Ranges(ranges) = &told.answer else { return };
        let is_new = |(_, given): &(&AppendRecord, &Range)| given.is_there == range::NEW;
        let new: Vec<_> = records.iter().zip(ranges).filter(is_new).map(|(record, _)| *record).collect();
        // If the log does not take that, the memory has it.
        let _ = self.forget(told.file, &new);
    }

    fn noted(&self, file: Identity, ticket: u64, is_noted: bool) -> VecDeque<Step> {
        let mut state = self.lock();
        let told = state.table.noted(self.now(), file, ticket, is_noted);
        state.told(told)
    }

    fn given(&self, told: Told) -> io::Result<Given> {
        let (look, ranges, begun) = match told.answer {
            Answer::Look => (1, Vec::new(), None),
            Answer::Ranges(ranges) => (0, ranges, None),
            Answer::Yours(begun) => (told.voids.into(), Vec::new(), begun),
            Answer::Unfinished => return Err(io::Error::from_raw_os_error(libc::EINPROGRESS)),
            Answer::TooLarge => return Err(io::Error::from_raw_os_error(libc::EFBIG)),
            Answer::Left => return Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        let lease = self.rules.lease.as_nanos();
        let reserved = Reserved { ticket: told.ticket, lease, look, writers: told.writers };
        Ok(Given { reserved, ranges, begun })
    }
}

/// The size that is noted with a names-file as begun, and whether it is still to be set; if not, nobody knows whether it has been set.
fn begun(file: &dyn TreeFile) -> io::Result<(Option<u64>, bool)> {
    let text = match file.xattr(OWN, BEGUN) {
        // Nothing is noted; or nothing can be, or not by this process.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP | libc::EACCES)) =>
        {
            return Ok((None, false));
        }
        text => text?,
    };
    let text = String::from_utf8_lossy(&text);
    let Some((size, noted_while)) = text.split_once(WHILE) else { return Ok((None, false)) };
    Ok((size.parse().ok(), noted_while.parse() == Ok(file.verifier())))
}

/// Notes something with a names-file.
fn write(file: &dyn TreeFile, note: &Note) -> io::Result<()> {
    if let Some(begun) = note.begun {
        write_begun(file, begun)?;
    }
    let Some(size) = note.mark else { return Ok(()) };
    let own = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let marked = file.set_attr(own, &Change { which: set::SIZE, size, ..Change::default() });
    if marked.is_err() && matches!(note.begun, Some(Some(_))) {
        // Who wants the size is told that it is refused, so nobody may set it later.
        let cleared = write_begun(file, None);
        cleared.unwrap_or_else(|error| tracing::error!(%error, size, "a refused size stays noted as begun"));
    }
    marked.map(drop)
}

fn write_begun(file: &dyn TreeFile, begun: Option<u64>) -> io::Result<()> {
    let text = begun.map_or_else(String::new, |size| format!("{size}{WHILE}{}", file.verifier()));
    match file.set_xattr(OWN, BEGUN, text.as_bytes(), 0) {
        // Names that have no attributes but by path belong to somebody else, who notes them.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        noted => noted,
    }
}

/// A handle through which the end of a file is asked for. Gives back what it has when it is dropped.
pub struct EndHandle {
    ends: Arc<Ends>,
    identity: Identity,
    number: u64,
    elsewhere: bool,
}

impl EndHandle {
    /// Asks for ranges; with a ticket, as who has looked.
    pub fn reserve(
        &self,
        file: &Arc<dyn TreeFile>,
        (ticket, at_least): (u64, u64),
        records: Vec<AppendRecord>,
        then: Then,
    ) -> Work {
        let (now, identity, number) = (self.ends.now(), self.identity, self.number);
        let mut state = self.ends.lock();
        let waiter = state.wait(Arc::clone(file), records.clone(), then);
        let table = &mut state.table;
        let told = match ticket {
            0 => table.ask(now, identity, number, waiter, Wish::Append(records)),
            ticket => table.looked(now, identity, number, waiter, ticket, at_least, records),
        };
        Work(state.told(told))
    }

    /// Asks for the end, to set the size; or, with [`UNKNOWN`], to finish what somebody has begun, or just to have it.
    pub fn resize(&self, file: &Arc<dyn TreeFile>, size: u64, then: Then) -> Work {
        let wish = if size == UNKNOWN { Wish::Take } else { Wish::Resize(size) };
        let mut state = self.ends.lock();
        let waiter = state.wait(Arc::clone(file), Vec::new(), then);
        let told = state.table.ask(self.ends.now(), self.identity, self.number, waiter, wish);
        Work(state.told(told))
    }

    /// Gives the end back.
    pub fn settle(
        &self,
        file: &Arc<dyn TreeFile>,
        ticket: u64,
        end: u64,
        then: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Work {
        let mut state = self.ends.lock();
        let (note, told) = state.table.settle(self.ends.now(), self.identity, self.number, ticket, end);
        let mut steps = state.told(told);
        drop(state);
        match note {
            Some(note) => {
                steps.push_back(Step::Note(self.identity, ticket, note, Arc::clone(file), Box::new(then)));
            }
            None => then(Ok(())),
        }
        Work(steps)
    }

    /// As [`EndHandle::reserve`], and waits.
    pub(crate) fn reserve_now(
        &self,
        file: &Arc<dyn TreeFile>,
        looked: (u64, u64),
        records: &[AppendRecord],
    ) -> io::Result<Given> {
        self.wait(|then| self.reserve(file, looked, records.to_vec(), then))
    }

    /// As [`EndHandle::resize`], and waits.
    pub(crate) fn resize_now(&self, file: &Arc<dyn TreeFile>, size: u64) -> io::Result<Given> {
        self.wait(|then| self.resize(file, size, then))
    }

    /// As [`EndHandle::settle`], and waits.
    pub(crate) fn settle_now(&self, file: &Arc<dyn TreeFile>, ticket: u64, end: u64) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let work = self.settle(file, ticket, end, move |settled| drop(tell.send(settled)));
        self.ends.perform(work);
        told.recv().unwrap_or(Ok(()))
    }

    fn wait(&self, ask: impl FnOnce(Then) -> Work) -> io::Result<Given> {
        let (tell, told) = mpsc::channel();
        let work = ask(Box::new(move |given| drop(tell.send(given))));
        self.ends.perform(work);
        loop {
            match told.recv_timeout(ROUND) {
                Ok(Some(given)) => return given,
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Err(mpsc::RecvTimeoutError::Timeout) => self.ends.perform(self.ends.reap()),
            }
        }
    }
}

impl Drop for EndHandle {
    fn drop(&mut self) {
        let mut state = self.ends.lock();
        let told = state.table.leave(self.ends.now(), self.identity, self.number, self.elsewhere);
        let work = Work(state.told(told));
        drop(state);
        self.ends.perform(work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use iogate_core::wire::Attr;
    use iogate_engine::FileHandle;

    use super::*;

    const SIZE_MAX: u64 = 1000;

    /// A names-file that cannot be of every size.
    #[derive(Default)]
    struct Names {
        size: Mutex<u64>,
        begun: Mutex<Vec<u8>>,
        /// What is begun cannot be cleared.
        keeps_begun: AtomicBool,
        /// What is begun cannot be read, once.
        hides_begun: AtomicBool,
    }

    impl TreeFile for Names {
        fn data(&self) -> &FileHandle {
            panic!("a names-file has no data")
        }

        fn identity(&self) -> Identity {
            Identity { inode: 1, generation: 1 }
        }

        fn attr(&self) -> io::Result<Attr> {
            Ok(Attr { size: *self.size.lock().unwrap(), ..Attr::default() })
        }

        fn set_attr(&self, _: Caller, change: &Change) -> io::Result<Attr> {
            if change.size > SIZE_MAX {
                return Err(io::Error::from_raw_os_error(libc::EFBIG));
            }
            *self.size.lock().unwrap() = change.size;
            self.attr()
        }

        fn sync(&self, _: bool) -> io::Result<u64> {
            Ok(0)
        }

        fn allocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn seek(&self, offset: u64, _: bool) -> io::Result<u64> {
            Ok(offset)
        }

        fn xattr(&self, _: Caller, _: &[u8]) -> io::Result<Vec<u8>> {
            if self.hides_begun.swap(false, Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Ok(self.begun.lock().unwrap().clone())
        }

        fn set_xattr(&self, _: Caller, _: &[u8], value: &[u8], _: u32) -> io::Result<()> {
            if value.is_empty() && self.keeps_begun.load(Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            *self.begun.lock().unwrap() = value.to_vec();
            Ok(())
        }
    }

    fn ends() -> Arc<Ends> {
        Ends::new(Rules::PROCESS, None, Clock::REAL)
    }

    /// The size that who opens the file after a start is told to set.
    fn pending(file: &Arc<dyn TreeFile>) -> Option<u64> {
        ends().open(&**file, true).unwrap().1
    }

    #[test]
    fn a_size_that_is_refused_is_not_set_by_who_opens_the_file_later() {
        for keeps_begun in [false, true] {
            let names = Arc::new(Names { keeps_begun: keeps_begun.into(), ..Names::default() });
            let file: Arc<dyn TreeFile> = names.clone();
            let ends = ends();
            let (end_handle, _) = ends.open(&*file, true).unwrap();
            let refused = end_handle.resize_now(&file, SIZE_MAX + 1).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFBIG));
            drop(end_handle);
            assert_eq!(names.begun.lock().unwrap().is_empty(), !keeps_begun);
            let (end_handle, begun) = ends.open(&*file, true).unwrap();
            assert_eq!((begun, pending(&file)), (None, None));
            // One that is not refused, and whose setter dies, is.
            end_handle.resize_now(&file, SIZE_MAX).unwrap();
            drop(end_handle);
            assert_eq!(ends.open(&*file, true).unwrap().1, Some(SIZE_MAX));
            assert_eq!(pending(&file), Some(SIZE_MAX));
        }
    }

    #[test]
    fn a_size_is_not_forgotten_because_its_note_cannot_be_read_once() {
        let names = Arc::new(Names::default());
        let file: Arc<dyn TreeFile> = names.clone();
        let (end_handle, _) = ends().open(&*file, true).unwrap();
        end_handle.resize_now(&file, SIZE_MAX).unwrap();
        drop(end_handle);
        names.hides_begun.store(true, Ordering::SeqCst);
        let ends = ends();
        assert_eq!(
            ends.open(&*file, true).map(|(_, begun)| begun).unwrap_err().raw_os_error(),
            Some(libc::EIO)
        );
        assert_eq!(ends.open(&*file, true).unwrap().1, Some(SIZE_MAX));
    }

    #[test]
    fn a_size_that_a_server_dies_over_before_it_is_given_is_not_set() {
        let names = Names::default();
        write_begun(&names, Some(10)).unwrap();
        let file: Arc<dyn TreeFile> = Arc::new(names);
        assert_eq!(pending(&file), None);
    }
}
