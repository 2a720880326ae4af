//! Who does its I/O when: the coordinator and its messages; probes, and backing off.
//!
//! All processes of an application come to the door of their I/O. Its rank 0 claims a turn, as its job's only claim, or probes, or
//! both, while the others wait; then all go in, and when the last has come out, rank 0 releases. The coordinator's table, and the
//! rules of backing off, are the core's. Left out: the coordinator's processor time and its journal.

use iogate_core::coord::backoff::{Backoff, BackoffConfig, Step};
use iogate_core::coord::{Admission, Claim, Decision, PlaceId, SessionId, Table, Targets, Token};
use iogate_core::policy::Entitlement;
use iogate_core::{FileId, Op, Span, Time};

use super::process::Waiting;
use super::{Event, Lent, Message, SimError, World};
use crate::result::Attempt;
use crate::rng::mix;
use crate::scenario::{App, Barrier, Coordination, Pattern, Scenario, Sharing, Workload};
use crate::workload::{Call, iteration_bytes};

/// The file system of the servers: there is one.
const PLACE: PlaceId = PlaceId(0);
/// Files of probes: no application's files have numbers from here on.
const PROBE_FILES: u64 = 1 << 63;
/// Attempts from which the quiet throughput is measured: their median.
const CALIBRATIONS: u32 = 5;

/// The coordinator, and how applications back off.
pub(super) struct Turns {
    table: Option<Table>,
    backoff: Option<BackoffConfig>,
    /// When the coordinator will be looked at again because it asked for that.
    wake: Time,
    pub(super) words: super::Slab<Word>,
}

/// A message between rank 0 of an application and the coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    app: u32,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Claim {
        request: u32,
    },
    Granted {
        request: u32,
        token: Token,
        overdue: bool,
    },
    Renew {
        token: Token,
    },
    Release {
        token: Token,
    },
    /// The connection has ended.
    Gone,
}

/// Where an application stands.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Its processes at the door, and of those that went in the ones that have not come out.
    at_door: u32,
    inside: u32,
    /// How many turns it has asked for.
    request: u32,
    asked: Time,
    token: Option<Token>,
    backoff: Option<Backoff>,
    /// What is being written to probe.
    probe: Option<Probe>,
    /// When the attempt and the backing off began, and the slowest probe of the attempt, in bytes per second.
    attempt: Time,
    began: Time,
    slowest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Bytes to be timed after those that are written to prime; `None` if these are being timed.
    next: Option<u64>,
    bytes: u64,
    since: Time,
}

impl Turns {
    /// Those of a run with `seed`.
    ///
    /// # Errors
    /// If the quiet throughput cannot be measured.
    pub(super) fn new(scenario: &Scenario, seed: u64, lent: Lent<'_>) -> Result<Turns, SimError> {
        let Coordination { lock, backoff } = &scenario.coordination;
        let backoff = match backoff {
            Some(config) if config.quiet == 0 => Some(BackoffConfig {
                quiet: quiet_throughput(scenario, seed, config, lent)?,
                ..config.clone()
            }),
            config => config.clone(),
        };
        let table = lock.as_ref().map(|rules| Table::new(rules.clone(), Token(0)));
        Ok(Turns { table, backoff, wake: Time::MAX, words: super::Slab::new() })
    }

    /// Whether applications do anything before their I/O.
    pub(super) fn are_taken(&self) -> bool {
        self.table.is_some() || self.backoff.is_some()
    }
}

impl World<'_> {
    /// A process is ready for the I/O of an iteration.
    pub(super) fn reach_turn(&mut self, process: u32) -> Result<(), SimError> {
        self.end_stretch(process);
        let this = &mut self.processes[process as usize];
        this.waiting = Waiting::Turn;
        let app = this.app;
        let now = self.queue.now();
        let run = &mut self.apps[app as usize];
        run.turn.at_door += 1;
        if run.turn.at_door < run.count {
            return Ok(());
        }
        run.turn.at_door = 0;
        run.turn.inside = run.count;
        run.turn.request += 1;
        run.turn.asked = now;
        if self.turns.table.is_none() {
            return self.begin_backoff(app);
        }
        let request = self.apps[app as usize].turn.request;
        self.say(app, Content::Claim { request });
        Ok(())
    }

    /// All processes go in.
    fn go_in(&mut self, app: u32) {
        let now = self.queue.now();
        let run = &self.apps[app as usize];
        let (asked, processes) = (run.turn.asked, run.first..run.first + run.count);
        for process in processes {
            let this = &mut self.processes[process as usize];
            let phase = this.phases;
            this.since = now;
            self.phase(process, true);
            self.apps[app as usize].phase(phase, now).asked = asked;
            self.queue.add(now, Event::Process(process));
        }
    }

    /// A process has done its part of the I/O.
    pub(super) fn leave_turn(&mut self, process: u32) {
        let app = self.processes[process as usize].app;
        let turn = &mut self.apps[app as usize].turn;
        turn.inside = turn.inside.saturating_sub(1);
        if turn.inside == 0
            && let Some(token) = turn.token.take()
        {
            self.say(app, Content::Release { token });
        }
    }

    /// An application has been lost: what the coordinator sees of it.
    pub(super) fn abandon_turn(&mut self, app: u32) {
        let run = &mut self.apps[app as usize];
        run.turn.token = None;
        let node = self.processes[run.first as usize].node;
        // A node that is gone does not even end its connections.
        if self.turns.table.is_some() && !self.nodes[node as usize].lost {
            self.say(app, Content::Gone);
        }
    }

    /// A holder says that it is there, and will again.
    pub(super) fn renew(&mut self, app: u32, request: u32) {
        let turn = &self.apps[app as usize].turn;
        if let Some(token) = turn.token.filter(|_| turn.request == request) {
            self.say(app, Content::Renew { token });
            self.renew_later(app, request);
        }
    }

    fn renew_later(&mut self, app: u32, request: u32) {
        let Some(table) = &self.turns.table else { return };
        let third = Span::from_nanos(table.config().lease.as_nanos() / 3);
        self.queue.add(self.queue.now() + third, Event::Renew { app, request });
    }

    /// Rank 0 of an application sends the coordinator a message.
    fn say(&mut self, app: u32, content: Content) {
        let from = self.processes[self.apps[app as usize].first as usize].node;
        let to = self.coordinator();
        let word = self.turns.words.add(Word { app, content });
        self.net.send(&mut self.queue, from, to, 0, Message::Word(word));
    }

    /// The coordinator's node.
    fn coordinator(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// A message has come in.
    pub(super) fn hear(&mut self, word: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let Word { app, content, .. } = self.turns.words[word];
        self.turns.words.free(word);
        let session = SessionId(u64::from(app) + 1);
        let Some(table) = &mut self.turns.table else { return Ok(()) };
        match content {
            Content::Claim { request } => {
                let spec = &self.specs[app as usize];
                let claim = Claim {
                    session,
                    request: request.into(),
                    targets: Targets::all_of(PLACE),
                    party: session.0,
                    bytes: iteration_bytes(spec),
                    weight: 1,
                    period: Span::ZERO,
                };
                table.claim(now, claim)?;
            }
            // Refused where its turn has been lost, which it cannot help.
            Content::Renew { token } => {
                let _ = table.renew(now, session, token);
            }
            Content::Release { token } => {
                let _ = table.release(now, session, token, iteration_bytes(&self.specs[app as usize]));
            }
            Content::Gone => table.disconnected(now, session),
            Content::Granted { request, token, overdue } => {
                return self.granted(app, request, token, overdue);
            }
        }
        self.ask_coordinator();
        Ok(())
    }

    /// The coordinator decides what there is to decide.
    pub(super) fn ask_coordinator(&mut self) {
        let now = self.queue.now();
        if self.turns.wake <= now {
            self.turns.wake = Time::MAX;
        }
        loop {
            let Some(table) = &mut self.turns.table else { return };
            // Nothing here can crash: what a journal would keep is passed over.
            table.changes().for_each(drop);
            match table.next(now) {
                Decision::Granted(grant) => {
                    let app = (grant.session.0 - 1) as u32;
                    let overdue = grant.admission == Admission::Overdue;
                    let content =
                        Content::Granted { request: grant.request as u32, token: grant.token, overdue };
                    let to = self.processes[self.apps[app as usize].first as usize].node;
                    let word = self.turns.words.add(Word { app, content });
                    let from = self.coordinator();
                    self.net.send(&mut self.queue, from, to, 0, Message::Word(word));
                }
                Decision::Lost(loss) => self.apps[(loss.session.0 - 1) as usize].turns.lost += 1,
                Decision::WaitUntil(at) => {
                    if at < self.turns.wake {
                        self.turns.wake = at;
                        self.queue.add(at, Event::Coordinator);
                    }
                    return;
                }
                Decision::Idle => return,
            }
        }
    }

    fn granted(&mut self, app: u32, request: u32, token: Token, overdue: bool) -> Result<(), SimError> {
        let now = self.queue.now();
        let run = &mut self.apps[app as usize];
        if run.end.is_some() {
            return Ok(());
        }
        run.turn.token = Some(token);
        run.turns.waited += now.since(run.turn.asked);
        run.turns.overdue += u64::from(overdue);
        self.renew_later(app, request);
        if self.turns.backoff.is_some() {
            return self.begin_backoff(app);
        }
        self.go_in(app);
        Ok(())
    }

    fn begin_backoff(&mut self, app: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let Some(config) = &self.turns.backoff else { return Ok(()) };
        let turn = &mut self.apps[app as usize].turn;
        // By its number, as all that it draws: without another application its sleeps are the same.
        let number = u64::from(self.specs[app as usize].id.wrapping_sub(1));
        let seed = mix(self.seed ^ mix(number << 32 | u64::from(turn.request)));
        turn.backoff = Some(Backoff::new(config.clone(), seed));
        (turn.began, turn.attempt, turn.slowest) = (now, now, u64::MAX);
        self.back_off(app)
    }

    /// An application that backs off takes its next step.
    pub(super) fn back_off(&mut self, app: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let run = &mut self.apps[app as usize];
        if run.end.is_some() {
            return Ok(());
        }
        let Some(backoff) = &mut run.turn.backoff else { return Ok(()) };
        match backoff.next(now) {
            Step::Probe { prime, bytes } => {
                if run.turn.slowest == u64::MAX {
                    run.turn.attempt = now;
                }
                run.turns.probes += 1;
                run.turns.probe_bytes += prime + bytes;
                match prime {
                    0 => self.write_probe(app, bytes, None),
                    _ => self.write_probe(app, prime, Some(bytes)),
                }
            }
            Step::Sleep(until) => {
                self.queue.add(until, Event::Awake(app));
                Ok(())
            }
            Step::Proceed(_) => {
                run.turn.backoff = None;
                run.turns.backoff += now.since(run.turn.began);
                self.go_in(app);
                Ok(())
            }
        }
    }

    /// Rank 0 writes to prime, if there is a `next` to be timed, or else to be timed; each to a file of its own, which is gone
    /// afterwards, so that the next one lies where it lay.
    fn write_probe(&mut self, app: u32, bytes: u64, next: Option<u64>) -> Result<(), SimError> {
        let run = &mut self.apps[app as usize];
        run.turn.probe = Some(Probe { next, bytes, since: self.queue.now() });
        let file = FileId(PROBE_FILES | u64::from(app) << 1 | u64::from(next.is_some()));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let call = Call { file, op: Op::Write, offset: 0, bytes, stride: bytes.into(), count: 1 };
        let first = run.first;
        self.issue(first, &call, true)
    }

    /// What rank 0 has written to probe is with the servers.
    pub(super) fn probe_written(&mut self, process: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let app = self.processes[process as usize].app;
        let run = &mut self.apps[app as usize];
        let (Some(probe), Some(backoff)) = (run.turn.probe.take(), &mut run.turn.backoff) else {
            return Ok(());
        };
        if let Some(bytes) = probe.next {
            return self.write_probe(app, bytes, None);
        }
        let took = now.since(probe.since);
        let rate = probe.bytes as f64 / took.as_secs_f64().max(1e-9);
        run.turn.slowest = run.turn.slowest.min(rate as u64);
        let before = backoff.attempts();
        backoff.probed(now, probe.bytes, took);
        if backoff.attempts() > before {
            let slowest = std::mem::replace(&mut run.turn.slowest, u64::MAX);
            run.turns.attempts.push(Attempt { start: run.turn.attempt, end: now, slowest });
        }
        self.back_off(app)
    }
}

/// The throughput that an attempt measures while nobody else is there, in bytes per second: the median of several, in a world of
/// its own, by a process on the first client node.
fn quiet_throughput(
    scenario: &Scenario,
    seed: u64,
    config: &BackoffConfig,
    lent: Lent<'_>,
) -> Result<u64, SimError> {
    let workload = Workload {
        pattern: Pattern::Contiguous { sharing: Sharing::Shared, bytes: 1, request: 1 },
        op: Op::Write,
        iterations: CALIBRATIONS,
        compute: crate::rng::Distribution::Constant(Span::from_secs(1)),
        think: crate::rng::Distribution::ZERO,
        outstanding: Some(1),
        barrier: Barrier::Phase,
        collective: None,
    };
    let prober = App {
        name: "prober".into(),
        id: 1,
        processes: 1,
        first_node: 0,
        nodes: 1,
        start: Span::ZERO,
        walltime: None,
        files: 0,
        entitlement: Entitlement::default(),
        group: None,
        workload,
    };
    // Any throughput is enough here.
    let always = BackoffConfig { quiet: 1, attempts_max: 1, ..config.clone() };
    let quiet = Scenario {
        apps: vec![prober],
        jobs: None,
        batch: None,
        global: None,
        groups: Vec::new(),
        faults: Vec::new(),
        coordination: Coordination { lock: None, backoff: Some(always) },
        ..scenario.clone()
    };
    let result = super::simulate_with(&quiet, seed, &mut (), lent)?;
    let attempts = result.apps.iter().flat_map(|app| &app.turns.attempts);
    let mut slowest: Vec<u64> = attempts.map(|attempt| attempt.slowest).collect();
    slowest.sort_unstable();
    Ok(slowest.get(slowest.len() / 2).copied().unwrap_or(0).max(1))
}
