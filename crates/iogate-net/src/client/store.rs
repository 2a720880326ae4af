//! What carries out an engine's dispatches on servers.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use iogate_core::{FileId, Op};
use iogate_engine::store::{FileHandle, Io, IoDone, OpenMode, Store, StoreFile};
use iogate_engine::{Origin, store::Segment};

use super::Receiving;
use super::call::{Call, Done, Memory};
use super::file::Opened;
use super::remote::Servers;
use super::split::{self, Join, Part};
use iogate_core::wire::{NO_HANDLE, Request, Transfer, Written, open, transfer};
use iogate_vfs::{Caller, OpenHow};

/// Sends an engine's dispatches to the servers of a [`Remote`](super::Remote), with the origin that they have.
pub struct RemoteStore {
    pub(super) servers: Arc<Servers>,
}

/// An open file of a [`RemoteStore`].
#[derive(Debug)]
pub(super) struct RemoteData {
    pub(super) opened: Arc<Opened>,
    /// What is written is written to ranges that records were given.
    pub(super) is_range: bool,
}

impl StoreFile for RemoteData {
    fn id(&self) -> FileId {
        self.opened.id()
    }
}

fn data_of(handle: &FileHandle) -> io::Result<&RemoteData> {
    let any: &dyn Any = &**handle;
    any.downcast_ref().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{handle:?} is not a file of a server"))
    })
}

pub(super) fn opened_of(handle: &FileHandle) -> io::Result<&Arc<Opened>> {
    data_of(handle).map(|data| &data.opened)
}

/// What is asked of a server for a dispatch, and the flags.
fn how(io: &Io) -> (Op, u32) {
    let is_range = data_of(&io.file).is_ok_and(|data| data.is_range);
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    (io.op, flag(io.extends, transfer::EXTEND) | flag(is_range, transfer::RANGE))
}

/// What is sent for a part of a transfer.
pub(super) fn request(op: Op, flags: u32, handle: u32, part: (u64, u32), origin: Origin) -> Request<'static> {
    let transfer = Transfer {
        handle,
        flags: flags | transfer::saying(origin.burst),
        offset: part.0,
        bytes: part.1,
        app: origin.app.0,
        client: origin.client.0,
        issued: origin.issued.map_or_else(crate::system::unix_now, |time| time.as_nanos()),
    };
    match op {
        Op::Read => Request::Read(transfer),
        Op::Write => Request::Write(transfer),
    }
}

impl Opened {
    /// Transfers `memory` in the calling thread's name, as long as the parts are whole; several, one after another, if it
    /// is long or on several servers.
    ///
    /// # Safety
    /// The memory must be valid (to be written to, for `Op::Read`) until this returns.
    pub(super) unsafe fn transfer(
        &self,
        (op, flags): (Op, u32),
        origin: Origin,
        offset: u64,
        memory: Segment,
    ) -> io::Result<u64> {
        let mut total = 0;
        if offset.checked_add(memory.bytes as u64).is_none() {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        while total < memory.bytes as u64 {
            let (server, end) = self.route().server_of(offset + total, origin.client);
            let left = memory.bytes as u64 - total;
            let client = &self.servers.clients[server];
            let bytes = left.min(end - offset - total).min(u64::from(client.transfer_bytes_max())) as u32;
            let piece = Segment { memory: memory.memory.wrapping_add(total as usize), bytes: bytes as usize };
            let result = self.sure_handle_on(server).and_then(|handle| {
                let request = request(op, flags, handle, (offset + total, bytes), origin);
                client.wait_for(|done| {
                    let call = Call::transfer(&request, self.caller, Memory::One([piece]), done);
                    self.noting(call, server)
                })
            });
            match result {
                Ok(answer) => {
                    total += answer.bytes();
                    if answer.bytes() < u64::from(bytes) {
                        break;
                    }
                }
                Err(_) if op == Op::Write && total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Has a write's answer noted: it is not durable yet.
    fn noting(&self, call: Option<Call>, server: usize) -> Option<Call> {
        let mut call = call?;
        if call.is_write() {
            call.unsynced = Some((Arc::clone(&self.unsynced), server));
        }
        Some(call)
    }

    /// Submits a transfer to one server, on which the file is opened first if it is not open there.
    fn start(
        self: &Arc<Self>,
        server: usize,
        (op, flags): (Op, u32),
        part: (u64, u32),
        origin: Origin,
        memory: Memory,
        done: Done,
    ) {
        let opened = Arc::clone(self);
        self.with_sure_handle(server, move |handle| {
            let known = handle.as_ref().map_or(NO_HANDLE, |handle| *handle);
            let request = request(op, flags, known, part, origin);
            let call = Call::transfer(&request, opened.caller, memory, done);
            let Some(call) = opened.noting(call, server) else { return };
            match handle {
                Ok(_) => opened.servers.clients[server].start(call),
                Err(error) => call.finish(Err(error)),
            }
        });
    }

    /// Writes at the end of the file.
    pub(super) fn append(&self, caller: Caller, origin: Origin, bytes: &[u8]) -> io::Result<Written> {
        let max = self.servers.append_bytes_max() as usize;
        let bytes = &bytes[..bytes.len().min(max)];
        let server = self.route().append_server();
        let handle = self.sure_handle_on(server)?;
        let memory = Memory::One([Segment { memory: bytes.as_ptr().cast_mut(), bytes: bytes.len() }]);
        let request = request(Op::Write, transfer::APPEND, handle, (0, bytes.len() as u32), origin);
        let call = |done| self.noting(Call::transfer(&request, caller, memory, done), server);
        match self.servers.clients[server].wait_for(call)? {
            super::call::Answer::Written(written) => Ok(written),
            answer => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("expected a write's answer, found {answer:?}"),
            )),
        }
    }
}

impl Store for RemoteStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        let mut flags = open::READ;
        flags |= if mode.write { open::WRITE } else { 0 };
        flags |= if mode.create { open::CREATE } else { 0 };
        let caller = super::remote::own_caller();
        let opened =
            Opened::open(&self.servers, caller, path, OpenHow { flags, mode: 0o666, ..OpenHow::default() })?;
        Ok(Arc::new(RemoteData { opened: Arc::new(opened), is_range: false }))
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a server's files are opened by path"))
    }

    fn start(&self, mut io: Io, done: IoDone) {
        let opened = match opened_of(&io.file) {
            Ok(opened) => Arc::clone(opened),
            Err(error) => return done(io, Err(error)),
        };
        if self.servers.receiving == Receiving::Inline {
            let result = transfer_all(&opened, &io);
            return done(io, result);
        }
        let bytes: usize = io.segments.iter().map(|segment| segment.bytes).sum();
        let (server, end) = opened.route().server_of(io.offset, io.origin.client);
        let how = how(&io);
        let (offset, origin) = (io.offset, io.origin);
        let bytes_max = opened.servers.clients[server].transfer_bytes_max();
        if bytes <= bytes_max as usize && end - offset >= bytes as u64 {
            let memory = Memory::Many(std::mem::take(&mut io.segments));
            let done = Done::Io(Box::new(io), done);
            opened.start(server, how, (offset, bytes as u32), origin, memory, done);
            return;
        }
        let parts = split::parts(&io, self.servers.transfer_bytes_max(), |offset| {
            opened.route().server_of(offset, origin.client)
        });
        if parts.is_empty() {
            return done(io, Ok(0));
        }
        let join = Arc::new(Join::new(io, done, &parts));
        for (index, Part { server, offset, bytes, segments }) in parts.into_iter().enumerate() {
            let done = Done::Part(Arc::clone(&join), index);
            opened.start(server, how, (offset, bytes), origin, Memory::Many(segments), done);
        }
    }

    fn run_waiting(&self, io: &Io) -> Option<io::Result<u64>> {
        // Several segments are one message only where nobody waits.
        if io.segments.len() != 1 {
            return None;
        }
        Some(opened_of(&io.file).and_then(|opened| transfer_all(opened, io)))
    }

    fn blocks(&self) -> bool {
        self.servers.receiving == Receiving::Inline
    }

    fn asks_afar(&self) -> bool {
        true
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        Ok(opened_of(file)?.attr()?.size)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        opened_of(file)?.sync(data_only).map(drop)
    }
}

/// Carries out a dispatch in the calling thread.
fn transfer_all(opened: &Opened, io: &Io) -> io::Result<u64> {
    let how = how(io);
    let (mut total, mut expected) = (0, 0);
    for segment in &io.segments {
        // SAFETY: the memory of a dispatch is the store's until it is done.
        let result = unsafe { opened.transfer(how, io.origin, io.offset + total, *segment) };
        match result {
            Ok(bytes) => total += bytes,
            Err(_) if io.op == Op::Write && total > 0 => break,
            Err(error) => return Err(error),
        }
        expected += segment.bytes as u64;
        if total < expected {
            break;
        }
    }
    Ok(total)
}
