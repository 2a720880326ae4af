//! Requests that are not answered: ids, credits, and which of them are repeated when the connection or the whole session is lost.
//!
//! A request first waits for credits. It gets its id when it is about to be written, so that ids are written in order and all
//! lie within the server's window. It stays until it is answered. After a lost connection, a session that
//! [goes on](Outstanding::resumed) has every unanswered request written again, with its id: the server knows those that it has
//! seen. In a [new session](Outstanding::renewed) nothing of the old one is known: what may be repeated starts over,
//! and of the rest nobody can say whether it took effect.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Time;
use crate::wire::{NO_HANDLE, Request, transfer};

/// What a server lets a client have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Requests; not zero.
    pub(super) requests: u32,
    /// Bytes of data, to write or asked for. A single request may have more.
    pub(super) bytes: u64,
    /// Bytes of one read or write.
    pub(super) transfer_bytes: u32,
    /// Bytes of a record that is appended as one.
    pub(super) append_bytes: u32,
}

impl Limits {
    /// Whether a server takes such a request at all.
    pub(super) fn allow(&self, demand: &Demand) -> bool {
        let most = match demand.bound {
            Bound::None => return true,
            Bound::Transfer => self.transfer_bytes,
            Bound::Append => self.append_bytes,
        };
        demand.bytes <= u64::from(most)
    }
}

/// Which bound of a server's holds for a request's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// None that it says.
    #[default]
    None,
    /// That of reads and writes.
    Transfer,
    /// That of records.
    Append,
}

/// What a session has to know of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of data that it writes or asks for.
    pub bytes: u64,
    /// What holds for those.
    pub bound: Bound,
    /// Whether it may be carried out twice.
    pub repeatable: bool,
    /// Whether a server that remembers requests over sessions would know it again.
    pub has_origin: bool,
    /// The handle of the open file that it uses, or that it opens; or [`NO_HANDLE`].
    pub handle: u32,
    /// Whether it opens the file of this handle.
    pub opens: bool,
    /// Of a lock: the number that [`lock_begins`](super::ClientSession::lock_begins) has given; else 0.
    pub lock: u32,
}

impl Demand {
    /// What there is to know of this request, but for its payload's bytes, unless it reads or writes, and its origin.
    pub fn of(request: &Request<'_>) -> Demand {
        let (handle, bytes) = match request {
            Request::Open(open) => (open.handle, 0),
            Request::Close(close) => (close.handle, 0),
            Request::Read(transfer) | Request::Write(transfer) => (transfer.handle, transfer.bytes),
            Request::Sync(sync) => (sync.handle, 0),
            Request::Allocate(allocate) => (allocate.handle, 0),
            Request::Seek(seek) => (seek.handle, 0),
            Request::GetLayout(layout) => (layout.handle, 0),
            Request::Reserve(reserve) => (reserve.handle, 0),
            Request::Settle(settle) => (settle.handle, 0),
            Request::Resize(resize) => (resize.handle, 0),
            Request::GetAttr(get) => (get.handle, 0),
            Request::SetAttr(set) => (set.handle, 0),
            Request::GetXattr(get) => (get.handle, 0),
            Request::SetXattr(set) => (set.handle, 0),
            Request::ListXattr(list) => (list.handle, 0),
            Request::RemoveXattr(remove) => (remove.handle, 0),
            Request::SetLock(set) => (set.handle, 0),
            Request::GetLock(get) => (get.handle, 0),
            _ => (NO_HANDLE, 0),
        };
        let bound = match request {
            Request::Write(write) if write.flags & transfer::APPEND != 0 => Bound::Append,
            Request::Read(_) | Request::Write(_) => Bound::Transfer,
            _ => Bound::None,
        };
        Demand {
            bytes: bytes.into(),
            bound,
            repeatable: request.is_idempotent(),
            has_origin: false,
            handle,
            opens: matches!(request, Request::Open(_)) && handle != NO_HANDLE,
            lock: 0,
        }
    }

    /// Whether it is to be given an origin, so that a server knows it again.
    pub fn needs_origin(&self) -> bool {
        !self.repeatable && !self.has_origin
    }
}

/// The requests of a session that are not answered yet. `T` is what the driver knows of one.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    limits: Limits,
    is_connected: bool,
    /// The id of the window's first slot: everything before it is answered.
    acked: u64,
    /// Requests with ids; `None` once answered. The first one never is.
    window: VecDeque<Option<Entry<T>>>,
    /// The next id to write on this connection.
    next: u64,
    /// Ids below this have been written in this session, at least in part.
    begun: u64,
    /// Bytes of data in flight.
    bytes: u64,
    /// What restores a new session, and goes before everything else.
    restoring: VecDeque<Entry<T>>,
    /// Requests without ids.
    waiting: VecDeque<Entry<T>>,
    /// Restoring requests that are not answered.
    restoring_left: usize,
}

/// A request.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) item: T,
    pub(super) demand: Demand,
    /// It restores a new session.
    pub(super) restores: bool,
    /// It was written in an earlier session, and may have been carried out there.
    was_written: bool,
    /// When it came; of what restores a session, it does not matter.
    since: Time,
}

/// A request that is to be written now.
#[derive(Debug)]
pub struct ToWrite<'a, T> {
    /// Its id.
    pub id: u64,
    /// Everything before this id is answered.
    pub acked: u64,
    /// The request.
    pub item: &'a T,
}

impl<T> Default for Outstanding<T> {
    fn default() -> Outstanding<T> {
        Outstanding {
            limits: Limits { requests: 1, bytes: 0, transfer_bytes: 1, append_bytes: 1 },
            is_connected: false,
            acked: 1,
            window: VecDeque::new(),
            next: 1,
            begun: 1,
            bytes: 0,
            restoring: VecDeque::new(),
            waiting: VecDeque::new(),
            restoring_left: 0,
        }
    }
}

impl<T> Outstanding<T> {
    /// Nothing, and no session.
    pub(super) fn new() -> Outstanding<T> {
        Outstanding::default()
    }

    /// Adds a request; requests are written in the order in which they were added.
    pub(super) fn push(&mut self, item: T, demand: Demand, now: Time) {
        self.waiting.push_back(Entry { item, demand, restores: false, was_written: false, since: now });
    }

    /// Adds a request that restores a new session: opens a file again, under its handle. Others wait until all of these are
    /// answered. It is dropped with the session.
    pub(super) fn push_restoring(&mut self, item: T, demand: Demand) {
        let since = Time::ZERO;
        self.restoring.push_back(Entry { item, demand, restores: true, was_written: false, since });
        self.restoring_left += 1;
    }

    /// The request to be written next, if one may be: it counts as written from now on, even if only a part of it can be. `None`
    /// without a connection, without credits, or if there is nothing to write. What uses a handle that `is_held` is passed over.
    pub(super) fn next_to_write(&mut self, is_held: impl Fn(u32) -> bool) -> Option<ToWrite<'_, T>> {
        if !self.is_connected {
            return None;
        }
        let mut index = (self.next - self.acked) as usize;
        // Answered before the connection was lost: nothing to write again.
        while matches!(self.window.get(index), Some(None)) {
            index += 1;
        }
        if index == self.window.len() {
            self.admit(is_held)?;
        }
        let id = self.acked + index as u64;
        self.next = id + 1;
        self.begun = self.begun.max(self.next);
        let item = &self.window[index].as_ref()?.item;
        Some(ToWrite { id, acked: self.acked, item })
    }

    /// Gives the first request that need not wait an id, if there are credits.
    fn admit(&mut self, is_held: impl Fn(u32) -> bool) -> Option<()> {
        let queue = if self.restoring_left > 0 { &mut self.restoring } else { &mut self.waiting };
        let index = queue.iter().position(|entry| !is_held(entry.demand.handle))?;
        let bytes = queue[index].demand.bytes;
        let has_room = self.window.len() < self.limits.requests as usize
            && (self.bytes == 0 || self.bytes + bytes <= self.limits.bytes);
        if !has_room {
            return None;
        }
        self.bytes += bytes;
        let entry = queue.remove(index);
        self.window.push_back(entry);
        Some(())
    }

    /// A request that a reply with this id can belong to: written on this connection, and not answered.
    pub(super) fn get(&self, id: u64) -> Option<&T> {
        if id >= self.next {
            return None;
        }
        let index = usize::try_from(id.checked_sub(self.acked)?).ok()?;
        self.window.get(index)?.as_ref().map(|entry| &entry.item)
    }

    /// Takes out a request that [`Outstanding::get`] finds: it is answered.
    pub(super) fn answer(&mut self, id: u64) -> Option<Entry<T>> {
        self.get(id)?;
        let entry = self.window[(id - self.acked) as usize].take()?;
        self.bytes -= entry.demand.bytes;
        self.restoring_left -= usize::from(entry.restores);
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.acked += 1;
        }
        // What follows may have been answered on an earlier connection.
        self.next = self.next.max(self.acked);
        Some(entry)
    }

    /// The connection is lost: nothing is written until there is another.
    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
    }

    /// The session goes on with a new connection: what is unanswered is written again.
    pub(super) fn resumed(&mut self) {
        self.is_connected = true;
        self.next = self.acked;
    }

    /// There is a new session, with a server that `remembers` what it was sent with an origin, or not. Returns, in their order, the
    /// requests of the old one of which nobody can say whether they took effect, and those that this server does not take as they are; what
    /// restored the old session is dropped, and everything else starts over.
    pub(super) fn renewed(&mut self, limits: Limits, remembers: bool) -> Vec<(T, Demand)> {
        self.limits = limits;
        let failed = self.forget_session(remembers);
        self.is_connected = true;
        failed
    }

    /// Gives up the session and everything that waits; returns that, in order (without what restored the session).
    pub(super) fn give_up(&mut self) -> Vec<(T, Demand)> {
        let window = core::mem::take(&mut self.window).into_iter().flatten();
        let waiting = core::mem::take(&mut self.waiting);
        let all = window.chain(waiting).filter(|entry| !entry.restores);
        let all = all.map(|entry| (entry.item, entry.demand)).collect();
        self.forget_session(false);
        self.is_connected = false;
        all
    }

    fn forget_session(&mut self, remembers: bool) -> Vec<(T, Demand)> {
        let mut failed = Vec::new();
        let mut again = VecDeque::new();
        let limits = self.limits;
        let mut sort = |mut entry: Entry<T>, is_written: bool| {
            entry.was_written |= is_written;
            let Demand { repeatable, has_origin, .. } = entry.demand;
            let may_start_over = repeatable || !entry.was_written || remembers && has_origin;
            if may_start_over && limits.allow(&entry.demand) {
                again.push_back(entry);
            } else {
                failed.push((entry.item, entry.demand));
            }
        };
        for (id, entry) in (self.acked..).zip(core::mem::take(&mut self.window)) {
            if let Some(entry) = entry.filter(|entry| !entry.restores) {
                sort(entry, id < self.begun);
            }
        }
        core::mem::take(&mut self.waiting).into_iter().for_each(|entry| sort(entry, false));
        self.waiting = again;
        self.restoring.clear();
        (self.restoring_left, self.bytes) = (0, 0);
        (self.acked, self.next, self.begun) = (1, 1, 1);
        failed
    }

    /// Everything before this id is answered.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// All requests that are not answered, those with ids first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let window = self.window.iter().flatten();
        window.chain(&self.restoring).chain(&self.waiting).map(|entry| &entry.item)
    }

    /// When the oldest came of those that are not answered, but for what restores a session.
    pub(super) fn oldest(&self) -> Option<Time> {
        let all = self.window.iter().flatten().chain(&self.waiting);
        all.filter(|entry| !entry.restores).map(|entry| entry.since).min()
    }

    /// Whether everything is answered.
    pub(super) fn is_empty(&self) -> bool {
        self.window.is_empty() && self.waiting.is_empty() && self.restoring.is_empty()
    }

    /// Whether requests that restore the session are not answered.
    pub(super) fn is_restoring(&self) -> bool {
        self.restoring_left > 0
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }
}

#[cfg(test)]
mod tests;
