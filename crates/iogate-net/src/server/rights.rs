//! What a session's client may do: in whose name, and what is only for forwarders that the server trusts.

use std::sync::atomic::Ordering;

use iogate_core::refusal::Refusal;
use iogate_core::reserved;
use iogate_core::wire::{Hello, Request, RequestHeader, hello};
use iogate_vfs::{Caller, Groups, groups};

use super::export::Served;
use super::operations::changes;
use super::session::Session;
use crate::transport::auth::Access;

/// What a session's client may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    /// It is one of the export's forwarders: it may act in other users' names, and use what is iogate's own.
    pub(super) trusted: bool,
    /// The server is meant for its own user.
    own_only: bool,
}

/// The process's own user.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Rights {
    /// What a client may do. Fails with `EPERM` if that is less than it asks for, or nothing at all.
    pub(super) fn of(
        hello: &Hello<'_>,
        export: &Served,
        access: &Access,
        user: Caller,
    ) -> Result<Rights, Refusal> {
        let trusted = export.forwarders.contains(&user.uid);
        if !trusted && (hello.nodes > 0 || hello.flags & hello::STRIPES != 0) {
            let text = "only users whom the server trusts may be forwarders: add this one to the export's `forwarders` there";
            return Err(Refusal::new(libc::EPERM, text));
        }
        let own_only = access.users.is_none() && own_uid() != 0;
        let rights = Rights { trusted, own_only };
        // Root and the server's own user may always ask how it is.
        if user.uid != 0 && user.uid != own_uid() {
            rights.check(export, user)?;
        }
        Ok(rights)
    }

    /// Fails with `EPERM` if nothing may be done for a user: it would be done in the server's own name.
    fn check(&self, export: &Served, user: Caller) -> Result<(), Refusal> {
        let as_own_user = self.own_only || !export.tree.acts_for_others();
        if as_own_user && export.users.server(user).uid != own_uid() {
            let text = "this server acts in its own user's name only, for it is not root, or the servers behind it do not trust it \
                        (`forwarders` there); its owner can let others in (`users_allowed`, `users` here)";
            return Err(Refusal::new(libc::EPERM, text));
        }
        Ok(())
    }
}

impl Session {
    /// In whose name a request is carried out. Fails with `EPERM` if the server cannot act for that user.
    pub(super) fn caller(&self, header: &RequestHeader, groups: Groups) -> Result<Caller, Refusal> {
        self.rights.check(&self.export, self.user)?;
        let caller = if self.acts_for_others() {
            Caller { groups, ..Caller::new(header.uid, header.gid) }
        } else {
            self.user
        };
        let caller = without_roots_group(self.export.users.server(caller), &self.export);
        Ok(caller.with_origin(header.origin))
    }

    /// In whose name a write to an open file is; what it needs was checked when the file was opened.
    pub(super) fn writer(&self, header: &RequestHeader) -> Caller {
        let caller = if self.rights.trusted { Caller::new(header.uid, header.gid) } else { self.user };
        self.export.users.server(caller).with_origin(header.origin)
    }

    /// Whether the client may act in other users' names.
    pub(super) fn acts_for_others(&self) -> bool {
        self.rights.trusted && self.export.tree.acts_for_others()
    }

    /// Fails if a request is about what is iogate's own, and the client is not a forwarder that the server trusts.
    pub(super) fn refuse_reserved(&self, request: &Request<'_>) -> Result<(), Refusal> {
        if self.rights.trusted {
            return Ok(());
        }
        let is_changed = changes(request);
        if paths(request).into_iter().any(reserved::is_path) {
            // It is not listed either.
            let errno = if is_changed { libc::EPERM } else { libc::ENOENT };
            return Err(Refusal::new(errno, "this name is for forwarders that the server trusts"));
        }
        if attribute(request).is_some_and(reserved::is_attribute) {
            let errno = if is_changed { libc::EPERM } else { libc::ENODATA };
            return Err(Refusal::new(errno, "this attribute is for forwarders that the server trusts"));
        }
        Ok(())
    }

    /// Names of extended attributes, each followed by a zero byte, without those that the client may not know.
    pub(super) fn seen_attributes(&self, names: Vec<u8>) -> Vec<u8> {
        if self.rights.trusted {
            return names;
        }
        let seen = |name: &&[u8]| !reserved::is_attribute(name);
        names.split_inclusive(|&byte| byte == 0).filter(seen).collect::<Vec<_>>().concat()
    }

    /// Whether the client may see an entry of a directory.
    pub(super) fn sees_entry(&self, directory: &[u8], name: &[u8]) -> bool {
        self.rights.trusted || name != reserved::DIRECTORY || directory.iter().any(|&byte| byte != b'/')
    }

    /// Says once that root is not root here, if that may be why this caller was refused.
    pub(super) fn tell_of_root(&self, refused: Caller) {
        let root = self.export.users.server(Caller::new(0, 0)).uid;
        if root != 0 && refused.uid == root && !self.export.has_told_of_root.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the export `{}` has refused user {root} something, which clients' root is here: users = {{ squash = \"none\" }} lets \
                 root be root; this is said once",
                self.export.name
            );
        }
    }

    /// Whether the client may see who else is connected.
    pub(super) fn sees_others(&self) -> bool {
        [0, own_uid()].contains(&self.user.uid)
    }
}

/// A caller that is to be none of root's group, where the user database of this machine says that it is.
fn without_roots_group(caller: Caller, export: &Served) -> Caller {
    if caller.uid == 0 || caller.groups != Groups::UNKNOWN || !export.users.squashes_root() {
        return caller;
    }
    match groups::of_user(caller.uid, caller.gid) {
        Ok(found) if found.contains(&0) => {
            let others = found.iter().copied().filter(|&group| group != 0);
            Caller { groups: Groups::of(others), ..caller }
        }
        // If it cannot be looked up, whoever acts fails.
        _ => caller,
    }
}

/// The paths of a request; empty: none.
pub(super) fn paths<'a>(request: &Request<'a>) -> [&'a [u8]; 2] {
    let one = |path| [path, &b""[..]];
    match *request {
        Request::Open(ref request) => one(request.path),
        Request::GetAttr(ref request) => one(request.path),
        Request::SetAttr(ref request) => one(request.path),
        Request::ReadDir(ref request) => one(request.path),
        Request::MakeNode(ref request) => one(request.path),
        Request::Symlink(ref request) => one(request.path),
        Request::Link(ref request) => [request.path, request.to],
        Request::ReadLink(ref request) => one(request.path),
        Request::Unlink(ref request) => one(request.path),
        Request::Rename(ref request) => [request.path, request.to],
        Request::GetXattr(ref request) => one(request.path),
        Request::SetXattr(ref request) => one(request.path),
        Request::ListXattr(ref request) => one(request.path),
        Request::RemoveXattr(ref request) => one(request.path),
        _ => one(b""),
    }
}

/// The extended attribute of a request.
pub(super) fn attribute<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    match *request {
        Request::GetXattr(ref request) => Some(request.name),
        Request::SetXattr(ref request) => Some(request.name),
        Request::RemoveXattr(ref request) => Some(request.name),
        _ => None,
    }
}
