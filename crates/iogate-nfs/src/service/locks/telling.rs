//! Who is told what: that a lock is given, and that the server was started again; and what is looked after from time to time.

use std::net::IpAddr;
use std::sync::Arc;

use iogate_core::{Span, Time};
use iogate_engine::lock;
use iogate_vfs::held::HeldTree;

use super::super::Service;
use super::file::Waiting;
use super::{AGAIN, LOOK, Locked, UNTOLD};
use crate::wire::{FileHandle, LockStatus};

impl<T: HeldTree> Service<T> {
    /// Has those told who have got their locks.
    pub(super) fn tell(self: &Arc<Self>, file: &FileHandle, given: Vec<Waiting>) {
        for waiting in given {
            let Some(client) =
                lock(&self.locks.hosts).name(waiting.wanted.owner).map(|name| name.host.address)
            else {
                continue;
            };
            let (service, file) = (Arc::clone(self), *file);
            (self.spawn)(client, Box::new(move || service.tell_now(client, &file, &waiting)));
        }
    }

    fn tell_now(self: &Arc<Self>, client: IpAddr, handle: &FileHandle, waiting: &Waiting) {
        let Some(callbacks) = self.callbacks.get() else { return };
        let wanted = waiting.wanted;
        let settle = |keeps: bool| {
            let Some(file) = self.locks.known(handle) else { return };
            let act = |locked: &mut Locked<T::Held>| {
                // Who has asked again meanwhile has been told so.
                if locked.locks.told(&wanted) && !keeps {
                    let gaps = locked.locks.give_back(wanted.owner, wanted.range);
                    locked.give_back_outside(gaps);
                }
            };
            self.with(handle, wanted.owner, &file, act);
        };
        match callbacks.granted(client, &waiting.call) {
            Ok(LockStatus::Granted) => settle(true),
            Ok(LockStatus::Grace) => {}
            Ok(status) => {
                tracing::debug!(%client, ?status, "a client does not want the lock that it has waited for");
                settle(false);
            }
            Err(error) => {
                tracing::debug!(%client, %error, "a client cannot be told that it has a lock");
            }
        }
    }

    /// Looks after those who wait for somebody outside, who are to be told something, and who have gone. Returns how soon to look again.
    pub(in crate::service) fn look_at_locks(self: &Arc<Self>) -> Span {
        let (locks, now) = (&self.locks, self.locks.clock.now());
        let files: Vec<_> = lock(&locks.files).iter().map(|(at, file)| (*at, Arc::clone(file))).collect();
        let mut waits = false;
        for (handle, file) in files {
            let mut locked = lock(&file);
            if locked.is_gone {
                continue;
            }
            let mut tell = Vec::new();
            let mut late = Vec::new();
            for untold in locked.locks.untold() {
                if now.since(untold.since) >= UNTOLD {
                    late.push(untold.waiting.wanted);
                } else if now.since(untold.tried) >= AGAIN {
                    untold.tried = now;
                    tell.push(untold.waiting.clone());
                }
            }
            for wanted in late {
                let before = locked.locks.count(wanted.owner);
                locked.locks.told(&wanted);
                let gaps = locked.locks.give_back(wanted.owner, wanted.range);
                locked.give_back_outside(gaps);
                lock(&locks.hosts).change(now, wanted.owner, before, locked.locks.count(wanted.owner));
            }
            tell.extend(locks.wake(now, &mut locked));
            waits |= locked.locks.has_waiting();
            locks.let_go(&handle, &mut locked);
            drop(locked);
            self.tell(&handle, tell);
        }
        self.tell_of_the_start(now);
        locks.forget(now);
        if waits { LOOK } else { AGAIN }
    }

    /// Tells machines that had locks that the server was started again, until they have been reached or the grace is over.
    fn tell_of_the_start(self: &Arc<Self>, now: Time) {
        let locks = &self.locks;
        let mut due = Vec::new();
        let mut to_tell = lock(&locks.to_tell);
        if now >= locks.grace_ends {
            for (client, _) in to_tell.drain(..) {
                tracing::warn!(%client, "a client that had locks was not reached: it does not know that the server was started again, and has lost them");
            }
        }
        for (client, when) in to_tell.iter_mut().filter(|(_, when)| *when <= now) {
            *when = now + AGAIN;
            due.push(*client);
        }
        drop(to_tell);
        for client in due {
            let service = Arc::clone(self);
            let job = move || {
                let Some(callbacks) = service.callbacks.get() else { return };
                match callbacks.restarted(client) {
                    Ok(()) => lock(&service.locks.to_tell).retain(|(other, _)| *other != client),
                    Err(error) => {
                        tracing::debug!(%client, %error, "a client cannot be told that the server was started again");
                    }
                }
            };
            (self.spawn)(client, Box::new(job));
        }
    }
}
