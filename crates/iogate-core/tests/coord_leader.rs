//! What a leader says to whom, round by round.

#![cfg(feature = "coordinator")]

use std::collections::BTreeSet;

use iogate_core::coord::leader::{Asked, Entered, Entering, Leader, LeaderConfig, Probed, User};
use iogate_core::coord::{ClaimId, CoordConfig, SessionId};
use iogate_core::refusal::{Refusal, errno};
use iogate_core::wire::{Claim, Evict, REPLY_HEADER_BYTES, Release, ReplyHeader, Request};
use iogate_core::{Span, Time};

/// In tenths of the lease of the default rules.
fn at(tenths: u64) -> Time {
    Time::from_nanos(tenths * CoordConfig::default().lease.as_nanos() / 10)
}

fn full() -> Refusal {
    Refusal::new(errno::EIO, "the disk is full")
}

/// A leader whose clients have the connections 1 and 2, and the sessions that it gave them.
struct World {
    leader: Leader,
    sessions: [SessionId; 2],
}

impl World {
    fn new(config: LeaderConfig) -> World {
        let mut leader = Leader::new(config, at(0), 0, &Default::default());
        let sessions = [1, 2].map(|connection| {
            let user = User { uid: 0, gid: 0 };
            let (shown, fresh) = ([0; 16], [connection as u8; 16]);
            let client = Entering { connection, shown, fresh, user, name: "client" };
            let Entered { session, .. } = leader.enter(at(0), &client).unwrap();
            session
        });
        World { leader, sessions }
    }

    /// The client of this connection asks.
    fn ask(&mut self, now: Time, connection: u64, id: u64, request: &Request<'_>) {
        let session = self.sessions[connection as usize - 1];
        self.leader.handle(Asked { now, connection, session, id }, request);
    }

    fn claim(&mut self, now: Time, connection: u64, id: u64) {
        let claim =
            Claim { bytes: 0, weight: 1, period: 0, place: b"scratch", members: &[], party: &[], label: &[] };
        self.ask(now, connection, id, &Request::Claim(claim));
    }

    /// A round whose records the journal has by `kept`; returns what is said: connection, request, errno.
    fn round(&mut self, now: Time, kept: Time) -> Vec<(u64, u64, i32)> {
        self.leader.decide(now);
        self.leader.kept(kept);
        self.said(true)
    }

    /// A round of which the journal keeps nothing.
    fn lame_round(&mut self, now: Time) -> Vec<(u64, u64, i32)> {
        self.leader.decide(now);
        self.leader.not_kept(now, full());
        self.said(false)
    }

    fn said(&mut self, has_kept: bool) -> Vec<(u64, u64, i32)> {
        let mut said = Vec::new();
        self.leader.say(has_kept, |connection, bytes| {
            let (header, _) = bytes.split_first_chunk::<REPLY_HEADER_BYTES>().unwrap();
            let header = ReplyHeader::from_bytes(header).unwrap();
            said.push((connection, header.id, i32::from(header.errno)));
        });
        said
    }

    /// The first client has the turn of token 1, and the second one waits with its request 7.
    fn one_holds_and_one_waits(config: LeaderConfig) -> World {
        let mut world = World::new(config);
        world.claim(at(0), 1, 1);
        assert_eq!(world.round(at(0), at(0)), [(1, 1, 0)]);
        world.claim(at(0), 2, 7);
        assert_eq!(world.round(at(0), at(0)), []);
        world
    }

    fn release(&mut self, now: Time) {
        self.ask(now, 1, 2, &Request::Release(Release { token: 1, bytes: 0 }));
    }
}

/// The second client's claim is answered however long the journal keeps nothing while it is granted its turn.
#[test]
fn who_is_granted_a_turn_while_the_journal_fails_is_told() {
    for tenths in [5, 10, 15, 30, 100] {
        let mut world = World::one_holds_and_one_waits(LeaderConfig::default());
        world.release(at(1));
        for now in 1..tenths {
            assert_eq!(world.lame_round(at(now)), []);
        }
        assert_eq!(world.round(at(tenths), at(tenths)), [(1, 2, 0), (2, 7, 0)], "{tenths} tenths of a lease");
    }
}

#[test]
fn who_is_granted_a_turn_while_the_journal_is_slow_is_told() {
    let mut world = World::one_holds_and_one_waits(LeaderConfig::default());
    world.release(at(1));
    assert_eq!(world.round(at(1), at(16)), [(1, 2, 0), (2, 7, 0)]);
}

/// Turns may not be as long as the journal kept nothing: it claims again.
#[test]
fn who_can_no_longer_be_given_its_turn_is_told() {
    let table = CoordConfig { turn_max: at(15).since(at(0)), ..CoordConfig::default() };
    let mut world = World::one_holds_and_one_waits(LeaderConfig { table, ..LeaderConfig::default() });
    world.release(at(1));
    for now in 1..40 {
        assert_eq!(world.lame_round(at(now)), []);
    }
    assert_eq!(world.round(at(40), at(40)), [(1, 2, 0)]);
    assert_eq!(world.round(at(40), at(40)), [(2, 7, errno::EAGAIN)]);
    world.claim(at(40), 2, 8);
    assert_eq!(world.round(at(40), at(40)), [(2, 8, 0)]);
}

#[test]
fn who_loses_a_turn_to_an_administrator_while_the_journal_fails_is_told() {
    let mut world = World::one_holds_and_one_waits(LeaderConfig::default());
    world.release(at(1));
    assert_eq!(world.lame_round(at(1)), []);
    world.ask(at(2), 1, 3, &Request::Evict(Evict { token: 2 }));
    assert_eq!(world.lame_round(at(2)), []);
    let said = world.round(at(3), at(3));
    assert_eq!(said, [(1, 2, 0), (1, 3, 0), (2, 7, errno::ECANCELED)]);
}

/// Claims a turn of a place that is probed.
fn probing(turn_max: Span) -> (World, ClaimId) {
    let table = CoordConfig { turn_max, ..CoordConfig::default() };
    let probed = BTreeSet::from(["scratch".into()]);
    let mut world = World::new(LeaderConfig { table, probed, ..LeaderConfig::default() });
    world.claim(at(0), 2, 7);
    assert_eq!(world.round(at(0), at(0)), []);
    let probes = world.leader.probes();
    let [(id, _)] = &probes[..] else { panic!("expected one probe, found {probes:?}") };
    assert!(world.leader.is_probing(*id));
    (world, *id)
}

#[test]
fn a_turn_that_is_taken_away_while_it_is_probed_for_is_told() {
    let (mut world, id) = probing(Span::ZERO);
    world.ask(at(1), 1, 1, &Request::Evict(Evict { token: 1 }));
    assert_eq!(world.round(at(1), at(1)), [(1, 1, 0), (2, 7, errno::ECANCELED)]);
    assert!(!world.leader.is_probing(id));
    world.leader.probed(at(2), id, Some(Probed { attempts: 1, is_quiet: true }));
    assert_eq!(world.round(at(2), at(2)), []);
}

/// Whether the probe ends just then or goes on.
#[test]
fn a_probe_that_takes_longer_than_a_turn_may_is_told() {
    for ends in [true, false] {
        let (mut world, id) = probing(at(15).since(at(0)));
        for now in 1..15 {
            assert_eq!(world.round(at(now), at(now)), []);
        }
        if ends {
            world.leader.probed(at(16), id, Some(Probed { attempts: 1, is_quiet: true }));
        }
        assert_eq!(world.round(at(16), at(16)), [(2, 7, errno::EAGAIN)]);
        assert!(!world.leader.is_probing(id));
    }
}
