//! A client's side of a session with a server: ids, credits, and what becomes of requests when the connection or the whole
//! session is lost.
//!
//! A request first waits for credits. It gets its id when it is about to be written, so that ids are written in order and all
//! lie within the server's window. It stays until it is answered. After a lost connection, a session that
//! [goes on](Outstanding::resumed) has every unanswered request written again, with its id: the server knows those that it has
//! seen. In a [new session](Outstanding::renewed) nothing of the old one is known: what may be repeated starts over,
//! and of the rest nobody can say whether it took effect.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What a server lets a client have underway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests; not zero.
    pub requests: u32,
    /// Bytes of data, to write or asked for. A single request may have more.
    pub bytes: u64,
}

/// What has to be known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of data that it writes or asks for.
    pub bytes: u64,
    /// Whether it may be carried out twice.
    pub repeatable: bool,
    /// Whether a server that remembers requests over sessions would know it again.
    pub has_origin: bool,
}

/// The requests of a session that are not answered yet. `T` is what the driver knows of one.
#[derive(Debug)]
pub struct Outstanding<T> {
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
    /// Bytes of data underway.
    bytes: u64,
    /// What restores a new session, and goes before everything else.
    restoring: VecDeque<Entry<T>>,
    /// Requests without ids.
    waiting: VecDeque<Entry<T>>,
    /// Restoring requests that are not answered.
    restoring_left: usize,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    demand: Demand,
    restores: bool,
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
            limits: Limits { requests: 1, bytes: 0 },
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
    pub fn new() -> Outstanding<T> {
        Outstanding::default()
    }

    /// Adds a request; requests are written in the order in which they were added.
    pub fn push(&mut self, item: T, demand: Demand) {
        self.waiting.push_back(Entry { item, demand, restores: false });
    }

    /// Adds a request that restores a new session (opens a file again). Others wait until all of these are answered.
    /// It is dropped with the session.
    pub fn push_restoring(&mut self, item: T) {
        let demand = Demand { bytes: 0, repeatable: false, has_origin: false };
        self.restoring.push_back(Entry { item, demand, restores: true });
        self.restoring_left += 1;
    }

    /// The request to be written next, if one may be: it counts as written from now on, even if only a part of it can be. `None`
    /// without a connection, without credits, or if there is nothing to write.
    pub fn next_to_write(&mut self) -> Option<ToWrite<'_, T>> {
        if !self.is_connected {
            return None;
        }
        let mut index = (self.next - self.acked) as usize;
        // Answered before the connection was lost: nothing to write again.
        while matches!(self.window.get(index), Some(None)) {
            index += 1;
        }
        if index == self.window.len() {
            self.admit()?;
        }
        let id = self.acked + index as u64;
        self.next = id + 1;
        self.begun = self.begun.max(self.next);
        let item = &self.window[index].as_ref()?.item;
        Some(ToWrite { id, acked: self.acked, item })
    }

    /// Gives the first waiting request an id, if there are credits.
    fn admit(&mut self) -> Option<()> {
        let queue = if self.restoring_left > 0 { &mut self.restoring } else { &mut self.waiting };
        let bytes = queue.front()?.demand.bytes;
        let has_room = self.window.len() < self.limits.requests as usize
            && (self.bytes == 0 || self.bytes + bytes <= self.limits.bytes);
        if !has_room {
            return None;
        }
        self.bytes += bytes;
        let entry = queue.pop_front();
        self.window.push_back(entry);
        Some(())
    }

    /// A request that a reply with this id can belong to: written on this connection, and not answered.
    pub fn get(&self, id: u64) -> Option<&T> {
        if id >= self.next {
            return None;
        }
        let index = usize::try_from(id.checked_sub(self.acked)?).ok()?;
        self.window.get(index)?.as_ref().map(|entry| &entry.item)
    }

    /// Takes out a request that [`Outstanding::get`] finds: it is answered.
    pub fn answer(&mut self, id: u64) -> Option<T> {
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
        Some(entry.item)
    }

    /// The connection is lost: nothing is written until there is another.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
    }

    /// The session goes on with a new connection: what is unanswered is written again.
    pub fn resumed(&mut self) {
        self.is_connected = true;
        self.next = self.acked;
    }

    /// There is a new session, with a server that `remembers` what it was sent with an origin, or not. Returns, in their order, the
    /// requests of the old one of which nobody can say whether they took effect; what restored the old session is dropped, and
    /// everything else starts over.
    pub fn renewed(&mut self, limits: Limits, remembers: bool) -> Vec<T> {
        let unknown = self.forget_session(remembers);
        self.limits = limits;
        self.is_connected = true;
        unknown
    }

    /// Gives up the session and everything that waits; returns that, in order (without what restored the session).
    pub fn give_up(&mut self) -> Vec<T> {
        let window = core::mem::take(&mut self.window).into_iter().flatten();
        let waiting = core::mem::take(&mut self.waiting);
        let all = window.chain(waiting).filter(|entry| !entry.restores).map(|entry| entry.item).collect();
        self.forget_session(false);
        self.is_connected = false;
        all
    }

    fn forget_session(&mut self, remembers: bool) -> Vec<T> {
        let may_repeat = |demand: &Demand| demand.repeatable || remembers && demand.has_origin;
        let mut unknown = Vec::new();
        let mut again = VecDeque::new();
        for (id, entry) in (self.acked..).zip(core::mem::take(&mut self.window)) {
            match entry {
                None => {}
                Some(entry) if entry.restores => {}
                Some(entry) if id >= self.begun || may_repeat(&entry.demand) => again.push_back(entry),
                Some(entry) => unknown.push(entry.item),
            }
        }
        again.append(&mut self.waiting);
        self.waiting = again;
        self.restoring.clear();
        (self.restoring_left, self.bytes) = (0, 0);
        (self.acked, self.next, self.begun) = (1, 1, 1);
        unknown
    }

    /// Everything before this id is answered.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// All requests that are not answered, those with ids first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let window = self.window.iter().flatten();
        window.chain(&self.restoring).chain(&self.waiting).map(|entry| &entry.item)
    }

    /// Requests that are not answered, with or without ids.
    pub fn len(&self) -> usize {
        self.window.iter().flatten().count() + self.waiting.len() + self.restoring.len()
    }

    /// Whether everything is answered.
    pub fn is_empty(&self) -> bool {
        self.window.is_empty() && self.waiting.is_empty() && self.restoring.is_empty()
    }

    /// Whether requests still restore the session.
    pub fn is_restoring(&self) -> bool {
        self.restoring_left > 0
    }
}

#[cfg(test)]
mod tests;
