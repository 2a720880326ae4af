//! Everything but reads and writes: carried out by workers, in the caller's name.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Instant;

use iogate_core::answers::Name;
use iogate_core::recording::RecordingError;
use iogate_core::refusal::Refusal;
use iogate_core::wire::{
    self, Attr, Change, Gone, NO_HANDLE, Offset, Opened, PATH_BYTES_MAX, ReadRecording, Record, Request,
    RequestHeader, Synced, VALUE_BYTES_MAX, open, set,
};
use iogate_engine::{ClassBy, PathClass};
use iogate_vfs::fence::Pass;
use iogate_vfs::{Caller, Groups, OpenHow, Tree, policy_file};

use crate::ThisSystem;

use super::CONTROL;
use super::buffer::{Buffer, Charge};
use super::incoming::TakenIn;
use super::owned_request::OwnedRequest;
use super::session::{Answer, OpenFile, Session, explained};
use iogate_vfs::answers::Begun;

/// Flags that change something, or let it be changed.
const CHANGING: u32 = open::WRITE | open::CREATE | open::TRUNCATE | open::TEMPORARY;

/// Modes of `fallocate(2)` that do not do the same when done again.
const MOVING: u32 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u32;

/// The memory that an operation holds.
pub(super) struct Held {
    pub(super) payload: Option<Buffer>,
    /// For what is known of it, and for its reply.
    pub(super) charge: Option<Charge>,
}

impl Held {
    /// The payload of a request with this header.
    fn value(&self, header: &RequestHeader) -> &[u8] {
        self.payload.as_ref().map_or(&[], |payload| &payload.as_slice()[..header.payload as usize])
    }
}

impl Session {
    /// Carries out a request, here if that is quick; else leaves it to a worker, or to the calling thread when it has read all there
    /// is.
    pub(super) fn operate(self: &Arc<Self>, asked: Asked, taken: &mut TakenIn) {
        let request = asked.request.get();
        match request {
            Request::Ping(_) => {
                return asked.answer.fresh(&Offset { offset: crate::system::unix_now() });
            }
            // What comes after these on the connection sees that they have come.
            Request::Open(open) => {
                if let Err(refusal) = self.reserve(open.handle) {
                    return asked.answer.refuse(&refusal);
                }
            }
            Request::Close(close) => {
                let answer = asked.answer;
                return match self.close(close.handle) {
                    Ok(file) => taken.keep(self, move || {
                        let gone = answer.session().gone(file.file.close());
                        drop(file);
                        answer.kept(&gone);
                    }),
                    Err(refusal) => answer.refuse(&refusal),
                };
            }
            Request::Reserve(_) | Request::Settle(_) | Request::Resize(_) => {
                return self.ask_for_end(asked.answer, request, asked.held.value(&asked.header));
            }
            _ => {}
        }
        let is_control = matches!(
            request,
            Request::Status(_)
                | Request::Configure(_)
                | Request::ReadRecording(_)
                | Request::ReadAccounts(_)
                | Request::Trail(_)
        );
        let takes_long = matches!(request, Request::Sync(_) | Request::Allocate(_) | Request::Goodbye(_));
        let since = Instant::now();
        let job = move || asked.carry_out(since);
        if is_control {
            self.server.control.run_for(CONTROL, self.number(), job);
        } else if takes_long {
            self.run(job);
        } else {
            taken.keep(self, job);
        }
    }

    /// Most bytes of the reply to a request, beyond the few that all have.
    pub(super) fn reply_bytes(&self, request: &Request<'_>) -> usize {
        match request {
            Request::ReadDir(read) => read.bytes.min(self.server.limits.transfer_bytes_max) as usize,
            Request::ReadLink(_) => PATH_BYTES_MAX,
            Request::GetXattr(_) | Request::ListXattr(_) => VALUE_BYTES_MAX as usize,
            Request::Status(_) => self.server.status_bytes(),
            Request::ReadRecording(read) => read.bytes.min(VALUE_BYTES_MAX) as usize,
            Request::ReadAccounts(_) => VALUE_BYTES_MAX as usize,
            _ => 0,
        }
    }

    /// In whose name a request is carried out, if it may be.
    fn acts_for(
        &self,
        header: &RequestHeader,
        groups: Groups,
        request: &Request<'_>,
    ) -> Result<Caller, Refusal> {
        // Whoever is let in may ask how the server is, whether it may do anything else or not.
        let caller = match request {
            Request::Status(_)
            | Request::Configure(_)
            | Request::ReadRecording(_)
            | Request::ReadAccounts(_)
            | Request::Trail(_)
            | Request::Goodbye(_) => self.user,
            _ => self.caller(header, groups)?,
        };
        self.refuse_reserved(request)?;
        Ok(caller)
    }

    pub(super) fn carry_out(
        &self,
        caller: Caller,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        if self.export.read_only && changes(request) {
            return Err(
                Refusal::new(libc::EROFS, format!("the export `{}` is read-only", self.export.name)).into()
            );
        }
        if let Some(outcome) = self.on_open_file(caller, request, value)? {
            return Ok(outcome);
        }
        match self.of_server(request)? {
            Some(outcome) => Ok(outcome),
            None => self.by_path(caller, request, value).inspect_err(|Failed(refusal)| {
                if [libc::EACCES, libc::EPERM].contains(&refusal.errno) {
                    self.tell_of_root(caller);
                }
            }),
        }
    }

    /// Carries out a request that names a file by its handle; `None`: it is none.
    fn on_open_file(
        &self,
        caller: Caller,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<Option<Outcome>, Failed> {
        Ok(Some(match *request {
            Request::Sync(sync) => {
                let verifier = self.export.sync(&*self.file(sync.handle)?.file, sync.data_only != 0)?;
                Outcome::fresh(&Synced { verifier })
            }
            Request::Allocate(allocate) => {
                if allocate.mode & MOVING != 0 {
                    let text = "what would move a file's bytes might do so twice: not between machines";
                    return Err(Refusal::new(libc::EOPNOTSUPP, text).into());
                }
                let file = self.file_for(allocate.handle, open::WRITE)?;
                file.file.allocate(allocate.mode, allocate.offset, allocate.bytes)?;
                Outcome::Done
            }
            Request::Seek(seek) => {
                let offset = self.file(seek.handle)?.file.seek(seek.offset, seek.hole != 0)?;
                Outcome::fresh(&Offset { offset })
            }
            Request::SetLock(set) => {
                self.set_lock(&set)?;
                Outcome::Done
            }
            Request::GetLock(get) => Outcome::fresh(&self.get_lock(&get)?),
            Request::GetLayout(get) => {
                let layout = self.file(get.handle)?.file.layout().unwrap_or(self.export.striping);
                let (first_target, stripe_bytes, targets) =
                    (layout.first_target, layout.stripe_bytes, layout.targets);
                Outcome::fresh(&wire::Striping { first_target, stripe_bytes, targets })
            }
            Request::GetAttr(get) if get.handle != NO_HANDLE => {
                Outcome::fresh(&self.seen(self.file(get.handle)?.file.attr()?))
            }
            Request::SetAttr(wanted) if wanted.handle != NO_HANDLE => {
                let change = self.server_change(&wanted.change)?;
                let file = match change.which & (set::FENCE | set::RENEW) {
                    0 => self.file(wanted.handle)?,
                    _ => self.file_for(wanted.handle, open::WRITE)?,
                };
                Outcome::kept(&self.seen(file.pass.set_attr(&*file.file, caller, &change)?))
            }
            Request::GetXattr(get) if get.handle != NO_HANDLE => {
                Outcome::Bytes(self.file(get.handle)?.file.xattr(caller, get.name)?)
            }
            Request::SetXattr(set) if set.handle != NO_HANDLE => {
                self.file(set.handle)?.file.set_xattr(caller, set.name, value, set.flags)?;
                Outcome::Done
            }
            Request::ListXattr(list) if list.handle != NO_HANDLE => {
                Outcome::Bytes(self.seen_attributes(self.file(list.handle)?.file.xattrs(caller)?))
            }
            Request::RemoveXattr(remove) if remove.handle != NO_HANDLE => {
                self.file(remove.handle)?.file.remove_xattr(caller, remove.name)?;
                Outcome::Done
            }
            _ => return Ok(None),
        }))
    }

    /// Carries out a request that concerns no file; `None`: it is none.
    fn of_server(&self, request: &Request<'_>) -> Result<Option<Outcome>, Failed> {
        Ok(Some(match *request {
            Request::Status(_) => Outcome::Bytes(self.server.status_for(self).to_json()),
            Request::Configure(configure) => {
                self.configure(configure.scheduler)?;
                Outcome::Done
            }
            Request::ReadRecording(read) => Outcome::Bytes(self.read_recording(&read)?),
            Request::ReadAccounts(read) => Outcome::Bytes(self.export.accounts_json(read.from)),
            Request::Trail(trail) => {
                self.export.tree.leads_on(trail.links)?;
                Outcome::Done
            }
            Request::Goodbye(_) => {
                self.server.end_here(self);
                Outcome::Done
            }
            Request::Claim(_)
            | Request::Release(_)
            | Request::Renew(_)
            | Request::Cancel(_)
            | Request::Evict(_)
            | Request::ReportUse(_) => {
                let text = "this server serves files: turns and shares are given by a coordinator, `iogate coord serve`";
                return Err(Refusal::new(libc::EOPNOTSUPP, text).into());
            }
            _ => return Ok(None),
        }))
    }

    /// Carries out a request that names a file by its path.
    fn by_path(&self, caller: Caller, request: &Request<'_>, value: &[u8]) -> Result<Outcome, Failed> {
        let tree = &*self.export.tree;
        Ok(match *request {
            Request::Open(open) => return self.open(tree, caller, &open),
            Request::GetAttr(get) => Outcome::fresh(&self.seen(tree.attr(caller, path(get.path)?)?)),
            Request::SetAttr(wanted) => {
                let change = self.server_change(&wanted.change)?;
                let attr = tree.set_attr(caller, path(wanted.path)?, wanted.identity, &change)?;
                Outcome::kept(&self.seen(attr))
            }
            Request::ReadDir(read) => Outcome::Bytes(self.read_dir(tree, caller, &read)?),
            Request::MakeNode(make) => {
                let attr = tree.make_node(caller, path(make.path)?, make.mode, make.device)?;
                Outcome::kept(&self.seen(attr))
            }
            Request::Symlink(link) => {
                let target = Path::new(OsStr::from_bytes(link.target));
                Outcome::kept(&self.seen(tree.symlink(caller, target, path(link.path)?)?))
            }
            Request::Link(link) => {
                Outcome::kept(&self.seen(tree.link(caller, path(link.path)?, path(link.to)?)?))
            }
            Request::ReadLink(read) => Outcome::Bytes(tree.read_link(caller, path(read.path)?)?),
            Request::Unlink(unlink) => {
                let gone = tree.unlink(caller, path(unlink.path)?, unlink.directory != 0)?;
                Outcome::kept(&self.gone(gone))
            }
            Request::Rename(rename) => {
                let gone = tree.rename(caller, path(rename.path)?, path(rename.to)?, rename.flags)?;
                Outcome::kept(&self.gone(gone))
            }
            Request::StatFs(_) => Outcome::fresh(&tree.space()?),
            Request::GetXattr(get) => Outcome::Bytes(tree.xattr(caller, path(get.path)?, get.name)?),
            Request::SetXattr(set) => {
                tree.set_xattr(caller, path(set.path)?, set.identity, set.name, value, set.flags)?;
                Outcome::Done
            }
            Request::ListXattr(list) => {
                Outcome::Bytes(self.seen_attributes(tree.xattrs(caller, path(list.path)?)?))
            }
            Request::RemoveXattr(remove) => {
                tree.remove_xattr(caller, path(remove.path)?, remove.identity, remove.name)?;
                Outcome::Done
            }
            // What others carry out, and what has been dealt with before.
            _ => return Err(Refusal::new(libc::EPROTO, "not expected here").into()),
        })
    }

    fn server_change(&self, change: &Change) -> Result<Change, Refusal> {
        self.export.users.server_change(change).ok_or_else(|| {
            Refusal::new(libc::EINVAL, "the owner or the group has no counterpart at this server")
        })
    }

    /// Attributes as the client sees them.
    fn seen(&self, mut attr: Attr) -> Attr {
        self.export.users.client_attr(&mut attr);
        if !self.stripes {
            attr.object = Gone::NONE.object;
        }
        attr
    }

    pub(super) fn open(
        &self,
        tree: &dyn Tree,
        caller: Caller,
        wish: &wire::Open<'_>,
    ) -> Result<Outcome, Failed> {
        let how =
            OpenHow { flags: wish.flags, mode: wish.mode, identity: wish.identity, stripes: self.stripes };
        let file = tree.open(caller, path(wish.path)?, how)?;
        let attr = self.seen(file.opened_attr()?);
        let is_new = (self.stripes && file.object().is_new).into();
        let (end_handle, begun) = self.end_handle(tree, &*file, wish.flags)?;
        let pending_size = begun.unwrap_or(u64::MAX);
        let opened = Opened { identity: file.identity(), pending_size, is_new, attr };
        let lane = self.export.appends.lane(&*file);
        let pass = Pass::new(&self.export.fences);
        let file = OpenFile { file, flags: wish.flags, lane, end_handle, pass, class: PathClass::default() };
        if self.export.engine.class_by() == ClassBy::Path {
            file.class(&self.export.engine);
        }
        if wish.flags & open::WRITE != 0 {
            file.lane.settle(&file, &self.export)?;
        }
        self.fill(wish.handle, file);
        Ok(Outcome::kept(&opened))
    }

    fn read_dir(&self, tree: &dyn Tree, caller: Caller, read: &wire::ReadDir<'_>) -> Result<Vec<u8>, Failed> {
        let most = read.bytes.min(self.server.limits.transfer_bytes_max) as usize;
        let mut entries = Vec::new();
        let mut too_small = false;
        tree.read_dir(caller, path(read.path)?, read.after, &mut |entry, name| {
            if !self.sees_entry(read.path, name) {
                return true;
            }
            if entries.len() + wire::ENTRY_BYTES + name.len() > most {
                too_small = entries.is_empty();
                return false;
            }
            let attr = self.seen(entry.attr);
            wire::Entry { attr, ..*entry }.encode(&mut entries);
            entries.extend_from_slice(name);
            true
        })?;
        if too_small {
            return Err(
                Refusal::new(libc::EINVAL, format!("{most} bytes are too few for the next entry")).into()
            );
        }
        Ok(entries)
    }

    /// Refuses what only root and the server's user may do.
    fn refuse_others(&self, what: &str) -> Result<(), Failed> {
        let own = rustix::process::geteuid().as_raw();
        if self.user.uid == 0 || self.user.uid == own {
            return Ok(());
        }
        let text = format!("{what} by root and the server's user only");
        Err(Refusal::new(libc::EPERM, text).into())
    }

    fn read_recording(&self, read: &ReadRecording) -> Result<Vec<u8>, Failed> {
        self.refuse_others("the gate may be recorded")?;
        let bytes = read.bytes.min(VALUE_BYTES_MAX) as usize;
        let recorded = self.export.engine.record(read.name, read.from, bytes);
        Ok(recorded.map_err(|error| {
            let errno = match error {
                RecordingError::TooMany => libc::EUSERS,
                RecordingError::Ended => libc::ESTALE,
            };
            Refusal::new(errno, error.to_string())
        })?)
    }

    fn configure(&self, text: &[u8]) -> Result<(), Failed> {
        self.refuse_others("the scheduler may be changed")?;
        let invalid = |text: String| Refusal::new(libc::EINVAL, text);
        let text = std::str::from_utf8(text).map_err(|_| invalid("expected text".into()))?;
        Ok(policy_file::set(&self.export.engine, text, self.server.node, &ThisSystem).map_err(invalid)?)
    }
}

/// A request that is to be carried out.
pub(super) struct Asked {
    pub(super) answer: Answer,
    pub(super) header: RequestHeader,
    pub(super) groups: Groups,
    pub(super) request: OwnedRequest,
    pub(super) held: Held,
}

impl Asked {
    /// Carries it out, if its client still waits: it came at `since`.
    fn carry_out(mut self, since: Instant) {
        let request = self.request.get();
        let session = Arc::clone(self.answer.session());
        if !matches!(request, Request::Goodbye(_)) {
            let opening = if let Request::Open(open) = request { Some(open.handle) } else { None };
            let Some(answer) = self.answer.if_wanted(since, opening) else { return };
            self.answer = answer;
        }
        let value = self.held.value(&self.header);
        let mut opening = Opening::of(&session, request);
        let outcome = match session.acts_for(&self.header, self.groups, request) {
            Err(refusal) => Err(refusal.into()),
            Ok(caller) => match session.remembers(caller, request) {
                None => session.carry_out(caller, request, value),
                Some((answers, key)) => {
                    let names = session.names_of(caller, request);
                    match answers.begin(key, caller.origin.answered_below(), &names) {
                        Begun::New(running) => {
                            session.carry_out_noted(running, &names, caller, request, value)
                        }
                        Begun::Known(known) => session.repeat(caller, request, &known),
                        Begun::Running => {
                            opening.goes_on();
                            let again = Arc::clone(&session);
                            return answers.wait(&key, move || again.run(move || self.carry_out(since)));
                        }
                        Begun::Taken => {
                            opening.goes_on();
                            let again = Arc::clone(&session);
                            let names: Vec<_> = names.into_iter().map(Name::into_owned).collect();
                            return answers.wait_for_names(&key, &names, move |turn| {
                                again.run(move || {
                                    self.carry_out(since);
                                    drop(turn);
                                });
                            });
                        }
                        Begun::Unknown => {
                            let text = "nobody knows any more whether the request was carried out before";
                            Err(Refusal::new(libc::EIO, text).into())
                        }
                    }
                }
            },
        };
        // Before the answer, as the client may then take the handle for another file.
        drop(opening);
        let Asked { answer, held: Held { mut charge, .. }, .. } = self;
        match outcome {
            Ok(Outcome::Done) => answer.done(),
            Ok(Outcome::Fields(fields)) => answer.fields(fields),
            Ok(Outcome::Fresh(fields)) => answer.fresh_fields(&fields),
            Ok(Outcome::Bytes(bytes)) => {
                if let Some(charge) = &mut charge {
                    charge.shrink(bytes.len());
                }
                answer.bytes(bytes, charge);
            }
            Err(Failed(refusal)) => answer.refuse(&refusal),
        }
    }
}

/// Gives up the handle that an open has taken, if it is not filled by then: it failed, or panicked.
struct Opening {
    session: Arc<Session>,
    handle: Option<u32>,
}

impl Opening {
    fn of(session: &Arc<Session>, request: &Request<'_>) -> Opening {
        let handle = if let Request::Open(open) = request { Some(open.handle) } else { None };
        Opening { session: Arc::clone(session), handle }
    }

    /// It is carried out later.
    fn goes_on(&mut self) {
        self.handle = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            self.session.release(handle);
        }
    }
}

/// What an operation answers.
pub(super) enum Outcome {
    Done,
    /// Fields to keep until the client has them.
    Fields(Vec<u8>),
    /// Fields that can be made again.
    Fresh(Vec<u8>),
    /// A payload that can be made again.
    Bytes(Vec<u8>),
}

impl Outcome {
    fn kept<'a>(record: &impl Record<'a>) -> Outcome {
        let mut fields = Vec::new();
        record.encode(&mut fields);
        Outcome::Fields(fields)
    }

    fn fresh<'a>(record: &impl Record<'a>) -> Outcome {
        let mut fields = Vec::new();
        record.encode(&mut fields);
        Outcome::Fresh(fields)
    }
}

/// Why an operation failed; made from a refusal, or from what a tree says.
pub(super) struct Failed(pub(super) Refusal);

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed(refusal)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed(explained(&error))
    }
}

/// Whether a request changes an export.
pub(super) fn changes(request: &Request<'_>) -> bool {
    match request {
        Request::Open(open) => open.flags & CHANGING != 0,
        Request::Allocate(_)
        | Request::SetAttr(_)
        | Request::MakeNode(_)
        | Request::Symlink(_)
        | Request::Link(_)
        | Request::Unlink(_)
        | Request::Rename(_)
        | Request::SetXattr(_)
        | Request::RemoveXattr(_) => true,
        _ => false,
    }
}

/// A path below the export's root. It leads nowhere else, whatever the tree makes of it.
fn path(bytes: &[u8]) -> Result<&Path, Failed> {
    if bytes.len() > PATH_BYTES_MAX {
        return Err(Refusal::new(libc::ENAMETOOLONG, "").into());
    }
    let path = Path::new(OsStr::from_bytes(bytes));
    let plain = |component| matches!(component, Component::Normal(_));
    if bytes.contains(&0) || !path.components().all(plain) {
        return Err(Refusal::new(libc::EINVAL, "expected a path below the root, without `.` and `..`").into());
    }
    Ok(path)
}
