//! Two-phase collective I/O: some processes, the aggregators, read or write large pieces, and all exchange with them.
//!
//! As in ROMIO (Thakur, Gropp, Lusk: Data Sieving and Collective I/O in ROMIO, 1999; the TWINS thesis, 2.2.2 and 5.4): the bytes
//! of an iteration are cut into as many equally long domains as there are aggregators, aligned to nothing. In each round every
//! aggregator moves the next `buffer` bytes of its domain. A barrier ends the round. In a round,
//!
//! - to write, each process sends every aggregator its share of the round's bytes, if it has one; the aggregators receive, then write;
//! - to read, the aggregators read, then send each process its share; the processes receive.
//!
//! An aggregator sends itself nothing. Shares are computed from the division, so a process needs no memory for them.

use iogate_core::{FileId, Op};

use super::accesses::range;
use super::division::Division;
use super::files::file_id;
use super::{Call, Step};
use crate::scenario::{App, Pattern, Sharing};

/// The steps of one process in a collective call.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    division: Division,
    processes: u64,
    rank: u64,
    aggregators: u64,
    /// Which domain is this process's, if it is an aggregator.
    own: Option<u64>,
    /// Bytes of a domain; the last may be shorter.
    domain: u64,
    buffer: u64,
    rounds: u64,
    file: FileId,
    op: Op,
    /// Where the iteration's part of the file begins.
    base: u64,
    round: u64,
    /// Which act of the round is next, and with whom.
    act: usize,
    peer: u64,
    /// Messages that this process has received, or is waiting for.
    messages: u64,
}

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
enum Act {
    Send,
    Receive,
    Call,
    Finish,
    Barrier,
}

const WRITE: [Act; 5] = [Act::Send, Act::Receive, Act::Call, Act::Finish, Act::Barrier];
const READ: [Act; 5] = [Act::Call, Act::Finish, Act::Send, Act::Receive, Act::Barrier];

impl Exchange {
    /// That of process `rank`; `None` if `app` does its I/O independently. Collective I/O needs one file, whose bytes the
    /// processes cover without holes; without that each process makes its own calls.
    pub(super) fn new(app: &App, rank: u32) -> Option<Exchange> {
        let collective = app.workload.collective?;
        let covered = match app.workload.pattern {
            Pattern::Contiguous { sharing, .. } => sharing == Sharing::Shared,
            Pattern::Strided { .. } | Pattern::Noncontiguous { .. } => true,
            Pattern::Tile { columns, .. } => app.processes.is_multiple_of(columns),
            Pattern::Random { .. } | Pattern::Trace { .. } => false,
        };
        if !covered {
            return None;
        }
        let division = Division::of(&app.workload.pattern, app.processes);
        let (processes, rank) = (u64::from(app.processes), u64::from(rank));
        let aggregators = u64::from(collective.aggregators).clamp(1, processes);
        let domain = division.total.div_ceil(aggregators);
        let buffer = u64::from(collective.buffer.max(1));
        let index = (rank * aggregators).div_ceil(processes);
        let own = (index < aggregators && index * processes / aggregators == rank).then_some(index);
        Some(Exchange {
            division,
            processes,
            rank,
            aggregators,
            own,
            domain,
            buffer,
            rounds: domain.div_ceil(buffer),
            file: file_id(app.files, 0),
            op: app.workload.op,
            base: 0,
            round: 0,
            act: 0,
            peer: 0,
            messages: 0,
        })
    }

    /// Starts over, in the part of the file that belongs to `iteration`.
    pub(super) fn begin(&mut self, iteration: u32) {
        self.base = u64::from(iteration) * self.division.total;
        self.round = 0;
    }

    /// The next step of this iteration's collective call; `None` once it is over.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        let acts = if self.op == Op::Write { WRITE } else { READ };
        while self.round < self.rounds {
            let step = match acts[self.act] {
                Act::Send => match self.next_message() {
                    Some(message) => return Some(message),
                    None => None,
                },
                Act::Receive => self.receive(),
                Act::Call => self.call().map(Step::Call),
                Act::Finish => self.call().map(|_| Step::Finish),
                Act::Barrier => {
                    self.round += 1;
                    Some(Step::Barrier)
                }
            };
            self.act = (self.act + 1) % acts.len();
            self.peer = 0;
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// The next message of this round from this process.
    fn next_message(&mut self) -> Option<Step> {
        let peers = match (self.op, self.own) {
            (Op::Write, _) => self.aggregators,
            (Op::Read, Some(_)) => self.processes,
            (Op::Read, None) => 0,
        };
        while self.peer < peers {
            let peer = self.peer;
            self.peer += 1;
            let (to, bytes) = match (self.op, self.own) {
                (Op::Read, Some(own)) => (peer, self.exchanged(peer, own)),
                _ => (self.rank_of(peer), self.exchanged(self.rank, peer)),
            };
            if bytes > 0 {
                return Some(Step::Send { to: to as u32, bytes });
            }
        }
        None
    }

    /// Waits for the messages of this round to this process.
    fn receive(&mut self) -> Option<Step> {
        let senders = match (self.op, self.own) {
            (Op::Write, Some(own)) => {
                (0..self.processes).filter(|rank| self.exchanged(*rank, own) > 0).count()
            }
            (Op::Write, None) => 0,
            (Op::Read, _) => (0..self.aggregators).filter(|of| self.exchanged(self.rank, *of) > 0).count(),
        };
        self.messages += senders as u64;
        (senders > 0).then_some(Step::Receive { messages: self.messages })
    }

    /// What this process reads or writes in this round.
    fn call(&self) -> Option<Call> {
        let (start, end) = self.bytes_of(self.own?);
        (start < end).then(|| range(self.file, self.op, self.base + start, (end - start) as u32))
    }

    /// Bytes that go between process `rank` and an aggregator in this round.
    fn exchanged(&self, rank: u64, aggregator: u64) -> u64 {
        if self.rank_of(aggregator) == rank {
            return 0;
        }
        let (start, end) = self.bytes_of(aggregator);
        self.division.share(rank, start, end)
    }

    /// The rank of an aggregator.
    fn rank_of(&self, aggregator: u64) -> u64 {
        aggregator * self.processes / self.aggregators
    }

    /// Which bytes of the iteration an aggregator moves in this round: from, and up to.
    fn bytes_of(&self, aggregator: u64) -> (u64, u64) {
        let end = ((aggregator + 1) * self.domain).min(self.division.total);
        let start = (aggregator * self.domain + self.round * self.buffer).min(end);
        (start, end.min(start + self.buffer))
    }
}
