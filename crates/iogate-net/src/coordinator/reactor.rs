//! The coordinator's thread: what it waits for, and what it does in each round.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use iogate_core::Time;
use iogate_core::coord::leader::{Leader, Outbox};
use iogate_core::refusal::Refusal;
use iogate_engine::{Clock, Workers};
use rustix::event::epoll::EventFlags;

use super::budget::Budget;
use super::connection::Connection;
use super::incoming::SCRATCH_BYTES;
use super::journal::{Journal, JournalError, Standing};
use super::probing::Probes;
use super::status::Told;
use super::{Call, Caller, CoordinatorConfig};
use crate::Endpoint;
use crate::transport::poll::{FIRST_CONNECTION, Poller, WAKE};
use crate::transport::{Listener, Source, hang_up};

/// How long to wait before the journal is tried again that could not be written.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait before a journal is loaded again that could not be; each time twice as long, and no longer than the latter.
const LOAD_AGAIN: Duration = Duration::from_millis(100);
const LOAD_AGAIN_MAX: Duration = Duration::from_secs(5);
/// After so many attempts another coordinator may try.
const LOADS_MAX: u32 = 5;
/// How often to look whether this coordinator leads, while another does.
const STANDING_EVERY: Duration = Duration::from_millis(100);
/// How often to look for silent clients and forgotten sessions.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Threads that find out who clients are.
const WORKERS_MAX: usize = 8;

/// The coordinator's thread.
pub(super) struct Reactor {
    pub(super) config: CoordinatorConfig,
    pub(super) clock: Clock,
    pub(super) instance: u64,
    pub(super) caller: Caller,
    pub(super) workers: Arc<Workers>,
    probes: Probes,
    /// `None` while another coordinator leads: that one, if it is known, is the `leader`.
    pub(super) leading: Option<Leader>,
    pub(super) leader: Option<Endpoint>,
    pub(super) journal: Box<dyn Journal>,
    pub(super) started: Instant,
    pub(super) connections: iogate_core::hash::HashMap<u64, Box<Connection>>,
    pub(super) cut: u64,
    pub(super) poller: Poller,
    called: Receiver<Call>,
    pub(super) listeners: Vec<Listener>,
    pub(super) per_client: HashMap<Source, usize>,
    pub(super) budget: Budget,
    /// The last status that was told.
    pub(super) told: Option<Told>,
    pub(super) next_connection: u64,
    /// Connections with something to send.
    pub(super) listed: Vec<u64>,
    /// Connections with something to read, of which the kernel does not tell.
    pub(super) again: Vec<u64>,
    pub(super) scratch: Vec<u8>,
    /// When the table wants to be asked.
    ask_at: Option<Time>,
    retry_at: Option<Instant>,
    /// It should lead, and cannot.
    unready: Option<Unready>,
    looked: Instant,
}

/// Why a coordinator that should lead cannot.
struct Unready {
    why: String,
    /// How often it has tried, since it should.
    tries: u32,
    again: Instant,
}

impl Unready {
    /// It has failed once more. Says so if that is news.
    fn after(before: Option<Unready>, error: &JournalError) -> Unready {
        let why = error.to_string();
        if before.as_ref().is_none_or(|before| before.why != why) {
            tracing::error!("this coordinator should lead, and cannot: {why}");
        }
        let tries = before.map_or(0, |before| before.tries);
        let pause = LOAD_AGAIN.saturating_mul(1 << tries.min(10)).min(LOAD_AGAIN_MAX);
        Unready { why, tries: tries + 1, again: Instant::now() + pause }
    }
}

impl Reactor {
    pub(super) fn new(
        config: CoordinatorConfig,
        listeners: Vec<Listener>,
        journal: Box<dyn Journal>,
        caller: Caller,
        called: Receiver<Call>,
    ) -> Result<Reactor, super::StartError> {
        let poller = Poller::new()?;
        poller.add(&*caller.waker, WAKE, EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            poller.add(listener.fd(), index as u64 + 1, EventFlags::IN)?;
        }
        let mut instance = [0; 8];
        crate::system::random(&mut instance)?;
        let mut reactor = Reactor {
            config,
            clock: Clock::new(),
            instance: u64::from_le_bytes(instance),
            caller,
            workers: Workers::new("iogate-coord-work", WORKERS_MAX, || {}),
            probes: Probes::new(),
            leading: None,
            leader: None,
            journal,
            started: Instant::now(),
            connections: Default::default(),
            cut: 0,
            poller,
            called,
            listeners,
            per_client: HashMap::new(),
            budget: Budget::default(),
            told: None,
            next_connection: FIRST_CONNECTION,
            listed: Vec::new(),
            again: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            ask_at: None,
            retry_at: None,
            unready: None,
            looked: Instant::now(),
        };
        reactor.stand()?;
        Ok(reactor)
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(1024);
        loop {
            if let Err(error) = self.poller.wait(&mut events, Some(self.patience())) {
                tracing::error!(%error, "waiting for connections");
                return;
            }
            if let Err(error) = self.stand() {
                self.put_off(&error);
            }
            for token in std::mem::take(&mut self.again) {
                self.read(token);
            }
            let mut is_woken = false;
            for event in &events {
                match event.data.u64() {
                    WAKE => is_woken = true,
                    listener if listener < FIRST_CONNECTION => self.accept(listener),
                    token => self.on_event(token, event.flags),
                }
            }
            if is_woken && !self.take_calls() {
                break;
            }
            self.end_round();
            if self.looked.elapsed() >= LOOK_EVERY {
                self.reap();
            }
        }
        let all: Vec<_> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|token| self.close(token));
    }

    /// How long there is nothing to do if nothing comes.
    fn patience(&self) -> Duration {
        if !self.again.is_empty() {
            return Duration::ZERO;
        }
        let asked = self.ask_at.map(|at| Duration::from(at.since(self.clock.now())));
        let retry = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
        let standing = if self.leading.is_none() { STANDING_EVERY } else { LOOK_EVERY };
        [asked, retry].into_iter().flatten().fold(standing, Duration::min)
    }

    /// Begins to lead, or stops, as the journal says.
    fn stand(&mut self) -> Result<(), JournalError> {
        match (self.journal.standing(), &self.leading) {
            (Standing::Leads, None) if self.unready.as_ref().is_some_and(|it| Instant::now() < it.again) => {}
            (Standing::Leads, None) => {
                let loaded = self.journal.load()?;
                let (now, offset) = (self.clock.now(), self.clock.offset_ns());
                let leading = Leader::new(self.config.leader(), now, offset, &loaded);
                self.journal.append(&leading.all(), &mut || leading.all())?;
                if loaded.is_incomplete {
                    let lease = self.config.table.lease;
                    tracing::warn!("turns may be held that are not known: nothing is granted for {lease}");
                }
                if self.unready.take().is_some() {
                    tracing::warn!("this coordinator leads now");
                }
                self.leading = Some(leading);
            }
            (Standing::Follows(leader), Some(_)) => {
                self.leader = leader;
                self.step_down();
            }
            (Standing::Follows(leader), None) => {
                self.leader = leader;
                if let Some(unready) = &mut self.unready {
                    (unready.tries, unready.again) = (0, Instant::now());
                }
            }
            (Standing::Leads, Some(_)) => {}
        }
        Ok(())
    }

    /// Tries to lead again later, and has another coordinator try if that goes on.
    fn put_off(&mut self, error: &JournalError) {
        let unready = Unready::after(self.unready.take(), error);
        if unready.tries >= LOADS_MAX {
            self.journal.resign();
        }
        self.unready = Some(unready);
    }

    /// Forgets everything: another coordinator knows it.
    fn step_down(&mut self) {
        tracing::warn!("this coordinator does not lead any more");
        self.leading = None;
        self.probes.end();
        (self.ask_at, self.retry_at) = (None, None);
        let all: Vec<_> = self.connections.keys().copied().collect();
        let why = match &self.leader {
            Some(leader) => format!("coordinator {leader} leads"),
            None => "this coordinator does not lead any more".into(),
        };
        for token in all {
            self.refuse(token, &Refusal::new(libc::ECONNREFUSED, why.clone()));
        }
    }

    /// Takes what other threads say. `false`: to stop.
    fn take_calls(&mut self) -> bool {
        self.caller.waker.clear();
        while let Ok(call) = self.called.try_recv() {
            match call {
                Call::Stop => return false,
                Call::Status(answer) => {
                    // Who asked may have gone.
                    let _ = answer.send(self.status());
                }
                Call::Probed(claim, outcome) => {
                    if let Some(leading) = &mut self.leading {
                        if let Err(error) = &outcome {
                            tracing::warn!("a turn begins without a probe: {error}");
                        }
                        leading.probed(self.clock.now(), claim, outcome.ok());
                    }
                }
                Call::Identified(identified) => {
                    let token = identified.connection;
                    let Some(mut connection) = self.connections.remove(&token) else { continue };
                    let welcomed = self.welcome(token, &mut connection, identified);
                    self.connections.insert(token, connection);
                    match welcomed {
                        Ok(()) => self.read(token),
                        Err(refusal) => self.refuse(token, &refusal),
                    }
                }
            }
        }
        true
    }

    /// Decides, keeps, and says.
    fn end_round(&mut self) {
        let now = self.clock.now();
        let Some(leading) = &mut self.leading else { return self.send_all() };
        self.ask_at = leading.decide(now);
        let mut has_kept = false;
        if self.retry_at.is_none_or(|at| at <= Instant::now()) {
            let kept = match leading.unkept() {
                [] => Ok(()),
                records => self.journal.append(records, &mut || leading.all()),
            };
            match kept {
                Ok(()) => {
                    has_kept = true;
                    if self.retry_at.take().is_some() {
                        tracing::warn!("the journal at {} can be written again", self.journal.place());
                        self.ask_at = Some(now);
                    }
                    leading.kept(self.clock.now());
                    self.probes.follow(leading, &self.config.probers, &self.caller);
                }
                Err(JournalError::Deposed) => {
                    self.step_down();
                    return self.send_all();
                }
                Err(error) => {
                    let text = format!("the coordinator can keep no claims: {error}");
                    if leading.failing().is_none() {
                        tracing::error!("{text}");
                    }
                    leading.not_kept(now, Refusal::new(error.errno(), text));
                    self.retry_at = Some(Instant::now() + RETRY);
                }
            }
        }
        leading.notices().iter().for_each(|notice| tracing::warn!("{notice}"));
        // Time may have passed since this round began: it may have been stopped.
        if self.journal.standing() != Standing::Leads {
            self.step_down();
            return self.send_all();
        }
        leading.say(has_kept, |token, bytes| {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            connection.queue(bytes);
            if !std::mem::replace(&mut connection.is_listed, true) {
                self.listed.push(token);
            }
        });
        self.send_all();
    }

    fn send_all(&mut self) {
        for token in std::mem::take(&mut self.listed) {
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            connection.is_listed = false;
            match connection.send() {
                true => {
                    if connection.is_held_back && connection.unsent() == 0 {
                        self.again.push(token);
                    }
                    self.ask_kernel(token);
                    self.charge(token);
                }
                false => self.close(token),
            }
        }
    }

    pub(super) fn list(&mut self, token: u64) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !std::mem::replace(&mut connection.is_listed, true)
        {
            self.listed.push(token);
        }
    }

    /// Asks the kernel for what a connection waits for.
    pub(super) fn ask_kernel(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let wanted = connection.wanted();
        if wanted == connection.interest {
            return;
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.0);
        flags.set(EventFlags::OUT, wanted.1);
        match self.poller.ask(connection.socket.fd(), token, flags) {
            Ok(()) => connection.interest = wanted,
            Err(error) => tracing::error!(%error, "a connection can no longer be waited for"),
        }
    }

    /// Says why a connection ends, and ends it.
    pub(super) fn refuse(&mut self, token: u64, refusal: &Refusal) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        tracing::warn!(peer = %connection.peer_text(), "connection cut: {refusal}");
        self.cut += 1;
        let mut outbox = Outbox::default();
        outbox.failure(token, 0, refusal);
        outbox.drain(|_, bytes| connection.queue(bytes));
        connection.is_ending = true;
        self.list(token);
        self.leave(token);
    }

    /// Ends a connection; its session waits for another one.
    pub(super) fn close(&mut self, token: u64) {
        self.leave(token);
        let Some(connection) = self.connections.remove(&token) else { return };
        hang_up(connection.socket.fd());
        self.poller.remove(connection.socket.fd());
        self.budget.change(connection.user, connection.charged, 0);
        if let Some(count) = self.per_client.get_mut(&connection.source) {
            *count -= 1;
            if *count == 0 {
                self.per_client.remove(&connection.source);
            }
        }
    }

    fn leave(&mut self, token: u64) {
        let session = self.connections.get(&token).and_then(|connection| connection.session());
        if let (Some(leading), Some(session)) = (&mut self.leading, session) {
            leading.leave(self.clock.now(), session, token);
        }
    }

    /// Cuts off who is silent or does not read, and forgets sessions.
    fn reap(&mut self) {
        self.looked = Instant::now();
        let (hello, stall) = (self.config.limits.hello_timeout, self.config.limits.stall_timeout);
        let overdue = self.connections.iter().filter_map(|(&token, connection)| {
            let why = connection.overdue(hello, stall)?;
            tracing::warn!(peer = %connection.peer_text(), "connection cut: {why}");
            Some(token)
        });
        for token in overdue.collect::<Vec<_>>() {
            self.cut += 1;
            self.close(token);
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let _ = self.poller.ask(listener.fd(), index as u64 + 1, EventFlags::IN);
        }
        if let Some(leading) = &mut self.leading {
            leading.forget_idle(self.clock.now());
        }
    }
}
