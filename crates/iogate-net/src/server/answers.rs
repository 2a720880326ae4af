//! Requests for names and attributes that must not be carried out twice.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iogate_core::answers::{Found, Key, Name, NameIntent, Outcome as Noted, State, Verdict};
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

    /// The names that a request changes, which no other changes meanwhile. As the client spells them: who goes through a symbolic link has
    /// another name. An attribute is its file's by whatever name, so that the file is one of its names.
    pub(super) fn names_of<'a>(&self, caller: Caller, request: &Request<'a>) -> Vec<Name<'a>> {
        let [path, to] = paths(request);
        match request {
            Request::SetXattr(_) | Request::RemoveXattr(_) => {
                let (path, file) = match attribute_by_handle(request) {
                    // Its path, if its tree knows it.
                    Some((handle, _)) => match self.file(handle) {
                        Ok(open) => (open.file.path().map(bytes_of), Some(open.file.identity())),
                        Err(_) => (None, None),
                    },
                    None => (Some(spelt_out(path)), identity(&*self.export.tree, caller, path).ok()),
                };
                path.map(Name::alone).into_iter().chain(file.as_ref().map(name_of_file)).collect()
            }
            Request::Rename(_) => [path, to].map(|path| Name::with_below(spelt_out(path))).into(),
            _ => [path, to]
                .into_iter()
                .filter(|path| !path.is_empty())
                .map(spelt_out)
                .map(Name::alone)
                .collect(),
        }
    }

    /// Carries out a request that has its names, with its intent noted before and its outcome behind.
    pub(super) fn carry_out_noted(
        &self,
        running: Running,
        names: &[Name<'_>],
        caller: Caller,
        request: &Request<'_>,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        let intent = intent(&*self.export.tree, caller, request, names);
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

/// What a file is called by those who need it by whatever name. No path has a zero.
fn name_of_file(file: &Identity) -> Name<'static> {
    let mut name = vec![0];
    file.encode(&mut name);
    Name::alone(name)
}

fn bytes_of<'a>(path: PathBuf) -> Cow<'a, [u8]> {
    path.into_os_string().into_vec().into()
}

/// What is to be noted before a request is carried out that has these names.
fn intent<'a>(
    tree: &dyn Tree,
    caller: Caller,
    request: &Request<'a>,
    names: &'a [Name<'_>],
) -> NameIntent<'a> {
    let [path, to] = paths(request);
    let (path, to, own) = match (attribute(request), names) {
        (None, _) => (path, to, None),
        (Some(attribute), [path, file]) => (&*path.path, attribute, Some(file)),
        // Where the file is, or which it is, nobody can say.
        (Some(attribute), _) => return untold(b"", attribute),
    };
    match found(tree, caller, request.kind(), path, to) {
        // As the server looks at it after a kill. Another file may have got the name meanwhile.
        Ok(Found { file, other, has }) if own.is_none_or(|own| *own == name_of_file(&file)) => {
            NameIntent { kind: request.kind(), file, other, had: has.into(), path, to }
        }
        _ => untold(path, to),
    }
}

/// What a path leads to; [`NOBODY`]: nothing.
fn identity(tree: &dyn Tree, caller: Caller, path: &[u8]) -> io::Result<Identity> {
    Ok(unless_absent(tree.identity(caller, as_path(path)))?.unwrap_or(NOBODY))
}

/// What there is that a request of this kind may change, as far as the caller may see.
///
/// # Errors
/// If that cannot be told.
fn found(tree: &dyn Tree, caller: Caller, kind: u16, path: &[u8], to: &[u8]) -> io::Result<Found> {
    let named = |path| identity(tree, caller, path);
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
                tracing::warn!(%error, path = ?as_path(intent.path), "what became of a request cannot be told");
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
        tracing::info!(?verdict, path = ?as_path(intent.path), "a request was underway at the end");
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
