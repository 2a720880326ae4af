//! Requests for names and attributes that must not be carried out twice.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iogate_core::answers::{Found, Key, NameIntent, Outcome as Noted, State, Verdict};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, Attr, Gone, Identity, NO_HANDLE, Record, Request, open};
use iogate_vfs::answers::{Answers, Running, ToNote, unless_absent};
use iogate_vfs::{Caller, Tree, Users};

use super::operations::{Failed, Outcome};
use super::rights::{attribute, paths};
use super::session::Session;

const NOBODY: Identity = Identity { inode: 0, generation: 0 };

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

    /// The names that a request changes, which no other changes meanwhile: that of an open file if its tree knows it. As the client
    /// spells them: who goes through a symbolic link has another name.
    pub(super) fn names_of<'a>(&self, request: &Request<'a>) -> Vec<Cow<'a, [u8]>> {
        if let Some((handle, _)) = attribute_by_handle(request) {
            let path = self.file(handle).ok().and_then(|open| open.file.path());
            return path.map(|path| Cow::Owned(path.into_os_string().into_vec())).into_iter().collect();
        }
        paths(request).into_iter().filter(|path| !path.is_empty()).map(spelt_out).collect()
    }

    /// Carries out a request that has its names, with its intent noted before and its outcome behind.
    pub(super) fn carry_out_noted(
        &self,
        running: Running,
        names: &[Cow<'_, [u8]>],
        caller: Caller,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        let intent = match (attribute_by_handle(request), names) {
            (None, _) => intent(&*self.export.tree, caller, request),
            (Some((handle, name)), [path]) => {
                self.attribute_intent(caller, (request.kind(), handle), path, name)
            }
            // Where the file is, nobody can say.
            (Some((_, name)), _) => untold(b"", name),
        };
        if intent.does_nothing() {
            let outcome = self.carry_out(caller, request, value)?;
            return self.finished(running, request.kind(), Ok(outcome));
        }
        match running.intend(&intent) {
            // A full disk must not keep anybody from making room. This process knows the request again, the next one will not.
            Err(error) if is_full(&error) && matches!(request, Request::Unlink(_)) => {}
            noted => noted?,
        }
        let result = self.carry_out(caller, request, value);
        self.finished(running, request.kind(), result)
    }

    /// Notes what was done.
    fn finished(
        &self,
        running: Running,
        kind: u16,
        result: Result<Outcome, Failed>,
    ) -> Result<Outcome, Failed> {
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

    /// The intent of a request of this kind for an attribute of the file with this handle, which is at `path`.
    fn attribute_intent<'a>(
        &self,
        caller: Caller,
        (kind, handle): (u16, u32),
        path: &'a [u8],
        name: &'a [u8],
    ) -> NameIntent<'a> {
        let own = self.file(handle).map(|open| open.file.identity());
        // As the server looks at it after a kill. Another file may have the name that this one had.
        match (own, found(&*self.export.tree, caller, kind, path, name)) {
            (Ok(file), Ok(found)) if file == found.file => {
                NameIntent { kind, file, other: NOBODY, had: found.has.into(), path, to: name }
            }
            _ => untold(path, name),
        }
    }

    /// Answers a request that was carried out before, in this session or another.
    pub(super) fn repeat(
        &self,
        caller: Caller,
        request: &Request<'_>,
        known: &[u8],
    ) -> Result<Outcome, Failed> {
        let kinds = [request.kind(), NameIntent::UNTOLD];
        let Some(known) = Noted::decode(known).ok().filter(|known| kinds.contains(&known.kind)) else {
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

/// The handle and the name of a request for an attribute of an open file.
fn attribute_by_handle<'a>(request: &Request<'a>) -> Option<(u32, &'a [u8])> {
    let (handle, name) = match *request {
        Request::SetXattr(set) => (set.handle, set.name),
        Request::RemoveXattr(remove) => (remove.handle, remove.name),
        _ => return None,
    };
    (handle != NO_HANDLE).then_some((handle, name))
}

/// A path without what says nothing, as in `a//b` and `a/./b`.
fn spelt_out(path: &[u8]) -> Cow<'_, [u8]> {
    let says_nothing = |part: &[u8]| part.is_empty() || part == b".";
    if path.split(|&byte| byte == b'/').any(says_nothing) {
        let path: PathBuf = as_path(path).components().collect();
        return path.into_os_string().into_vec().into();
    }
    path.into()
}

/// The intent of a request of which nobody will be able to tell what became of it.
fn untold<'a>(path: &'a [u8], to: &'a [u8]) -> NameIntent<'a> {
    NameIntent { kind: NameIntent::UNTOLD, file: NOBODY, other: NOBODY, had: 0, path, to }
}

/// What is to be noted before a request is carried out.
fn intent<'a>(tree: &dyn Tree, caller: Caller, request: &Request<'a>) -> NameIntent<'a> {
    let [path, to] = paths(request);
    let to = attribute(request).unwrap_or(to);
    match found(tree, caller, request.kind(), path, to) {
        Ok(Found { file, other, has }) => {
            NameIntent { kind: request.kind(), file, other, had: has.into(), path, to }
        }
        Err(_) => untold(path, to),
    }
}

/// What there is that a request of this kind may change, as far as the caller may see.
///
/// # Errors
/// If that cannot be told.
fn found(tree: &dyn Tree, caller: Caller, kind: u16, path: &[u8], to: &[u8]) -> io::Result<Found> {
    let named =
        |path| Ok::<_, io::Error>(unless_absent(tree.identity(caller, as_path(path)))?.unwrap_or_default());
    Ok(match kind {
        Request::SET_XATTR | Request::REMOVE_XATTR => {
            let has = unless_absent(tree.xattr(caller, as_path(path), to))?.is_some();
            Found { file: named(path)?, has, ..Found::default() }
        }
        Request::LINK | Request::RENAME => {
            Found { file: named(path)?, other: named(to)?, ..Found::default() }
        }
        _ => Found { file: named(path)?, ..Found::default() },
    })
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
        let found = match intent.kind {
            NameIntent::UNTOLD => Ok(Found::default()),
            kind => found(tree, caller, kind, intent.path, intent.to),
        };
        let (verdict, found) = match found {
            Ok(found) => (intent.judge(&found), found),
            Err(error) => {
                tracing::warn!(%error, path = %as_path(intent.path).display(), "what became of a request cannot be told");
                (Verdict::Unknown, Found::default())
            }
        };
        let (mut fields, mut errno) = (Vec::new(), 0);
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
