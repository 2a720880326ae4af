//! The caches of servers and clients: what reaches them, and what they want from below.
//!
//! A server's cache lies between its gate and its device: a dispatch is an access, and complete when that is. All that read a file at a
//! server are one stream for its read-ahead, as `nfsd` keeps one state for a file (`raparms`). A COMMIT passes no gate: a scheduler of
//! reads and writes does not see it. Where the export is `sync`, it is a sync of the file, with a journal and a flush; else it
//! is answered at once.
//!
//! A client's cache lies between its processes and the network; a process is a stream. Consistency is close-to-open
//! (nfs(5)): a process that begins an I/O phase forgets what it has of a file that others have changed since, and at the
//! end of the phase what it has written is written back and committed, at all servers. Probes pass the cache by.
//! A node that is lost forgets everything: what it has not sent is gone.
//!
//! Left out: attributes and their time-outs, locks, delegations, several mounts of a node, and which servers have nothing to commit.

use std::collections::BTreeMap;

use iogate_core::{AppId, Dispatch, DispatchId, FileId, Op, Time};

use super::block::{Io, Owner};
use super::process::Waiting;
use super::request::{Parent, Range};
use super::{Event, SimError, World};
use crate::cache::{Access, Cache, CacheConfig, CacheStats, Step, Transfer};
use crate::workload::Call;

/// The cache of a node.
pub(super) struct NodeCache {
    cache: Cache,
    journal: u64,
    /// When it will be asked again because it has said so.
    wake: Time,
    /// Clients: what is underway, by its number.
    underway: Vec<Underway>,
    /// Clients: changes of each file by this node that have come to the servers, and those by others that it knew of when it opened the
    /// file last.
    changes: BTreeMap<FileId, (u64, u64)>,
}

/// A transfer of a client's cache, or its COMMITs.
#[derive(Clone, Copy, Default)]
struct Underway {
    /// Requests that are not answered.
    open: u32,
    /// What it writes back.
    written: Option<FileId>,
}

impl NodeCache {
    pub(super) fn new(config: &CacheConfig) -> NodeCache {
        NodeCache {
            cache: Cache::new(config),
            journal: config.kernel.value("journal_kib") << 10,
            wake: Time::MAX,
            underway: Vec::new(),
            changes: BTreeMap::new(),
        }
    }

    pub(super) fn stats(&self) -> CacheStats {
        self.cache.stats()
    }
}

/// What a server's cache calls a COMMIT: the request, and this.
const COMMIT: u64 = 1 << 32;

impl World<'_> {
    /// A server's gate has dispatched something.
    pub(super) fn access_at_server(&mut self, node: u32, dispatch: &Dispatch) {
        let now = self.queue.now();
        let Dispatch { id, file, op, offset, bytes, app, .. } = *dispatch;
        let length = self.lengths.get(&file).copied().unwrap_or(0);
        let end = self.striping.part_end(node - self.first_server(), length);
        let Some(this) = &mut self.nodes[node as usize].cache else { return };
        let access = Access { token: id.0.into(), whom: app.0, stream: 0, file, offset, bytes };
        match op {
            Op::Read => this.cache.read(access, end),
            Op::Write => this.cache.write(now, access),
        }
    }

    /// A process accesses a range through its node's cache; `piece` is answered when it has.
    pub(super) fn access(&mut self, node: u32, process: u32, piece: u32, range: &Range) {
        let now = self.queue.now();
        let Range { file, op, offset, bytes } = *range;
        let length = self.lengths.get(&file).copied().unwrap_or(0);
        let Some(this) = &mut self.nodes[node as usize].cache else { return };
        let access =
            Access { token: piece.into(), whom: process, stream: process.into(), file, offset, bytes };
        match op {
            Op::Read => this.cache.read(access, length),
            Op::Write => this.cache.write(now, access),
        }
    }

    /// A process issues a call through its node's cache: the first one of a file in a phase opens it.
    pub(super) fn open_file(&mut self, process: u32, call: &Call) {
        let this = &mut self.processes[process as usize];
        let file = call.file;
        let written = call.op == Op::Write;
        if let Some(opened) = this.opened.iter_mut().find(|opened| opened.0 == file) {
            opened.1 |= written;
            return;
        }
        this.opened.push((file, written));
        let Some(all) = self.changes.get(&file) else { return };
        let Some(this) = &mut self.nodes[this.node as usize].cache else { return };
        let (own, known) = this.changes.entry(file).or_default();
        let others = all - *own;
        if others != *known {
            *known = others;
            this.cache.forget(file);
        }
    }

    /// A process ends its phase: what it has written is to be durable. Whether it has to wait for that.
    pub(super) fn close_files(&mut self, process: u32) -> Result<bool, SimError> {
        let this = &mut self.processes[process as usize];
        let node = this.node;
        if this.opened.is_empty() {
            return Ok(false);
        }
        let opened = std::mem::take(&mut this.opened);
        let sender = self.sender(process);
        let mut open = 0;
        for (file, _) in opened.iter().filter(|(_, written)| *written) {
            let range = Range { file: *file, op: Op::Write, offset: 0, bytes: 0 };
            let piece = self.add_piece(Parent::Close(process), node, node, range, sender);
            if let Some(this) = &mut self.nodes[node as usize].cache {
                this.cache.sync(piece.into(), process, *file);
                open += 1;
            }
        }
        if open > 0 {
            let this = &mut self.processes[process as usize];
            (this.closing, this.waiting) = (open, Waiting::Close);
            self.ask_cache(node)?;
        }
        Ok(open > 0)
    }

    /// A file of a process that ends its phase is durable.
    pub(super) fn closed(&mut self, process: u32) -> Result<(), SimError> {
        let this = &mut self.processes[process as usize];
        this.closing -= 1;
        if this.closing > 0 || this.waiting == Waiting::Ended {
            return Ok(());
        }
        self.phase(process, false);
        self.leave_turn(process);
        self.go_on(process)
    }

    /// A COMMIT has come in at a server.
    pub(super) fn commit(&mut self, piece: u32) -> Result<(), SimError> {
        let request = &self.pieces[piece];
        let (node, file) = (request.to, request.file);
        let commits = self.scenario.cluster.servers.cache.as_ref().is_some_and(|cache| cache.commits);
        match &mut self.nodes[node as usize].cache {
            Some(this) if commits => {
                this.cache.sync(COMMIT | u64::from(piece), 0, file);
                self.ask_cache(node)
            }
            _ => {
                self.answer_commit(piece);
                Ok(())
            }
        }
    }

    fn answer_commit(&mut self, piece: u32) {
        let request = &self.pieces[piece];
        let (node, to, reply) = (request.to, request.from, request.reply(piece));
        self.net.send(&mut self.queue, node, to, 0, reply);
    }

    /// A part of what a cache wants from below is there.
    pub(super) fn cache_answered(&mut self, node: u32, io: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let Some(this) = &mut self.nodes[node as usize].cache else { return Ok(()) };
        if let Some(underway) = this.underway.get_mut(io as usize) {
            if underway.open > 1 {
                underway.open -= 1;
                return Ok(());
            }
            // Only now others can read it: what they have read before is old.
            if let Some(file) = underway.written.take() {
                this.changes.entry(file).or_default().0 += 1;
                *self.changes.entry(file).or_default() += 1;
            }
        }
        this.cache.completed(now, io);
        self.ask_cache(node)
    }

    /// Asks a cache until it has nothing to say.
    pub(super) fn ask_cache(&mut self, node: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let is_server = self.nodes[node as usize].block.is_some();
        let lost = self.nodes[node as usize].lost;
        loop {
            let Some(this) = &mut self.nodes[node as usize].cache else { return Ok(()) };
            match this.cache.next(now) {
                Step::Transfer(Transfer { io, .. }) | Step::Flush { io, .. } if lost => {
                    this.cache.completed(now, io);
                }
                Step::Transfer(transfer) if is_server => self.transfer(node, &transfer),
                Step::Transfer(transfer) => self.request_transfer(node, &transfer),
                Step::Flush { io, .. } if is_server => self.flush(node, io),
                Step::Flush { io, file, whom } => self.request_commits(node, io, file, whom),
                Step::Done(token) if is_server => self.done_at_server(node, token)?,
                // Not at once: a process that is answered from memory again and again would go on within itself.
                Step::Done(token) => self.queue.add(now, Event::Cached(token as u32)),
                Step::WaitUntil(at) => {
                    if at < this.wake {
                        this.wake = at;
                        self.queue.add(at, Event::Cache(node));
                    }
                    break;
                }
                Step::Idle => break,
            }
        }
        if is_server {
            self.begin_transfers(node);
        }
        Ok(())
    }

    /// A server's cache has done what a request asks for.
    fn done_at_server(&mut self, node: u32, token: u64) -> Result<(), SimError> {
        if let Some(block) = &mut self.nodes[node as usize].block {
            block.answered(token);
        }
        if token < COMMIT {
            return self.done_below(node, DispatchId(token as u32));
        }
        self.answer_commit(token as u32);
        Ok(())
    }

    /// A cache has asked to be asked now.
    pub(super) fn wake_cache(&mut self, node: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        match &mut self.nodes[node as usize].cache {
            Some(this) if this.wake <= now => this.wake = Time::MAX,
            _ => return Ok(()),
        }
        self.ask_cache(node)
    }

    /// A server's cache fetches or writes back.
    fn transfer(&mut self, node: u32, transfer: &Transfer) {
        let now = self.queue.now();
        let Transfer { io, whom, op, file, offset, bytes, by, waited_for } = *transfer;
        let Some(block) = &mut self.nodes[node as usize].block else { return };
        let owner = Owner::Cache(io);
        let (app, request) = (AppId(whom), by);
        let (requests, handed_over) = (0, false);
        block.submit(
            now,
            Io { owner, op, file, offset, bytes, app, requests, handed_over, request, waited_for },
        );
    }

    /// A server's cache wants the device to have all that it has written back.
    fn flush(&mut self, node: u32, io: u32) {
        self.begin_transfers(node);
        let now = self.queue.now();
        let this = &mut self.nodes[node as usize];
        let journal = this.cache.as_ref().map_or(0, |cache| cache.journal);
        let owner = Owner::Cache(io);
        // On a device that is stopped for good it never ends.
        let flushed = this.block.as_mut().and_then(|block| block.flush(now, owner, journal));
        if let Some((begun, end)) = flushed {
            self.observe(node, &begun);
            self.queue.add(end, Event::Transferred { node, owner });
        }
    }

    /// A client's cache reads from the servers, or writes to them.
    fn request_transfer(&mut self, node: u32, transfer: &Transfer) {
        let Transfer { io, whom, op, file, offset, bytes, .. } = *transfer;
        let (sender, range) = (self.sender(whom), Range { file, op, offset, bytes });
        let open = self.forward(Parent::Cache { node, io }, node, 0, &range, sender);
        self.expect(node, io, open, (op == Op::Write).then_some(file));
    }

    /// A client's cache wants all servers to have on their devices what it has written.
    fn request_commits(&mut self, node: u32, io: u32, file: FileId, whom: u32) {
        let sender = self.sender(whom);
        let first = self.first_server();
        let range = Range { file, op: Op::Write, offset: 0, bytes: 0 };
        for server in first..first + self.scenario.cluster.servers.nodes {
            self.send_piece(Parent::Cache { node, io }, node, server, range, sender);
        }
        self.expect(node, io, self.scenario.cluster.servers.nodes, None);
    }

    fn expect(&mut self, node: u32, io: u32, open: u32, written: Option<FileId>) {
        let Some(this) = &mut self.nodes[node as usize].cache else { return };
        let index = io as usize;
        if this.underway.len() <= index {
            this.underway.resize(index + 1, Underway::default());
        }
        this.underway[index] = Underway { open, written };
    }
}
