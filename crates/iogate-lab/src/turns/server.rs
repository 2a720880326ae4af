//! The coordinator's rounds, as the daemon makes them.

use std::collections::BTreeMap;

use iogate_core::coord::journal::{Log, LogError};
use iogate_core::coord::leader::{Asked, Entering, Leader, LeaderConfig, Rest, Status, User};
use iogate_core::coord::{CoordConfig, Order, Passing, SessionId};
use iogate_core::refusal::{Refusal, errno};
use iogate_core::wire::{REQUEST_HEADER_BYTES, Request, RequestHeader};
use iogate_core::{Span, Time};
use iogate_sim::rng::Rng;

use super::Planted;
use super::client::{PERIODS, USERS};
use super::world::{MS, Net, SECOND, Sent};
use crate::Disk;

/// When its clock began.
const EPOCH: u64 = 1_000_000 * SECOND;
/// The journal begins anew often.
const JOURNAL_BYTES: u64 = 4 << 10;
/// How long to wait before the journal is tried again that could not be written.
const RETRY: u64 = 200 * MS;

/// A coordinator's machine.
pub(super) struct Server {
    config: LeaderConfig,
    /// What runs, if it does.
    running: Option<Running>,
    /// What is on the disk while nothing runs.
    disk: Option<Disk>,
    /// What its clock is ahead of the time.
    ahead: u64,
    /// When the machine booted.
    booted: u64,
    planted: Option<Planted>,
    failing: u64,
    /// How often it has planned when to decide.
    plans: u64,
}

struct Running {
    leader: Leader,
    log: Log<Disk>,
    connections: BTreeMap<u64, Connection>,
    retry_at: Option<u64>,
}

struct Connection {
    session: SessionId,
    /// The beginning of a message.
    left: Vec<u8>,
}

impl Server {
    pub(super) fn new(rng: &mut Rng, seed: u64, lease: u64, planted: Option<Planted>) -> Server {
        let orders =
            [Order::Fcfs, Order::Fcfs, Order::Weighted, Order::Shortest { ageing: 1 << 20 }, Order::Sets];
        let order = orders[rng.below(5) as usize];
        let table = CoordConfig {
            order,
            // Sets hold side by side.
            slots: if order == Order::Sets || rng.below(4) > 0 { 1 } else { 2 },
            passing: if rng.below(4) == 0 { Passing::Relaxed } else { Passing::Preserve },
            turn_max: Span::from_nanos(if rng.below(4) == 0 { 3 * lease } else { 0 }),
            lease: Span::from_nanos(lease),
            ..CoordConfig::default()
        };
        // In some, the coordinator knows better than clients what their users' weights are.
        let weights = match rng.below(2) {
            0 => USERS.iter().map(|&user| (user, rng.between(1, 100) as u32)).skip(1).collect(),
            _ => BTreeMap::new(),
        };
        let mut disk = Disk::new(Rng::new(seed, 2));
        disk.keeps_old_file = planted == Some(Planted::OldFile);
        Server {
            config: LeaderConfig { table, weights, ..LeaderConfig::default() },
            running: None,
            disk: Some(disk),
            ahead: rng.below(3600 * SECOND),
            booted: 0,
            planted,
            failing: 0,
            plans: 0,
        }
    }

    fn clock(&self, now: u64) -> Time {
        Time::from_nanos(EPOCH + self.ahead + now)
    }

    /// Starts, and goes on with what the disk has.
    pub(super) fn start(&mut self, net: &mut Net) {
        let Some(mut disk) = self.disk.take() else { return };
        disk.failing = self.failing;
        let mut log = Log::new(disk).with_bytes_max(JOURNAL_BYTES);
        let now = self.clock(net.now);
        let begun = log.load().and_then(|mut loaded| {
            match self.planted {
                Some(Planted::NoGrace) => loaded.is_incomplete = false,
                Some(Planted::Forgetful) => loaded.claims.clear(),
                _ => {}
            }
            let offset = EPOCH + self.ahead + self.booted;
            let leader = Leader::new(self.config.clone(), now, offset, &loaded);
            log.append(&leader.all(), &mut || leader.all())?;
            net.note(|| {
                let (claims, token) = (loaded.claims.len(), loaded.token);
                format!(
                    "the coordinator starts with {claims} claims, token {token}, incomplete: {}",
                    loaded.is_incomplete
                )
            });
            Ok(leader)
        });
        match begun {
            Ok(leader) => {
                let connections = BTreeMap::new();
                self.running = Some(Running { leader, log, connections, retry_at: None });
                self.round(net);
            }
            Err(error) => {
                if !matches!(error, LogError::Medium(_)) {
                    net.found(&format!("the journal cannot be read: {error:?}"));
                }
                self.disk = Some(log.into_medium());
                net.start_at(net.now + SECOND);
            }
        }
    }

    /// Ends at once; with `crashes`, so does its machine.
    pub(super) fn kill(&mut self, net: &mut Net, crashes: bool) {
        let Some(running) = self.running.take() else { return };
        net.note(|| format!("the coordinator is killed, its machine crashes: {crashes}"));
        net.report.kills += 1;
        net.report.crashes += u64::from(crashes);
        running.connections.keys().for_each(|&wire| net.send_client(wire, Sent::End));
        let mut disk = running.log.into_medium();
        if crashes {
            disk.reboot();
            self.booted = net.now;
        } else {
            disk.killed();
        }
        self.disk = Some(disk);
        let pause = net.rng.between(MS, 3 * SECOND);
        net.start_at(net.now + pause);
    }

    pub(super) fn kill_in_next_write(&mut self) {
        if let Some(running) = &mut self.running {
            running.log.medium_mut().kills_next = true;
        }
    }

    /// Of a thousand writes, so many fail from now on.
    pub(super) fn fail_writes(&mut self, of_thousand: u64) {
        self.failing = of_thousand;
        if let Some(running) = &mut self.running {
            running.log.medium_mut().failing = of_thousand;
        }
    }

    /// Nothing is wrong with it any more.
    pub(super) fn heal(&mut self) {
        self.fail_writes(0);
        if let Some(running) = &mut self.running {
            running.log.medium_mut().kills_next = false;
        }
    }

    /// Whether those who wait are served in the order in which they came: then nobody waits for long.
    pub(super) fn is_first_come(&self) -> bool {
        self.config.table.order == Order::Fcfs && self.config.table.passing == Passing::Preserve
    }

    /// Parties that may hold a target at a time.
    pub(super) fn slots(&self) -> usize {
        match self.config.table.order {
            // Periods are of this many orders of magnitude.
            Order::Sets => PERIODS.len(),
            _ => self.config.table.slots as usize,
        }
    }

    /// Who holds and who waits, for people.
    pub(super) fn state(&self, now: u64) -> String {
        let Some(running) = &self.running else { return "the coordinator does not run".into() };
        let mut status = Status::default();
        running.leader.describe(self.clock(now), &mut status);
        let holders: Vec<_> =
            status.holders.iter().map(|one| (one.token, &one.targets, one.is_connected)).collect();
        let waiters: Vec<_> =
            status.waiters.iter().map(|one| (&one.targets, one.waited_ms, one.is_connected)).collect();
        format!("held: {holders:?}, waiting: {waiters:?}, order {}", status.rules.order)
    }

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        let now = self.clock(net.now);
        let Some(running) = &mut self.running else {
            return net.send_client(wire, Sent::End);
        };
        let is_taken = match sent {
            Sent::Hello(shown, uid) => running.enter(net, now, wire, shown, uid),
            Sent::Bytes(bytes) => running.take(net, now, wire, &bytes),
            Sent::End | Sent::Welcome(..) => false,
        };
        if !is_taken {
            running.close(net, now, wire);
        }
        self.round(net);
    }

    /// It has planned to decide now.
    pub(super) fn ask(&mut self, net: &mut Net, plan: u64) {
        if plan == self.plans {
            self.round(net);
        }
    }

    /// Decides, keeps, and says.
    fn round(&mut self, net: &mut Net) {
        let now = self.clock(net.now);
        let Some(Running { leader, log, connections, retry_at }) = &mut self.running else { return };
        let mut ask_at = net.now + SECOND;
        if let Some(at) = leader.decide(now) {
            ask_at = ask_at.min(net.now + at.since(now).as_nanos());
        }
        leader.forget_idle(now);
        let mut has_kept = false;
        if retry_at.is_none_or(|at| at <= net.now) {
            let kept = match leader.unkept() {
                [] => Ok(()),
                records => log.append(records, &mut || leader.all()),
            };
            if log.medium().is_killed {
                return self.kill(net, false);
            }
            net.report.failed_writes += u64::from(kept.is_err());
            let kept = kept.or_else(|error| match self.planted {
                Some(Planted::Unkept) => Ok(()),
                _ => Err(error),
            });
            match kept {
                Ok(()) => {
                    has_kept = true;
                    if retry_at.take().is_some() {
                        ask_at = net.now;
                    }
                    leader.kept(now);
                }
                Err(error) => {
                    net.note(|| format!("the journal keeps nothing: {error:?}"));
                    leader.not_kept(now, Refusal::new(errno::EIO, "the journal keeps nothing"));
                    *retry_at = Some(net.now + RETRY);
                    ask_at = ask_at.min(net.now + RETRY);
                }
            }
        }
        // That a turn is taken away is right, and nothing else is to be said.
        for notice in leader.notices().iter().filter(|notice| !notice.contains(" takes the turn of ")) {
            net.found(&format!("the coordinator says: {notice}"));
        }
        leader.say(has_kept, |wire, bytes| {
            if connections.contains_key(&wire) {
                net.send_client(wire, Sent::Bytes(bytes.into()));
            }
        });
        self.plans += 1;
        net.ask_at(self.plans, ask_at);
    }
}

impl Running {
    fn enter(&mut self, net: &mut Net, now: Time, wire: u64, shown: [u8; 16], uid: u32) -> bool {
        let mut fresh = [0; 16];
        fresh[..8].copy_from_slice(&net.rng.bits().to_le_bytes());
        let user = User { uid, gid: uid };
        let client = Entering { connection: wire, shown, fresh, user, name: "a client" };
        let Ok(entered) = self.leader.enter(now, &client) else { return false };
        let connection = Connection { session: entered.session, left: Vec::new() };
        self.connections.insert(wire, connection);
        net.send_client(wire, Sent::Welcome(entered.secret, entered.is_resumed));
        if let Some(before) = entered.before {
            self.close(net, now, before);
        }
        true
    }

    fn take(&mut self, net: &mut Net, now: Time, wire: u64, bytes: &[u8]) -> bool {
        let Some(Connection { session, left }) = self.connections.get_mut(&wire) else {
            return false;
        };
        left.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(header) = left[at..].first_chunk::<REQUEST_HEADER_BYTES>() {
            let Ok(header) = RequestHeader::from_bytes(header) else {
                net.found("a client's request has a header that cannot be read");
                return false;
            };
            let fields = at + REQUEST_HEADER_BYTES..at + REQUEST_HEADER_BYTES + usize::from(header.fields);
            let Some(bytes) = left.get(fields.clone()) else { break };
            let Ok(request) = Request::decode(header.kind, bytes) else {
                net.found(&format!("a client's request of kind {} cannot be read", header.kind));
                return false;
            };
            let asked = Asked { now, connection: wire, session: *session, id: header.id };
            if self.leader.handle(asked, &request) == Rest::Over {
                return false;
            }
            at = fields.end;
        }
        left.drain(..at);
        true
    }

    fn close(&mut self, net: &mut Net, now: Time, wire: u64) {
        if let Some(Connection { session, .. }) = self.connections.remove(&wire) {
            self.leader.leave(now, session, wire);
        }
        net.send_client(wire, Sent::End);
    }
}
