//! What a killed process waits for is answered `EINTR`, so that it ends, however long what is behind the mount hangs.
//!
//! Only what changes nothing is answered so. What a change comes to must be known before whatever comes after it begins: it might be
//! carried out last.
//!
//! The kernel tells of the first signal that comes while a process waits, and not what that does. So such a process is looked at from then
//! on, until it is killed, or has its answer: programs do not expect that other signals cut a read short.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{InHeader, Input, OpenIn, OutHeader, op};

/// How often it is looked at those who got a signal.
const LOOK: Duration = Duration::from_millis(100);
/// Most signals that are remembered of requests that are not known: they are answered already, or another thread has just read them.
const EARLY_MAX: usize = 256;

/// Whether a process that is killed need not know what becomes of its request.
pub(crate) fn changes_nothing(opcode: u32, mut input: Input<'_>) -> bool {
    match opcode {
        op::LOOKUP | op::GETATTR | op::READLINK | op::STATFS | op::GETXATTR | op::LISTXATTR | op::LSEEK => {
            true
        }
        op::READ | op::OPENDIR | op::READDIR | op::READDIRPLUS => true,
        op::OPEN => input.record::<OpenIn>().is_some_and(|open| open.flags as i32 & libc::O_TRUNC == 0),
        _ => false,
    }
}

/// The requests that may be given up, by their numbers, until they are answered.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    all: HashMap<u64, Request>,
    /// Of those, whose thread has got a signal.
    signalled: Vec<u64>,
    /// Signals that came before their requests were known.
    early: VecDeque<u64>,
    /// A thread looks at those.
    is_watched: bool,
}

#[derive(Clone, Debug)]
struct Request {
    thread: u32,
    /// Where it has come from, and its answer goes to.
    channel: Arc<OwnedFd>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(self: &Arc<Self>, header: &InHeader, channel: &Arc<OwnedFd>) {
        let mut requests = self.lock();
        requests.all.insert(header.unique, Request { thread: header.pid, channel: Arc::clone(channel) });
        let is_early = |unique: &u64| *unique == header.unique;
        if let Some(at) = requests.early.iter().position(is_early) {
            requests.early.remove(at);
            self.watch(requests, header.unique);
        }
    }

    pub(crate) fn remove(&self, unique: u64) {
        self.lock().all.remove(&unique);
    }

    /// The thread that waits for a request has got a signal.
    pub(crate) fn signalled(self: &Arc<Self>, unique: u64) {
        let mut requests = self.lock();
        if requests.all.contains_key(&unique) {
            return self.watch(requests, unique);
        }
        if requests.early.len() == EARLY_MAX {
            requests.early.pop_front();
        }
        requests.early.push_back(unique);
    }

    fn watch(self: &Arc<Self>, mut requests: MutexGuard<'_, Requests>, unique: u64) {
        requests.signalled.push(unique);
        if requests.is_watched {
            return;
        }
        let waiting = Arc::clone(self);
        let started = std::thread::Builder::new().name("iogate-killed".into()).spawn(move || {
            while waiting.look() {
                std::thread::sleep(LOOK);
            }
        });
        match started {
            Ok(_) => requests.is_watched = true,
            Err(error) => tracing::warn!(%error, "a killed process may wait for its answer"),
        }
    }

    /// Answers those whose threads are killed. `false`: there are no others.
    fn look(&self) -> bool {
        let looked_at: Vec<(u64, Request)> = {
            let mut requests = self.lock();
            let Requests { all, signalled, .. } = &mut *requests;
            signalled.retain(|unique| all.contains_key(unique));
            let found =
                signalled.iter().filter_map(|unique| Some((*unique, all.get(unique)?.clone()))).collect();
            requests.is_watched = !requests.signalled.is_empty();
            found
        };
        for (unique, request) in &looked_at {
            if is_killed(request.thread) {
                self.remove(*unique);
                let error = -Errno::INTR.raw_os_error();
                let answer = OutHeader { len: size_of::<OutHeader>() as u32, error, unique: *unique };
                // It may have had its answer just before.
                let _ = rustix::io::write(&*request.channel, answer.as_bytes());
            }
        }
        !looked_at.is_empty()
    }
}

/// Whether a thread is to end by a signal as soon as it can.
fn is_killed(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| has_kill(&status))
}

fn has_kill(status: &str) -> bool {
    let pending = |line: &str| {
        let (name, mask) = line.split_once(':')?;
        matches!(name, "SigPnd" | "ShdPnd").then(|| u64::from_str_radix(mask.trim(), 16).ok())?
    };
    status.lines().filter_map(pending).any(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_signal_kills() {
        let status =
            |own, shared| format!("Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t0100\n");
        assert!(has_kill(&status(0x100, 0)) && has_kill(&status(0, 0x4102)));
        assert!(!has_kill(&status(0x2000, 0x4002)) && !has_kill("SigPnd:\tx\n"));
    }

    #[test]
    fn a_signal_counts_whichever_is_read_first() {
        let channel: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let waiting = Arc::new(Waiting::default());
        // Nobody has such a number.
        let request = |unique| InHeader { unique, pid: u32::MAX, ..InHeader::default() };
        waiting.add(&request(1), &channel);
        waiting.signalled(1);
        waiting.signalled(2);
        assert_eq!(waiting.lock().signalled, [1]);
        waiting.add(&request(2), &channel);
        assert_eq!(waiting.lock().signalled, [1, 2]);
        (1..=2).for_each(|unique| waiting.remove(unique));
        assert!(!waiting.look() && !waiting.lock().is_watched);
    }
}
