//! A connection to a server as a [`Tree`], for programs and for stripes: each call goes over the modelled network, and its fiber waits.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use iogate_core::FileId;
use iogate_core::wire::{
    self, Allocate, AppendRecord, Attr, Change, Close, Entry, GetAttr, GetXattr, Gone, Identity, Link,
    MakeNode, NO_HANDLE, Open, Opened, RANGE_BYTES, Range, ReadLink, Record, Rename, Request, RequestOrigin,
    Reserve, Reserved, Resize, SetAttr, SetXattr, Settle, Space, Symlink, Sync, Synced, Transfer, Unlink,
    Written, open, set, transfer,
};
use iogate_engine::{FileHandle, Origin, Store};
use iogate_vfs::ends::Given;
use iogate_vfs::{Caller, ObjectName, OpenHow, Tree, TreeFile};

use super::Planted;
use super::operations::Reply;
use super::store::{AtOnce, Data, Held};
use super::world::{Shared, World, lock};
use crate::fiber;

/// In whose name the process itself asks.
const CALLER: Caller = Caller::new(0, 0);

/// A connection to a server.
#[derive(Clone)]
pub(super) struct RemoteTree {
    shared: Shared,
    link: usize,
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn record<T: for<'a> Record<'a>>(reply: &Reply) -> io::Result<T> {
    T::decode(&reply.fields).map_err(|_| io::Error::from_raw_os_error(libc::EPROTO))
}

impl RemoteTree {
    pub(super) fn new(shared: Shared, link: usize) -> RemoteTree {
        RemoteTree { shared, link }
    }

    /// Asks, and waits for the answer.
    fn call(&self, request: &Request<'_>, payload: &[u8], caller: Caller) -> io::Result<Reply> {
        let slot = {
            let mut world = lock(&self.shared);
            let world = &mut *world;
            world.links[self.link].begin(
                &mut world.net,
                request,
                payload.to_vec(),
                (caller.uid, caller.origin),
            )
        };
        loop {
            if let Some(outcome) = slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return outcome.map_err(io::Error::from_raw_os_error);
            }
            if fiber::current().is_none() {
                return Err(io::Error::from_raw_os_error(libc::EDEADLK));
            }
            fiber::pause();
        }
    }

    fn ask(&self, request: &Request<'_>, caller: Caller) -> io::Result<Reply> {
        self.call(request, &[], caller)
    }

    /// A file has another size; `export` is the server's verifier from before that was asked for.
    fn resized(&self, identity: Identity, export: u64) {
        let mut world = lock(&self.shared);
        if matches!(world.net.planted, Some(Planted::NoVerifier | Planted::ForgottenSize)) {
            return;
        }
        let of = world.links[self.link].written.entry(identity).or_default();
        of.losses += u64::from(of.unsynced.resized(export));
    }
}

impl Tree for RemoteTree {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(AtOnce)
    }

    fn verifier(&self) -> u64 {
        lock(&self.shared).links[self.link].verifier()
    }

    /// The fiber waits as it would for a local one: nothing needs a thread.
    fn is_local(&self) -> bool {
        true
    }

    fn asks_for_ends(&self) -> bool {
        lock(&self.shared).net.planted != Some(Planted::NoDecider)
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        let name = path_bytes(path);
        let handle = lock(&self.shared).links[self.link].new_handle(name, how.flags);
        let request = Open { handle, flags: how.flags, mode: how.mode, identity: how.identity, path: name };
        let export = self.verifier();
        let opened: Opened = record(&self.ask(&Request::Open(request), caller)?)?;
        if how.flags & open::TRUNCATE != 0 {
            self.resized(opened.identity, export);
        }
        let told = lock(&self.shared).links[self.link].written.entry(opened.identity).or_default().losses;
        let of = Arc::new(RemoteData {
            tree: self.clone(),
            handle,
            identity: opened.identity,
            has_written: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let data: FileHandle = Arc::new(Held(Arc::clone(&of) as Arc<dyn Data>));
        Ok(Arc::new(RemoteFile { of, data, opened, told: AtomicU64::new(told) }))
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        let request = GetAttr { handle: NO_HANDLE, path: path_bytes(path) };
        record(&self.ask(&Request::GetAttr(request), caller)?)
    }

    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr> {
        let request = SetAttr { handle: NO_HANDLE, change: *change, identity, path: path_bytes(path) };
        record(&self.ask(&Request::SetAttr(request), caller)?)
    }

    fn read_dir(
        &self,
        _caller: Caller,
        _path: &Path,
        _after: u64,
        _each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr> {
        let request = MakeNode { mode, device, path: path_bytes(path) };
        record(&self.ask(&Request::MakeNode(request), caller)?)
    }

    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        let request = Symlink { target: path_bytes(target), path: path_bytes(path) };
        record(&self.ask(&Request::Symlink(request), caller)?)
    }

    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        let request = Link { path: path_bytes(path), to: path_bytes(to) };
        record(&self.ask(&Request::Link(request), caller)?)
    }

    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.ask(&Request::ReadLink(ReadLink { path: path_bytes(path) }), caller)?.payload)
    }

    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone> {
        let request = Unlink { directory: directory.into(), path: path_bytes(path) };
        record(&self.ask(&Request::Unlink(request), caller)?)
    }

    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone> {
        let (from, to) = (path_bytes(path), path_bytes(to));
        lock(&self.shared).links[self.link].rename_begins(from, to);
        let request = Request::Rename(Rename { flags, path: from, to });
        let gone = self.ask(&request, caller).and_then(|reply| record(&reply));
        let world = &mut *lock(&self.shared);
        world.links[self.link].rename_ended(&mut world.net, from, to, gone.is_ok());
        gone
    }

    fn space(&self) -> io::Result<Space> {
        record(&self.ask(&Request::StatFs(wire::StatFs {}), CALLER)?)
    }

    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        let request = GetXattr { handle: NO_HANDLE, path: path_bytes(path), name };
        Ok(self.ask(&Request::GetXattr(request), caller)?.payload)
    }

    fn set_xattr(
        &self,
        caller: Caller,
        path: &Path,
        identity: Identity,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        let request = SetXattr { handle: NO_HANDLE, flags, identity, path: path_bytes(path), name };
        self.call(&Request::SetXattr(request), value, caller).map(drop)
    }

    fn xattrs(&self, _caller: Caller, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn remove_xattr(
        &self,
        _caller: Caller,
        _path: &Path,
        _identity: Identity,
        _name: &[u8],
    ) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// What is known of a verifier.
fn known_verifier(world: &World, verifier: u64) -> u64 {
    if world.net.planted == Some(Planted::NoVerifier) { 1 } else { verifier }
}

/// A handle at the server.
struct RemoteData {
    tree: RemoteTree,
    handle: u32,
    identity: Identity,
    has_written: AtomicBool,
    is_closed: AtomicBool,
}

impl RemoteData {
    fn write(&self, flags: u32, offset: u64, bytes: &[u8], caller: Caller) -> io::Result<Written> {
        let request = Transfer {
            handle: self.handle,
            flags,
            offset,
            bytes: bytes.len() as u32,
            app: 0,
            client: 0,
            issued: 0,
        };
        self.has_written.store(true, Ordering::Relaxed);
        let written: Written = record(&self.tree.call(&Request::Write(request), bytes, caller)?)?;
        let mut world = lock(&self.tree.shared);
        let verifier = known_verifier(&world, written.verifier);
        let of = world.links[self.tree.link].written.entry(self.identity).or_default();
        of.losses += u64::from(of.unsynced.wrote(verifier));
        Ok(written)
    }
}

impl Drop for RemoteData {
    fn drop(&mut self) {
        if *self.is_closed.get_mut() {
            return;
        }
        let mut world = lock(&self.tree.shared);
        let world = &mut *world;
        let link = &mut world.links[self.tree.link];
        link.forget_handle(self.handle);
        let request = Request::Close(Close { handle: self.handle });
        // Nobody waits for the answer.
        drop(link.begin(&mut world.net, &request, Vec::new(), (0, RequestOrigin::NONE)));
    }
}

impl Data for RemoteData {
    fn id(&self) -> FileId {
        FileId(self.identity.inode)
    }

    fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let request = Transfer {
            handle: self.handle,
            flags: 0,
            offset,
            bytes: bytes as u32,
            app: 0,
            client: 0,
            issued: 0,
        };
        Ok(self.tree.ask(&Request::Read(request), CALLER)?.payload)
    }

    fn write(&self, offset: u64, bytes: &[u8], extends: bool) -> io::Result<usize> {
        let flags = if extends { transfer::EXTEND } else { 0 };
        self.write(flags, offset, bytes, CALLER).map(|written| written.bytes as usize)
    }

    fn size(&self) -> io::Result<u64> {
        let request = Request::GetAttr(GetAttr { handle: self.handle, path: b"" });
        Ok(record::<Attr>(&self.tree.ask(&request, CALLER)?)?.size)
    }
}

/// The same for writes to ranges that records were given.
struct RangeData(Arc<RemoteData>);

impl Data for RangeData {
    fn id(&self) -> FileId {
        self.0.id()
    }

    fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.0.read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], extends: bool) -> io::Result<usize> {
        let flags = transfer::RANGE | if extends { transfer::EXTEND } else { 0 };
        self.0.write(flags, offset, bytes, CALLER).map(|written| written.bytes as usize)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

/// An open file.
struct RemoteFile {
    of: Arc<RemoteData>,
    data: FileHandle,
    opened: Opened,
    /// Losses that it has told of.
    told: AtomicU64,
}

impl RemoteFile {
    /// Asks for what a sync has to cover and what is answered without a verifier.
    fn change(&self, request: &Request<'_>, caller: Caller) -> io::Result<Reply> {
        let export = self.verifier();
        let reply = self.of.tree.ask(request, caller)?;
        self.of.tree.resized(self.opened.identity, export);
        Ok(reply)
    }

    /// Asks, and again when it is sent away.
    fn ask_for_end(&self, request: &Request<'_>, payload: &[u8]) -> io::Result<(Reserved, Vec<Range>)> {
        loop {
            match self.of.tree.call(request, payload, CALLER) {
                Err(error) if error.raw_os_error() == Some(libc::EALREADY) => {}
                answer => {
                    let Reply { fields, payload } = answer?;
                    let invalid = |_| io::Error::from_raw_os_error(libc::EPROTO);
                    let ranges = payload.chunks(RANGE_BYTES).map(Range::decode).collect::<Result<_, _>>();
                    return Ok((Reserved::decode(&fields).map_err(invalid)?, ranges.map_err(invalid)?));
                }
            }
        }
    }
}

impl TreeFile for RemoteFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn range_data(&self) -> FileHandle {
        Arc::new(Held(Arc::new(RangeData(Arc::clone(&self.of)))))
    }

    fn identity(&self) -> Identity {
        self.opened.identity
    }

    fn attr(&self) -> io::Result<Attr> {
        let request = Request::GetAttr(GetAttr { handle: self.of.handle, path: b"" });
        record(&self.of.tree.ask(&request, CALLER)?)
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        Ok(self.opened.attr)
    }

    fn close(&self) -> Gone {
        if self.of.is_closed.swap(true, Ordering::Relaxed) {
            return Gone::NONE;
        }
        lock(&self.of.tree.shared).links[self.of.tree.link].forget_handle(self.of.handle);
        let closed = self.of.tree.ask(&Request::Close(Close { handle: self.of.handle }), CALLER);
        closed.and_then(|reply| record(&reply)).unwrap_or(Gone::NONE)
    }

    fn pending_size(&self) -> Option<u64> {
        Some(self.opened.pending_size).filter(|&size| size != u64::MAX)
    }

    fn reserve(&self, ticket: u64, at_least: u64, records: &[AppendRecord]) -> Option<io::Result<Given>> {
        let request = Request::Reserve(Reserve { handle: self.of.handle, ticket, at_least });
        let mut payload = Vec::new();
        records.iter().for_each(|record| record.encode(&mut payload));
        Some(self.ask_for_end(&request, &payload).map(|(reserved, ranges)| Given {
            reserved,
            ranges,
            begun: None,
        }))
    }

    fn resize(&self, size: u64) -> Option<io::Result<Given>> {
        let request = Request::Resize(Resize { handle: self.of.handle, size });
        Some(self.ask_for_end(&request, &[]).map(|(reserved, ranges)| {
            let begun = ranges.first().map(|range| range.offset);
            Given { reserved, ranges: Vec::new(), begun }
        }))
    }

    fn settle(&self, ticket: u64, end: u64, waits: bool) -> Option<io::Result<()>> {
        let request = Request::Settle(Settle { handle: self.of.handle, ticket, end });
        if waits {
            return Some(self.of.tree.ask(&request, CALLER).map(drop));
        }
        let mut world = lock(&self.of.tree.shared);
        let world = &mut *world;
        let link = &mut world.links[self.of.tree.link];
        drop(link.begin(&mut world.net, &request, Vec::new(), (0, RequestOrigin::NONE)));
        Some(Ok(()))
    }

    fn object(&self) -> ObjectName {
        ObjectName { object: self.opened.attr.object, is_new: self.opened.is_new != 0 }
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        let (handle, identity) = (self.of.handle, Identity::default());
        let request = Request::SetAttr(SetAttr { handle, change: *change, identity, path: b"" });
        let is_resized = change.which & set::SIZE != 0;
        record(&if is_resized {
            self.change(&request, caller)?
        } else {
            self.of.tree.ask(&request, caller)?
        })
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        let (shared, link) = (&self.of.tree.shared, self.of.tree.link);
        let syncs_own = lock(shared).net.planted == Some(Planted::OwnSync);
        if syncs_own && !self.of.has_written.load(Ordering::Relaxed) {
            return Ok(self.verifier());
        }
        let begun =
            lock(shared).links[link].written.entry(self.opened.identity).or_default().unsynced.begin();
        let request = Request::Sync(Sync { handle: self.of.handle, data_only: data_only.into() });
        let answer = self.of.tree.ask(&request, CALLER).and_then(|reply| record::<Synced>(&reply));
        let mut world = lock(shared);
        let verifier = answer.as_ref().map_or(0, |synced| known_verifier(&world, synced.verifier));
        let export = world.links[link].verifier();
        let of = world.links[link].written.entry(self.opened.identity).or_default();
        let is_lost = match &answer {
            Ok(_) => of.unsynced.synced(begun, verifier, export),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                of.unsynced.failed(begun);
                true
            }
            Err(_) => false,
        };
        of.losses += u64::from(is_lost);
        drop(world);
        self.tell_losses()?;
        Ok(answer?.verifier)
    }

    fn verifier(&self) -> u64 {
        lock(&self.of.tree.shared).links[self.of.tree.link].verifier()
    }

    fn is_clean(&self) -> bool {
        let world = lock(&self.of.tree.shared);
        let written = &world.links[self.of.tree.link].written;
        written.get(&self.opened.identity).is_none_or(|of| of.unsynced.is_clean())
    }

    fn losses(&self) -> u64 {
        let world = lock(&self.of.tree.shared);
        let written = &world.links[self.of.tree.link].written;
        written.get(&self.opened.identity).map_or(0, |of| of.losses)
    }

    fn tell_losses(&self) -> io::Result<()> {
        let losses = self.losses();
        if self.told.swap(losses, Ordering::Relaxed) == losses {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        let request = Request::Allocate(Allocate { handle: self.of.handle, mode, offset, bytes });
        self.change(&request, CALLER).map(drop)
    }

    fn seek(&self, _offset: u64, _hole: bool) -> io::Result<u64> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        let request = GetXattr { handle: self.of.handle, path: b"", name };
        Ok(self.of.tree.ask(&Request::GetXattr(request), caller)?.payload)
    }

    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        let (handle, identity) = (self.of.handle, Identity::default());
        let request = SetXattr { handle, flags, identity, path: b"", name };
        self.of.tree.call(&Request::SetXattr(request), value, caller).map(drop)
    }

    fn appends_elsewhere(&self) -> bool {
        true
    }

    fn append(&self, caller: Caller, _origin: Origin, bytes: &[u8]) -> Option<io::Result<Written>> {
        Some(self.of.write(transfer::APPEND, 0, bytes, caller))
    }
}
