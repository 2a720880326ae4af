//! One or several servers as a tree.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use iogate_core::hash::IdHasher;
use iogate_core::refusal::Refusal;
use iogate_core::wire::{
    Attr, Change, Entry, GetAttr, GetXattr, Gone, Identity, Link, ListXattr, MakeNode, NO_HANDLE,
    PATH_BYTES_MAX, ReadDir, ReadLink, RemoveXattr, Rename, Request, SetAttr, SetXattr, Space, StatFs,
    Symlink, Unlink, VALUE_BYTES_MAX, below, locks, open, set,
};
use iogate_core::{AppId, ClientId, FileId, Layout};
use iogate_engine::store::{Segment, Store};
use iogate_engine::{Origin, lock};
use iogate_vfs::app::{AppFile, Own, application, own_burst, stable_hash};
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile, TreeState, Waiting, WhenGone};

use super::call::{Call, Memory, not_understood, payload, record};
use super::file::{Opened, RemoteFile, layout};
use super::spread::Spread;
use super::store::RemoteStore;
use super::unsynced;
use super::{Client, ClientError, ClientOptions, Receiving};
use crate::Endpoint;

/// Most bytes of one piece of a directory's list.
const LIST_BYTES: u32 = 64 << 10;

/// A request that waits for longer than this is told of.
const LONG: Duration = Duration::from_secs(1);

/// Linux's bound on the name of an extended attribute.
const NAME_BYTES_MAX: usize = 255;

/// Settings of a [`Remote`].
#[derive(Clone, Debug, Default)]
pub struct RemoteOptions {
    /// Settings of the connection to each server.
    pub client: ClientOptions,
    /// Which server carries out what.
    pub spread: Spread,
    /// The server for names, and with [`Spread::Client`] for everything; `None`: one by the node's name.
    pub server: Option<usize>,
    /// The application of reads and writes through a [`RemoteFile`] (an engine's have their own); `None`: by the process's
    /// environment, see [`iogate_vfs::app`].
    pub app: Option<AppId>,
}

/// One or several servers of the same files, as a [`Tree`].
pub struct Remote {
    servers: Arc<Servers>,
    origin: Origin,
}

/// The servers, and what all files share.
pub(super) struct Servers {
    pub(super) clients: Vec<Client>,
    pub(super) spread: Spread,
    /// The server for names.
    pub(super) names: usize,
    pub(super) layout: Layout,
    pub(super) receiving: Receiving,
    pub(super) unsynced: unsynced::Files,
    files: Mutex<Files>,
    pub(super) when_gone: OnceLock<WhenGone>,
    /// The files that are open, if there are several servers.
    opened: Mutex<Vec<Weak<Opened>>>,
}

/// The numbers of the open files.
#[derive(Default)]
struct Files {
    by_identity: HashMap<Identity, (FileId, usize)>,
    used: HashMap<FileId, Identity>,
}

/// A file's number, while it is open.
#[derive(Debug)]
pub(super) struct FileNumber {
    pub(super) id: FileId,
    identity: Identity,
}

impl Servers {
    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    /// Most bytes of one read or write that each of the servers takes, as they have said last.
    pub(super) fn transfer_bytes_max(&self) -> u32 {
        self.clients.iter().map(Client::transfer_bytes_max).min().unwrap_or(1)
    }

    /// The same of a record that is appended as one.
    pub(super) fn append_bytes_max(&self) -> u32 {
        self.clients.iter().map(Client::append_bytes_max).min().unwrap_or(1)
    }

    /// The number of a file: the same while it is open anywhere here, and no other open file's.
    pub(super) fn number(&self, identity: Identity) -> FileNumber {
        let mut files = self.files();
        let Files { by_identity, used } = &mut *files;
        let (id, handles) = by_identity.entry(identity).or_insert_with(|| {
            let mut hasher = IdHasher::default();
            identity.hash(&mut hasher);
            let mut id = FileId(hasher.finish());
            while used.contains_key(&id) {
                id = FileId(id.0.wrapping_add(1));
            }
            used.insert(id, identity);
            (id, 0)
        });
        *handles += 1;
        FileNumber { id: *id, identity }
    }

    /// Sets an extended attribute on a server.
    pub(super) fn set_xattr(
        &self,
        server: usize,
        caller: Caller,
        request: SetXattr<'_>,
        value: &[u8],
    ) -> io::Result<()> {
        // Linux says so, too: it takes no longer value.
        if value.len() > VALUE_BYTES_MAX as usize {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let memory = Memory::One([Segment { memory: value.as_ptr().cast_mut(), bytes: value.len() }]);
        let call = |done| {
            let mut call = Call::new(&Request::SetXattr(request), caller, done);
            call.memory = memory;
            call.demand.bytes = value.len() as u64;
            Some(call)
        };
        self.clients[server].wait_for(call).map(drop)
    }

    /// Has files that are open here opened on all servers that they may use, before the names go by which they could be.
    fn open_everywhere(&self, goes: impl Fn(&[u8]) -> bool) {
        if self.clients.len() < 2 {
            return;
        }
        let opened: Vec<Arc<Opened>> = {
            let opened = lock(&self.opened);
            opened.iter().filter_map(Weak::upgrade).collect()
        };
        // One that cannot be reached is waited for once, not for each file.
        let mut servers: Vec<usize> = (0..self.clients.len()).collect();
        for file in opened.iter().filter(|file| goes(&file.path())) {
            servers.retain(|&server| {
                if !file.may_use(server) {
                    return true;
                }
                let Err(error) = file.handle_on(server) else { return true };
                tracing::debug!(%error, "a file whose name goes is not open on all servers");
                // Anything else is about this file, not about the server.
                error.raw_os_error() != Some(libc::EIO)
            });
        }
    }

    /// A file has been opened.
    pub(super) fn note(&self, file: &Arc<Opened>) {
        if self.clients.len() < 2 {
            return;
        }
        let mut opened = lock(&self.opened);
        if opened.len() == opened.capacity() {
            opened.retain(|file| file.strong_count() > 0);
        }
        opened.push(Arc::downgrade(file));
    }

    /// A file that has this number is closed.
    pub(super) fn forget(&self, number: &FileNumber) {
        let mut files = self.files();
        if let Some((_, handles)) = files.by_identity.get_mut(&number.identity) {
            *handles -= 1;
            if *handles == 0 {
                files.by_identity.remove(&number.identity);
                files.used.remove(&number.id);
            }
        }
    }
}

/// The process's own user.
pub(super) fn own_caller() -> Caller {
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The name of an extended attribute as it is sent.
pub(super) fn name_bytes(name: &[u8]) -> io::Result<&[u8]> {
    if name.len() > NAME_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ERANGE));
    }
    Ok(name)
}

/// A path as it is sent.
pub(super) fn path_bytes(path: &Path) -> io::Result<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > PATH_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    Ok(bytes)
}

/// Refuses servers whose roots are different directories. What this user may not see is not compared.
fn same_files(endpoints: &[Endpoint], clients: &[Client], names: usize) -> Result<(), ClientError> {
    if clients.len() < 2 {
        return Ok(());
    }
    let root = |client: &Client| -> Option<u64> {
        let request = Request::GetAttr(GetAttr { handle: NO_HANDLE, path: b"" });
        let attr: Attr = record(client.call(&request, own_caller()).ok()?).ok()?;
        Some(attr.inode)
    };
    let Some(first) = root(&clients[names]) else { return Ok(()) };
    let is_other = |client: &Client| root(client).is_some_and(|other| other != first);
    match clients.iter().position(is_other) {
        Some(other) => {
            Err(ClientError::Different { first: endpoints[names].clone(), other: endpoints[other].clone() })
        }
        None => Ok(()),
    }
}

impl Remote {
    /// Connects to servers of the same files. Fails if one of them cannot be reached, has other files than the first, or none is given.
    pub fn connect(endpoints: &[Endpoint], options: &RemoteOptions) -> Result<Remote, ClientError> {
        if endpoints.is_empty() {
            return Err(ClientError::NoServer);
        }
        let node = rustix::system::uname();
        let chosen = options.server.unwrap_or_else(|| stable_hash(node.nodename().to_bytes()) as usize);
        let chosen = chosen % endpoints.len();
        let used = if options.spread == Spread::Client { &endpoints[chosen..=chosen] } else { endpoints };
        let receiving = options.client.receiving;
        let client = ClientOptions { has_rivals: endpoints.len() > 1, ..options.client.clone() };
        let clients = used.iter().map(|endpoint| Client::connect(endpoint, client.clone()));
        let clients = clients.collect::<Result<Vec<Client>, ClientError>>()?;
        let names = if clients.len() == 1 { 0 } else { chosen };
        same_files(used, &clients, names)?;
        let welcome = clients[names].welcome();
        let servers = Servers {
            spread: if clients.len() == 1 { Spread::Client } else { options.spread },
            clients,
            names,
            layout: layout(&welcome.striping).unwrap_or(Layout::SINGLE),
            receiving,
            unsynced: unsynced::Files::new(),
            files: Mutex::default(),
            when_gone: OnceLock::new(),
            opened: Mutex::default(),
        };
        let client = ClientId(std::process::id());
        let app = options.app.or_else(|| Some(application(&Own, &AppFile::from_environment().ok()?)?.0));
        let origin = Origin { app: app.unwrap_or_default(), client, issued: None, burst: own_burst() };
        Ok(Remote { servers: Arc::new(servers), origin })
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: &Path) -> io::Result<RemoteFile> {
        self.open_with(path, open::READ, 0)
    }

    /// Opens a file for reading and writing, and creates it if it is not there, with these permissions.
    pub fn create(&self, path: &Path, mode: u32) -> io::Result<RemoteFile> {
        self.open_with(path, open::READ | open::WRITE | open::CREATE, mode)
    }

    /// Opens a file with flags of [`iogate_core::wire::open`]; `mode` are the permissions if it is created.
    pub fn open_with(&self, path: &Path, flags: u32, mode: u32) -> io::Result<RemoteFile> {
        let how = OpenHow { flags, mode, ..OpenHow::default() };
        let opened = Opened::open(&self.servers, own_caller(), path, how)?;
        Ok(RemoteFile::new(opened, self.origin))
    }

    /// Most bytes of one message's data, as the servers have said last; longer transfers are several.
    pub fn transfer_bytes_max(&self) -> u32 {
        self.servers.transfer_bytes_max()
    }

    /// Most bytes of a record that is appended as one, as the servers have said last.
    pub fn append_bytes_max(&self) -> u32 {
        self.servers.append_bytes_max()
    }

    /// The stripes of files that have no layout of their own, as the server says.
    pub fn layout(&self) -> Layout {
        self.servers.layout
    }

    /// The sessions, one for each server in use.
    pub fn clients(&self) -> &[Client] {
        &self.servers.clients
    }

    fn names(&self) -> &Client {
        &self.servers.clients[self.servers.names]
    }
}

impl Servers {
    /// Of all servers together; see [`Tree::verifier`]. `losses`: how often writes of one file were lost.
    pub(super) fn verifier(&self, losses: u64) -> u64 {
        let mut hasher = IdHasher::default();
        self.clients.iter().for_each(|client| hasher.write_u64(client.verifier()));
        hasher.write_u64(losses);
        hasher.finish()
    }
}

impl Tree for Remote {
    fn verifier(&self) -> u64 {
        self.servers.verifier(0)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(RemoteStore { servers: Arc::clone(&self.servers) })
    }

    fn acts_for_others(&self) -> bool {
        self.servers.clients.iter().all(|client| client.welcome().trusted != 0)
    }

    fn shares_locks(&self) -> bool {
        // Several that keep them, and do not take them on the files, would each have its own.
        let is_one = self.servers.clients.len() == 1;
        self.servers.clients.iter().all(|client| match client.welcome().locks {
            locks::NONE => false,
            locks::PASSED_ON | locks::TAKEN => true,
            _ => is_one,
        })
    }

    fn leave_locks(&self) {
        self.servers.clients.iter().for_each(Client::go_without_goodbye);
    }

    fn asks_for_ends(&self) -> bool {
        true
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        let opened = Opened::open(&self.servers, caller, path, how)?;
        Ok(Arc::new(RemoteFile::new(opened, self.origin)))
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        let request = GetAttr { handle: NO_HANDLE, path: path_bytes(path)? };
        record(self.names().call(&Request::GetAttr(request), caller)?)
    }

    fn begin_attr<'a>(&'a self, caller: Caller, path: &'a Path) -> Waiting<'a, Attr> {
        if self.servers.receiving == Receiving::Inline {
            return Box::new(move || self.attr(caller, path));
        }
        match path_bytes(path) {
            Ok(path) => {
                let request = Request::GetAttr(GetAttr { handle: NO_HANDLE, path });
                self.names().begin(&request, caller, record)
            }
            Err(error) => Box::new(move || Err(error)),
        }
    }

    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr> {
        if change.which & set::SIZE != 0 {
            // A sync of the file has to cover it: which one that is is known by a handle.
            return iogate_vfs::resize_by_handle(self, caller, path, identity, change);
        }
        let request = SetAttr { handle: NO_HANDLE, change: *change, identity, path: path_bytes(path)? };
        record(self.names().call(&Request::SetAttr(request), caller)?)
    }

    fn read_dir(
        &self,
        caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        let mut after = after;
        let bytes = LIST_BYTES.min(self.servers.transfer_bytes_max());
        loop {
            let request = ReadDir { after, bytes, path: path_bytes(path)? };
            let list = payload(self.names().call(&Request::ReadDir(request), caller)?)?;
            if list.is_empty() {
                return Ok(());
            }
            let mut rest = &list[..];
            while !rest.is_empty() {
                let (entry, name, behind) = Entry::split_from(rest).map_err(not_understood)?;
                if !each(&entry, name) {
                    return Ok(());
                }
                (after, rest) = (entry.next, behind);
            }
        }
    }

    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr> {
        let request = MakeNode { mode, device, path: path_bytes(path)? };
        record(self.names().call(&Request::MakeNode(request), caller)?)
    }

    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        let request = Symlink { target: path_bytes(target)?, path: path_bytes(path)? };
        record(self.names().call(&Request::Symlink(request), caller)?)
    }

    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        let request = Link { path: path_bytes(path)?, to: path_bytes(to)? };
        record(self.names().call(&Request::Link(request), caller)?)
    }

    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        let request = ReadLink { path: path_bytes(path)? };
        payload(self.names().call(&Request::ReadLink(request), caller)?)
    }

    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone> {
        let request = Unlink { directory: u8::from(directory), path: path_bytes(path)? };
        if !directory {
            self.servers.open_everywhere(|path| path == request.path);
        }
        record(self.names().call(&Request::Unlink(request), caller)?)
    }

    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone> {
        let (from, to) = (path_bytes(path)?, path_bytes(to)?);
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        self.servers.open_everywhere(|path| [from, to].iter().any(|top| below(path, top).is_some()));
        let clients = &self.servers.clients;
        clients.iter().for_each(|client| client.rename_begins(from, to));
        let gone =
            self.names().call(&Request::Rename(Rename { flags, path: from, to }), caller).and_then(record);
        clients.iter().for_each(|client| client.rename_ended(from, to, exchange, gone.is_ok()));
        gone
    }

    fn space(&self) -> io::Result<Space> {
        record(self.names().call(&Request::StatFs(StatFs {}), own_caller())?)
    }

    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        let request = GetXattr { handle: NO_HANDLE, path: path_bytes(path)?, name: name_bytes(name)? };
        payload(self.names().call(&Request::GetXattr(request), caller)?)
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
        let (handle, path, name) = (NO_HANDLE, path_bytes(path)?, name_bytes(name)?);
        let request = SetXattr { handle, flags, identity, path, name };
        self.servers.set_xattr(self.servers.names, caller, request, value)
    }

    fn xattrs(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        let request = ListXattr { handle: NO_HANDLE, path: path_bytes(path)? };
        payload(self.names().call(&Request::ListXattr(request), caller)?)
    }

    fn remove_xattr(&self, caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()> {
        let request =
            RemoveXattr { handle: NO_HANDLE, identity, path: path_bytes(path)?, name: name_bytes(name)? };
        self.names().call(&Request::RemoveXattr(request), caller).map(drop)
    }

    fn append_bytes_max(&self) -> u32 {
        self.servers.append_bytes_max()
    }

    fn answers(&self) -> u64 {
        iogate_vfs::all_answers(self.servers.clients.iter().map(|client| client.welcome().answers))
    }

    fn is_reached(&self) -> bool {
        self.servers.clients.iter().all(Client::is_connected)
    }

    fn leads_on(&self, trail: &[u8]) -> Result<(), Refusal> {
        self.servers.clients.iter().try_for_each(|client| client.leads_on(trail))
    }

    fn when_gone(&self, tell: WhenGone) {
        let _ = self.servers.when_gone.set(tell);
    }

    fn state(&self) -> Option<TreeState> {
        let mut is_well = true;
        let state = |client: &Client| {
            let is_connected = client.is_connected();
            let mut state = match is_connected {
                true if client.has_other_clock() => {
                    format!("connected to {}, whose clock is {}", client.endpoint(), client.clock())
                }
                true => format!("connected to {}", client.endpoint()),
                false => match client.ring() {
                    Some(ring) => format!("{} is not used: {ring}", client.endpoint()),
                    None => format!("no connection to {}, trying again", client.endpoint()),
                },
            };
            is_well &= is_connected;
            if let Some(waits) = client.waits_for().map(Duration::from).filter(|waits| *waits >= LONG) {
                is_well = false;
                let _ = write!(state, "; a request has waited for its answer for {waits:.1?}");
            }
            state
        };
        let text = self.servers.clients.iter().map(state).collect::<Vec<String>>().join("; ");
        Some(TreeState { text, is_well })
    }
}
