//! What calls do: from a record to its answer, over a directory and its gate. No socket is known here.

mod attr;
mod data;
mod front;
mod listing;
mod locks;
mod lru;
mod mounts;
mod names;
mod objects;
mod open_files;
mod order;
mod places;
mod repeats;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use iogate_core::{AppId, ClientId};
use iogate_engine::{ClassBy, Completion, Engine, Origin, Transfer};
use iogate_vfs::answers::{Answers, losses};
use iogate_vfs::app::{AppFile, application_of_word, stable_hash};
use iogate_vfs::held::{HeldTree, Known};
use iogate_vfs::policy_file::application;
use iogate_vfs::{Caller, DirectoryTree, Groups, Users};
use rustix::process::{Resource, getrlimit};

use crate::answers;
use crate::handle::Sealer;
use crate::rpc::{Accepted, AuthStatus, Call, CallError, Credential, put_accepted, put_auth_error, records};
use crate::wire::{Fattr, FileHandle, Kind, Reply, Request, Status, Wcc};
use crate::xdr::Reader;
use attr::{fattr, status};
pub use front::Front;
pub use locks::Callbacks;
use locks::Locks;
pub use objects::Lasting;
use objects::{Object, Objects};
use open_files::{OpenFile, OpenFiles};
use order::Order;

/// Most files that are held beside those in use, where there may be so many descriptors.
const HELD_MAX: usize = 4096;
/// And most that are kept open.
const OPEN_MAX: usize = 2048;

/// What is served, and to whom.
pub struct Export<T = DirectoryTree> {
    /// What clients mount: the directory's path.
    pub path: Vec<u8>,
    /// The files.
    pub tree: Arc<T>,
    /// The gate that all reads and writes pass; over the tree's store.
    pub engine: Arc<Engine>,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Whose ids a client's are here.
    pub users: Users,
    /// The groups of users are looked up here, and not taken from calls, which have room for sixteen.
    pub own_groups: bool,
    /// The applications of users of clients that have a fixed one: what is looked up there is `ADDRESS/UID`, the user's number here.
    pub applications: AppFile,
    /// A change of names or attributes is durable before it is answered, as NFS has it: clients do not ask for that.
    pub sync_names: bool,
    /// What handles are sealed with: kept, so that they stay good.
    pub secret: [u8; 16],
    /// The kernel may find files by handles of its own, if it can.
    pub kernel_handles: bool,
    /// A folder for the places of files, if it cannot, and for who has locks: nobody else's while the server runs.
    pub places: Option<OwnedFd>,
    /// The answers of calls that must not be carried out twice, within [`limits`](crate::answers::limits).
    pub answers: Arc<Answers>,
}

/// An answer: the head of a record, and data that follows it.
pub struct Answer {
    /// The record's mark and what comes before the data.
    pub head: Vec<u8>,
    /// The data and its padding.
    pub data: Vec<u8>,
}

/// Sends an answer. Must not block.
pub type Respond = Box<dyn FnOnce(Answer) + Send>;
/// Something that may take its time.
pub type Job = Box<dyn FnOnce() + Send>;
/// Has a job of a client's done by another thread.
pub type Spawn = Arc<dyn Fn(IpAddr, Job) + Send + Sync>;

/// What is to be done with a record.
pub enum Asked {
    /// It is answered at once.
    Answered(Answer),
    /// It is no call: the connection is of no use.
    Nonsense(CallError),
    /// A read or write: [`Service::transfer`].
    Data(Asking),
    /// Anything else: [`Front::carry_out`].
    Other(Asking),
}

/// A call whose arguments are not read yet.
#[derive(Clone)]
pub struct Asking {
    call: Call,
    /// Where in the record its arguments begin.
    arguments: usize,
}

impl Asking {
    /// The arguments, in the call's record.
    fn arguments<'a>(&self, record: &'a [u8]) -> Reader<'a> {
        Reader::new(record.get(self.arguments..).unwrap_or_default())
    }

    /// The program that is called.
    pub(crate) fn program(&self) -> u32 {
        self.call.program
    }

    /// The answer to who is not believed to be who the call says.
    pub(crate) fn refused(&self) -> Answer {
        tracing::debug!(
            xid = format_args!("{:08x}", self.call.xid),
            "a call is refused, as its caller is not believed"
        );
        let mut head = vec![0; 4];
        put_auth_error(&mut head, self.call.xid, AuthStatus::TooWeak);
        finish(head)
    }
}

/// A directory as clients of NFS see it.
pub struct Service<T: HeldTree = DirectoryTree> {
    export: Export<T>,
    objects: Objects<T>,
    open_files: OpenFiles<T>,
    order: Order,
    locks: Locks<T>,
    /// How clients are told of locks, once that is known.
    callbacks: OnceLock<Arc<dyn Callbacks>>,
    spawn: Spawn,
}

/// A file that a call names, and what there is to know of it.
struct Named<H> {
    object: Arc<Object<H>>,
    known: Known,
    attr: Fattr,
}

impl<T: HeldTree> Service<T> {
    /// Of an export, the `number`th of `exports`, which share this process's descriptors.
    pub(crate) fn new(
        mut export: Export<T>,
        number: u8,
        exports: usize,
        spawn: Spawn,
    ) -> io::Result<Service<T>> {
        let sealer = Sealer::new(export.secret, number);
        // A held file has one descriptor, an open one two; the rest is for connections and what is in use.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize / exports.max(1);
        let (held_max, open_max) = (HELD_MAX.min(limit / 4), OPEN_MAX.min(limit / 8));
        for (file, count) in losses::known(&export.answers) {
            export.tree.restore_losses(file, count);
        }
        let (tree, kept) = (Arc::clone(&export.tree), export.places.take());
        let locks = Locks::new(tree.clock(), kept.as_ref().map(OwnedFd::try_clone).transpose()?);
        let objects = Objects::new(tree, sealer, export.kernel_handles, kept, held_max)?;
        let service = Service {
            open_files: OpenFiles::new(Arc::clone(&export.tree), Arc::clone(&export.answers), open_max),
            export,
            objects,
            order: Order::default(),
            locks,
            callbacks: OnceLock::new(),
            spawn,
        };
        service.settle()?;
        Ok(service)
    }

    /// The gate that its reads and writes pass.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.export.engine
    }

    /// For how long handles stay good.
    pub(crate) fn lasting(&self) -> Lasting {
        self.objects.lasting()
    }

    fn reply(&self, caller: Caller, request: &Request<'_>) -> Reply {
        match *request {
            // Reads and writes go through the gate, by `transfer`.
            Request::Null | Request::Read { .. } | Request::Write { .. } => Reply::Null,
            Request::GetAttr(file) => Reply::GetAttr(self.named(&file).map(|named| named.attr)),
            Request::SetAttr { file, attr, guard } => self.set_attr(caller, &file, &attr, guard),
            Request::LookUp(place) => self.look_up(caller, &place),
            Request::Access { file, access } => self.access(caller, &file, access),
            Request::ReadLink(file) => self.read_link(caller, &file),
            Request::Create { place, how } => self.create(caller, &place, &how),
            Request::MkDir { place, attr } => {
                self.make(caller, &place, &attr, names::Made::Node(libc::S_IFDIR, 0))
            }
            Request::SymLink { place, attr, target } => {
                self.make(caller, &place, &attr, names::Made::Link(target))
            }
            Request::MkNod { place, node } => self.make_node(caller, &place, &node),
            Request::Remove(place) => self.remove(caller, &place, false),
            Request::RmDir(place) => self.remove(caller, &place, true),
            Request::Rename { from, to } => self.rename(caller, &from, &to),
            Request::Link { file, place } => self.link(caller, &file, &place),
            Request::ReadDir { dir, cookie, count, .. } => self.read_dir(caller, &dir, cookie, count),
            Request::ReadDirPlus { dir, cookie, dir_count, count, .. } => {
                self.read_dir_plus(caller, &dir, cookie, dir_count, count)
            }
            Request::FsStat(file) => self.fs_stat(&file),
            Request::FsInfo(file) => self.fs_info(&file),
            Request::PathConf(file) => self.path_conf(&file),
            Request::Commit { file, .. } => self.commit(caller, &file),
        }
    }

    /// Takes in a read or write: adds it to a batch for the gate, or answers it at once.
    pub fn transfer(
        self: &Arc<Self>,
        client: IpAddr,
        asking: &Asking,
        record: Vec<u8>,
        batch: &mut Vec<(Transfer, Completion)>,
        respond: Respond,
    ) {
        let call = &asking.call;
        match Request::take(call.procedure, &mut asking.arguments(&record)) {
            Ok(Some(Request::Read { file, offset, count })) => {
                drop(record);
                self.read(client, call, (file, offset, count), batch, respond);
            }
            Ok(Some(Request::Write { file, offset, count, stable, data })) => {
                let bytes = (count as usize).min(data.len());
                let at = data.as_ptr().addr() - record.as_ptr().addr();
                let write = data::Write { file, offset, stable, at, bytes };
                // Where nothing can be changed, every answer is the same again.
                let respond = if self.export.read_only {
                    respond
                } else {
                    let key = answers::key(client, call.xid, call.procedure, &record);
                    match repeats::first_write(&self.export.answers, key, respond) {
                        Some(respond) => respond,
                        None => return,
                    }
                };
                self.write(client, call, &write, record, batch, respond);
            }
            _ => respond(plain(call.xid, Accepted::GarbageArgs)),
        }
    }

    /// Closes what nobody has used for a while.
    pub(crate) fn sweep(&self) {
        self.open_files.sweep();
        self.objects.sweep();
    }

    /// In whose name a call is carried out.
    fn caller(&self, call: &Call) -> Caller {
        let caller = match &call.credential {
            Credential::None => return self.export.users.server(Caller::NOBODY),
            Credential::Sys { uid, gid, groups, group_count } => {
                let groups = match self.export.own_groups {
                    true => Groups::UNKNOWN,
                    false => Groups::of(groups[..*group_count].iter().copied()),
                };
                Caller { groups, ..Caller::new(*uid, *gid) }
            }
        };
        self.export.users.server(caller)
    }

    /// Who sends a read or write of an open file, for the gate: each user of each client is an application, unless it has a fixed one.
    fn origin(&self, client: IpAddr, caller: Caller, open: &OpenFile<T::Held>) -> Origin {
        let app = match self.export.engine.class_by() {
            ClassBy::User => application(&self.export.engine, caller.uid, caller.gid),
            ClassBy::Path => self.export.engine.class_by_path(&open.class, || open.file.path()),
            ClassBy::App | ClassBy::Job | ClassBy::Account => self.application(client, caller.uid),
        };
        let number = stable_hash(client.to_string().as_bytes());
        Origin { app, client: ClientId(number), issued: None, ..Origin::default() }
    }

    fn application(&self, client: IpAddr, uid: u32) -> AppId {
        let fixed = self.export.applications.find(format!("{}/{uid}", client.to_canonical()).as_ref());
        fixed.map_or_else(|| application_of_word(&format!("{client} {uid}")), |(app, _)| app)
    }

    fn named(&self, handle: &FileHandle) -> Result<Named<T::Held>, Status> {
        let (object, known) = self.objects.find(handle)?;
        let attr = self.attr_of(&known);
        Ok(Named { object, known, attr })
    }

    fn attr_of(&self, known: &Known) -> Fattr {
        fattr(known, self.objects.fsid(), &self.export.users)
    }

    /// The attributes of a file that is held, if they can be had.
    fn look(&self, object: &Object<T::Held>) -> Option<Fattr> {
        self.export.tree.known(&object.held).ok().map(|known| self.attr_of(&known))
    }

    /// Makes a change of names or attributes durable, unless that is left to the file system.
    fn make_durable(&self, held: &T::Held, known: &Known) -> io::Result<()> {
        if !self.export.sync_names {
            return Ok(());
        }
        let tree = &self.export.tree;
        tree.sync_held(held).inspect_err(|_| {
            if self.attr_of(known).kind == Kind::Regular {
                losses::note(&self.export.answers, known.identity, tree.losses(known.identity));
            }
        })
    }

    /// Carries out a change of a file, with its attributes before and after.
    fn changing<R>(
        &self,
        named: &Named<T::Held>,
        change: impl FnOnce() -> io::Result<R>,
    ) -> (Result<R, Status>, Wcc) {
        if self.export.read_only {
            return (Err(Status::RoFs), Wcc { before: None, after: Some(named.attr) });
        }
        let identity = named.object.identity;
        self.order.begin(identity, || self.look(&named.object));
        let mut result = change();
        if result.is_ok() {
            let synced = self.make_durable(&named.object.held, &named.known);
            result = result.and_then(|done| synced.map(|()| done));
        }
        let wcc = self.order.end(identity, || self.look(&named.object));
        (result.map_err(|error| status(&error)), wcc)
    }
}

/// An answer without results.
fn plain(xid: u32, accepted: Accepted) -> Answer {
    if accepted != Accepted::Success {
        tracing::debug!(xid = format_args!("{xid:08x}"), ?accepted, "a call is not carried out");
    }
    let mut head = vec![0; 4];
    put_accepted(&mut head, xid, accepted);
    finish(head)
}

/// An answer with the results of a call of NFS.
fn answered(xid: u32, reply: &Reply) -> Answer {
    if reply.status().is_trouble() {
        tracing::debug!(xid = format_args!("{xid:08x}"), ?reply, "a call has failed");
    }
    let mut head = vec![0; 4];
    put_accepted(&mut head, xid, Accepted::Success);
    reply.put(&mut head);
    finish(head)
}

/// Writes the mark of a record that is complete.
fn finish(head: Vec<u8>) -> Answer {
    finish_with(head, Vec::new())
}

/// As [`finish`], with data behind it.
fn finish_with(mut head: Vec<u8>, data: Vec<u8>) -> Answer {
    let bytes = head.len() - 4 + data.len();
    head[..4].copy_from_slice(&records::mark(bytes));
    Answer { head, data }
}
