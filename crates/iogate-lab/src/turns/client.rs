//! What a client does next.

use iogate_core::coord::claimant::{Calls, Lease, Remedy, Reply};
use iogate_core::refusal::errno;
use iogate_core::wire::{Cancel, Claim, Goodbye, Granted, Record, Release, Renew, Renewed, Request};
use iogate_sim::rng::Rng;
use iogate_testkit::turns::Held;

use super::Planted;
use super::world::{MS, Net, SECOND, Sent};

/// How long a connection may take to come about.
const CONNECT_MAX: u64 = SECOND;
/// After so long without a word who waits connects anew.
const SILENCE_MAX: u64 = 5 * SECOND;
/// How far the turns of a client may lie apart.
pub(super) const PERIODS: [u64; 2] = [2 * SECOND, 20 * SECOND];
/// The least time between two attempts.
const PAUSE: u64 = 50 * MS;

/// A client, over all its lives.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) life: u64,
    /// Nothing reaches it before.
    pub(super) stopped_until: u64,
    /// When its last turn ended that the coordinator has taken back.
    pub(super) last_turn: u64,
    targets: u32,
    /// Its job, if it is of one.
    job: Option<u64>,
    period: u64,
    calls: Calls,
    link: Link,
    phase: Phase,
    /// When it heard of the coordinator last.
    heard: u64,
    /// How often it has planned when to look.
    plans: u64,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    None { again_at: u64 },
    Connecting { wire: u64, until: u64 },
    Up { wire: u64 },
}

#[derive(Clone, Debug)]
enum Phase {
    Resting { until: u64 },
    Waiting { members: Vec<u32>, claim: Option<Asked>, gives_up_at: u64, is_given_up: bool },
    Holding(Turn),
    Releasing { token: u64, release: Asked, until: u64 },
}

/// A request that is underway, and when it was first sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: u64,
    sent: u64,
}

#[derive(Clone, Debug)]
struct Turn {
    members: Vec<u32>,
    token: u64,
    lease: Lease,
    /// Since when it takes the turn for its own, if it does.
    since: Option<u64>,
    release_at: u64,
    renewal: Option<Asked>,
}

impl Client {
    pub(super) fn new(number: usize, targets: u32, jobs: u64, rng: &mut Rng) -> Client {
        Client {
            number,
            life: 0,
            stopped_until: 0,
            last_turn: 0,
            targets,
            job: Some(rng.below(jobs + 1)).filter(|&job| job > 0 && rng.below(2) == 0),
            period: PERIODS[rng.below(PERIODS.len() as u64) as usize],
            calls: Calls::default(),
            link: Link::None { again_at: 0 },
            phase: Phase::Resting { until: rng.below(SECOND) },
            heard: 0,
            plans: 0,
        }
    }

    /// For people.
    pub(super) fn state(&self) -> String {
        format!("{:?}, {:?}, last turn at {} s", self.phase, self.link, self.last_turn / SECOND)
    }

    /// It is gone, and another one begins in its place.
    pub(super) fn kill(&mut self, net: &mut Net) {
        net.note(|| format!("client {} is killed", self.number));
        self.stop_holding(net);
        if let Link::Up { wire } | Link::Connecting { wire, .. } = self.link {
            net.send_server(wire, Sent::End);
        }
        self.life += 1;
        self.calls = Calls::default();
        self.link = Link::None { again_at: net.now };
        self.rest(net);
        self.plan(net);
    }

    /// It does nothing until then.
    pub(super) fn stop(&mut self, net: &mut Net, until: u64) {
        self.stopped_until = until;
        self.plan(net);
    }

    /// Plans when to look next.
    pub(super) fn plan(&mut self, net: &mut Net) {
        self.plans += 1;
        let time = self.next_look(net.now).max(net.now + MS).max(self.stopped_until);
        net.look_at(self.number, self.plans, time);
    }

    /// Notes for how long it took the turn that it has for its own.
    pub(super) fn stop_holding(&mut self, net: &mut Net) {
        let Phase::Holding(turn) = &mut self.phase else { return };
        let Some(begin) = turn.since.take() else { return };
        let end = turn.lease.until.min(net.now).max(begin);
        for &member in &turn.members {
            let (client, job, target) = (self.number as u64, self.job, u64::from(member));
            net.had(Held { client, job, target, token: turn.token, begin, end });
        }
    }

    /// Does what is due.
    pub(super) fn look(&mut self, net: &mut Net, plan: u64) {
        if plan != self.plans {
            return;
        }
        if let Link::Connecting { wire, until } = self.link
            && until <= net.now
        {
            net.send_server(wire, Sent::End);
            self.link = Link::None { again_at: net.now };
        }
        self.step(net);
        let needs_link = !matches!(self.phase, Phase::Resting { .. });
        if let Link::None { again_at } = self.link
            && needs_link
            && again_at <= net.now
        {
            let wire = net.connect(self.number, self.life);
            net.send_server(wire, Sent::Hello(self.calls.session()));
            self.link = Link::Connecting { wire, until: net.now + CONNECT_MAX };
        }
        self.plan(net);
    }

    fn next_look(&self, now: u64) -> u64 {
        let link = match self.link {
            Link::None { again_at } => again_at,
            Link::Connecting { until, .. } => until,
            Link::Up { .. } => self.heard + SILENCE_MAX,
        };
        match &self.phase {
            Phase::Resting { until } => *until,
            Phase::Waiting { gives_up_at, .. } => link.min(*gives_up_at).max(now + 10 * MS),
            Phase::Holding(turn) => link.min(turn.release_at).min(turn.lease.due).max(now + 5 * MS),
            Phase::Releasing { .. } => link.min(now + 100 * MS),
        }
    }

    /// What its phase has it do now.
    fn step(&mut self, net: &mut Net) {
        let now = net.now;
        match &mut self.phase {
            Phase::Resting { until } => {
                if *until <= now {
                    let members = (0..self.targets).filter(|_| net.rng.below(2) == 0).collect::<Vec<_>>();
                    let members = if members.is_empty() { vec![0] } else { members };
                    let gives_up_at = match net.rng.below(10) {
                        0 => now + net.rng.below(3 * SECOND),
                        _ => u64::MAX,
                    };
                    self.heard = now;
                    self.phase = Phase::Waiting { members, claim: None, gives_up_at, is_given_up: false };
                    self.claim(net);
                }
            }
            Phase::Waiting { claim, gives_up_at, is_given_up, .. } => {
                if let Some(asked) = claim
                    && *gives_up_at <= now
                    && !std::mem::replace(is_given_up, true)
                {
                    let claim = asked.id;
                    self.post(net, &Request::Cancel(Cancel { claim }));
                } else if self.heard + SILENCE_MAX <= now {
                    self.unlink(net);
                }
                self.claim(net);
            }
            Phase::Holding(turn) => {
                let third = turn.lease.length / 3;
                if turn.release_at <= now {
                    self.release(net);
                } else if turn.renewal.is_some_and(|renewal| renewal.sent + third <= now) {
                    // A connection on which nothing comes is not to be trusted; what was asked is sent again on the next one.
                    turn.renewal = turn.renewal.map(|renewal| Asked { sent: now, ..renewal });
                    turn.lease.due = now + third / 3;
                    self.unlink(net);
                } else if turn.lease.due <= now && turn.renewal.is_none() {
                    let token = turn.token;
                    if let Some(asked) = self.post(net, &Request::Renew(Renew { token }))
                        && let Phase::Holding(turn) = &mut self.phase
                    {
                        turn.renewal = Some(asked);
                    }
                }
            }
            Phase::Releasing { release, until, .. } => {
                if *until <= now {
                    // The lease has ended it.
                    self.rest(net);
                } else if release.sent + SECOND <= now {
                    release.sent = now;
                    self.unlink(net);
                }
            }
        }
    }

    /// Sends a request, if it is connected; the answer to it is told by what is returned.
    fn post(&mut self, net: &mut Net, request: &Request<'_>) -> Option<Asked> {
        let Link::Up { wire } = self.link else { return None };
        let (id, bytes) = self.calls.post(request);
        send(net, wire, bytes);
        Some(Asked { id, sent: net.now })
    }

    /// Claims, if it has not.
    fn claim(&mut self, net: &mut Net) {
        let Phase::Waiting { members, claim: None, .. } = &self.phase else { return };
        let bytes: Vec<u8> = members.iter().flat_map(|member| member.to_le_bytes()).collect();
        let job = self.job.map_or_else(String::new, |job| format!("job {job}"));
        let claim = Claim {
            bytes: net.rng.between(1, 8) << 20,
            weight: 1,
            period: self.period,
            place: b"scratch",
            members: &bytes,
            party: job.as_bytes(),
            label: b"",
        };
        let asked = self.post(net, &Request::Claim(claim));
        if let Phase::Waiting { claim, is_given_up, .. } = &mut self.phase {
            *claim = asked;
            *is_given_up = false;
        }
    }

    fn release(&mut self, net: &mut Net) {
        let Phase::Holding(turn) = &self.phase else { return };
        let (token, until) = (turn.token, turn.lease.until);
        self.stop_holding(net);
        // Without a connection it is sent on the next one.
        let (id, bytes) = self.calls.post(&Request::Release(Release { token, bytes: 7 }));
        if let Link::Up { wire } = self.link {
            send(net, wire, bytes);
        }
        self.phase = Phase::Releasing { token, release: Asked { id, sent: net.now }, until };
    }

    fn rest(&mut self, net: &mut Net) {
        self.phase = Phase::Resting { until: net.now + net.rng.below(SECOND) };
    }

    fn unlink(&mut self, net: &mut Net) {
        if let Link::Up { wire } | Link::Connecting { wire, .. } = self.link {
            net.send_server(wire, Sent::End);
        }
        self.heard = net.now;
        self.link = Link::None { again_at: net.now + PAUSE };
    }

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        let is_current = match self.link {
            Link::Up { wire: own } | Link::Connecting { wire: own, .. } => own == wire,
            Link::None { .. } => false,
        };
        if !is_current {
            return;
        }
        self.heard = net.now;
        match sent {
            Sent::Welcome(session, is_resumed) => {
                self.link = Link::Up { wire };
                if self.calls.linked(session, is_resumed, (1000, 1000)) {
                    for bytes in self.calls.underway() {
                        send(net, wire, bytes);
                    }
                } else {
                    net.note(|| format!("client {} has a new session", self.number));
                    self.is_forgotten(net);
                }
            }
            Sent::Bytes(bytes) => {
                self.calls.room(bytes.len()).copy_from_slice(&bytes);
                self.calls.arrived(bytes.len(), bytes.len());
                loop {
                    match self.calls.take() {
                        Ok(Some(reply)) => self.answered(net, &reply),
                        Ok(None) => break,
                        Err(error) => {
                            net.found(&format!("an answer cannot be read: {error}"));
                            break;
                        }
                    }
                }
            }
            Sent::End => {
                self.link = Link::None { again_at: net.now + PAUSE };
            }
            Sent::Hello(_) => {}
        }
        self.step(net);
        self.plan(net);
    }

    /// The coordinator does not know the session any more, nor what was claimed in it.
    fn is_forgotten(&mut self, net: &mut Net) {
        match &mut self.phase {
            Phase::Waiting { claim, .. } => *claim = None,
            Phase::Holding(turn) if turn.renewal.is_some() => {
                self.stop_holding(net);
                self.rest(net);
            }
            Phase::Releasing { .. } => self.rest(net),
            Phase::Holding(_) | Phase::Resting { .. } => {}
        }
    }

    fn answered(&mut self, net: &mut Net, reply: &Reply) {
        let number = self.number;
        if !matches!(
            reply.errno,
            0 | errno::ESTALE | errno::ECANCELED | errno::EIO | errno::EINVAL | errno::EDEADLK
        ) {
            net.found(&format!("client {number} is refused: {} ({})", reply.text, reply.errno));
        }
        match &mut self.phase {
            Phase::Waiting { members, claim, is_given_up, .. }
                if claim.is_some_and(|claim| claim.id == reply.id) =>
            {
                let (members, sent) = (std::mem::take(members), claim.map_or(0, |claim| claim.sent));
                let is_given_up = *is_given_up;
                if reply.errno != 0 {
                    net.note(|| format!("client {number} is refused: {}", reply.text));
                    match Remedy::against(reply.errno) {
                        Remedy::NewSession => {
                            self.post(net, &Request::Goodbye(Goodbye {}));
                            self.unlink(net);
                            self.calls = Calls::default();
                            self.rest(net);
                        }
                        Remedy::Later | Remedy::None => self.rest(net),
                    }
                    return;
                }
                let Ok(granted) = Granted::decode(&reply.fields) else {
                    return net.found("a grant cannot be read");
                };
                self.granted(net, members, sent, is_given_up, &granted);
            }
            Phase::Holding(turn) if turn.renewal.is_some_and(|renewal| renewal.id == reply.id) => {
                let sent = turn.renewal.take().map_or(0, |renewal| renewal.sent);
                match Renewed::decode(&reply.fields) {
                    Ok(renewed) if reply.errno == 0 => {
                        turn.lease = Lease::from(sent, renewed.lease);
                        if turn.since.is_none() && turn.lease.is_valid(net.now) {
                            turn.since = Some(net.now);
                        }
                    }
                    _ if reply.errno == errno::ESTALE => {
                        net.note(|| format!("client {number} has lost its turn"));
                        self.stop_holding(net);
                        self.rest(net);
                    }
                    _ => turn.lease.due = net.now + PAUSE,
                }
            }
            Phase::Releasing { token, release, .. } if release.id == reply.id => {
                let token = *token;
                net.note(|| format!("client {number} has released token {token}: {}", reply.errno));
                self.last_turn = net.now;
                net.report.turns += 1;
                self.rest(net);
            }
            _ => {}
        }
    }

    fn granted(&mut self, net: &mut Net, members: Vec<u32>, sent: u64, is_given_up: bool, granted: &Granted) {
        let (now, number) = (net.now, self.number);
        let lease = match net.planted {
            Some(Planted::LateLease) => Lease::from(now, granted.lease),
            _ => Lease::begin(sent, now, granted),
        };
        net.note(|| {
            let (token, until) = (granted.token, lease.until as f64 / SECOND as f64);
            format!("client {number} is granted {members:?} with token {token} until {until:.6} s")
        });
        let release_at = match is_given_up {
            true => now,
            // Some are longer than a lease.
            false if net.rng.below(5) == 0 => now + net.rng.between(MS, MS.max(2 * lease.length)),
            false => now + net.rng.between(MS, MS.max(lease.length / 4)),
        };
        // A grant that has come so late that it is due to be renewed is confirmed first.
        let since = (lease.due > now && lease.is_valid(now)).then_some(now);
        let turn = Turn { members, token: granted.token, lease, since, release_at, renewal: None };
        self.phase = Phase::Holding(turn);
    }
}

/// Sends bytes whole, or in two pieces.
fn send(net: &mut Net, wire: u64, bytes: &[u8]) {
    let middle = match net.rng.below(4) {
        0 => net.rng.below(bytes.len() as u64) as usize,
        _ => 0,
    };
    let (first, rest) = bytes.split_at(middle);
    if !first.is_empty() {
        net.send_server(wire, Sent::Bytes(first.into()));
    }
    net.send_server(wire, Sent::Bytes(rest.into()));
}
