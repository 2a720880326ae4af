//! Reads and writes: what a transport needs to submit them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use iogate_core::{AppId, Op};
use iogate_engine::store::Segment;
use iogate_engine::{ClassBy, Completion, Origin, Transfer};
use iogate_vfs::policy_file::application;
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::abi::{
    InHeader, Input, OpenOut, READ_LOCKOWNER, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn,
};
use crate::append::AppendGuard;
use crate::file_system::{Agreed, Opened, errno_of};
use crate::full;
use crate::notify::Notifier;
use crate::session::Session;

/// What the gate is given of a read or a write.
pub(crate) type Submission = (Transfer, Completion);

/// A read or a write that is ready to be submitted.
pub(crate) struct Data {
    file: Arc<dyn Opened>,
    node: u64,
    op: Op,
    offset: u64,
    pub(crate) bytes: u32,
    /// For the kernel's page cache, not for a process.
    cached: bool,
    origin: Origin,
    append: Option<AppendGuard>,
    /// A write that must be durable before it is answered (`O_SYNC`, `O_DSYNC`).
    sync: Option<Durability>,
    /// What would keep the calling thread too long and is left to another.
    unprepared: Option<Preparation>,
}

/// What a write needs before it is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Preparation {
    clear_suid_sgid: bool,
    append: bool,
}

/// What to make durable after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// The data and what is needed to read it.
    Data,
    /// All attributes too.
    Everything,
}

/// A write that was carried out and now has to be made durable.
pub(crate) struct Unsynced {
    file: Arc<dyn Opened>,
    durability: Durability,
}

impl Unsynced {
    /// Makes it durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.file.sync(self.durability == Durability::Data)
    }
}

impl Data {
    fn prepare(&mut self, preparation: Preparation, notifier: &Notifier) -> Result<(), Errno> {
        if preparation.clear_suid_sgid {
            self.clear_suid_sgid(notifier)?;
        }
        if preparation.append {
            let append = self.file.begin_append(self.bytes)?;
            self.offset = append.offset;
            self.append = Some(append);
        }
        self.file.before_write(self.offset);
        Ok(())
    }

    /// Takes set-user-id and set-group-id away, and tells the kernel if they were there.
    fn clear_suid_sgid(&self, notifier: &Notifier) -> Result<(), Errno> {
        if self.file.clear_suid_sgid()? {
            notifier.drop_attributes(self.node);
        }
        Ok(())
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes.into())
    }

    fn into_submission(
        self,
        session: &Arc<Session>,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Submission {
        if session.removals.concern(self.op) {
            return self.into_patient(session, memory, 0, done);
        }
        let transfer = self.transfer(memory);
        (transfer, Box::new(move |result| self.completed(result, done)))
    }

    /// What is submitted again where there is no room, `attempt` times already.
    fn into_patient(
        self,
        session: &Arc<Session>,
        memory: *mut u8,
        attempt: usize,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Submission {
        let transfer = self.transfer(memory);
        let segment = Segment { memory, bytes: self.bytes as usize };
        let session = session.clone();
        let completion: Completion = Box::new(move |result| {
            let segment = segment;
            let Some(&pause) = full::PAUSES.get(attempt).filter(|_| has_no_room(&result)) else {
                return self.completed(result, done);
            };
            session.clone().data_workers.run(move || {
                let segment = segment;
                std::thread::sleep(pause);
                let again = self.into_patient(&session, segment.memory, attempt + 1, done);
                // SAFETY: who has submitted it promises the memory until `done` is called.
                unsafe { session.engine.submit_all([again]) };
            });
        });
        (transfer, completion)
    }

    fn transfer(&self, memory: *mut u8) -> Transfer {
        let Data { op, offset, bytes, origin, .. } = *self;
        Transfer { file: self.file.data().clone(), op, offset, memory, bytes, origin, extends: false }
    }

    fn completed(self, result: io::Result<usize>, done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>)) {
        let Data { file, append, sync, .. } = self;
        drop(append);
        let unsynced = sync.map(|durability| Unsynced { file: file.clone(), durability });
        // The handle stays open until here, so that its release cannot overtake the transfer.
        drop(file);
        done(unsynced, result.map_err(|error| errno_of(&error)));
    }
}

fn has_no_room(result: &io::Result<usize>) -> bool {
    let error = result.as_ref().err().and_then(io::Error::raw_os_error);
    error.is_some_and(|errno| [libc::ENOSPC, libc::EDQUOT].contains(&errno))
}

/// What a read asks for.
pub(crate) fn asked_read(mut input: Input<'_>, agreed: Agreed) -> Result<ReadIn, Errno> {
    let arg: ReadIn = input.record().ok_or(Errno::INVAL)?;
    if arg.size > agreed.request_bytes_max { Err(Errno::INVAL) } else { Ok(arg) }
}

/// What a write asks for, and its data.
pub(crate) fn asked_write(mut input: Input<'_>, agreed: Agreed) -> Result<(WriteIn, &[u8]), Errno> {
    let arg: WriteIn = input.record().ok_or(Errno::INVAL)?;
    let bytes = input.rest().get(..arg.size as usize).ok_or(Errno::INVAL)?;
    if arg.size > agreed.request_bytes_max { Err(Errno::INVAL) } else { Ok((arg, bytes)) }
}

impl Session {
    /// The class of an open file by its path, where a policy divides by that.
    fn class(&self, file: &dyn Opened, handle: u64) -> AppId {
        self.engine.class_by_path(file.class(), || self.fs.path_of(handle))
    }

    /// Finds the class of a file that has just been opened, as the reply to that says at its end: it keeps that whatever becomes of its
    /// name.
    pub(crate) fn remember_class(&self, reply: &[u8]) {
        if self.engine.class_by() == ClassBy::Path
            && let Ok((_, OpenOut { fh, .. })) = OpenOut::read_from_suffix(reply)
            && let Ok(file) = self.fs.file(fh)
        {
            self.class(&*file, fh);
        }
    }

    /// Who sends a read or write of an open file.
    fn origin(&self, header: &InHeader, file: &dyn Opened, handle: u64) -> Origin {
        let by = self.engine.class_by();
        let (mut origin, account) = self.applications.origin(by, header.pid, header.uid);
        match (by, account) {
            (ClassBy::User, _) if header.pid != 0 => {
                origin.app = application(&self.engine, header.uid, header.gid);
            }
            (ClassBy::Path, _) => origin.app = self.class(file, handle),
            (ClassBy::Job, Some(account)) => origin.app = self.engine.placed(origin.app, account),
            _ => {}
        }
        origin
    }

    /// Prepares a read.
    pub(crate) fn read(&self, header: &InHeader, input: Input<'_>) -> Result<Data, Errno> {
        let arg = asked_read(input, self.agreed)?;
        let file = self.fs.file(arg.fh)?;
        let origin = self.origin(header, &*file, arg.fh);
        Ok(Data {
            file,
            node: header.nodeid,
            op: Op::Read,
            offset: arg.offset,
            bytes: arg.size,
            cached: arg.read_flags & READ_LOCKOWNER == 0,
            origin,
            append: None,
            sync: None,
            unprepared: None,
        })
    }

    /// Prepares a write; also returns its data.
    pub(crate) fn write<'a>(&self, header: &InHeader, input: Input<'a>) -> Result<(Data, &'a [u8]), Errno> {
        let (arg, bytes) = asked_write(input, self.agreed)?;
        let file = self.fs.file(arg.fh)?;
        let flags = arg.flags as i32;
        let cached = arg.write_flags & WRITE_CACHE != 0;
        let preparation = Preparation {
            clear_suid_sgid: arg.write_flags & WRITE_KILL_SUIDGID != 0 && file.may_have_suid_sgid(),
            append: flags & libc::O_APPEND != 0 && !cached,
        };
        let sync = match flags & libc::O_SYNC {
            _ if cached => None,
            libc::O_SYNC => Some(Durability::Everything),
            0 => None,
            _ => Some(Durability::Data),
        };
        let waits = preparation != Preparation::default() || file.asks_before_writes();
        let unprepared = (file.is_far() && waits).then_some(preparation);
        let origin = self.origin(header, &*file, arg.fh);
        let mut data = Data {
            file,
            node: header.nodeid,
            op: Op::Write,
            offset: arg.offset,
            bytes: arg.size,
            cached,
            origin,
            append: None,
            sync,
            unprepared,
        };
        if unprepared.is_none() {
            data.prepare(preparation, &self.notifier)?;
        }
        Ok((data, bytes))
    }

    /// Submits to the gate. `done` gets what must still be made durable before the reply, and the number of bytes.
    ///
    /// # Safety
    /// As [`iogate_engine::Engine::submit`]: `memory` is valid for `data.bytes` bytes until `done` is called, and nobody else's.
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        // SAFETY: the caller's promise is the same. What the gate does not take is completed with an error.
        unsafe {
            let submission = self.submission(data, memory, done);
            self.engine.submit_all(submission);
        }
    }

    /// What is to be submitted, as [`Session::submit`] does; `None` where that is left to another thread, or to the end of a write-back.
    ///
    /// # Safety
    /// As [`Session::submit`].
    pub(crate) unsafe fn submission(
        self: &Arc<Self>,
        mut data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Option<Submission> {
        let Some(preparation) = data.unprepared.take() else {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.prepared(data, memory, done) };
        };
        let session = self.clone();
        let segment = Segment { memory, bytes: data.bytes as usize };
        self.data_workers.run(move || {
            let segment = segment;
            // SAFETY: the caller's promise is the same.
            unsafe { session.prepare_and_submit(data, preparation, segment, done) }
        });
        None
    }

    /// Submits in another thread, which may wait.
    ///
    /// # Safety
    /// As [`iogate_engine::Engine::submit_all`].
    pub(crate) unsafe fn submit_elsewhere(&self, batch: Vec<Submission>) {
        let engine = self.engine.clone();
        // SAFETY: the caller's promise is the same.
        self.data_workers.run(move || unsafe { engine.submit_all(batch) });
    }

    /// # Safety
    /// As [`Session::submit`].
    unsafe fn prepare_and_submit(
        self: &Arc<Self>,
        mut data: Data,
        mut preparation: Preparation,
        segment: Segment,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        if std::mem::take(&mut preparation.clear_suid_sgid)
            && let Err(errno) = data.clear_suid_sgid(&self.notifier)
        {
            return done(None, Err(errno));
        }
        if preparation.append {
            // SAFETY: valid until `done` is called, and only read meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) };
            if let Some(appended) = data.file.append(data.origin, bytes) {
                let tail = data.offset..u64::MAX;
                let drop_pages = !self.is_direct || data.file.coherence().may_be_cached(&tail);
                let unsynced = data.sync.map(|durability| Unsynced { file: data.file, durability });
                if !drop_pages {
                    return done(unsynced, appended);
                }
                let notifier = self.notifier.clone();
                return self.notifying.run(move || {
                    notifier.drop_pages(data.node, &tail);
                    done(unsynced, appended);
                });
            }
        }
        match data.prepare(preparation, &self.notifier) {
            // SAFETY: the caller's promise is the same.
            Ok(()) => unsafe {
                let submission = self.prepared(data, segment.memory, done);
                self.engine.submit_all(submission);
            },
            Err(errno) => done(None, Err(errno)),
        }
    }

    /// As [`Session::submission`], of what needs no preparation any more.
    ///
    /// # Safety
    /// As [`Session::submit`].
    unsafe fn prepared(
        self: &Arc<Self>,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Option<Submission> {
        match (data.op, data.cached) {
            // The kernel keeps its cache and everything that goes through it coherent itself.
            _ if !self.is_direct => Some(data.into_submission(self, memory, done)),
            (Op::Read, false) => Some(data.into_submission(self, memory, done)),
            (Op::Read, true) => {
                data.file.coherence().caching(data.range());
                Some(data.into_submission(self, memory, done))
            }
            // SAFETY: the caller's promise is the same.
            (Op::Write, true) => Some(unsafe { self.write_back(data, memory, done) }),
            (Op::Write, false) => self.write_direct(data, memory, done),
        }
    }

    /// What the kernel writes back from a mapping.
    ///
    /// # Safety
    /// As [`Session::submit`].
    unsafe fn write_back(
        self: &Arc<Self>,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Submission {
        let coherence = data.file.coherence().clone();
        let segment = Segment { memory, bytes: data.bytes as usize };
        let session = self.clone();
        // SAFETY: the caller's promise.
        unsafe { coherence.begin_write_back(data.range(), memory) };
        data.into_submission(self, memory, move |unsynced, result| {
            let segment = segment;
            let ready = coherence.end_write_back(segment.memory);
            if !ready.is_empty() {
                // SAFETY: the promise of the callers that have submitted them.
                unsafe { session.submit_elsewhere(ready) };
            }
            done(unsynced, result);
        })
    }

    /// A write of a process that is not to meet what is cached for mappings.
    fn write_direct(
        self: &Arc<Self>,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) -> Option<Submission> {
        let (node, range) = (data.node, data.range());
        let coherence = data.file.coherence().clone();
        let segment = Segment { memory, bytes: data.bytes as usize };
        let session = self.clone();
        let carried_out = {
            let (coherence, range) = (coherence.clone(), range.clone());
            move |unsynced, result| {
                let segment = segment;
                if !coherence.carried_out(segment.memory) {
                    return done(unsynced, result);
                }
                // It waits for reads and write-backs of the range, so none of the threads that serve those may do it.
                let notifier = session.notifier.clone();
                session.notifying.run(move || {
                    let segment = segment;
                    notifier.drop_pages(node, &range);
                    coherence.end_write(segment.memory);
                    done(unsynced, result);
                });
            }
        };
        let submission = data.into_submission(self, memory, carried_out);
        coherence.begin_write(range, memory, submission)
    }
}
