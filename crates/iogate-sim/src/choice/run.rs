//! A mix in virtual time: processes, a gate, storage.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iogate_core::auto::objective::{Ln, Score};
use iogate_core::auto::{Auto, Candidates};
use iogate_core::blame::Account;
use iogate_core::recording::Event;
use iogate_core::{AppId, ClientId, Gate, Request, RequestId, SchedulerConfig, Span, Time};

use super::mix::{Mix, Stint};
use crate::rng::{Distribution, Rng};
use crate::serving::Serving;

/// What progress is counted in.
pub const SLICE: Span = Span::from_millis(250);

/// What became of a mix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Of each application: when its last request was complete, in ns.
    pub ends: Vec<u64>,
    /// Of each round, how long each application took from the round's beginning to its last completion, in ns.
    pub rounds: Vec<Vec<u64>>,
    /// Of each process: how many requests were complete in the last round.
    pub requests: Vec<u32>,
    /// Of each slice of time and application: how many requests were complete.
    pub progress: Vec<Vec<u32>>,
    /// The schedulers that were chosen, with the times of the changes.
    pub switches: Vec<(Time, String)>,
    /// The most memory that the choice took.
    pub memory_max: usize,
    /// Of each application, when each of its requests was complete, in ns.
    pub completions: Vec<Vec<u64>>,
    /// Bytes that were dispatched.
    pub bytes: u64,
    /// Who slowed whom down, if the gate has kept accounts of that.
    pub accounts: Vec<Account>,
    /// What was expected of each candidate after the first window that was simulated, and what a gain had to exceed for a change.
    pub expected: Vec<Option<(Score, Ln)>>,
    /// What arrived and completed, in that order.
    pub events: Vec<Event>,
}

struct State {
    /// Requests that have come, or will after a while.
    sent: u32,
    done: u32,
    next: u64,
    stint: usize,
    rng: Rng,
    /// Completions of this round, and whether it waits for the others.
    in_round: u32,
    waits: bool,
}

/// Runs `mix` behind a gate that begins with `scheduler`; with `auto`, that looks at it. It ends after `most` requests, in the middle of
/// whatever is going on.
pub fn run(mix: &Mix, scheduler: &SchedulerConfig, auto: Option<&mut Auto>, most: u64) -> Ran {
    run_with(mix, scheduler, auto, most, |_, _, _| {})
}

/// As [`run`]; `meddle` may do something to the gate before it is asked, and sees what has been carried out.
///
/// # Panics
/// If the gate refuses what it must take.
pub fn run_with(
    mix: &Mix,
    scheduler: &SchedulerConfig,
    auto: Option<&mut Auto>,
    most: u64,
    meddle: impl FnMut(Time, &mut Gate, &Ran),
) -> Ran {
    World::new(mix, scheduler).run(auto, most, meddle)
}

/// As [`run`], and records what arrives and completes.
///
/// # Panics
/// As [`run_with`].
pub fn run_recorded(
    mix: &Mix,
    scheduler: &SchedulerConfig,
    most: u64,
    meddle: impl FnMut(Time, &mut Gate, &Ran),
) -> Ran {
    let mut world = World::new(mix, scheduler);
    world.records = true;
    world.run(None, most, meddle)
}

struct World<'a> {
    mix: &'a Mix,
    serving: Serving,
    states: Vec<State>,
    coming: BinaryHeap<Reverse<(Time, usize)>>,
    now: Time,
    completed: u64,
    /// Requests of this round that are not complete, and when it began.
    left: u64,
    began: Time,
    /// The process of each request, by its number.
    sender: Vec<u32>,
    /// When each dispatch was handed over, by its number.
    begun: Vec<Time>,
    records: bool,
    ran: Ran,
}

impl World<'_> {
    fn new<'a>(mix: &'a Mix, scheduler: &SchedulerConfig) -> World<'a> {
        let state = |index: usize| State {
            sent: 0,
            done: 0,
            next: 0,
            stint: 0,
            rng: Rng::new(mix.seed, 100 + index as u64),
            in_round: 0,
            waits: false,
        };
        let apps = mix.apps() as usize;
        let mut world = World {
            mix,
            serving: Serving::new(
                Gate::new(&mix.config(scheduler)).expect("a mix has a gate"),
                mix.storage.device(),
            ),
            states: (0..mix.processes.len()).map(state).collect(),
            coming: BinaryHeap::new(),
            now: Time::ZERO,
            completed: 0,
            left: 0,
            began: Time::ZERO,
            sender: Vec::new(),
            begun: Vec::new(),
            records: false,
            ran: Ran { ends: vec![0; apps], completions: vec![Vec::new(); apps], ..Ran::default() },
        };
        world.begin(Time::ZERO);
        world
    }

    /// All processes begin, for the first time or again.
    fn begin(&mut self, at: Time) {
        self.began = at;
        self.left = self.mix.processes.iter().map(|process| u64::from(process.requests)).sum();
        for (index, process) in self.mix.processes.iter().enumerate() {
            let sent = process.outstanding.min(process.requests);
            let state = &mut self.states[index];
            (state.sent, state.done, state.next, state.in_round, state.waits) = (sent, 0, 0, 0, false);
            (0..sent).for_each(|_| self.coming.push(Reverse((at, index))));
        }
        self.ran.rounds.push(vec![0; self.ran.ends.len()]);
    }

    fn run(
        mut self,
        mut auto: Option<&mut Auto>,
        most: u64,
        mut meddle: impl FnMut(Time, &mut Gate, &Ran),
    ) -> Ran {
        loop {
            self.arrive(auto.as_deref_mut());
            if let Some(auto) = &mut auto {
                self.look(auto);
            }
            meddle(self.now, &mut self.serving.gate, &self.ran);
            let deadline = self.dispatch(auto.as_deref_mut());
            let end = self.serving.next_end();
            let arrival = self.coming.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [end, arrival, deadline].into_iter().flatten().min() else { break };
            if self.completed >= most {
                break;
            }
            self.now = next.max(self.now);
            self.complete(auto.as_deref_mut());
        }
        self.ran.accounts = self.serving.gate.accounts(self.now).unwrap_or_default();
        self.ran.requests = self.states.iter().map(|state| state.done).collect();
        self.ran
    }

    fn stint(&mut self, index: usize) -> Stint {
        let (stints, state) = (&self.mix.processes[index].stints, &mut self.states[index]);
        while stints[state.stint].0 <= self.now && state.stint + 1 < stints.len() {
            (state.stint, state.next) = (state.stint + 1, 0);
        }
        stints[state.stint].1
    }

    fn arrive(&mut self, mut auto: Option<&mut Auto>) {
        while let Some(&Reverse((at, index))) = self.coming.peek()
            && at <= self.now
        {
            self.coming.pop();
            if self.now >= self.mix.until {
                continue;
            }
            let stint = self.stint(index);
            let state = &mut self.states[index];
            let bytes = u64::from(stint.bytes);
            let offset = match stint.stride {
                0 => state.rng.below((1 << 30) / bytes) * bytes,
                stride => stint.start + state.next * stride,
            };
            state.next += 1;
            let request = Request {
                id: RequestId(self.sender.len() as u64),
                file: stint.file,
                op: stint.op,
                offset,
                bytes: stint.bytes,
                app: AppId(self.mix.processes[index].app),
                client: ClientId(index as u32 + 1),
                target: None,
                issued: None,
            };
            self.sender.push(index as u32);
            if self.records {
                let Request { id, file, op, offset, bytes, app, client, .. } = request;
                let time = self.now;
                self.ran.events.push(Event::Arrived { id, time, app, client, file, op, offset, bytes });
            }
            self.serving.gate.submit(self.now, &request).expect("a gate has room for a mix");
            if let Some(auto) = &mut auto {
                auto.arrived(self.now, &request);
                if let Some(&said) = self.mix.said.get(request.app.0 as usize - 1) {
                    auto.declare(request.app, said);
                }
            }
        }
    }

    fn look(&mut self, auto: &mut Auto) {
        let before = auto.status().switches;
        let sender = &self.sender;
        auto.look(self.now, &mut self.serving.gate, |id| ClientId(sender[id.0 as usize] + 1));
        if auto.status().switches > before {
            self.ran.switches.push((self.now, self.serving.gate.scheduler().to_string()));
        }
        if self.ran.expected.is_empty() && !auto.status().considered.is_empty() {
            self.ran.expected =
                (0..Candidates::every().len()).map(|at| auto.chooser().expected(at)).collect();
        }
        self.ran.memory_max = auto.status().memory_max + auto.allocated_bytes();
    }

    fn dispatch(&mut self, mut auto: Option<&mut Auto>) -> Option<Time> {
        let (now, ran, begun, records) = (self.now, &mut self.ran, &mut self.begun, self.records);
        self.serving.dispatch(now, |dispatch| {
            if records {
                let id = dispatch.id.0 as usize;
                begun.resize(begun.len().max(id + 1), now);
                begun[id] = now;
            }
            if let Some(auto) = &mut auto {
                auto.dispatched(now, dispatch);
            }
            ran.bytes += dispatch.bytes;
        })
    }

    fn complete(&mut self, mut auto: Option<&mut Auto>) {
        while let Some((id, parts)) = self.serving.complete(self.now) {
            if let Some(auto) = &mut auto {
                auto.ended(self.now, id);
            }
            for part in parts {
                if self.records {
                    let (time, began) = (self.now, Some(self.begun[id.0 as usize]));
                    self.ran.events.push(Event::Completed { id: part.request, time, began });
                }
                if let Some(auto) = &mut auto {
                    auto.completed(self.now, part.request, part.app, part.bytes);
                }
                self.done(self.sender[part.request.0 as usize] as usize);
            }
        }
    }

    /// A request of a process is complete.
    fn done(&mut self, index: usize) {
        let process = &self.mix.processes[index];
        self.completed += 1;
        self.ran.ends[process.app as usize - 1] = self.now.as_nanos();
        if let Some(round) = self.ran.rounds.last_mut() {
            round[process.app as usize - 1] = self.now.since(self.began).as_nanos();
        }
        self.left -= 1;
        self.ran.completions[process.app as usize - 1].push(self.now.as_nanos());
        let slice = (self.now.as_nanos() / SLICE.as_nanos()) as usize;
        if self.ran.progress.len() <= slice && slice < 4_096 {
            self.ran.progress.resize(slice + 1, vec![0; self.ran.ends.len()]);
        }
        if let Some(slice) = self.ran.progress.get_mut(slice) {
            slice[process.app as usize - 1] += 1;
        }
        if self.left == 0 && self.ran.rounds.len() < self.mix.rounds as usize {
            self.begin(self.now + self.mix.pause);
            return;
        }
        let Stint { think, round, .. } = self.stint(index);
        let state = &mut self.states[index];
        (state.done, state.in_round) = (state.done + 1, state.in_round + 1);
        if round > 0 && state.in_round >= round {
            (state.in_round, state.waits) = (0, true);
            self.end_round(process.app, think);
            return;
        }
        if state.sent < process.requests {
            state.sent += 1;
            let think = state.rng.span(Distribution::Uniform(half(think), half(think) + think));
            self.coming.push(Reverse((self.now + think, index)));
        }
    }

    /// All go on when the last of them has come.
    fn end_round(&mut self, app: u32, think: Span) {
        let of_app = |index: &usize| self.mix.processes[*index].app == app;
        let all: Vec<usize> = (0..self.states.len()).filter(of_app).collect();
        if all.iter().any(|&index| !self.states[index].waits) {
            return;
        }
        for index in all {
            self.states[index].waits = false;
            if self.states[index].sent < self.mix.processes[index].requests {
                self.states[index].sent += 1;
                self.coming.push(Reverse((self.now + think, index)));
            }
        }
    }
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}
