//! READ, WRITE and COMMIT: data passes the gate.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iogate_core::Op;
use iogate_engine::{Completion, FileHandle as StoreFile, Transfer};
use iogate_vfs::Caller;
use iogate_vfs::held::HeldTree;

use super::attr::status as status_of;
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
struct Written<H> {
    xid: u32,
    open: Arc<OpenFile<H>>,
    stable: Stable,
    verifier: u64,
    respond: Respond,
}

impl<H> Written<H> {
    fn finish<T: HeldTree<Held = H>>(self, service: &Service<T>, result: io::Result<usize>) {
        let Written { xid, open, stable, verifier, respond } = self;
        let wcc = service.order.end(open.object.identity, || service.look(&open.object));
        drop(open);
        let result = result
            .map(|bytes| WriteOk { count: bytes as u32, stable, verifier })
            .map_err(|error| status_of(&error));
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

impl<T: HeldTree> Service<T> {
    /// Opens what a read or write names.
    fn open(
        &self,
        caller: Caller,
        named: &Named<T::Held>,
        writes: bool,
    ) -> Result<Arc<OpenFile<T::Held>>, Status> {
        match named.attr.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        self.open_files.open(caller, &named.object, &named.known, writes).map_err(|error| status_of(&error))
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
        let count = count.min(TRANSFER_BYTES_MAX);
        let is_far = offset > i64::MAX as u64 - u64::from(count);
        // Of what is open already it is looked at afterwards whether it may be read: one look less.
        let opened = self.objects.held(&file).filter(|_| count > 0 && !is_far);
        let open = match opened.and_then(|object| self.open_files.opened(caller, object.identity)) {
            Some(open) => open,
            None => {
                let named = match self.named(&file) {
                    Ok(named) => named,
                    Err(status) => return refuse(status, None, respond),
                };
                let open = match self.open(caller, &named, false) {
                    Ok(open) => open,
                    Err(status) => return refuse(status, Some(named.attr), respond),
                };
                if is_far {
                    return refuse(Status::Inval, Some(named.attr), respond);
                }
                if count == 0 {
                    let is_end = offset >= named.attr.size;
                    return respond(data_answer(xid, Some(named.attr), Vec::new(), is_end));
                }
                open
            }
        };
        // With room for the padding.
        let mut data: Vec<u8> = Vec::with_capacity(count as usize + 3);
        let transfer = Transfer {
            file: StoreFile::clone(open.file.data()),
            op: Op::Read,
            offset,
            memory: data.as_mut_ptr(),
            bytes: count,
            origin: self.origin(client, caller, &open),
            extends: false,
        };
        let service = Arc::clone(self);
        let done = move |result: io::Result<usize>| {
            let known = service.export.tree.known(&open.object.held).ok();
            let attr = known.as_ref().map(|known| service.attr_of(known));
            let answer = move |status: Option<Status>| match (result, status) {
                (Ok(bytes), None) => {
                    // SAFETY: the store has filled so many bytes, and no more than were asked for.
                    unsafe { data.set_len(bytes.min(count as usize)) };
                    let end = offset + data.len() as u64;
                    // It may have grown since it was read. Where nothing was found it ended then, and that is said: kernels take an answer
                    // without data for an I/O error, unless it ends the file. Behind a part of what was asked for, they ask for the rest.
                    let has_ended = |attr: Fattr| data.is_empty() || end >= attr.size;
                    let is_end = attr.map_or(data.len() < count as usize, has_ended);
                    respond(data_answer(xid, attr, data, is_end));
                }
                (Err(error), None) => {
                    respond(answered(xid, &Reply::Read { result: Err(status_of(&error)), attr }));
                }
                (_, Some(status)) => respond(answered(xid, &Reply::Read { result: Err(status), attr })),
            };
            match known {
                Some(known) if known.attr.links > 0 && open.is_as_opened(&known) => {
                    drop(open);
                    answer(None);
                }
                None => answer(Some(Status::Io)),
                // It is asked for again, which may block: a completion must not.
                Some(_) => {
                    let spawn = Arc::clone(&service.spawn);
                    let job = move || {
                        let again = service
                            .named(&file)
                            .and_then(|named| service.open(caller, &named, false).map(drop));
                        answer(again.err());
                    };
                    spawn(client, Box::new(job));
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
        let named = match self.begin_change(&file) {
            Ok(named) => named,
            Err(status) => return refuse(status, None, respond),
        };
        let identity = named.object.identity;
        let give_up = |status, respond: Respond| {
            let after = self.order.end(identity, || self.look(&named.object)).after;
            refuse(status, after, respond);
        };
        if self.export.read_only {
            return give_up(Status::RoFs, respond);
        }
        let open = match self.open(caller, &named, true) {
            Ok(open) => open,
            Err(status) => return give_up(status, respond),
        };
        if offset > i64::MAX as u64 - bytes as u64 {
            return give_up(Status::FBig, respond);
        }
        // From before the write: if what was written before is lost meanwhile, the client is told rather too much.
        let verifier = open.file.verifier();
        if bytes == 0 {
            let wcc = self.order.end(identity, || self.look(&named.object));
            let result = Ok(WriteOk { count: 0, stable: Stable::FileSync, verifier });
            return respond(answered(xid, &Reply::Write { result, wcc }));
        }
        open.soil();
        open.file.before_write(offset);
        let transfer = Transfer {
            file: StoreFile::clone(open.file.data()),
            op: Op::Write,
            offset,
            memory: record[at..].as_mut_ptr(),
            bytes: bytes as u32,
            origin: self.origin(client, caller, &open),
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
                    let job = move || {
                        let synced = service.open_files.sync(&end.open, stable == Stable::DataSync);
                        // The kernel tells of a loss once, and may have told somebody else, who syncs the same file.
                        let kept = match synced {
                            Ok(now) if now != end.verifier => Err(io::Error::from_raw_os_error(libc::EIO)),
                            synced => synced.map(|_| bytes),
                        };
                        end.finish(&service, kept);
                    };
                    spawn(client, Box::new(job));
                }
                result => end.finish(&service, result),
            }
        };
        batch.push((transfer, Box::new(done)));
    }

    /// Begins a change of a file in its order, and looks at it, once for both. Of an error nothing is begun.
    fn begin_change(&self, handle: &FileHandle) -> Result<Named<T::Held>, Status> {
        let object = match self.objects.held(handle) {
            Some(object) => object,
            None => self.objects.find(handle)?.0,
        };
        let mut seen = None;
        self.order.begin(object.identity, || {
            seen = self.export.tree.known(&object.held).ok();
            seen.as_ref().map(|known| self.attr_of(known))
        });
        // Others are changing it: what it was before their changes is not what it is.
        let found = seen.map_or_else(|| self.export.tree.known(&object.held), Ok);
        match found {
            Ok(known) if known.attr.links > 0 => {
                let attr = self.attr_of(&known);
                Ok(Named { object, known, attr })
            }
            _ => {
                self.order.end(object.identity, || self.look(&object));
                self.objects.find(handle).and(Err(Status::Stale))
            }
        }
    }

    pub(super) fn commit(&self, caller: Caller, file: &FileHandle) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::Commit { result: Err(status), wcc: Wcc::default() },
        };
        // By what it was written with, which is known best. Who may not open it at all has nothing to commit.
        let open = self.open(caller, &named, true).or_else(|_| self.open(caller, &named, false));
        let identity = named.object.identity;
        self.order.begin(identity, || self.look(&named.object));
        let result =
            open.and_then(|open| self.open_files.sync(&open, false).map_err(|error| status_of(&error)));
        let wcc = self.order.end(identity, || self.look(&named.object));
        Reply::Commit { result: result.map(|verifier| CommitOk { verifier }), wcc }
    }
}
