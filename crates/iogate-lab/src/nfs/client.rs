//! A client's calls, until they are answered, and what it has written and not committed.

use iogate_nfs::rpc::{Accepted, Call, Credential, GROUPS_MAX, take_reply};
use iogate_nfs::wire::{
    CreateHow, FileHandle, MOUNT_PROGRAM, MountReply, MountRequest, NFS_PROGRAM, Reply, Request, VERSION,
};
use iogate_nfs::xdr::Reader;
use iogate_sim::rng::Rng;

use super::server::Sender;
use super::world::{Answered, Event, MS, Shared, lock, wait};
use crate::fiber;

/// A program on a client's machine, as its kernel knows it.
pub(super) struct Caller {
    pub(super) shared: Shared,
    pub(super) client: usize,
    pub(super) rng: Rng,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// The boot in which it was given.
    pub(super) boot: u64,
    /// The machine has crashed since the call was first sent: what it had done then may be forgotten.
    pub(super) is_over_crash: bool,
}

impl Caller {
    /// Calls, and waits for the answer. `None`: nothing goes on any more.
    pub(super) fn call(&self, request: &Request<'_>) -> Option<Answer> {
        let mut arguments = Vec::new();
        request.put(&mut arguments);
        let procedure = request.procedure();
        let before = lock(&self.shared).disk().boots;
        let (bytes, boot) = self.ask(NFS_PROGRAM, procedure, &arguments)?;
        let mut from = Reader::new(&bytes);
        let taken = take_reply(&mut from).map(|(_, accepted)| (accepted, Reply::take(procedure, &mut from)));
        let mut world = lock(&self.shared);
        match taken {
            Ok((Some(Accepted::Success), Ok(Some(reply)))) => {
                world.note(|| {
                    format!("client {}: {} is answered {}", self.client, said(request), answered(&reply))
                });
                world.report.calls += 1;
                Some(Answer { reply, boot, is_over_crash: boot != before })
            }
            other => {
                world.found(&format!("{request:?} is answered {other:?}"));
                None
            }
        }
    }

    /// The root.
    pub(super) fn mount(&self) -> Option<FileHandle> {
        let (mount, mut arguments) = (MountRequest::Mount(b"/export"), Vec::new());
        mount.put(&mut arguments);
        let (bytes, _) = self.ask(MOUNT_PROGRAM, mount.procedure(), &arguments)?;
        let mut from = Reader::new(&bytes);
        let taken = take_reply(&mut from).map(|_| MountReply::take(mount.procedure(), &mut from));
        match taken {
            Ok(Ok(Some(MountReply::Mount(Ok((root, _)))))) => Some(root),
            other => {
                lock(&self.shared).found(&format!("a mount is answered {other:?}"));
                None
            }
        }
    }

    /// Sends a call, the same again and again, until it is answered: also while the server works on it, and by the same connection.
    fn ask(&self, program: u32, procedure: u32, arguments: &[u8]) -> Option<Answered> {
        let fiber = fiber::current()?;
        let (xid, mut pause) = {
            let mut world = lock(&self.shared);
            let pause = world.rng.between(MS, 1000 * MS);
            let client = &mut world.clients[self.client];
            client.last_xid = client.last_xid.wrapping_add(1);
            client.waiting.insert(client.last_xid, (fiber, None));
            (client.last_xid, pause)
        };
        let credential = Credential::Sys { uid: 0, gid: 0, groups: [0; GROUPS_MAX], group_count: 0 };
        let mut bytes = Vec::new();
        Call { xid, program, version: VERSION, procedure, credential }.put(&mut bytes);
        bytes.extend_from_slice(arguments);
        loop {
            let (until, starts) = {
                let mut world = lock(&self.shared);
                let from = Sender { client: self.client, wire: world.clients[self.client].wire };
                world.send(Event::ToServer { from, bytes: bytes.clone() });
                (world.now + pause, world.server.starts)
            };
            let mut wire = None;
            let answered = wait(&self.shared, until, |world| {
                let of = &mut world.clients[self.client];
                if of.waiting.get(&xid).is_some_and(|(_, answer)| answer.is_some()) {
                    return Some(of.waiting.remove(&xid).and_then(|(_, answer)| answer));
                }
                // A connection that is cut is made anew, and all that waits is sent again; what a killed process had is over.
                let is_cut = wire.replace(of.wire).is_some_and(|before| before != of.wire);
                ((is_cut || world.server.starts != starts) && world.server.is_up).then_some(None)
            });
            if let Some(Some(answer)) = answered {
                return Some(answer);
            }
            let mut world = lock(&self.shared);
            if world.is_over {
                return None;
            }
            world.report.repeats += 1;
            pause = (2 * pause).min(4000 * MS);
        }
    }
}

/// A call in a few words.
fn said(request: &Request<'_>) -> String {
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match request {
        Request::Write { offset, count, stable, .. } => format!("WRITE {stable:?} {count} at {offset}"),
        Request::Read { offset, .. } => format!("READ at {offset}"),
        Request::Create { place, how } => {
            let how = match how {
                CreateHow::Unchecked(attr) => format!("unchecked, to {:?} bytes", attr.size),
                CreateHow::Guarded(_) => "guarded".into(),
                CreateHow::Exclusive(verifier) => format!("exclusive {verifier:?}"),
            };
            format!("CREATE {} {how}", name(place.name))
        }
        Request::MkDir { place, .. } => format!("MKDIR {}", name(place.name)),
        Request::Remove(place) => format!("REMOVE {}", name(place.name)),
        Request::RmDir(place) => format!("RMDIR {}", name(place.name)),
        Request::LookUp(place) => format!("LOOKUP {}", name(place.name)),
        Request::Rename { from, to } => format!("RENAME {} to {}", name(from.name), name(to.name)),
        Request::SetAttr { attr, .. } => format!("SETATTR, to {:?} bytes", attr.size),
        Request::GetAttr(_) => "GETATTR".into(),
        Request::Commit { .. } => "COMMIT".into(),
        other => format!("procedure {}", other.procedure()),
    }
}

/// An answer in a few words.
fn answered(reply: &Reply) -> String {
    match reply {
        Reply::Write { result, .. } => format!("{result:?}"),
        Reply::Commit { result, .. } => format!("{result:?}"),
        Reply::Made { result, .. } => {
            format!("{:?}", result.as_ref().map(|(_, attr)| attr.map(|attr| attr.fileid)))
        }
        Reply::LookUp { result, .. } => {
            format!("{:?}", result.as_ref().map(|(_, attr)| attr.map(|attr| attr.fileid)))
        }
        Reply::Removed(status, _) | Reply::Rename { status, .. } | Reply::SetAttr(status, _) => {
            format!("{status:?}")
        }
        Reply::Read { result, .. } => {
            format!("{:?}", result.as_ref().map(|(bytes, is_end)| (bytes.len(), *is_end)))
        }
        Reply::GetAttr(result) => format!("{:?}", result.map(|attr| attr.fileid)),
        other => format!("{other:?}"),
    }
}
