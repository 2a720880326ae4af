//! A file that is open on servers.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};

use iogate_core::unsynced::Told;
use iogate_core::wire::{
    Allocate, AppendRecord, Attr, Change, GetAttr, GetLayout, GetXattr, Identity, ListXattr, Lock, Offset,
    Open, Opened as Answered, RemoveXattr, Request, Seek, SetAttr, SetXattr, Striping, Sync, Synced, Written,
    open, set,
};
use iogate_core::{FileId, Layout, Op};
use iogate_engine::store::Segment;
use iogate_engine::{FileHandle, Origin, lock};
use iogate_vfs::ends::Given;
use iogate_vfs::{Caller, ObjectName, OpenHow, TreeFile, Waiting};

use super::call::{Answer, Call, Done, payload, record};
use super::locks::{Confirmed, Question};
use super::remote::{FileNumber, Servers, name_bytes, path_bytes};
use super::spread::{Route, Spread};
use super::store::RemoteData;
use super::{Client, Receiving, unsynced};
use crate::system::again;

/// An open file of a [`Remote`](super::Remote). Closed when dropped.
#[derive(Debug)]
pub struct RemoteFile {
    opened: Arc<Opened>,
    data: FileHandle,
    origin: Origin,
}

/// What the file, and the transfers underway, share.
pub(super) struct Opened {
    pub(super) servers: Arc<Servers>,
    pub(super) caller: Caller,
    path: PathBuf,
    /// Flags for opening it on further servers.
    flags: u32,
    identity: Identity,
    /// As it was opened.
    attr: Attr,
    is_new: bool,
    /// The size that somebody had begun to set when it was opened.
    pending_size: Option<u64>,
    number: FileNumber,
    route: Route,
    /// The one on which it was opened.
    pub(super) first: usize,
    handles: Vec<Slot>,
    /// For all handles of the file.
    pub(super) unsynced: Arc<unsynced::File>,
    /// Losses that this handle has told of, or that were before it.
    told: Mutex<Told>,
    pub(super) confirmed: Confirmed,
}

/// The file's handle on one server.
#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

type Then = Box<dyn FnOnce(io::Result<u32>) + Send>;

#[derive(Default)]
enum SlotState {
    #[default]
    Closed,
    /// Somebody opens it, and these go on then.
    Opening(Vec<Then>),
    Open(u32),
}

impl Slot {
    /// The file is open there, or it failed.
    fn settle(&self, result: &io::Result<u32>) {
        let mut state = lock(&self.state);
        let settled = result.as_ref().map_or(SlotState::Closed, |handle| SlotState::Open(*handle));
        let before = std::mem::replace(&mut *state, settled);
        drop(state);
        if let SlotState::Opening(waiting) = before {
            self.changed.notify_all();
            for then in waiting {
                then(match result {
                    Ok(handle) => Ok(*handle),
                    Err(error) => Err(again(error)),
                });
            }
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("path", &self.path)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Opened {
    pub(super) fn open(
        servers: &Arc<Servers>,
        caller: Caller,
        path: &Path,
        how: OpenHow,
    ) -> io::Result<Opened> {
        let name = path_bytes(path)?;
        let first = servers.names;
        let client = &servers.clients[first];
        let handle = client.new_handle(name, how.flags, caller);
        let spread = if servers.spread == Spread::Client { 0 } else { open::SPREAD };
        let request =
            Open { handle, flags: how.flags | spread, mode: how.mode, identity: how.identity, path: name };
        let (export, question) = (client.verifier(), Question::of(client));
        let answered: Answered = record(client.call(&Request::Open(request), caller)?)?;
        let identity = answered.identity;
        let layout = match servers.spread {
            Spread::Target => layout_of(servers, first, handle, caller),
            _ => servers.layout,
        };
        let handles: Vec<Slot> = (0..servers.clients.len()).map(|_| Slot::default()).collect();
        handles[first].settle(&Ok(handle));
        let unsynced = servers.unsynced.open(identity, handles.len());
        if how.flags & open::TRUNCATE != 0 {
            unsynced.resized(first, export);
        }
        Ok(Opened {
            told: Mutex::new(unsynced.told()),
            confirmed: Confirmed::by(question),
            unsynced,
            servers: Arc::clone(servers),
            caller,
            path: path.to_path_buf(),
            flags: how.flags & (open::READ | open::WRITE | open::NO_FOLLOW | open::APPEND) | open::AGAIN,
            identity,
            attr: answered.attr,
            is_new: answered.is_new != 0,
            pending_size: (answered.pending_size != u64::MAX).then_some(answered.pending_size),
            number: servers.number(identity),
            route: Route::new(servers.spread, servers.clients.len(), first, identity, layout),
            first,
            handles,
        })
    }

    pub(super) fn id(&self) -> FileId {
        self.number.id
    }

    /// Which servers its transfers go to.
    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    fn request<'a>(&'a self, handle: u32, path: &'a [u8]) -> Request<'a> {
        Request::Open(Open { handle, flags: self.flags, mode: 0, identity: self.identity, path })
    }

    /// Where the file is by now, after renames by this client.
    pub(super) fn path(&self) -> Vec<u8> {
        let first = match *lock(&self.handles[self.first].state) {
            SlotState::Open(handle) => Some(handle),
            _ => None,
        };
        let now = first.and_then(|handle| self.servers.clients[self.first].path_of(handle));
        now.unwrap_or_else(|| self.path.as_os_str().as_bytes().to_vec())
    }

    /// The same, unless renames of what is above it have made it longer than servers take.
    fn path_to_send(&self) -> io::Result<Vec<u8>> {
        let path = self.path();
        path_bytes(Path::new(OsStr::from_bytes(&path)))?;
        Ok(path)
    }

    /// The file's handle on a server, where it is opened if it is not yet. Waits.
    pub(super) fn handle_on(&self, server: usize) -> io::Result<u32> {
        let slot = &self.handles[server];
        let mut state = lock(&slot.state);
        loop {
            match &*state {
                SlotState::Open(handle) => return Ok(*handle),
                SlotState::Closed => break,
                SlotState::Opening(_) => {
                    state = slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        *state = SlotState::Opening(Vec::new());
        drop(state);
        let client = &self.servers.clients[server];
        let result = loop {
            let path = match self.path_to_send() {
                Ok(path) => path,
                Err(error) => break Err(error),
            };
            let handle = client.new_handle(&path, self.flags, self.caller);
            let opened = client.call(&self.request(handle, &path), self.caller);
            match opened {
                Err(error) if self.is_renamed(&error, &path) => {}
                opened => break opened.map(|_| handle),
            }
        };
        slot.settle(&result);
        result
    }

    /// Goes on with the file's handle on a server, now or when it is open there.
    pub(super) fn with_handle(
        self: &Arc<Self>,
        server: usize,
        then: impl FnOnce(io::Result<u32>) + Send + 'static,
    ) {
        let slot = &self.handles[server];
        let mut state = lock(&slot.state);
        match &mut *state {
            SlotState::Open(handle) => {
                let handle = *handle;
                drop(state);
                then(Ok(handle));
            }
            SlotState::Opening(waiting) => waiting.push(Box::new(then)),
            SlotState::Closed => {
                *state = SlotState::Opening(vec![Box::new(then)]);
                drop(state);
                self.start_to_open(server);
            }
        }
    }

    /// Has the file opened on a server, for those who wait for its handle.
    fn start_to_open(self: &Arc<Self>, server: usize) {
        let client = &self.servers.clients[server];
        let path = match self.path_to_send() {
            Ok(path) => path,
            Err(error) => return self.handles[server].settle(&Err(error)),
        };
        let handle = client.new_handle(&path, self.flags, self.caller);
        let call = |done| Call::new(&self.request(handle, &path), self.caller, Done::Call(done));
        let (opened, before) = (Arc::clone(self), path.clone());
        client.start(call(Box::new(move |answer: io::Result<Answer>| match answer {
            Err(error) if opened.is_renamed(&error, &before) => opened.start_to_open(server),
            answer => opened.handles[server].settle(&answer.map(|_| handle)),
        })));
    }

    /// Whether it could not be opened as it has another name by now than that.
    fn is_renamed(&self, error: &io::Error, before: &[u8]) -> bool {
        error.raw_os_error() == Some(libc::ESTALE) && self.path() != before
    }

    /// The server on which the file was opened, and the handle there.
    fn on_first(&self) -> io::Result<(&Client, u32)> {
        Ok((&self.servers.clients[self.first], self.handle_on(self.first)?))
    }

    /// Asks the server on which the file was opened.
    pub(super) fn ask(
        &self,
        caller: Caller,
        request: impl FnOnce(u32) -> Request<'static>,
    ) -> io::Result<Answer> {
        let handle = self.handle_on(self.first)?;
        self.servers.clients[self.first].call(&request(handle), caller)
    }

    /// Asks the server on which the file was opened for what a sync has to cover and what is answered without a verifier.
    fn change(&self, caller: Caller, request: impl FnOnce(u32) -> Request<'static>) -> io::Result<Answer> {
        let handle = self.handle_on(self.first)?;
        let client = &self.servers.clients[self.first];
        let export = client.verifier();
        let answer = client.call(&request(handle), caller)?;
        self.unsynced.resized(self.first, export);
        Ok(answer)
    }

    pub(super) fn attr(&self) -> io::Result<Attr> {
        record(self.ask(self.caller, |handle| Request::GetAttr(GetAttr { handle, path: b"" }))?)
    }

    /// Whether data of the file may go through a server.
    pub(super) fn may_use(&self, server: usize) -> bool {
        self.route.may_use(server)
    }

    /// On every server that may hold data of the file, at the same time. Fails with `EIO`, once, if one has lost what it had answered.
    pub(super) fn sync(&self, data_only: bool) -> io::Result<u64> {
        let (sender, answers) = mpsc::channel();
        let mut result = Ok(());
        for server in (0..self.handles.len()).filter(|&server| self.route.may_use(server)) {
            let handle = match self.handle_on(server) {
                Ok(handle) => handle,
                // Nobody can open it there any more: nor does anybody miss what another process has written to it.
                Err(error)
                    if error.raw_os_error() == Some(libc::ESTALE) && self.unsynced.is_clean_on(server) =>
                {
                    continue;
                }
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            let (sender, begun) = (sender.clone(), self.unsynced.begin(server));
            let request = Request::Sync(Sync { handle, data_only: u8::from(data_only) });
            let (client, caller) = (&self.servers.clients[server], self.caller.user());
            if self.servers.receiving == Receiving::Inline {
                // Nobody else would receive the answer.
                let _ = sender.send((server, begun, client.call(&request, caller)));
                continue;
            }
            let done = move |answer: io::Result<Answer>| {
                let _ = sender.send((server, begun, answer));
            };
            client.start(Call::new(&request, caller, Done::Call(Box::new(done))));
        }
        drop(sender);
        for (server, begun, answer) in answers {
            let answer = answer.and_then(record::<Synced>).map(|synced| synced.verifier);
            let export = self.servers.clients[server].verifier();
            self.unsynced.synced(server, begun, &answer, export);
            result = result.and(answer.map(drop));
        }
        self.tell_losses().and(result)?;
        Ok(self.verifier())
    }

    /// Fails with `EIO` if writes were lost since this was last asked for this handle.
    pub(super) fn tell_losses(&self) -> io::Result<()> {
        if self.unsynced.tells(&self.told) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }

    pub(super) fn verifier(&self) -> u64 {
        self.servers.verifier(self.unsynced.losses())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for (slot, client) in self.handles.iter_mut().zip(&self.servers.clients) {
            if let SlotState::Open(handle) = slot.state.get_mut().unwrap_or_else(PoisonError::into_inner) {
                client.close(*handle, self.caller, self.servers.when_gone.get().cloned());
            }
        }
        self.servers.forget(&self.number);
        self.servers.unsynced.close(self.identity);
    }
}

/// The file's stripes; those of the export if the server does not know the file's own.
fn layout_of(servers: &Servers, server: usize, handle: u32, caller: Caller) -> Layout {
    let asked = servers.clients[server].call(&Request::GetLayout(GetLayout { handle }), caller);
    let striping = asked.and_then(record::<Striping>);
    striping.ok().and_then(|striping| layout(&striping)).unwrap_or(servers.layout)
}

/// A server's stripes, if they are ones.
pub(super) fn layout(striping: &Striping) -> Option<Layout> {
    let Striping { first_target, stripe_bytes, targets } = *striping;
    let fits = targets > 0 && stripe_bytes > 0;
    fits.then_some(Layout { first_target, stripe_bytes, targets })
}

impl RemoteFile {
    pub(super) fn new(opened: Opened, origin: Origin) -> RemoteFile {
        let opened = Arc::new(opened);
        opened.servers.note(&opened);
        let data = Arc::new(RemoteData { opened: Arc::clone(&opened), is_range: false });
        RemoteFile { opened, data, origin }
    }

    /// Reads at an offset. Fewer bytes than asked for: the file ends there.
    pub fn read_at(&self, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        let segment = Segment { memory: memory.as_mut_ptr(), bytes: memory.len() };
        // SAFETY: the memory is borrowed exclusively until this returns.
        let read = unsafe { self.opened.transfer((Op::Read, 0), self.origin, offset, segment)? };
        Ok(read as usize)
    }

    /// Writes at an offset. Fewer bytes than given, as `write(2)`: the store is full, or failed after them.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let segment = Segment { memory: bytes.as_ptr().cast_mut(), bytes: bytes.len() };
        // SAFETY: the bytes are borrowed until this returns, and a write only reads them.
        let written = unsafe { self.opened.transfer((Op::Write, 0), self.origin, offset, segment)? };
        Ok(written as usize)
    }

    /// Writes at the end of the file, wherever that is then; says where it was. At most as much as the server
    /// takes in one message (see [`Remote::append_bytes_max`](super::Remote::append_bytes_max)).
    pub fn append(&self, bytes: &[u8]) -> io::Result<Written> {
        self.opened.append(self.opened.caller.user(), self.origin, bytes)
    }

    /// Makes what was written durable: as `fdatasync(2)` with `data_only`, else as `fsync(2)`.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        self.opened.sync(data_only).map(drop)
    }

    /// Fails with `EIO`, once, if writes to the file are known to be lost: for a close, which does not wait for the servers' disks.
    pub fn tell_losses(&self) -> io::Result<()> {
        self.opened.tell_losses()
    }

    /// Its attributes.
    pub fn attr(&self) -> io::Result<Attr> {
        self.opened.attr()
    }
}

impl TreeFile for RemoteFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn path(&self) -> Option<PathBuf> {
        Some(OsString::from_vec(self.opened.path()).into())
    }

    fn range_data(&self) -> FileHandle {
        Arc::new(RemoteData { opened: Arc::clone(&self.opened), is_range: true })
    }

    fn identity(&self) -> Identity {
        self.opened.identity
    }

    fn attr(&self) -> io::Result<Attr> {
        self.opened.attr()
    }

    fn begin_attr(&self) -> Waiting<'_, Attr> {
        if self.opened.servers.receiving == Receiving::Inline {
            return Box::new(|| self.opened.attr());
        }
        match self.opened.on_first() {
            Ok((client, handle)) => {
                let request = Request::GetAttr(GetAttr { handle, path: b"" });
                client.begin(&request, self.opened.caller, record)
            }
            Err(error) => Box::new(move || Err(error)),
        }
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        Ok(self.opened.attr)
    }

    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        let (client, handle) = self.opened.on_first()?;
        let request = GetXattr { handle, path: b"", name: name_bytes(name)? };
        payload(client.call(&Request::GetXattr(request), caller)?)
    }

    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        let handle = self.opened.on_first()?.1;
        let (identity, name) = (Identity::default(), name_bytes(name)?);
        let request = SetXattr { handle, flags, identity, path: b"", name };
        self.opened.servers.set_xattr(self.opened.first, caller, request, value)
    }

    fn xattrs(&self, caller: Caller) -> io::Result<Vec<u8>> {
        let (client, handle) = self.opened.on_first()?;
        payload(client.call(&Request::ListXattr(ListXattr { handle, path: b"" }), caller)?)
    }

    fn remove_xattr(&self, caller: Caller, name: &[u8]) -> io::Result<()> {
        let (client, handle) = self.opened.on_first()?;
        let (identity, name) = (Identity::default(), name_bytes(name)?);
        let request = RemoveXattr { handle, identity, path: b"", name };
        client.call(&Request::RemoveXattr(request), caller).map(drop)
    }

    fn object(&self) -> ObjectName {
        ObjectName { object: self.opened.attr.object, is_new: self.opened.is_new }
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        let change = *change;
        let identity = Identity::default();
        let set = |handle| Request::SetAttr(SetAttr { handle, change, identity, path: b"" });
        let is_resized = change.which & set::SIZE != 0;
        record(if is_resized { self.opened.change(caller, set)? } else { self.opened.ask(caller, set)? })
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        self.opened.sync(data_only)
    }

    fn verifier(&self) -> u64 {
        self.opened.verifier()
    }

    fn is_clean(&self) -> bool {
        self.opened.unsynced.is_clean()
    }

    fn losses(&self) -> u64 {
        self.opened.unsynced.losses()
    }

    fn tell_losses(&self) -> io::Result<()> {
        self.opened.tell_losses()
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        let request = |handle| Request::Allocate(Allocate { handle, mode, offset, bytes });
        self.opened.change(self.opened.caller, request).map(drop)
    }

    fn set_lock(&self, lock: &Lock) -> io::Result<()> {
        self.opened.set_lock(lock)
    }

    fn get_lock(&self, lock: &Lock) -> io::Result<Lock> {
        self.opened.get_lock(*lock)
    }

    fn doubts_locks(&self) -> bool {
        self.opened.doubts_locks()
    }

    fn confirm_locks(&self) -> io::Result<()> {
        self.opened.confirm_locks()
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        let request = |handle| Request::Seek(Seek { handle, hole: u8::from(hole), offset });
        let found: Offset = record(self.opened.ask(self.opened.caller, request)?)?;
        Ok(found.offset)
    }

    fn layout(&self) -> Option<Layout> {
        let layout = self.opened.route.layout();
        (layout != Layout::SINGLE).then_some(layout)
    }

    fn pending_size(&self) -> Option<u64> {
        self.opened.pending_size
    }

    fn reserve(&self, ticket: u64, at_least: u64, records: &[AppendRecord]) -> Option<io::Result<Given>> {
        Some(self.opened.reserve(ticket, at_least, records))
    }

    fn resize(&self, size: u64) -> Option<io::Result<Given>> {
        Some(self.opened.resize(size))
    }

    fn settle(&self, ticket: u64, end: u64, waits: bool) -> Option<io::Result<()>> {
        Some(self.opened.settle(ticket, end, waits))
    }

    fn appends_elsewhere(&self) -> bool {
        true
    }

    fn append(&self, caller: Caller, origin: Origin, bytes: &[u8]) -> Option<io::Result<Written>> {
        Some(self.opened.append(self.opened.caller.with_origin(caller.origin), origin, bytes))
    }
}
