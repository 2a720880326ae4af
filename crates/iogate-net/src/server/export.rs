//! What a server offers, and how much of it.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use iogate_core::ends::Rules;
use iogate_core::wire::Gone;
use iogate_core::{Layout, Time};
use iogate_engine::Engine;
use iogate_engine::store::ModelledStore;
use iogate_vfs::ends::{Ends, RangeLog};
use iogate_vfs::fence::Fences;
use iogate_vfs::{Clock, Tree, TreeFile, Users};

use super::appends::Appends;
use super::entrance::Entrance;
use super::kept_ranges::KeptRanges;
use super::locks::Locks;
use iogate_vfs::answers::{Answers, losses};

/// A tree under a name.
pub struct Export {
    /// What clients call it.
    pub name: String,
    /// The files.
    pub tree: Arc<dyn Tree>,
    /// The gate that all reads and writes pass; over the tree's store.
    pub engine: Arc<Engine>,
    /// Nothing can be changed.
    pub read_only: bool,
    /// The stripes of files that have no layout of their own.
    pub striping: Layout,
    /// Whose ids a client's are here.
    pub users: Users,
    /// Users whom the server trusts to say in whose name a request is: forwarders, and mounts that several users share. Only they may
    /// use the [names that are iogate's own](iogate_core::reserved).
    pub forwarders: Vec<u32>,
    /// What is remembered of requests that must not be carried out twice; `None`: what the tree's servers remember.
    pub answers: Option<Arc<Answers>>,
    /// The modelled devices behind the gate, of which the status tells.
    pub devices: Vec<Arc<ModelledStore>>,
}

impl Export {
    /// A tree under this name, behind an engine over its store, as it is: it can be changed, has no stripes, ids are the clients' own, and
    /// nobody is trusted to speak for others.
    pub fn new(name: &str, engine: Arc<Engine>, tree: Arc<dyn Tree>) -> Export {
        Export {
            name: name.into(),
            tree,
            engine,
            read_only: false,
            striping: Layout::SINGLE,
            users: Users::default(),
            forwarders: Vec::new(),
            answers: None,
            devices: Vec::new(),
        }
    }
}

/// What a server may spend.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections altogether.
    pub connections: usize,
    /// Connections from one host, or of one user of this machine; and half the sessions of one user, as those without a connection
    /// are kept for a while.
    pub connections_per_client: usize,
    /// Files that a session has open.
    pub open_files_per_session: usize,
    /// Files that all sessions have open together, of which a user at an export has no more than it leaves free. Fewer, if the
    /// process may not have two descriptors for each.
    pub open_files: usize,
    /// Requests that a session has underway.
    pub credits: u32,
    /// Bytes of data that a session has underway.
    pub credit_bytes: u64,
    /// Bytes of one read or write; at most [`PAYLOAD_BYTES_MAX`](iogate_core::wire::PAYLOAD_BYTES_MAX).
    pub transfer_bytes_max: u32,
    /// Bytes of data underway, of all sessions, and of operations and their replies, of which a user at an export has no more than
    /// it leaves free: what comes in beyond that waits.
    pub memory_bytes: usize,
    /// How long a connection may be without a `Hello`.
    pub hello_timeout: Duration,
    /// How long a client may take little of its replies, and how long a message that has begun may take, beside a second for each
    /// MiB. While memory is short, a message has one second, and that.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16_384,
            connections_per_client: 4_096,
            open_files_per_session: 16_384,
            open_files: 1 << 20,
            credits: 256,
            credit_bytes: 64 << 20,
            transfer_bytes_max: 4 << 20,
            memory_bytes: 512 << 20,
            hello_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// An export in service.
pub(super) struct Served {
    pub(super) export: Export,
    /// Its number among the exports.
    pub(super) index: usize,
    pub(super) appends: Arc<Appends>,
    pub(super) entrance: Entrance,
    /// Objects that nobody can reach any more, and no client was told of.
    pub(super) gone: Mutex<Vec<Gone>>,
    /// Of the striped files that have their names here.
    pub(super) ends: Arc<Ends>,
    /// Its clients' locks, from when it begins on, if they hold among several clients.
    pub(super) locks: OnceLock<Locks>,
    /// Of the objects that are here.
    pub(super) fences: Arc<Fences>,
    /// Whether it has been said that root is somebody else here: its owner hears of that once, with the first refusal.
    pub(super) has_told_of_root: AtomicBool,
}

/// Most objects that wait for a client to be told of them; a sweep finds the others.
const GONE_MAX: usize = 65_536;

impl Served {
    pub(super) fn new((index, export): (usize, Export)) -> Arc<Served> {
        let known = export.answers.as_deref().map(losses::known);
        known.into_iter().flatten().for_each(|(file, count)| export.tree.restore_losses(file, count));
        let log = export.answers.clone();
        let log = log.map(|answers| -> Arc<dyn RangeLog> { Arc::new(KeptRanges::new(answers)) });
        let ends = Ends::new(Rules::SERVER, log, Clock::REAL);
        // For its status.
        export.engine.watch_arrivals();
        Arc::new(Served {
            export,
            index,
            appends: Arc::default(),
            entrance: Entrance::default(),
            gone: Mutex::default(),
            ends,
            locks: OnceLock::new(),
            fences: Arc::default(),
            has_told_of_root: AtomicBool::new(false),
        })
    }

    /// Begins to serve it: clients of an earlier server may come back for so long.
    pub(super) fn begin(self: &Arc<Self>, instance: u64, now: Time, grace: Duration) -> io::Result<()> {
        if let Some(locks) = Locks::begin(&*self.export.tree, instance, now + grace.into())? {
            let _ = self.locks.set(locks);
        }
        let served = Arc::downgrade(self);
        self.export.tree.when_gone(Arc::new(move |gone| {
            if let Some(served) = served.upgrade() {
                served.leave(gone);
            }
        }));
        self.export.tree.begin_grace(grace)
    }

    /// Makes a file durable; returns its verifier. A loss is noted: the kernel tells of it once, and others may have written, too.
    pub(super) fn sync(&self, file: &dyn TreeFile, data_only: bool) -> io::Result<u64> {
        match &self.export.answers {
            Some(answers) => losses::sync(answers, file, data_only),
            None => file.sync(data_only),
        }
    }

    /// Leaves objects to the next client that can discard them.
    pub(super) fn leave(&self, gone: Gone) {
        let mut left = super::lock(&self.gone);
        if left.len() < GONE_MAX {
            left.push(gone);
        }
    }
}

impl std::ops::Deref for Served {
    type Target = Export;

    fn deref(&self) -> &Export {
        &self.export
    }
}

impl Served {
    /// See [`Welcome::answers`](iogate_core::wire::Welcome::answers).
    pub(super) fn answers(&self) -> u64 {
        match &self.export.answers {
            _ if self.export.read_only => 0,
            Some(answers) => answers.number(),
            None => self.export.tree.answers(),
        }
    }
}
