//! What a client does next: what decides is what decides in the library, and this stands for its sockets and threads.

use std::mem;

use iogate_core::coord::claimant::{
    Call, Calls, Ended, Event, Exchange, Failure, Granting, HeldTurn, Limits, PendingClaim, Renewals, Reply,
    Step, Task,
};
use iogate_core::refusal::errno;
use iogate_core::wire::{Claim, Evict, Granted, Record, Request};
use iogate_sim::rng::Rng;
use iogate_testkit::turns::Held;

use super::Planted;
use super::world::{MS, Net, SECOND, Sent};

/// Why a client claims again whose turn was over before the journal knew of it.
const OVER_BEFORE_IT_BEGAN: &str = "the turn was over before it could begin";

/// How long a connection may take to come about.
const CONNECT_MAX: u64 = SECOND;
/// How long the end of a turn waits for the coordinator's word, as in the library.
const RELEASE_MAX: u64 = SECOND;
/// How far the turns of a client may lie apart.
pub(super) const PERIODS: [u64; 2] = [2 * SECOND, 20 * SECOND];
/// The users that clients are of.
pub(super) const USERS: [u32; 3] = [1000, 1001, 1002];

/// A client, over all its lives.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) life: u64,
    pub(super) user: u32,
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
    renewals: Renewals<()>,
    /// How often it has planned when to look.
    plans: u64,
    evictions: Vec<Eviction>,
}

/// A request to take a turn away.
struct Eviction {
    id: u64,
    token: u64,
    /// The turn is the same user's.
    is_own: bool,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    None,
    Connecting { wire: u64, until: u64 },
    Up { wire: u64 },
}

#[derive(Clone, Debug)]
enum Phase {
    Resting {
        until: u64,
    },
    Waiting(Wait),
    Holding(Turn),
    /// The turn is over. The call that says so began then; it is the first one.
    Releasing {
        turn: HeldTurn,
        since: u64,
        call: Call,
        is_first: bool,
    },
    /// The coordinator is told again then.
    Ending {
        turn: HeldTurn,
        again_at: u64,
    },
}

#[derive(Clone, Debug)]
struct Wait {
    members: Vec<u32>,
    pending: PendingClaim,
    bytes: u64,
    weight: u32,
    gives_up_at: u64,
}

#[derive(Clone, Debug)]
struct Turn {
    members: Vec<u32>,
    token: u64,
    held: HeldTurn,
    /// Since when it takes the turn for its own, if it does.
    since: Option<u64>,
    release_at: u64,
    /// The renewal that is underway, and since when.
    renewal: Option<(u64, Call)>,
}

impl Client {
    pub(super) fn new(number: usize, targets: u32, jobs: u64, rng: &mut Rng) -> Client {
        Client {
            number,
            life: 0,
            user: USERS[rng.below(USERS.len() as u64) as usize],
            stopped_until: 0,
            last_turn: 0,
            targets,
            job: Some(rng.below(jobs + 1)).filter(|&job| job > 0 && rng.below(2) == 0),
            period: PERIODS[rng.below(PERIODS.len() as u64) as usize],
            calls: Calls::default(),
            link: Link::None,
            phase: Phase::Resting { until: rng.below(SECOND) },
            renewals: Renewals::default(),
            plans: 0,
            evictions: Vec::new(),
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
        self.unlink(net);
        self.life += 1;
        self.forget_session();
        self.rest(net);
        self.plan(net);
    }

    /// It does nothing until then.
    pub(super) fn stop(&mut self, net: &mut Net, until: u64) {
        self.stopped_until = until;
        self.plan(net);
    }

    /// The token of the turn that it has.
    pub(super) fn token(&self) -> Option<u64> {
        match &self.phase {
            Phase::Holding(turn) => Some(turn.token),
            _ => None,
        }
    }

    /// It wants a turn of a user to be taken away, if it is connected.
    pub(super) fn evict(&mut self, net: &mut Net, token: u64, user: u32) {
        if self.is_linked() {
            net.note(|| format!("client {} wants token {token} to be taken away", self.number));
            let id = self.calls.post(&Request::Evict(Evict { token }));
            let is_own = user == self.user;
            self.evictions.push(Eviction { id, token, is_own });
            if is_own {
                net.is_to_be_evicted(token);
            }
            self.send(net);
        }
    }

    /// Plans when to look next.
    fn plan(&mut self, net: &mut Net) {
        self.plan_at(net, net.now);
    }

    fn plan_at(&mut self, net: &mut Net, time: u64) {
        self.plans += 1;
        net.look_at(self.number, self.plans, time.max(self.stopped_until));
    }

    /// It begins.
    pub(super) fn begin(&mut self, net: &mut Net) {
        self.plan(net);
    }

    /// Notes for how long it took the turn that it has for its own.
    pub(super) fn stop_holding(&mut self, net: &mut Net) {
        let Phase::Holding(turn) = &mut self.phase else { return };
        let Some(begin) = turn.since.take() else { return };
        let end = turn.held.lease().until.min(net.now).max(begin);
        // Jobs of several users are several.
        let job = self.job.map(|job| job << 32 | u64::from(self.user));
        for &member in &turn.members {
            let (client, target) = (self.number as u64, u64::from(member));
            net.had(Held { client, job, target, token: turn.token, begin, end });
        }
    }

    /// Does what is due.
    pub(super) fn look(&mut self, net: &mut Net, plan: u64) {
        if plan == self.plans {
            self.go_on(net);
        }
    }

    /// Does what there is to do, and plans when to look again.
    fn go_on(&mut self, net: &mut Net) {
        if let Link::Connecting { until, .. } = self.link
            && until <= net.now
        {
            self.unlink(net);
            self.fails_to_connect(net);
        }
        loop {
            match self.step(net) {
                Some(until) if until > net.now => return self.plan_at(net, until),
                _ => {}
            }
        }
    }

    /// What its phase has it do now; and until when to wait then, `None`: something else begins.
    fn step(&mut self, net: &mut Net) -> Option<u64> {
        let now = net.now;
        match mem::replace(&mut self.phase, Phase::Resting { until: now }) {
            Phase::Resting { until } => {
                self.phase = Phase::Resting { until };
                if until <= now {
                    self.begin_to_wait(net);
                    return None;
                }
                Some(until)
            }
            Phase::Waiting(mut wait) => {
                if wait.gives_up_at <= now {
                    wait.pending.give_up(now);
                }
                let members: Vec<u8> = wait.members.iter().flat_map(|member| member.to_le_bytes()).collect();
                let job = self.job.map_or_else(String::new, |job| format!("job {job}"));
                let claim = Request::Claim(Claim {
                    bytes: wait.bytes,
                    weight: wait.weight,
                    period: self.period,
                    place: b"scratch",
                    members: &members,
                    party: job.as_bytes(),
                    label: b"",
                });
                let carried = self.carry(net, &mut wait.pending, &claim);
                let until = if wait.gives_up_at > now { wait.gives_up_at } else { u64::MAX };
                match carried {
                    Carried::Until(at) => {
                        self.phase = Phase::Waiting(wait);
                        return Some(at.min(until));
                    }
                    Carried::Over(Ok(granting)) => self.granted(net, wait.members, &granting),
                    Carried::Over(Err(failure)) => self.failed(net, &failure),
                }
                None
            }
            Phase::Holding(turn) => self.hold(net, turn),
            Phase::Releasing { mut turn, since, mut call, is_first } => {
                match self.carry(net, &mut call, &turn.request()) {
                    Carried::Until(at) => {
                        self.phase = Phase::Releasing { turn, since, call, is_first };
                        return Some(at);
                    }
                    Carried::Over(end) => {
                        let again_at = match is_first {
                            true => Some(now).filter(|_| turn.ended(since, &end) == Ended::Later),
                            false => turn.asked(now, since, &end),
                        };
                        match again_at {
                            Some(again_at) => self.phase = Phase::Ending { turn, again_at },
                            None => self.released(net, end.is_ok()),
                        }
                    }
                }
                None
            }
            Phase::Ending { turn, again_at } if again_at > now => {
                self.phase = Phase::Ending { turn, again_at };
                Some(again_at)
            }
            Phase::Ending { turn, .. } => {
                let call = Call::new(now, turn.within(), self.is_linked());
                self.phase = Phase::Releasing { turn, since: now, call, is_first: false };
                None
            }
        }
    }

    fn begin_to_wait(&mut self, net: &mut Net) {
        let now = net.now;
        let members = (0..self.targets).filter(|_| net.rng.below(2) == 0).collect::<Vec<_>>();
        let members = if members.is_empty() { vec![0] } else { members };
        let (timeout, gives_up_at) = match net.rng.below(20) {
            0 => (Some(net.rng.below(3 * SECOND)), u64::MAX),
            1 => (None, now + net.rng.below(3 * SECOND)),
            _ => (None, u64::MAX),
        };
        let patience = if net.rng.below(4) == 0 { 2 * SECOND } else { 30 * SECOND };
        let bytes = net.rng.between(1, 8) << 20;
        let weight = net.rng.between(0, 4) as u32;
        let pending = PendingClaim::new(now, &Limits { patience, timeout }, self.is_linked());
        self.phase = Phase::Waiting(Wait { members, pending, bytes, weight, gives_up_at });
    }

    /// What a turn has it do now.
    fn hold(&mut self, net: &mut Net, mut turn: Turn) -> Option<u64> {
        let now = net.now;
        if let Some((sent, mut call)) = turn.renewal.take() {
            match self.carry(net, &mut call, &turn.held.request()) {
                Carried::Until(at) => {
                    turn.renewal = Some((sent, call));
                    self.phase = Phase::Holding(turn);
                    return Some(at);
                }
                Carried::Over(end) => {
                    let due = turn.held.asked(now, sent, &end);
                    if end.is_ok_and(|answer| answer.reply.errno == 0) {
                        net.is_renewed(turn.token, sent);
                    }
                    match due {
                        Some(due) => self.renewals.due_again(due, &()),
                        None => {
                            net.note(|| format!("client {} has lost its turn", self.number));
                            self.phase = Phase::Holding(turn);
                            self.stop_holding(net);
                            self.rest(net);
                            return None;
                        }
                    }
                }
            }
        }
        if turn.release_at <= now {
            let mut held = turn.held.clone();
            self.phase = Phase::Holding(turn);
            self.stop_holding(net);
            self.renewals.remove(now, &());
            held.end(7);
            let call = Call::new(now, RELEASE_MAX, self.is_linked());
            self.phase = Phase::Releasing { turn: held, since: now, call, is_first: true };
            return None;
        }
        let until = match self.renewals.next(now) {
            Task::Due(()) => {
                turn.renewal = Some((now, Call::new(now, turn.held.within(), self.is_linked())));
                now
            }
            Task::Wait(until) => until.min(turn.release_at),
            Task::End => turn.release_at,
        };
        self.phase = Phase::Holding(turn);
        Some(until)
    }

    fn granted(&mut self, net: &mut Net, members: Vec<u32>, granting: &Granting) {
        let (now, number) = (net.now, self.number);
        let Granting { granted: Granted { token, .. }, lease } = *granting;
        net.note(|| {
            let until = lease.until as f64 / SECOND as f64;
            format!("client {number} is granted {members:?} with token {token} until {until:.6} s")
        });
        let release_at = match net.rng.below(5) {
            // Some are longer than a lease.
            0 => now + net.rng.between(MS, MS.max(2 * lease.length)),
            _ => now + net.rng.between(MS, MS.max(lease.length / 4)),
        };
        let since = lease.is_valid(now).then_some(now);
        let held = HeldTurn::new(token, lease);
        self.renewals = Renewals::default();
        self.renewals.add(lease.due, ());
        self.phase = Phase::Holding(Turn { members, token, held, since, release_at, renewal: None });
    }

    fn failed(&mut self, net: &mut Net, failure: &Failure) {
        net.note(|| format!("client {} has no turn: {failure:?}", self.number));
        match failure {
            Failure::Unusable => net.found("a coordinator is given up for good"),
            // It has one claim at a time.
            Failure::Refused { errno: errno::EDEADLK, text } => {
                net.found(&format!("client {} is in its own way: {text}", self.number));
            }
            _ => {}
        }
        self.rest(net);
    }

    /// The coordinator knows that the turn is over, or its lease has ended it.
    fn released(&mut self, net: &mut Net, is_answered: bool) {
        net.note(|| format!("client {} has released its turn, and was answered: {is_answered}", self.number));
        if is_answered {
            self.last_turn = net.now;
            net.report.turns += 1;
        }
        self.rest(net);
    }

    fn rest(&mut self, net: &mut Net) {
        self.phase = Phase::Resting { until: net.now + net.rng.below(SECOND) };
        // Only a session with a connection is kept for the next claim.
        if !self.is_linked() {
            self.forget_session();
        }
    }

    fn is_linked(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    fn forget_session(&mut self) {
        self.calls = Calls::default();
        self.evictions.clear();
    }

    fn unlink(&mut self, net: &mut Net) {
        if let Link::Up { wire } | Link::Connecting { wire, .. } = mem::replace(&mut self.link, Link::None) {
            net.send_server(wire, Sent::End);
        }
    }

    /// Carries a request on, as far as it goes now.
    fn carry<E: Exchange>(
        &mut self,
        net: &mut Net,
        exchange: &mut E,
        request: &Request<'_>,
    ) -> Carried<E::End> {
        loop {
            if let Link::Connecting { until, .. } = self.link {
                return Carried::Until(until);
            }
            let step = exchange.next(net.now, &mut self.calls, request);
            self.send(net);
            match step {
                Step::Connect { until } => {
                    let wire = net.connect(self.number, self.life);
                    net.send_server(wire, Sent::Hello(self.calls.session(), self.user));
                    let until = until.min(net.now + CONNECT_MAX).max(net.now + MS);
                    self.link = Link::Connecting { wire, until };
                }
                Step::Wait { until } | Step::Rest { until } => return Carried::Until(until.max(net.now + 1)),
                Step::Unlink => self.unlink(net),
                Step::Part => {
                    self.unlink(net);
                    self.forget_session();
                }
                Step::Over(end) => return Carried::Over(end),
            }
        }
    }

    /// Sends what is to be sent, if it is connected.
    fn send(&mut self, net: &mut Net) {
        if let Link::Up { wire } = self.link {
            self.calls.unsent().for_each(|bytes| send(net, wire, bytes));
            self.calls.all_sent();
        }
    }

    /// Something has happened to the connection of what is underway, if anything is.
    fn happened(&mut self, net: &Net, event: Event) {
        match &mut self.phase {
            Phase::Waiting(wait) => wait.pending.happened(net.now, event),
            Phase::Holding(Turn { renewal: Some((_, call)), .. }) | Phase::Releasing { call, .. } => {
                call.happened(net.now, event);
            }
            Phase::Resting { .. } | Phase::Holding(_) | Phase::Ending { .. } => {}
        }
    }

    fn fails_to_connect(&mut self, net: &mut Net) {
        let random = net.rng.below(256) as u8;
        self.happened(net, Event::Unreached { is_final: false, random });
    }

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        let is_up = match self.link {
            Link::Up { wire: own } if own == wire => true,
            Link::Connecting { wire: own, .. } if own == wire => false,
            _ => return,
        };
        match sent {
            Sent::Welcome(session, is_resumed) => {
                self.link = Link::Up { wire };
                let is_same = self.calls.linked(session, is_resumed, (self.user, self.user));
                if !is_same {
                    net.note(|| format!("client {} has a new session", self.number));
                    self.evictions.clear();
                }
                self.happened(net, Event::Connected { is_same });
            }
            Sent::Bytes(bytes) => {
                self.calls.room(bytes.len()).copy_from_slice(&bytes);
                self.calls.arrived(bytes.len(), bytes.len());
                loop {
                    match self.calls.take() {
                        Ok(Some(reply)) => self.answered(net, reply),
                        Ok(None) => break,
                        Err(error) => {
                            net.found(&format!("an answer cannot be read: {error}"));
                            break;
                        }
                    }
                }
            }
            Sent::End => {
                self.link = Link::None;
                if is_up {
                    let random = net.rng.below(256) as u8;
                    self.happened(net, Event::Disconnected { random });
                } else {
                    self.fails_to_connect(net);
                }
            }
            Sent::Hello(..) => {}
        }
        self.go_on(net);
    }

    fn answered(&mut self, net: &mut Net, mut reply: Reply) {
        let number = self.number;
        if let Some(index) = self.evictions.iter().position(|one| one.id == reply.id) {
            let Eviction { token, is_own, .. } = self.evictions.remove(index);
            match (reply.errno, is_own) {
                (0, true) => net.is_evicted(token),
                (errno::ESTALE | errno::EIO, _) | (errno::EPERM, false) => {}
                (errno, _) => net.found(&format!(
                    "client {number} wanted token {token} to be taken away, its own user's: {is_own}: {errno}"
                )),
            }
        } else if !matches!(
            (reply.errno, &*reply.text),
            (0 | errno::ESTALE | errno::ECANCELED | errno::EIO | errno::EINVAL | errno::EDEADLK, _)
                // As the journal kept nothing for longer than a turn may last.
                | (errno::EAGAIN, OVER_BEFORE_IT_BEGAN)
        ) {
            net.found(&format!("client {number} is refused: {} ({})", reply.text, reply.errno));
        }
        if net.planted == Some(Planted::LateLease)
            && let Phase::Waiting(_) = self.phase
            && let Ok(granted) = Granted::decode(&reply.fields)
        {
            reply.fields.clear();
            Granted { waited: u64::MAX, ..granted }.encode(&mut reply.fields);
        }
        self.happened(net, Event::Answered(reply));
        self.go_on(net);
    }
}

/// How far a request has come.
enum Carried<End> {
    /// Nothing is to be done before then, unless something comes.
    Until(u64),
    Over(End),
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
