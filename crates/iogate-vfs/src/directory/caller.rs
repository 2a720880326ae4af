//! Acting in a caller's name: file system ids, groups and capabilities are the thread's.
//!
//! Where the process is root, the kernel then checks the caller's permissions: the thread has its ids, its supplementary groups (as
//! they came with the request, else those that this machine's user database gives it), and no capabilities. Only root's
//! callers keep what the process may do. Where the process is not root, everything is done in its own name.

use std::cell::OnceCell;
use std::io;

use iogate_engine::privileges;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, UnshareFlags};

use crate::{Caller, groups};

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// What a thread is without a caller.
struct Own {
    groups: Vec<Gid>,
    gid: u32,
    capabilities: CapabilitySets,
}

impl Own {
    /// The calling thread as it is, which has an umask of its own from now on.
    fn with<R>(run: impl FnOnce(&Own) -> io::Result<R>) -> io::Result<R> {
        OWN.with(|cell| match cell.get() {
            Some(own) => run(own),
            None => {
                let own = prepare_thread()?;
                run(cell.get_or_init(|| own))
            }
        })
    }

    fn is_unlimited(&self) -> bool {
        privileges::taken_back(self.capabilities).effective == self.capabilities.effective
    }
}

/// Carries out operations in callers' names.
#[derive(Debug)]
pub(super) struct Names {
    is_root: bool,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { is_root: rustix::process::geteuid().is_root() }
    }

    /// Whether the process can act in other users' names.
    pub(super) fn acts_for_others(&self) -> bool {
        self.is_root
    }

    /// Runs `operation` in the caller's name, with an empty umask: clients have applied theirs.
    /// Fails with `EPERM` if the process may not act for the caller.
    pub(super) fn act<R>(
        &self,
        caller: Caller,
        operation: impl FnOnce() -> Result<R, Errno>,
    ) -> io::Result<R> {
        Own::with(|own| {
            if !self.is_root {
                return Ok(operation()?);
            }
            // Which to the system means to leave an id as it is.
            if caller.uid == u32::MAX || caller.gid == u32::MAX {
                return Err(Errno::PERM.into());
            }
            if caller.uid == 0 && caller.gid == own.gid {
                let _unlimited = Unlimited::take(own)?;
                return Ok(operation()?);
            }
            let groups = if caller.uid == 0 { None } else { Some(groups_of(caller)?) };
            let _name = Name::take(caller, groups.as_deref(), own)?;
            Ok(operation()?)
        })
    }

    /// As [`Names::act`], for what only looks or takes names away: of root it takes nothing that the thread does not have.
    pub(super) fn look<R>(
        &self,
        caller: Caller,
        operation: impl FnOnce() -> Result<R, Errno>,
    ) -> io::Result<R> {
        if self.is_root && caller.uid == 0 && caller.gid != u32::MAX {
            return Own::with(|_| Ok(operation()?));
        }
        self.act(caller, operation)
    }
}

/// Gives a thread of root's for an operation in root's own name what it gave up for reads and writes, until dropped.
struct Unlimited<'a>(Option<&'a Own>);

impl<'a> Unlimited<'a> {
    fn take(own: &'a Own) -> Result<Unlimited<'a>, Errno> {
        if own.is_unlimited() {
            return Ok(Unlimited(None));
        }
        rustix::thread::set_capabilities(None, privileges::taken_back(own.capabilities))?;
        Ok(Unlimited(Some(own)))
    }
}

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.0 {
            end_unless(rustix::thread::set_capabilities(None, own.capabilities));
        }
    }
}

/// Ends the process if a thread is not itself again.
fn end_unless(restored: Result<(), Errno>) {
    if let Err(error) = restored {
        tracing::error!(%error, "a thread could not leave its caller's name: the process ends");
        std::process::abort();
    }
}

/// The caller's groups: those that it came with, else those that the user database gives it.
fn groups_of(caller: Caller) -> io::Result<Vec<Gid>> {
    let ids = |groups: &[u32]| groups.iter().map(|&group| Gid::from_raw(group)).collect();
    match caller.groups.list() {
        Some(groups) => Ok(ids(groups)),
        None => Ok(ids(&groups::of_user(caller.uid, caller.gid)?)),
    }
}

/// Gives the calling thread a umask of its own, which is empty from now on.
fn prepare_thread() -> Result<Own, Errno> {
    // SAFETY: only the file system attributes (umask, working directory) stop being shared; nothing here relies on
    // threads sharing them. Where it is not permitted, the umask of all threads is emptied.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) };
    rustix::process::umask(Mode::empty());
    privileges::limit_thread().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    Ok(Own {
        groups: rustix::process::getgroups()?,
        gid: rustix::process::getegid().as_raw(),
        capabilities: rustix::thread::capabilities(None)?,
    })
}

/// The thread's ids, groups and capabilities, until dropped.
struct Name<'a> {
    own: &'a Own,
    others_groups: bool,
}

impl<'a> Name<'a> {
    fn take(caller: Caller, groups: Option<&[Gid]>, own: &'a Own) -> Result<Name<'a>, Errno> {
        if let Some(groups) = groups {
            rustix::thread::set_thread_groups(groups)?;
        }
        let name = Name { own, others_groups: groups.is_some() };
        // The group first, while the user may still change it.
        set_gid(caller.gid);
        set_uid(caller.uid);
        // These calls do not say whether they worked; this is how one asks.
        if set_uid(u32::MAX) != caller.uid || set_gid(u32::MAX) != caller.gid {
            return Err(Errno::PERM);
        }
        if caller.uid == 0 {
            // An operation in root's own name has what the thread gave up for reads and writes.
            if !own.is_unlimited() {
                rustix::thread::set_capabilities(None, privileges::taken_back(own.capabilities))?;
            }
        } else {
            // The kernel has taken away those that matter to file permissions, unless the thread's secure bits say
            // otherwise; others let a caller set attributes that it must not (`trusted`, `security.capability`).
            let none = CapabilitySets { effective: CapabilitySet::empty(), ..own.capabilities };
            rustix::thread::set_capabilities(None, none)?;
        }
        Ok(name)
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        set_uid(0);
        let restored = rustix::thread::set_capabilities(None, self.own.capabilities).and_then(|()| {
            set_gid(self.own.gid);
            if self.others_groups { rustix::thread::set_thread_groups(&self.own.groups) } else { Ok(()) }
        });
        end_unless(restored);
    }
}

fn set_uid(uid: libc::uid_t) -> libc::uid_t {
    // SAFETY: changes the calling thread's credentials only, no memory.
    unsafe { libc::setfsuid(uid) as libc::uid_t }
}

fn set_gid(gid: libc::gid_t) -> libc::gid_t {
    // SAFETY: changes the calling thread's credentials only, no memory.
    unsafe { libc::setfsgid(gid) as libc::gid_t }
}
