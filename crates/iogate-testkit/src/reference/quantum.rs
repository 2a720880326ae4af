//! aioli and mlf: quanta that grow while requests wait, turns that continue, waits for runs that may grow.
//! (The rules: the table at the head of [`super`].)

use iogate_core::{FileId, Op, SchedulerConfig, SchedulerKind, Span, Time, WaitReason};

use super::{Caps, Choice, Entry, Model, aged, bytes_of, oldest, walk};

const FACTOR_LOG2_MIN: i32 = -3;
const FACTOR_LOG2_MAX: i32 = 10;

pub(super) struct Quantum {
    one_at_a_time: bool,
    caps: Caps,
    quantum_base: u64,
    contiguous_wait: Span,
    wait_max: Span,
    age_max_ns: u64,
    queues: Vec<Queue>,
    /// In the order in which they began; aioli has at most one.
    turns: Vec<Turn>,
    next_ticket: u64,
}

/// An eligible request.
struct Waiting {
    entry: Entry,
    quantum: u64,
    eligible: Time,
    waited_shift: bool,
    waited_better: bool,
}

struct Queue {
    file: FileId,
    op: Op,
    /// By (offset, sequence).
    waiting: Vec<Waiting>,
    /// The formed first run: its sequence numbers and quantum.
    run: Vec<u64>,
    run_quantum: u64,
    factor_log2: i32,
    last: Option<Served>,
    before_last: Option<Served>,
    pause: Option<(Time, WaitReason)>,
    ticket: u64,
}

/// A dispatch in a queue's history.
#[derive(Clone, Copy)]
struct Served {
    start: u64,
    end: u64,
    bytes: u64,
}

struct Turn {
    queue: usize,
    granted: u64,
    served: u64,
    left: u64,
    end: u64,
    /// Whether the last dispatch began where the queue's dispatch before it ended.
    sequence: bool,
    /// First request of the dispatch that has to complete before the turn goes on (aioli).
    in_service: Option<u64>,
    /// A continuation must be eligible by then.
    deadline: Time,
}

/// What an open turn does next.
enum Continuation {
    Serve(Vec<Entry>),
    Open,
    Over,
}

impl Queue {
    fn entries(&self) -> Vec<Entry> {
        self.waiting.iter().map(|waiting| waiting.entry.clone()).collect()
    }

    fn walk_from(&self, seq: u64, caps: Caps) -> Vec<Entry> {
        let entries = self.entries();
        let first = entries.iter().position(|entry| entry.seq == seq).expect("it is queued here");
        walk(&entries, first, caps)
    }

    fn own_quanta(&self, run: &[u64]) -> u64 {
        (self.waiting.iter().filter(|waiting| run.contains(&waiting.entry.seq)))
            .map(|waiting| waiting.quantum)
            .sum()
    }

    /// Walks the first run again after a change of the queue.
    fn form(&mut self, caps: Caps) {
        let entries = self.entries();
        let run: Vec<u64> = match entries.is_empty() {
            true => Vec::new(),
            false => walk(&entries, 0, caps).iter().map(|entry| entry.seq).collect(),
        };
        if run == self.run {
            return;
        }
        self.pause = None;
        if run.starts_with(&self.run) {
            self.run_quantum += self.own_quanta(&run[self.run.len()..]);
        } else {
            self.run_quantum = self.own_quanta(&run);
        }
        self.run = run;
    }

    fn growth(&self, quantum_base: u64) -> u64 {
        match self.factor_log2 {
            up @ 0.. => quantum_base << up,
            down => quantum_base >> -down,
        }
    }

    fn step(&mut self, quantum_base: u64) {
        let growth = self.growth(quantum_base);
        for waiting in &mut self.waiting {
            waiting.quantum += growth;
        }
        self.run_quantum += growth;
    }

    fn run_bytes(&self, caps: Caps) -> u64 {
        bytes_of(&self.walk_from(self.run[0], caps))
    }

    fn oldest(&self) -> Entry {
        oldest(&self.entries()).cloned().expect("the queue is not empty")
    }

    fn shift_seen(&self) -> bool {
        let (Some(last), Some(before)) = (self.last, self.before_last) else { return false };
        last.start < before.start && self.waiting[0].entry.offset > last.end
    }

    fn better_seen(&self, caps: Caps) -> bool {
        let Some(last) = self.last else { return false };
        self.waiting[0].entry.offset > last.end && self.run_bytes(caps) < last.bytes
    }

    /// The deliberate wait to begin before the first run is served, remembered on its first request.
    fn wait_reason(&mut self, caps: Caps) -> Option<WaitReason> {
        if self.shift_seen() && !self.waiting[0].waited_shift {
            self.waiting[0].waited_shift = true;
            return Some(WaitReason::Shift);
        }
        if self.better_seen(caps) && !self.waiting[0].waited_better {
            self.waiting[0].waited_better = true;
            return Some(WaitReason::BetterRun);
        }
        None
    }
}

impl Quantum {
    pub(super) fn new(config: &SchedulerConfig) -> Quantum {
        Quantum {
            one_at_a_time: config.kind() == SchedulerKind::Aioli,
            caps: Caps::of(config),
            quantum_base: config.value("quantum_base"),
            contiguous_wait: config.span("contiguous_wait"),
            wait_max: config.span("wait_max"),
            age_max_ns: config.value("age_max"),
            queues: Vec::new(),
            turns: Vec::new(),
            next_ticket: 0,
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Takes a run out of a queue and notes it in its history; returns whether it began where the last ended.
    fn serve(&mut self, queue: usize, run: &[Entry]) -> bool {
        let ticket = self.ticket();
        let queue = &mut self.queues[queue];
        queue.waiting.retain(|waiting| run.iter().all(|taken| taken.seq != waiting.entry.seq));
        queue.form(self.caps);
        queue.ticket = ticket;
        let (start, end) = (run[0].offset, run[run.len() - 1].end());
        let sequence = queue.last.is_some_and(|last| last.end == start);
        queue.before_last = queue.last;
        queue.last = Some(Served { start, end, bytes: bytes_of(run) });
        sequence
    }

    fn deadline(&self, now: Time, sequence: bool) -> Time {
        if sequence { now + self.contiguous_wait } else { now }
    }

    fn begin_turn(&mut self, now: Time, queue: usize, run: &[Entry], granted: u64) {
        let sequence = self.serve(queue, run);
        let served = bytes_of(run);
        self.turns.push(Turn {
            queue,
            granted,
            served,
            left: granted.saturating_sub(served),
            end: run[run.len() - 1].end(),
            sequence,
            in_service: Some(run[0].seq),
            deadline: self.deadline(now, sequence),
        });
    }

    fn continuation(&self, now: Time, draining: bool, turn: &Turn) -> Continuation {
        if turn.left == 0 {
            return Continuation::Over;
        }
        let queue = &self.queues[turn.queue];
        let follows = queue.waiting.iter().find(|waiting| waiting.entry.offset == turn.end);
        if let Some(first) = follows.filter(|first| first.eligible <= turn.deadline) {
            let mut run = queue.walk_from(first.entry.seq, self.caps);
            while bytes_of(&run) > turn.left {
                run.pop();
            }
            return if run.is_empty() { Continuation::Over } else { Continuation::Serve(run) };
        }
        let open = turn.sequence && !draining && now < turn.deadline;
        if open { Continuation::Open } else { Continuation::Over }
    }

    fn continue_turn(&mut self, now: Time, turn: usize, run: &[Entry]) {
        let sequence = self.serve(self.turns[turn].queue, run);
        let deadline = self.deadline(now, sequence);
        let turn = &mut self.turns[turn];
        turn.served += bytes_of(run);
        turn.left -= bytes_of(run);
        turn.end = run[run.len() - 1].end();
        turn.sequence = sequence;
        turn.in_service = Some(run[0].seq);
        turn.deadline = deadline;
    }

    fn end_turn(&mut self, turn: usize) {
        let turn = self.turns.remove(turn);
        let queue = &mut self.queues[turn.queue];
        let (served, granted) = (u128::from(turn.served), u128::from(turn.granted));
        if granted == 0 {
            return;
        }
        if served * 100 >= granted * 75 {
            queue.factor_log2 = (queue.factor_log2 + 1).min(FACTOR_LOG2_MAX);
        } else if served * 100 < granted * 2 {
            queue.factor_log2 = 0;
            queue.last = None;
            queue.before_last = None;
        } else if served * 100 < granted * 25 {
            queue.factor_log2 = (queue.factor_log2 - 1).max(FACTOR_LOG2_MIN);
        }
    }

    fn is_aged(&self, queue: usize, now: Time) -> bool {
        aged(&self.queues[queue].oldest(), now, self.age_max_ns)
    }

    /// Until when a queue is not to be picked, and why.
    fn blocked(&self, queue: usize, now: Time) -> Option<(Time, WaitReason)> {
        if let Some(turn) = self.turns.iter().find(|turn| turn.queue == queue) {
            return Some((turn.deadline, WaitReason::Contiguous));
        }
        self.queues[queue].pause.filter(|_| !self.is_aged(queue, now))
    }

    fn pick(&mut self, now: Time, draining: bool) -> Choice {
        let busy: Vec<usize> =
            (0..self.queues.len()).filter(|&queue| !self.queues[queue].waiting.is_empty()).collect();
        if busy.is_empty() {
            return Choice::Idle;
        }
        for &queue in &busy {
            let queue = &mut self.queues[queue];
            queue.pause = queue.pause.filter(|&(until, _)| now < until && !draining);
        }
        let mut stepped = false;
        loop {
            let free: Vec<usize> =
                busy.iter().copied().filter(|&queue| self.blocked(queue, now).is_none()).collect();
            if free.is_empty() {
                let earliest = busy.iter().filter_map(|&queue| self.blocked(queue, now)).min();
                let (until, reason) = earliest.expect("each of them is blocked");
                return Choice::Wait(until, reason);
            }
            let ready = free.into_iter().filter(|&queue| {
                let first = &self.queues[queue];
                first.run_quantum >= first.run_bytes(self.caps) || self.is_aged(queue, now)
            });
            let chosen = match self.one_at_a_time {
                true => ready.min_by_key(|&queue| self.queues[queue].oldest().seq),
                false => ready.min_by_key(|&queue| self.queues[queue].ticket),
            };
            let Some(chosen) = chosen.filter(|_| stepped) else {
                for &queue in &busy {
                    self.queues[queue].step(self.quantum_base);
                }
                stepped = true;
                continue;
            };
            if self.is_aged(chosen, now) {
                let queue = &self.queues[chosen];
                let run = queue.walk_from(queue.oldest().seq, self.caps);
                let granted = queue.own_quanta(&run.iter().map(|entry| entry.seq).collect::<Vec<_>>());
                self.begin_turn(now, chosen, &run, granted);
                return Choice::Serve(run);
            }
            if self.wait_max > Span::ZERO && !draining {
                let until = now + self.wait_max;
                let queue = &mut self.queues[chosen];
                if let Some(reason) = queue.wait_reason(self.caps) {
                    queue.pause = Some((until, reason));
                    continue;
                }
            }
            let run = self.queues[chosen].walk_from(self.queues[chosen].run[0], self.caps);
            let granted = self.queues[chosen].run_quantum;
            self.begin_turn(now, chosen, &run, granted);
            return Choice::Serve(run);
        }
    }
}

impl Model for Quantum {
    fn insert(&mut self, now: Time, entry: Entry) {
        let known = self.queues.iter().position(|queue| queue.file == entry.file && queue.op == entry.op);
        let place = known.unwrap_or_else(|| {
            self.queues.push(Queue {
                file: entry.file,
                op: entry.op,
                waiting: Vec::new(),
                run: Vec::new(),
                run_quantum: 0,
                factor_log2: 0,
                last: None,
                before_last: None,
                pause: None,
                ticket: 0,
            });
            self.queues.len() - 1
        });
        if self.queues[place].waiting.is_empty() {
            self.queues[place].ticket = self.ticket();
        }
        let queue = &mut self.queues[place];
        queue.waiting.push(Waiting {
            entry,
            quantum: 0,
            eligible: now,
            waited_shift: false,
            waited_better: false,
        });
        queue.waiting.sort_by_key(|waiting| (waiting.entry.offset, waiting.entry.seq));
        queue.form(self.caps);
    }

    fn choose(&mut self, now: Time, draining: bool) -> Choice {
        let mut turn = 0;
        while turn < self.turns.len() {
            match self.continuation(now, draining, &self.turns[turn]) {
                Continuation::Serve(run) => {
                    self.continue_turn(now, turn, &run);
                    return Choice::Serve(run);
                }
                Continuation::Over => self.end_turn(turn),
                Continuation::Open => turn += 1,
            }
        }
        match self.turns.first().filter(|_| self.one_at_a_time) {
            Some(_) if self.queues.iter().all(|queue| queue.waiting.is_empty()) => Choice::Idle,
            Some(held) => Choice::Wait(held.deadline, WaitReason::Contiguous),
            None => self.pick(now, draining),
        }
    }

    fn completed(&mut self, now: Time, first: u64) {
        if !self.one_at_a_time {
            return;
        }
        let contiguous_wait = self.contiguous_wait;
        for turn in self.turns.iter_mut().filter(|turn| turn.in_service == Some(first)) {
            turn.in_service = None;
            turn.deadline = if turn.sequence { now + contiguous_wait } else { now };
        }
    }

    fn take(&mut self) -> Vec<Entry> {
        let taken = self.queues.iter().flat_map(Queue::entries).collect();
        self.queues.clear();
        self.turns.clear();
        taken
    }

    fn depth_max(&self) -> u32 {
        if self.one_at_a_time { 1 } else { u32::MAX }
    }
}
