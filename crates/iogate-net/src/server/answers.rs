//! Requests for names and attributes that must not be carried out twice.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iogate_core::answers::{Found, Key, NameIntent, Outcome as Noted, State, Verdict};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, Attr, Gone, Identity, NO_HANDLE, Record, Request, open};
use iogate_vfs::answers::{Answers, Running, ToNote};
use iogate_vfs::{Caller, Tree, Users};

use super::operations::{Failed, Outcome};
use super::session::Session;

const NOBODY: Identity = Identity { inode: 0, generation: 0 };

/// An attribute of a file that is open.
struct Attribute<'a> {
    name: &'a [u8],
    /// Where the file is, if its tree knows.
    place: Option<PathBuf>,
    is_there: bool,
}

impl Session {
    /// By what a request is known when it comes again, and to whom; `None` if it may as well be carried out again, or nobody
    /// would know it.
    pub(super) fn remembers(&self, caller: Caller, request: &Request<'_>) -> Option<(Arc<Answers>, Key)> {
        let is_harmless = match request {
            // Nobody finds a second file without a name.
            Request::Open(open) => open.flags & open::TEMPORARY != 0 || request.is_idempotent(),
            _ => request.is_idempotent(),
        };
        if is_harmless || self.export.read_only {
            return None;
        }
        let answers = self.export.answers.as_ref()?;
        Some((Arc::clone(answers), Key::of(caller.uid, &caller.origin)?))
    }

    /// Carries out a request, with its intent noted before and its outcome behind.
    pub(super) fn carry_out_noted(
        &self,
        running: Running,
        caller: Caller,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        let attribute = self.attribute_by_handle(caller, request);
        let intent = match &attribute {
            Some(Attribute { name, place: Some(path), is_there }) => {
                let (kind, had, path) = (request.kind(), u8::from(*is_there), path.as_os_str().as_bytes());
                NameIntent { kind, file: NOBODY, other: NOBODY, had, path, to: name }
            }
            // Where the file is, nobody can say: nor will anybody what came of this.
            Some(Attribute { name, place: None, .. }) => {
                NameIntent { kind: 0, file: NOBODY, other: NOBODY, had: 0, path: b"", to: name }
            }
            None => intent(&*self.export.tree, caller, request),
        };
        match running.intend(&intent) {
            // A full disk must not keep anybody from making room. This process knows the request again, the next one will not.
            Err(error) if is_full(&error) && matches!(request, Request::Unlink(_)) => {}
            noted => noted?,
        }
        let result = self.carry_out(caller, request, value);
        let kind = request.kind();
        match &result {
            Ok(Outcome::Fields(fields)) => {
                // A file that was created is opened again by its identity.
                let kept =
                    if kind == Request::OPEN { fields.get(..IDENTITY_BYTES) } else { Some(&fields[..]) };
                running.finish(&Noted { kind, errno: 0, fields: kept.unwrap_or_default() });
            }
            Ok(_) => running.finish(&Noted { kind, errno: 0, fields: &[] }),
            Err(Failed(refusal)) => running.finish(&Noted { kind, errno: refusal.errno as u16, fields: &[] }),
        }
        result
    }

    /// What a request for an attribute of an open file is about.
    fn attribute_by_handle<'a>(&self, caller: Caller, request: &Request<'a>) -> Option<Attribute<'a>> {
        let (handle, name) = match *request {
            Request::SetXattr(set) => (set.handle, set.name),
            Request::RemoveXattr(remove) => (remove.handle, remove.name),
            _ => return None,
        };
        let open = self.file(handle).ok();
        let is_there = open.as_ref().is_some_and(|open| open.file.xattr(caller, name).is_ok());
        let place = open.and_then(|open| open.file.path());
        (handle != NO_HANDLE).then_some(Attribute { name, place, is_there })
    }

    /// Answers a request that was carried out before, in this session or another.
    pub(super) fn repeat(
        &self,
        caller: Caller,
        request: &Request<'_>,
        known: &[u8],
    ) -> Result<Outcome, Failed> {
        let Some(known) = Noted::decode(known).ok().filter(|known| known.kind == request.kind()) else {
            let text = "the request's origin belongs to another one: expected a number of its own";
            return Err(Refusal::new(libc::EIO, text).into());
        };
        if known.errno != 0 {
            return Err(Refusal::new(known.errno.into(), "").into());
        }
        match request {
            Request::Open(wish) => {
                let identity = Identity::decode(known.fields).unwrap_or_default();
                let kept = wish.flags & !(open::CREATE | open::EXCLUSIVE | open::TRUNCATE);
                let flags = kept | open::AGAIN | open::NO_FOLLOW;
                self.open(&*self.export.tree, caller, &wire::Open { flags, identity, ..*wish })
            }
            _ if known.fields.is_empty() => Ok(Outcome::Done),
            _ => Ok(Outcome::Fields(known.fields.to_vec())),
        }
    }
}

const IDENTITY_BYTES: usize = 16;

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// What is to be noted before a request is carried out.
fn intent<'a>(tree: &dyn Tree, caller: Caller, request: &Request<'a>) -> NameIntent<'a> {
    let (mut file, mut other, mut had) = (NOBODY, NOBODY, 0);
    let named = |path| identity(tree, caller, path);
    let (path, to): (&[u8], &[u8]) = match *request {
        Request::Open(open) => (open.path, b""),
        Request::MakeNode(make) => (make.path, b""),
        Request::Symlink(link) => (link.path, b""),
        Request::Unlink(unlink) => (unlink.path, b""),
        Request::Link(link) => (link.path, link.to),
        Request::Rename(rename) => (rename.path, rename.to),
        Request::SetXattr(set) => (set.path, set.name),
        Request::RemoveXattr(remove) => (remove.path, remove.name),
        _ => (b"", b""),
    };
    match request {
        Request::SetXattr(_) | Request::RemoveXattr(_) => had = has(tree, caller, path, to).into(),
        Request::Link(_) | Request::Rename(_) => (file, other) = (named(path), named(to)),
        _ => file = named(path),
    }
    NameIntent { kind: request.kind(), file, other, had, path, to }
}

/// What a path names; zeros if nothing, or nothing that the caller may see.
fn identity(tree: &dyn Tree, caller: Caller, path: &[u8]) -> Identity {
    tree.identity(caller, as_path(path)).unwrap_or_default()
}

fn has(tree: &dyn Tree, caller: Caller, path: &[u8], name: &[u8]) -> bool {
    tree.xattr(caller, as_path(path), name).is_ok()
}

/// Finds out about the requests for names that were being carried out when the process before ended. Called before anybody
/// else is served, so that nobody else has changed anything since.
pub(super) fn settle(answers: &Answers, tree: &dyn Tree, users: &Users) -> io::Result<()> {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let caller = Caller::new(own.0, own.1);
    let mut notes = Vec::new();
    for (key, bytes) in answers.unsettled() {
        let Ok(intent) = NameIntent::decode(&bytes) else { continue };
        if intent.kind == Request::WRITE {
            continue;
        }
        let other = if [Request::LINK, Request::RENAME].contains(&intent.kind) {
            identity(tree, caller, intent.to)
        } else {
            NOBODY
        };
        let attribute = [Request::SET_XATTR, Request::REMOVE_XATTR].contains(&intent.kind);
        let found = Found {
            file: identity(tree, caller, intent.path),
            other,
            has: attribute && has(tree, caller, intent.path, intent.to),
        };
        let (mut fields, mut errno) = (Vec::new(), 0);
        let verdict = intent.judge(&found);
        let told = match verdict {
            Verdict::Done => answer(tree, users, caller, &intent, &found, &mut fields).is_ok(),
            Verdict::NotDone => true,
            Verdict::Unknown => false,
        };
        if !told {
            errno = libc::EIO as u16;
        }
        tracing::info!(?verdict, path = %as_path(intent.path).display(), "a request was underway at the end");
        let mut bytes = Vec::new();
        let state = if verdict == Verdict::NotDone {
            State::Void
        } else {
            Noted { kind: intent.kind, errno, fields: &fields }.encode(&mut bytes);
            State::Outcome
        };
        notes.push(ToNote { key, below: 0, state, bytes });
    }
    answers.remember(&notes)
}

/// What a request answers that is known to have been carried out.
fn answer(
    tree: &dyn Tree,
    users: &Users,
    caller: Caller,
    intent: &NameIntent<'_>,
    found: &Found,
    fields: &mut Vec<u8>,
) -> io::Result<()> {
    let path = match intent.kind {
        Request::OPEN => {
            found.file.encode(fields);
            return Ok(());
        }
        Request::MAKE_NODE | Request::SYMLINK => intent.path,
        Request::LINK => intent.to,
        Request::UNLINK | Request::RENAME => {
            Gone::NONE.encode(fields);
            return Ok(());
        }
        _ => return Ok(()),
    };
    let mut attr: Attr = tree.attr(caller, as_path(path))?;
    users.client_attr(&mut attr);
    attr.encode(fields);
    Ok(())
}
