//! What is remembered now.
//!
//! An entry goes when its client says that it has the answer, and when there are too many or it is too old: the client then is
//! told that nobody knows, instead of having its request carried out twice. Where there are too many, the user with most of
//! them loses the older half of its own. Where [numbers are in no order](Limits::unordered), it is the client with most of them, and what
//! it has lost is new again. A client of which there is no entry counts as one, and goes as one:
//! what it has lost is then new again, too.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Key, NOTE_BYTES, Note, State};

/// In place of a client, for values that no client waits for: none has it. Those of NFS are addresses, and this one is neither of version 4
/// nor routed; others are random. What is noted under it does not get too old, and is in no order.
pub const NOBODY: [u8; 16] = [0xff; 16];

/// Bounds of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most entries, with clients that have none.
    pub entries: usize,
    /// Most bytes of them.
    pub bytes: usize,
    /// How long an entry stays, in seconds.
    pub seconds: u64,
    /// Clients number their requests in no order and never say what they need no more, as with NFS: so many of a client stay however
    /// old they are. `None`: numbers grow.
    pub unordered: Option<usize>,
    /// Most answers that the process remembers beside them, without a log, for as many seconds: see [`Recent`](super::Recent).
    pub recent: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { entries: 1_000_000, bytes: 64 << 20, seconds: 15 * 60, unordered: None, recent: 0 }
    }
}

/// What is remembered of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory<'a> {
    /// Nothing: it has not been carried out.
    Nothing,
    /// Nobody knows: it is older than what is remembered of its client.
    Forgotten,
    /// The last note.
    Noted(State, &'a [u8]),
}

/// The last note of each request.
#[derive(Debug, Default)]
pub struct Table {
    limits: Limits,
    users: BTreeMap<u32, User>,
    held: Held,
}

/// What there is of a user, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    clients: usize,
    entries: usize,
    bytes: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.entries -= 1;
        self.bytes -= bytes;
    }

    fn cost(&self) -> usize {
        self.bytes + NOTE_BYTES * (self.entries + self.clients)
    }
}

#[derive(Debug, Default)]
struct User {
    clients: BTreeMap<[u8; 16], Client>,
    held: Held,
}

#[derive(Debug, Default)]
struct Client {
    /// Requests with smaller numbers are not known, and not to be carried out.
    below: u64,
    /// When it was last heard of.
    seen: u64,
    /// By number and step.
    entries: BTreeMap<(u64, u16), Entry>,
}

/// What is remembered of a request, with its time in seconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct Entry {
    state: State,
    time: u64,
    bytes: Box<[u8]>,
}

impl Table {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Table {
        Table { limits, ..Table::default() }
    }

    /// What is remembered of a request.
    pub fn look(&self, key: &Key) -> Memory<'_> {
        let client = self.users.get(&key.uid).and_then(|user| user.clients.get(&key.client));
        let Some(client) = client else { return Memory::Nothing };
        match client.entries.get(&(key.number, key.step)) {
            Some(entry) => Memory::Noted(entry.state, &entry.bytes),
            None if key.number < client.below => Memory::Forgotten,
            None => Memory::Nothing,
        }
    }

    /// Takes in a note; what came before of the same request is forgotten, and returned, and so is what its client needs no more.
    pub(super) fn note(&mut self, note: &Note<'_>) -> Option<Entry> {
        let Key { uid, client, .. } = note.key;
        let held = self.held.entries + self.held.clients;
        let user = self.users.entry(uid).or_default();
        let client = user.clients.entry(client).or_insert_with(|| {
            user.held.clients += 1;
            self.held.clients += 1;
            Client::default()
        });
        client.seen = client.seen.max(note.time);
        if note.below > client.below {
            client.below = note.below;
            let kept = client.entries.split_off(&(note.below, 0));
            for entry in core::mem::replace(&mut client.entries, kept).into_values() {
                user.held.remove(entry.bytes.len());
                self.held.remove(entry.bytes.len());
            }
        }
        let before = if note.state == State::Client { None } else { self.take(&note.key) };
        if !matches!(note.state, State::Client | State::Void) {
            let entry = Entry { state: note.state, time: note.time, bytes: note.bytes.into() };
            self.insert(&note.key, entry);
        }
        let holds = self.held.entries + self.held.clients;
        if holds > held.max(self.limits.entries) || self.held.bytes > self.limits.bytes {
            self.halve();
        }
        before
    }

    /// What is remembered of a request is what was remembered before.
    pub(super) fn put_back(&mut self, key: &Key, before: Option<Entry>) {
        self.take(key);
        if let Some(entry) = before {
            self.insert(key, entry);
        }
    }

    /// Remembers what nothing is remembered of, unless its client needs it no more.
    fn insert(&mut self, key: &Key, entry: Entry) {
        let Some(user) = self.users.get_mut(&key.uid) else { return };
        let Some(client) = user.clients.get_mut(&key.client) else { return };
        if key.number >= client.below {
            user.held.add(entry.bytes.len());
            self.held.add(entry.bytes.len());
            client.entries.insert((key.number, key.step), entry);
        }
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let user = self.users.get_mut(&key.uid)?;
        let entry = user.clients.get_mut(&key.client)?.entries.remove(&(key.number, key.step))?;
        user.held.remove(entry.bytes.len());
        self.held.remove(entry.bytes.len());
        Some(entry)
    }

    /// Drops the older half of what is remembered for the user, or the client, with most of it.
    fn halve(&mut self) {
        if self.limits.unordered.is_some() {
            return self.halve_client();
        }
        let Some(user) = self.users.values_mut().max_by_key(|user| user.held.cost()) else { return };
        let goes = older_half(user.times().collect());
        user.drop_where(&mut self.held, goes);
    }

    /// As [`Table::halve`], of a client: seldom, so that it may look at all of them.
    fn halve_client(&mut self) {
        // Of one without an entry there is nothing to know.
        for user in self.users.values_mut() {
            user.drop_clients(&mut self.held, |client| client.entries.is_empty());
        }
        let of_user = |user: &User| user.clients.values().map(|client| client.held().cost()).max();
        let Some(user) = self.users.values_mut().max_by_key(|user| of_user(user)) else { return };
        let Some(client) = user.clients.values_mut().max_by_key(|client| client.held().cost()) else {
            return;
        };
        let goes = older_half(client.entries.values().map(|entry| entry.time).collect());
        client.drop_where([&mut user.held, &mut self.held], false, goes);
    }

    /// Drops what is older than it may be, at `now` in seconds since the Unix epoch.
    pub fn expire(&mut self, now: u64) {
        let oldest = now.saturating_sub(self.limits.seconds);
        for user in self.users.values_mut() {
            for (_, client) in user.clients.iter_mut().filter(|(id, _)| **id != NOBODY) {
                let least = self.limits.unordered;
                let oldest = oldest.min(least.map_or(oldest, |least| client.time_of_last(least)));
                let goes = |time| time < oldest;
                client.drop_where([&mut user.held, &mut self.held], least.is_none(), goes);
            }
            user.drop_clients(&mut self.held, |client| client.entries.is_empty() && client.seen < oldest);
        }
        self.users.retain(|_, user| !user.clients.is_empty());
    }

    /// Notes from which an equal table can be made.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        self.users.iter().flat_map(|(&uid, user)| {
            user.clients.iter().flat_map(move |(&id, client)| {
                let key = move |number, step| Key { uid, client: id, number, step };
                let below = client.below;
                let own = Note { key: key(0, 0), below, time: client.seen, state: State::Client, bytes: &[] };
                let entries = client.entries.iter().map(move |(&(number, step), entry)| {
                    let Entry { state, time, ref bytes } = *entry;
                    Note { key: key(number, step), below, time, state, bytes }
                });
                core::iter::once(own).chain(entries)
            })
        })
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.held.entries
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.held.entries == 0
    }

    /// Bytes that [`Table::notes`] would take as a log, or a little less.
    pub fn log_bytes(&self) -> usize {
        self.held.cost()
    }
}

impl User {
    /// The times of its entries, and of clients that have none.
    fn times(&self) -> impl Iterator<Item = u64> {
        self.clients.values().flat_map(|client| {
            let own = client.entries.is_empty().then_some(client.seen);
            client.entries.values().map(|entry| entry.time).chain(own)
        })
    }

    /// Drops entries before their client says so: they are not carried out again. Clients that had none go as entries do.
    fn drop_where(&mut self, all: &mut Held, mut goes: impl FnMut(u64) -> bool) {
        self.drop_clients(all, |client| client.entries.is_empty() && goes(client.seen));
        for (id, client) in &mut self.clients {
            client.drop_where([&mut self.held, all], *id != NOBODY, &mut goes);
        }
    }

    fn drop_clients(&mut self, all: &mut Held, mut goes: impl FnMut(&Client) -> bool) {
        let before = self.clients.len();
        self.clients.retain(|_, client| !goes(client));
        let gone = before - self.clients.len();
        self.held.clients -= gone;
        all.clients -= gone;
    }
}

impl Client {
    fn held(&self) -> Held {
        let mut held = Held::default();
        self.entries.values().for_each(|entry| held.add(entry.bytes.len()));
        held
    }

    /// When the `least` last entries were noted, or before.
    fn time_of_last(&self, least: usize) -> u64 {
        if self.entries.len() <= least {
            return 0;
        }
        let mut times: Vec<u64> = self.entries.values().map(|entry| entry.time).collect();
        let place = times.len() - least.max(1);
        *times.select_nth_unstable(place).1
    }

    /// Drops entries; if `refuses`, they and all before them are not carried out again.
    fn drop_where(&mut self, from: [&mut Held; 2], refuses: bool, mut goes: impl FnMut(u64) -> bool) {
        let Client { entries, below, .. } = self;
        let [user, all] = from;
        entries.retain(|&(number, _), entry| {
            let goes = goes(entry.time);
            if goes {
                user.remove(entry.bytes.len());
                all.remove(entry.bytes.len());
                if refuses {
                    *below = (*below).max(number.saturating_add(1));
                }
            }
            !goes
        });
    }
}

/// Whether one is among the older half of those of these times.
fn older_half(mut times: Vec<u64>) -> impl FnMut(u64) -> bool {
    let middle = times.len() / 2;
    let median = if times.is_empty() { 0 } else { *times.select_nth_unstable(middle).1 };
    // Those of the same second count by their order.
    let mut of_median = 1 + middle - times.iter().filter(|&&time| time < median).count();
    move |time| {
        time < median
            || time == median && {
                let goes = of_median > 0;
                of_median = of_median.saturating_sub(1);
                goes
            }
    }
}
