//! Reads and writes: from requests to the gate, and from completions to replies.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use iogate_core::refusal::Refusal;
use iogate_core::stats::Histogram;
use iogate_core::wire::{self, RequestHeader, Written, open, transfer};
use iogate_core::{AppId, ClientId, Op, Time};
use iogate_engine::{ClassBy, Completion, FileHandle, Origin, Transfer};
use iogate_vfs::Caller;
use iogate_vfs::fence::Underway;
use iogate_vfs::policy_file::application;

use super::buffer::Buffer;
use super::connection::Connection;
use super::incoming::{Step, TakenIn};
use super::lock;
use super::session::{Answer, OpenFile, Session, Taken};

impl Connection {
    fn count_transfer(&self, bytes: u32) {
        let mut figures = lock(&self.figures);
        figures.sizes.get_or_insert_with(Histogram::default).record(bytes.into());
    }
}

impl Session {
    /// Takes in a read.
    pub(super) fn read(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &RequestHeader,
        read: &wire::Transfer,
        batch: &mut Vec<(Transfer, Completion)>,
    ) -> Result<Step, Refusal> {
        let most = self.server.limits.transfer_bytes_max;
        if read.bytes > most {
            let text = format!("a read of {} bytes, expected at most {most}", read.bytes);
            self.refuse_alone(connection, header, text)?;
            return Ok(Step::Taken);
        }
        let Some(mut buffer) = self.server.pool.take(&self.account.memory, read.bytes as usize) else {
            return Ok(Step::Starved);
        };
        let Taken::New(answer) = self.admit(connection, header, read.bytes)? else { return Ok(Step::Taken) };
        connection.count_transfer(read.bytes);
        let file = match self.file_for(read.handle, open::READ) {
            Ok(file) => file,
            Err(refusal) => {
                answer.refuse(&refusal);
                return Ok(Step::Taken);
            }
        };
        if read.bytes == 0 {
            answer.bytes(Vec::new(), None);
            return Ok(Step::Taken);
        }
        let transfer = Transfer {
            file: FileHandle::clone(file.file.data()),
            op: Op::Read,
            offset: read.offset,
            memory: buffer.as_mut_ptr(),
            bytes: read.bytes,
            origin: self.origin(read, self.writer(header), &file),
            extends: false,
        };
        let confirmed = file.file.doubts_locks().then(|| Arc::clone(&file));
        let done = move |result: io::Result<usize>| {
            // The handle stays open until here.
            drop(file);
            match result {
                Ok(bytes) => answer.data(buffer, bytes),
                Err(error) => answer.failed(&error),
            }
        };
        let (done, session): (Completion, _) = (Box::new(done), Arc::clone(self));
        match confirmed {
            None => batch.push((transfer, done)),
            Some(file) => self.run(move || match file.file.confirm_locks() {
                Ok(()) => session.submit((transfer, done)),
                Err(error) => done(Err(error)),
            }),
        }
        Ok(Step::Taken)
    }

    /// Takes in a write.
    pub(super) fn write(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &RequestHeader,
        write: &wire::Transfer,
        payload: Option<Buffer>,
        taken: &mut TakenIn,
    ) -> Result<(), Refusal> {
        if write.bytes != header.payload {
            let text = format!("a write of {} bytes has {} bytes of payload", write.bytes, header.payload);
            return Err(Refusal::new(libc::EPROTO, text));
        }
        let most = self.server.limits.transfer_bytes_max;
        if write.bytes > most && write.flags & transfer::APPEND == 0 {
            let text = format!("a write of {} bytes, expected at most {most}", write.bytes);
            return self.refuse_alone(connection, header, text);
        }
        let Taken::New(answer) = self.admit(connection, header, write.bytes)? else { return Ok(()) };
        connection.count_transfer(write.bytes);
        let file = match self.file_for(write.handle, open::WRITE) {
            Ok(file) => file,
            Err(refusal) => {
                answer.refuse(&refusal);
                return Ok(());
            }
        };
        let Some(payload) = payload else {
            answer.written(Written { offset: write.offset, bytes: 0, verifier: file.file.verifier() });
            return Ok(());
        };
        let caller = self.writer(header);
        let underway = match write.flags & transfer::RANGE {
            0 => None,
            _ => match file.pass.enter(&*file.file) {
                Ok(underway) => Some(underway),
                Err(error) => {
                    answer.failed(&error);
                    return Ok(());
                }
            },
        };
        let write = Write { answer, file, payload, wire: *write, caller, underway };
        if write.file.file.doubts_locks() {
            let (session, since) = (Arc::clone(self), Instant::now());
            self.run(move || session.write_confirmed(write, since));
        } else if write.wire.flags & transfer::APPEND != 0 {
            self.append(write, taken);
        } else {
            let offset = write.wire.offset;
            taken.batch.push(write.prepare(offset));
        }
        Ok(())
    }

    /// A write of a file of which nobody knows whether its locks are still its users': once that is known. It came at `since`.
    fn write_confirmed(&self, write: Write, since: Instant) {
        if let Err(error) = write.file.file.confirm_locks() {
            return write.complete(Err(error));
        }
        let Some(write) = write.if_wanted(since) else { return };
        if write.wire.flags & transfer::APPEND != 0 {
            self.append_soon(write);
        } else {
            let offset = write.wire.offset;
            self.submit(write.prepare(offset));
        }
    }

    /// Has the gate take one transfer.
    fn submit(&self, transfer: (Transfer, Completion)) {
        // SAFETY: the memory of the transfer is a buffer that lives in its completion.
        unsafe { self.export.engine.submit_all([transfer]) }
    }

    /// Answers a request that is too large: its client may go by what another server said. None of its data counts.
    fn refuse_alone(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &RequestHeader,
        text: String,
    ) -> Result<(), Refusal> {
        if let Taken::New(answer) = self.admit(connection, header, 0)? {
            answer.refuse(&Refusal::new(libc::EINVAL, text));
        }
        Ok(())
    }
}

/// A write with everything that it needs.
pub(super) struct Write {
    answer: Answer,
    pub(super) file: Arc<OpenFile>,
    payload: Buffer,
    pub(super) wire: wire::Transfer,
    /// For which request.
    pub(super) caller: Caller,
    /// It is to ranges that records were given.
    underway: Option<Underway>,
}

impl Write {
    /// What to submit, to write at `offset`.
    fn prepare(mut self, offset: u64) -> (Transfer, Completion) {
        self.file.file.before_write(offset);
        let transfer = Transfer {
            file: FileHandle::clone(self.file.file.data()),
            op: Op::Write,
            offset,
            memory: self.payload.as_mut_ptr(),
            bytes: self.wire.bytes,
            origin: self.origin(),
            extends: self.wire.flags & transfer::EXTEND != 0,
        };
        // From before the write: if what is behind the store loses its memory meanwhile, the client is told rather too much.
        let verifier = self.file.file.verifier();
        let done = move |result: io::Result<usize>| {
            self.complete(result.map(|bytes| Written { offset, bytes: bytes as u32, verifier }));
        };
        (transfer, Box::new(done))
    }

    /// Who sends it.
    pub(super) fn origin(&self) -> Origin {
        self.session().origin(&self.wire, self.caller, &self.file)
    }

    /// The data.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.payload.as_slice()[..self.wire.bytes as usize]
    }

    /// Its first byte.
    pub(super) fn memory(&mut self) -> *mut u8 {
        self.payload.as_mut_ptr()
    }

    /// Who waits for it.
    pub(super) fn session(&self) -> &Arc<Session> {
        self.answer.session()
    }

    /// The write, if its client still waits: it came at `since`.
    pub(super) fn if_wanted(self, since: Instant) -> Option<Write> {
        let answer = self.answer.if_wanted(since, None)?;
        Some(Write { answer, ..self })
    }

    /// Makes it durable if that is asked for, and answers.
    pub(super) fn complete(self, result: io::Result<Written>) {
        let Write { answer, file, payload, wire, underway, .. } = self;
        drop((payload, underway));
        let sync = wire.flags & (transfer::SYNC | transfer::DATA_SYNC);
        match result {
            Ok(written) if sync == 0 => {
                drop(file);
                answer.written(written);
            }
            // A completion must not block.
            Ok(written) => {
                let session = Arc::clone(answer.session());
                let served = Arc::clone(&session.export);
                session.run(move || match served.sync(&*file.file, sync & transfer::SYNC == 0) {
                    Ok(_) => answer.written(written),
                    Err(error) => answer.failed(&error),
                });
            }
            Err(error) => answer.failed(&error),
        }
    }
}

impl Session {
    /// Who sends a read or write of a file. A job is what the client says its application is.
    fn origin(&self, wire: &wire::Transfer, caller: Caller, file: &OpenFile) -> Origin {
        let app = match self.export.engine.class_by() {
            ClassBy::User => application(&self.export.engine, caller.uid, caller.gid),
            ClassBy::Path => file.class(&self.export.engine),
            ClassBy::App | ClassBy::Job | ClassBy::Account => AppId(wire.app),
        };
        Origin {
            app,
            client: ClientId(wire.client),
            issued: (wire.issued > 0).then(|| Time::from_nanos(wire.issued)),
            burst: transfer::said(wire.flags),
        }
    }
}
