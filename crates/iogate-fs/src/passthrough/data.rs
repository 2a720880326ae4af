//! Reads and writes: what a transport needs to submit them.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use iogate_core::Op;
use iogate_engine::{Origin, Transfer};
use rustix::io::Errno;

use super::FileSystem;
use super::attr::clear_suid_sgid;
use super::handle::OpenFile;
use super::inode::AppendGuard;
use crate::abi::{InHeader, Input, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn};

/// A read or a write that is ready to be submitted.
#[derive(Debug)]
pub(crate) struct Data {
    file: Arc<OpenFile>,
    op: Op,
    offset: u64,
    pub(crate) bytes: u32,
    origin: Origin,
    append: Option<AppendGuard>,
    /// A write that must be durable before it is answered (`O_SYNC`, `O_DSYNC`).
    pub(crate) sync: Option<Durability>,
}

/// What to make durable after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The data and what is needed to read it.
    Data,
    /// All attributes too.
    Everything,
}

/// A write that was carried out and now has to be made durable.
#[derive(Debug)]
pub(crate) struct Unsynced {
    file: Arc<OpenFile>,
    durability: Durability,
}

impl FileSystem {
    /// Prepares a read.
    pub(crate) fn read(&self, header: &InHeader, mut input: Input<'_>) -> Result<Data, Errno> {
        let arg: ReadIn = input.record().ok_or(Errno::INVAL)?;
        if arg.size > self.request_bytes_max {
            return Err(Errno::INVAL);
        }
        let file = self.files.get(arg.fh)?;
        let origin = self.applications.origin(header.pid);
        Ok(Data { file, op: Op::Read, offset: arg.offset, bytes: arg.size, origin, append: None, sync: None })
    }

    /// Prepares a write; also returns its data.
    pub(crate) fn write<'a>(
        &self,
        header: &InHeader,
        mut input: Input<'a>,
    ) -> Result<(Data, &'a [u8]), Errno> {
        let arg: WriteIn = input.record().ok_or(Errno::INVAL)?;
        let data = input.rest().get(..arg.size as usize).ok_or(Errno::INVAL)?;
        if arg.size > self.request_bytes_max {
            return Err(Errno::INVAL);
        }
        let file = self.files.get(arg.fh)?;
        if arg.write_flags & WRITE_KILL_SUIDGID != 0 {
            clear_suid_sgid(file.fd.as_fd())?;
        }
        let flags = arg.flags as i32;
        let cached = arg.write_flags & WRITE_CACHE != 0;
        let append = if flags & libc::O_APPEND != 0 && !cached {
            Some(file.inode.begin_append(file.fd.as_fd(), arg.size)?)
        } else {
            None
        };
        let offset = append.as_ref().map_or(arg.offset, |append| append.offset);
        if let Some(layout) = &file.layout {
            layout.before_write(file.fd.as_fd(), offset);
        }
        let sync = match flags & libc::O_SYNC {
            _ if cached => None,
            libc::O_SYNC => Some(Durability::Everything),
            0 => None,
            _ => Some(Durability::Data),
        };
        let origin = self.applications.origin(header.pid);
        Ok((Data { file, op: Op::Write, offset, bytes: arg.size, origin, append, sync }, data))
    }

    /// Submits to the gate. `done` gets what must still be made durable before the reply, and the number of bytes. It
    /// is dropped without being called if the gate is closed.
    ///
    /// # Safety
    /// As [`iogate_engine::Engine::submit`]: `memory` is valid for `data.bytes` bytes until `done` is called or
    /// dropped.
    pub(crate) unsafe fn submit(
        &self,
        data: Data,
        memory: *mut u8,
        done: impl FnOnce(Option<Unsynced>, Result<usize, Errno>) + Send + 'static,
    ) {
        let Data { file, op, offset, bytes, origin, append, sync } = data;
        let transfer = Transfer { file: file.data.clone(), op, offset, memory, bytes, origin };
        let completion = Box::new(move |result: io::Result<usize>| {
            drop(append);
            let unsynced = sync.map(|durability| Unsynced { file: file.clone(), durability });
            // The handle stays open until here, so that its release cannot overtake the transfer.
            drop(file);
            done(unsynced, result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)));
        });
        // SAFETY: the caller's promise is the same.
        if let Err(error) = unsafe { self.engine.submit(transfer, completion) } {
            tracing::error!(%error, "the gate did not take a request");
        }
    }

    /// Makes a write durable.
    pub(crate) fn make_durable(&self, unsynced: &Unsynced) -> Result<(), Errno> {
        self.sync(&unsynced.file, unsynced.durability == Durability::Data)
    }
}
