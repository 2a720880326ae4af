//! How much clients may have underway: calls and bytes, by client and in all. Who has more is not read from until it has less, so that it
//! waits at its own end, and costs nobody else anything.
//!
//! Bytes count from the mark of a record on: what has begun may come to its end, and what has not waits, so that nobody is kept from
//! going on by records of which each has come in part.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use iogate_engine::lock;

/// What a server may spend.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections altogether.
    pub connections: usize,
    /// Connections from one address.
    pub connections_per_client: usize,
    /// Calls of one client that are underway or whose answers it has not taken.
    pub calls_per_client: usize,
    /// Bytes of these calls and answers, and of records that have begun to come.
    pub bytes_per_client: usize,
    /// The same of all clients; one call of each client is taken in any case.
    pub bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Threads that one client's calls may keep.
    pub threads_per_client: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            connections_per_client: 256,
            calls_per_client: 256,
            bytes_per_client: 32 << 20,
            bytes: 256 << 20,
            threads: 64,
            threads_per_client: 32,
        }
    }
}

/// What one client has underway.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) connections: AtomicUsize,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    /// Threads that carry out its calls.
    pub(super) running: AtomicUsize,
}

/// What all clients have underway.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) limits: Limits,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, Weak<Client>>>,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget { limits, calls: 0.into(), bytes: 0.into(), clients: Mutex::default() }
    }

    /// The client at an address.
    pub(super) fn client(&self, address: IpAddr) -> Arc<Client> {
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(&address).and_then(Weak::upgrade) {
            return client;
        }
        clients.retain(|_, client| client.strong_count() > 0);
        let client = Arc::new(Client {
            address,
            connections: 0.into(),
            calls: 0.into(),
            bytes: 0.into(),
            running: 0.into(),
        });
        clients.insert(address, Arc::downgrade(&client));
        client
    }

    /// Whether another record of a client may begin to come.
    pub(super) fn may_begin(&self, client: &Client) -> bool {
        client.bytes.load(Ordering::SeqCst) == 0
            || client.calls.load(Ordering::SeqCst) < self.limits.calls_per_client && self.has_room(client)
    }

    /// Whether another call of a client, which has come, may be carried out. `answer`: so many bytes of it are yet to be read.
    pub(super) fn may_take(&self, client: &Client, answer: usize) -> bool {
        let calls = client.calls.load(Ordering::SeqCst);
        calls == 0 || calls < self.limits.calls_per_client && (answer == 0 || self.has_room(client))
    }

    fn has_room(&self, client: &Client) -> bool {
        client.bytes.load(Ordering::SeqCst) < self.limits.bytes_per_client
            && self.bytes.load(Ordering::SeqCst) < self.limits.bytes
    }

    /// Takes note of how many bytes of a client are on their way in, which were `before`.
    pub(super) fn hold(&self, client: &Client, before: usize, now: usize) {
        for bytes in [&client.bytes, &self.bytes] {
            bytes.fetch_add(now, Ordering::SeqCst);
            bytes.fetch_sub(before, Ordering::SeqCst);
        }
    }

    /// Takes note of a call that has been read, with what it and its answer may take.
    pub(super) fn take(&self, client: &Client, bytes: usize) {
        client.calls.fetch_add(1, Ordering::SeqCst);
        client.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Its answer has been sent, or nobody waits for it.
    pub(super) fn give_back(&self, client: &Client, bytes: usize) {
        client.bytes.fetch_sub(bytes, Ordering::SeqCst);
        client.calls.fetch_sub(1, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.calls.fetch_sub(1, Ordering::SeqCst);
    }

    /// Calls underway, and their bytes.
    pub(super) fn underway(&self) -> (usize, usize) {
        (self.calls.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_too_much_waits_and_others_do_not() {
        let limits = Limits { calls_per_client: 3, bytes_per_client: 100, bytes: 150, ..Limits::default() };
        let budget = Budget::new(limits);
        let [one, other] = [1, 2].map(|last| budget.client([10, 0, 0, last].into()));
        assert!(Arc::ptr_eq(&one, &budget.client([10, 0, 0, 1].into())));
        budget.take(&one, 99);
        assert!(budget.may_begin(&one));
        budget.take(&one, 1);
        assert!(!budget.may_begin(&one) && budget.may_begin(&other));
        budget.take(&other, 50);
        assert!(!budget.may_begin(&other), "there is no more for all");
        budget.give_back(&other, 50);
        assert!(budget.may_begin(&other));
        budget.give_back(&one, 99);
        budget.take(&one, 0);
        assert!(budget.may_begin(&one));
        budget.take(&one, 0);
        assert!(!budget.may_begin(&one), "as many calls as there may be");
        assert_eq!(budget.underway(), (3, 1));
    }

    #[test]
    fn what_is_on_its_way_in_counts_and_keeps_nobody_from_going_on() {
        let limits = Limits { bytes_per_client: 100, bytes: 150, ..Limits::default() };
        let budget = Budget::new(limits);
        let [one, other] = [1, 2].map(|last| budget.client([10, 0, 0, last].into()));
        budget.hold(&one, 0, 60);
        assert!(budget.may_begin(&one));
        budget.hold(&one, 60, 150);
        assert!(!budget.may_begin(&one) && budget.may_begin(&other), "one record of each in any case");
        // All of these have come: they are carried out together, but for the first nothing is read.
        assert!(budget.may_take(&one, 40));
        budget.take(&one, 0);
        assert!(budget.may_take(&one, 0) && !budget.may_take(&one, 40));
        budget.hold(&one, 150, 0);
        assert!(budget.may_take(&one, 40) && budget.may_begin(&one));
    }
}
