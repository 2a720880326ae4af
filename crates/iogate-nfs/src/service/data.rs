//! READ, WRITE and COMMIT: data passes the gate.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iogate_core::Op;
use iogate_engine::{Completion, FileHandle as StoreFile, Transfer};
use iogate_vfs::Caller;

use super::attr::status;
use super::open_files::OpenFile;
use super::{Answer, Named, Respond, Service, answered, finish_with};
use crate::rpc::{Accepted, Call, put_accepted};
use crate::wire::{
    CommitOk, Fattr, FileHandle, Kind, Reply, Stable, Status, TRANSFER_BYTES_MAX, Wcc, WriteOk, put_read_head,
};
use crate::xdr::padding;

/// A write whose data lies in its record.
pub(super) struct Write {
    pub(super) file: FileHandle,
    pub(super) offset: u64,
    pub(super) stable: Stable,
    /// Where in the record the data begins.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// A write that has been carried out.
struct Written {
    xid: u32,
    open: Arc<OpenFile>,
    stable: Stable,
    verifier: u64,
    respond: Respond,
}

impl Written {
    fn finish(self, service: &Service, result: io::Result<usize>) {
        let Written { xid, open, stable, verifier, respond } = self;
        let wcc = service.order.end(open.object.identity, || service.look(&*open.object));
        drop(open);
        let result = result
            .map(|bytes| WriteOk { count: bytes as u32, stable, verifier })
            .map_err(|error| status(&error));
        respond(answered(xid, &Reply::Write { result, wcc }));
    }
}

fn data_answer(xid: u32, attr: Option<Fattr>, mut data: Vec<u8>, is_end: bool) -> Answer {
    let mut head = Vec::with_capacity(160);
    head.extend_from_slice(&[0; 4]);
    put_accepted(&mut head, xid, Accepted::Success);
    put_read_head(&mut head, attr.as_ref(), data.len(), is_end);
    data.extend_from_slice(&[0; 3][..padding(data.len())]);
    finish_with(head, data)
}

impl Service {
    /// Opens what a read or write names.
    fn open(&self, caller: Caller, named: &Named, writes: bool) -> Result<Arc<OpenFile>, Status> {
        match named.attr.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        self.open_files.open(caller, &named.object, &named.known, writes).map_err(|error| status(&error))
    }

    pub(super) fn read(
        self: &Arc<Self>,
        client: IpAddr,
        call: &Call,
        (file, offset, count): (FileHandle, u64, u32),
        batch: &mut Vec<(Transfer, Completion)>,
        respond: Respond,
    ) {
        let (caller, xid) = (self.caller(call), call.xid);
        let refuse = |status, attr, respond: Respond| {
            respond(answered(xid, &Reply::Read { result: Err(status), attr }));
        };
        let named = match self.named(&file) {
            Ok(named) => named,
            Err(status) => return refuse(status, None, respond),
        };
        let open = match self.open(caller, &named, false) {
            Ok(open) => open,
            Err(status) => return refuse(status, Some(named.attr), respond),
        };
        let count = count.min(TRANSFER_BYTES_MAX);
        if offset > i64::MAX as u64 - u64::from(count) {
            return refuse(Status::Inval, Some(named.attr), respond);
        }
        if count == 0 {
            let is_end = offset >= named.attr.size;
            return respond(data_answer(xid, Some(named.attr), Vec::new(), is_end));
        }
        // With room for the padding.
        let mut data: Vec<u8> = Vec::with_capacity(count as usize + 3);
        let transfer = Transfer {
            file: StoreFile::clone(open.file.data()),
            op: Op::Read,
            offset,
            memory: data.as_mut_ptr(),
            bytes: count,
            origin: self.origin(client, caller),
            extends: false,
        };
        let service = Arc::clone(self);
        let done = move |result: io::Result<usize>| {
            let attr = service.look(&*open.object);
            drop(open);
            match result {
                Ok(bytes) => {
                    // SAFETY: the store has filled so many bytes, and no more than were asked for.
                    unsafe { data.set_len(bytes.min(count as usize)) };
                    let end = offset + data.len() as u64;
                    let is_end = attr.map_or(bytes < count as usize, |attr| end >= attr.size);
                    respond(data_answer(xid, attr, data, is_end));
                }
                Err(error) => {
                    respond(answered(xid, &Reply::Read { result: Err(status(&error)), attr }));
                }
            }
        };
        batch.push((transfer, Box::new(done)));
    }

    pub(super) fn write(
        self: &Arc<Self>,
        client: IpAddr,
        call: &Call,
        write: &Write,
        mut record: Vec<u8>,
        batch: &mut Vec<(Transfer, Completion)>,
        respond: Respond,
    ) {
        let &Write { file, offset, stable, at, bytes } = write;
        let (caller, xid) = (self.caller(call), call.xid);
        let refuse = |status, after, respond: Respond| {
            let wcc = Wcc { before: None, after };
            respond(answered(xid, &Reply::Write { result: Err(status), wcc }));
        };
        let named = match self.named(&file) {
            Ok(named) => named,
            Err(status) => return refuse(status, None, respond),
        };
        if self.export.read_only {
            return refuse(Status::RoFs, Some(named.attr), respond);
        }
        let open = match self.open(caller, &named, true) {
            Ok(open) => open,
            Err(status) => return refuse(status, Some(named.attr), respond),
        };
        if offset > i64::MAX as u64 - bytes as u64 {
            return refuse(Status::FBig, Some(named.attr), respond);
        }
        // From before the write: if what was written before is lost meanwhile, the client is told rather too much.
        let verifier = open.file.verifier();
        if bytes == 0 {
            let wcc = Wcc { before: None, after: Some(named.attr) };
            let result = Ok(WriteOk { count: 0, stable: Stable::FileSync, verifier });
            return respond(answered(xid, &Reply::Write { result, wcc }));
        }
        let identity = named.object.identity;
        self.order.begin(identity, || self.look(&*named.object));
        open.soil();
        open.file.before_write(offset);
        let transfer = Transfer {
            file: StoreFile::clone(open.file.data()),
            op: Op::Write,
            offset,
            memory: record[at..].as_mut_ptr(),
            bytes: bytes as u32,
            origin: self.origin(client, caller),
            extends: false,
        };
        let service = Arc::clone(self);
        let done = move |result: io::Result<usize>| {
            drop(record);
            let end = Written { xid, open, stable, verifier, respond };
            match result {
                Ok(bytes) if stable != Stable::Unstable => {
                    // A completion must not block.
                    let spawn = Arc::clone(&service.spawn);
                    spawn(Box::new(move || {
                        let synced = end.open.sync(stable == Stable::DataSync);
                        end.finish(&service, synced.map(|_| bytes));
                    }));
                }
                result => end.finish(&service, result),
            }
        };
        batch.push((transfer, Box::new(done)));
    }

    pub(super) fn commit(&self, caller: Caller, file: &FileHandle) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::Commit { result: Err(status), wcc: Wcc::default() },
        };
        // By what it was written with, which is known best. Who may not open it at all has nothing to commit.
        let open = self.open(caller, &named, true).or_else(|_| self.open(caller, &named, false));
        let identity = named.object.identity;
        self.order.begin(identity, || self.look(&*named.object));
        let result = open.and_then(|open| open.sync(false).map_err(|error| status(&error)));
        let wcc = self.order.end(identity, || self.look(&*named.object));
        Reply::Commit { result: result.map(|verifier| CommitOk { verifier }), wcc }
    }
}
