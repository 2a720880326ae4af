//! Reads and writes: what a transport needs to submit them.

use std::io;
use std::sync::Arc;

use iogate_core::Op;
use iogate_engine::store::Segment;
use iogate_engine::{Origin, Transfer};
use rustix::io::Errno;

use crate::abi::{InHeader, Input, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn};
use crate::append::AppendGuard;
use crate::file_system::{Opened, errno_of};
use crate::session::Session;

/// A read or a write that is ready to be submitted.
pub(crate) struct Data {
    file: Arc<dyn Opened>,
    op: Op,
    offset: u64,
    pub(crate) bytes: u32,
    origin: Origin,
    append: Option<AppendGuard>,
    /// A write that must be durable before it is answered (`O_SYNC`, `O_DSYNC`).
    sync: Option<Durability>,
    /// What would keep the calling thread too long and is left to another.
    left: Option<Preparation>,
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
    fn prepare(&mut self, preparation: Preparation) -> Result<(), Errno> {
        if preparation.clear_suid_sgid {
            self.file.clear_suid_sgid()?;
        }
        if preparation.append {
            let append = self.file.begin_append(self.bytes)?;
            self.offset = append.offset;
            self.append = Some(append);
        }
        self.file.before_write(self.offset);
        Ok(())
    }
}

impl Session {
    /// Prepares a read.
    pub(crate) fn read(&self, header: &InHeader, mut input: Input<'_>) -> Result<Data, Errno> {
        let arg: ReadIn = input.record().ok_or(Errno::INVAL)?;
        if arg.size > self.request_bytes_max {
            return Err(Errno::INVAL);
        }
        let file = self.fs.file(arg.fh)?;
        let origin = self.applications.origin(header.pid);
        let (offset, bytes) = (arg.offset, arg.size);
        Ok(Data { file, op: Op::Read, offset, bytes, origin, append: None, sync: None, left: None })
    }

    /// Prepares a write; also returns its data.
    pub(crate) fn write<'a>(
        &self,
        header: &InHeader,
        mut input: Input<'a>,
    ) -> Result<(Data, &'a [u8]), Errno> {
        let arg: WriteIn = input.record().ok_or(Errno::INVAL)?;
        let bytes = input.rest().get(..arg.size as usize).ok_or(Errno::INVAL)?;
        if arg.size > self.request_bytes_max {
            return Err(Errno::INVAL);
        }
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
        let left = (file.is_remote() && preparation != Preparation::default()).then_some(preparation);
        let origin = self.applications.origin(header.pid);
        let (offset, append) = (arg.offset, None);
        let mut data = Data { file, op: Op::Write, offset, bytes: arg.size, origin, append, sync, left };
        if left.is_none() {
            data.prepare(preparation)?;
        }
        Ok((data, bytes))
    }

    /// Submits to the gate. `done` gets what must still be made durable before the reply, and the number of bytes. It
    /// is dropped without being called if the gate is closed.
    ///
    /// # Safety
    /// As [`iogate_engine::Engine::submit`]: `memory` is valid for `data.bytes` bytes until `done` is called or
    /// dropped.
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        mut data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        let Some(preparation) = data.left.take() else {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.submit_prepared(data, memory, done) };
        };
        let session = self.clone();
        let segment = Segment { memory, bytes: data.bytes as usize };
        self.data_workers.run(move || {
            let segment = segment;
            // SAFETY: the caller's promise is the same.
            unsafe { session.prepare_and_submit(data, preparation, segment, done) }
        });
    }

    /// # Safety
    /// As [`Session::submit`].
    unsafe fn prepare_and_submit(
        &self,
        mut data: Data,
        mut preparation: Preparation,
        segment: Segment,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        if std::mem::take(&mut preparation.clear_suid_sgid)
            && let Err(errno) = data.file.clear_suid_sgid()
        {
            return done(None, Err(errno));
        }
        if preparation.append {
            // SAFETY: valid until `done` is called, and only read meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) };
            if let Some(appended) = data.file.append(data.origin, bytes) {
                let unsynced = data.sync.map(|durability| Unsynced { file: data.file, durability });
                return done(unsynced, appended);
            }
        }
        match data.prepare(preparation) {
            // SAFETY: the caller's promise is the same.
            Ok(()) => unsafe { self.submit_prepared(data, segment.memory, done) },
            Err(errno) => done(None, Err(errno)),
        }
    }

    /// # Safety
    /// As [`Session::submit`].
    unsafe fn submit_prepared(
        &self,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        let Data { file, op, offset, bytes, origin, append, sync, left: _ } = data;
        let transfer = Transfer { file: file.data().clone(), op, offset, memory, bytes, origin };
        let completion = Box::new(move |result: io::Result<usize>| {
            drop(append);
            let unsynced = sync.map(|durability| Unsynced { file: file.clone(), durability });
            // The handle stays open until here, so that its release cannot overtake the transfer.
            drop(file);
            done(unsynced, result.map_err(|error| errno_of(&error)));
        });
        // SAFETY: the caller's promise is the same.
        if let Err(error) = unsafe { self.engine.submit(transfer, completion) } {
            tracing::error!(%error, "the gate did not take a request");
        }
    }
}
