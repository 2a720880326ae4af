//! The clients that lock, the owners of locks there, and what was answered last. Nothing is asked or told here.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use iogate_core::Time;

use crate::wire::LockStatus;

/// An owner of locks: a process of a client, by a number that means it as long as it has something.
pub(super) type Owner = u64;

/// Most clients that have locks, and most names of one machine, as it may call itself anything.
const HOSTS_MAX: usize = 4096;
const NAMES_MAX: usize = 64;
/// Most locks, waits and shares of a client: each costs some 200 bytes.
const LOCKS_PER_HOST_MAX: usize = 16_384;
/// Answers to a client that are remembered, in case that it asks again.
const ANSWERS: usize = 64;

/// A client: what it calls itself counts behind its address only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HostName {
    pub(super) address: IpAddr,
    pub(super) name: Vec<u8>,
}

/// An owner, as its client calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerName {
    pub(super) host: HostName,
    pub(super) process: u32,
    pub(super) owner: Vec<u8>,
}

/// By what a call is known that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallKey {
    pub(super) xid: u32,
    pub(super) procedure: u32,
    /// Of all of its bytes.
    pub(super) sum: u64,
}

#[derive(Debug)]
struct Host {
    /// How much it has.
    count: usize,
    /// Since when it has nothing, if it has nothing.
    idle: Time,
    /// Which start of its machine it is; zero: not known.
    state: u32,
    answers: VecDeque<(CallKey, LockStatus)>,
}

#[derive(Debug)]
struct Uses {
    name: OwnerName,
    /// How much it has, and how many calls are about it.
    count: usize,
}

/// The clients and their owners.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    hosts: HashMap<HostName, Host>,
    numbers: HashMap<OwnerName, Owner>,
    owners: HashMap<Owner, Uses>,
    last: Owner,
}

impl Hosts {
    /// Begins a call that is about an owner: it is known by this number until [`Hosts::end`].
    pub(super) fn begin(&mut self, name: &OwnerName) -> Owner {
        if let Some(&number) = self.numbers.get(name) {
            if let Some(uses) = self.owners.get_mut(&number) {
                uses.count += 1;
            }
            return number;
        }
        self.last += 1;
        self.numbers.insert(name.clone(), self.last);
        self.owners.insert(self.last, Uses { name: name.clone(), count: 1 });
        self.last
    }

    /// A call about an owner has ended.
    pub(super) fn end(&mut self, owner: Owner) {
        self.count(owner, 1, 0);
    }

    /// An owner's locks, waits and shares have become more or fewer.
    pub(super) fn change(&mut self, now: Time, owner: Owner, before: usize, after: usize) {
        if let Some(uses) = self.owners.get(&owner)
            && let Some(host) = self.hosts.get_mut(&uses.name.host)
        {
            host.count = (host.count + after).saturating_sub(before);
            host.idle = now;
        }
        self.count(owner, before, after);
    }

    /// An owner is used more or less than before. Who is not used at all has no number any more.
    fn count(&mut self, owner: Owner, before: usize, after: usize) {
        let Some(uses) = self.owners.get_mut(&owner) else { return };
        uses.count = (uses.count + after).saturating_sub(before);
        if uses.count == 0
            && let Some(uses) = self.owners.remove(&owner)
        {
            self.numbers.remove(&uses.name);
        }
    }

    /// What an owner's client calls it.
    pub(super) fn name(&self, owner: Owner) -> Option<&OwnerName> {
        self.owners.get(&owner).map(|uses| &uses.name)
    }

    /// A client that may have a lock, with the start of its machine. `false`: there are too many, or it has too many.
    pub(super) fn admit(&mut self, now: Time, name: &HostName, state: u32) -> bool {
        if let Some(host) = self.hosts.get_mut(name) {
            host.state = if state == 0 { host.state } else { state };
            return host.count < LOCKS_PER_HOST_MAX;
        }
        let names = self.hosts.keys().filter(|host| host.address == name.address).count();
        if self.hosts.len() >= HOSTS_MAX || names >= NAMES_MAX {
            return false;
        }
        self.hosts.insert(name.clone(), Host { count: 0, idle: now, state, answers: VecDeque::new() });
        true
    }

    /// Whether a client's machine was started again since it had its locks, by the number that it says.
    pub(super) fn has_restarted(&self, name: &HostName, state: u32) -> bool {
        let known = self.hosts.get(name).map_or(0, |host| host.state);
        // The numbers go round, so the nearer way says which is later.
        known != 0 && state != 0 && (state.wrapping_sub(known) as i32) > 0
    }

    /// The client that a machine of this name at an address is: the one that calls itself so, or else the only one there, as a machine can
    /// have a longer name and a shorter one.
    pub(super) fn meant(&self, address: IpAddr, name: &[u8]) -> Option<HostName> {
        let mut at = self.hosts.keys().filter(|host| host.address == address);
        let named = at.clone().find(|host| host.name == name);
        let only = at.next().filter(|_| at.next().is_none());
        named.or(only).cloned()
    }

    /// The owners of a client.
    pub(super) fn owners_of(&self, host: &HostName) -> Vec<Owner> {
        self.owners.iter().filter(|(_, uses)| uses.name.host == *host).map(|(&owner, _)| owner).collect()
    }

    /// What a call was answered that comes again.
    pub(super) fn answered(&self, host: &HostName, call: CallKey) -> Option<LockStatus> {
        let answers = &self.hosts.get(host)?.answers;
        answers.iter().find(|(key, _)| *key == call).map(|&(_, status)| status)
    }

    /// A call is answered.
    pub(super) fn answer(&mut self, host: &HostName, call: CallKey, status: LockStatus) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.answers.truncate(ANSWERS - 1);
            host.answers.push_front((call, status));
        }
    }

    /// Forgets clients that have had nothing since then, and returns whether there were any.
    pub(super) fn forget(&mut self, before: Time) -> bool {
        let count = self.hosts.len();
        self.hosts.retain(|_, host| host.count > 0 || host.idle >= before);
        self.hosts.len() < count
    }

    /// All clients.
    pub(super) fn all(&self) -> impl Iterator<Item = &HostName> {
        self.hosts.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: u8, name: &str) -> HostName {
        HostName { address: [10, 0, 0, address].into(), name: name.into() }
    }

    fn owner(host: HostName, process: u32) -> OwnerName {
        OwnerName { host, process, owner: b"o".to_vec() }
    }

    #[test]
    fn an_owner_has_its_number_as_long_as_it_has_something() {
        let (mut hosts, now) = (Hosts::default(), Time::ZERO);
        let (a, b) = (owner(host(1, "a"), 1), owner(host(1, "a"), 2));
        assert!(hosts.admit(now, &a.host, 0));
        let first = hosts.begin(&a);
        assert_ne!(hosts.begin(&b), first);
        hosts.change(now, first, 0, 2);
        hosts.end(first);
        assert_eq!(hosts.begin(&a), first);
        hosts.change(now, first, 2, 1);
        hosts.end(first);
        assert_eq!(hosts.name(first), Some(&a));
        // Its last lock goes while a call is about it.
        assert_eq!(hosts.begin(&a), first);
        hosts.change(now, first, 1, 0);
        assert_eq!(hosts.begin(&a), first);
        hosts.end(first);
        hosts.end(first);
        assert_eq!(hosts.name(first), None);
        assert_ne!(hosts.begin(&a), first);
    }

    #[test]
    fn a_client_has_so_many_names_and_locks_and_no_more() {
        let (mut hosts, now) = (Hosts::default(), Time::ZERO);
        for number in 0..NAMES_MAX {
            assert!(hosts.admit(now, &host(1, &number.to_string()), 0));
        }
        assert!(!hosts.admit(now, &host(1, "one more"), 0));
        assert!(hosts.admit(now, &host(1, "0"), 0));
        let full = owner(host(2, "a"), 1);
        assert!(hosts.admit(now, &full.host, 0));
        let number = hosts.begin(&full);
        hosts.change(now, number, 0, LOCKS_PER_HOST_MAX);
        hosts.end(number);
        assert!(!hosts.admit(now, &full.host, 0));
        hosts.change(now, number, 1, 0);
        assert!(hosts.admit(now, &full.host, 0));
    }

    #[test]
    fn who_has_nothing_is_forgotten_after_a_while() {
        let (mut hosts, at) = (Hosts::default(), Time::from_nanos);
        let (idle, busy) = (host(1, "idle"), owner(host(2, "busy"), 1));
        assert!(hosts.admit(at(5), &idle, 0) && hosts.admit(at(5), &busy.host, 0));
        let number = hosts.begin(&busy);
        hosts.change(at(5), number, 0, 1);
        hosts.end(number);
        assert!(!hosts.forget(at(5)));
        assert!(hosts.forget(at(6)));
        assert_eq!(hosts.all().collect::<Vec<_>>(), [&busy.host]);
    }

    #[test]
    fn a_machine_is_meant_by_its_name_or_by_being_alone() {
        let mut hosts = Hosts::default();
        for host in [host(1, "a"), host(1, "b"), host(2, "c")] {
            assert!(hosts.admit(Time::ZERO, &host, 0));
        }
        let meant = |address: u8, name: &str| hosts.meant([10, 0, 0, address].into(), name.as_bytes());
        assert_eq!(meant(1, "b"), Some(host(1, "b")));
        assert_eq!(meant(1, "b.example"), None);
        assert_eq!(meant(2, "c.example"), Some(host(2, "c")));
        assert_eq!(meant(3, "c"), None);
    }
}
