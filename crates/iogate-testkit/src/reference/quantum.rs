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
    /// Open turns; aioli has at most one.
    turns: Vec<Turn>,
    /// The queue of the last dispatch, until a pick has found nothing that continues it.
    current: Option<usize>,
    next_ticket: u64,
    next_order: u64,
}

/// An eligible request.
struct Waiting {
    entry: Entry,
    quantum: u64,
    eligible: Time,
    /// Its place in the order in which requests became eligible.
    order: u64,
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
    /// A continuation must be eligible by then.
    deadline: Time,
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
            current: None,
            next_ticket: 0,
            next_order: 0,
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Takes a run out of a queue and notes it in its history; returns whether it began where the last ended.
    fn serve(&mut self, queue: usize, run: &[Entry]) -> bool {
        let queue = &mut self.queues[queue];
        queue.waiting.retain(|waiting| run.iter().all(|taken| taken.seq != waiting.entry.seq));
        queue.form(self.caps);
        queue.pause = None;
        let (start, end) = (run[0].offset, run[run.len() - 1].end());
        let sequence = queue.last.is_some_and(|last| last.end == start);
        queue.before_last = queue.last;
        queue.last = Some(Served { start, end, bytes: bytes_of(run) });
        sequence
    }

    fn begin_turn(&mut self, now: Time, queue: usize, run: &[Entry], granted: u64) {
        if let Some(open) = self.turns.iter().position(|turn| turn.queue == queue) {
            self.end_turn(open);
        }
        self.queues[queue].ticket = self.ticket();
        let sequence = self.serve(queue, run);
        let served = bytes_of(run);
        self.current = Some(queue);
        self.turns.push(Turn {
            queue,
            granted,
            served,
            left: granted.saturating_sub(served),
            end: run[run.len() - 1].end(),
            sequence,
            deadline: now + self.contiguous_wait,
        });
        if granted <= served {
            self.end_turn(self.turns.len() - 1);
        }
    }

    /// Serves what continues a turn, if something does and fits; ends the turn if it does not fit.
    fn continue_turn(&mut self, now: Time, turn: usize) -> Option<Choice> {
        let Turn { queue, left, .. } = self.turns[turn];
        let follows = self.follows(&self.turns[turn])?;
        let mut run = self.queues[queue].walk_from(follows, self.caps);
        while bytes_of(&run) > left {
            run.pop();
        }
        if run.is_empty() {
            self.end_turn(turn);
            return None;
        }
        let sequence = self.serve(queue, &run);
        self.current = Some(queue);
        let deadline = now + self.contiguous_wait;
        let open = &mut self.turns[turn];
        open.served += bytes_of(&run);
        open.left -= bytes_of(&run);
        open.end = run[run.len() - 1].end();
        open.sequence = sequence;
        open.deadline = deadline;
        if open.left == 0 {
            self.end_turn(turn);
        }
        Some(Choice::Serve(run))
    }

    /// Requests at the end of a turn.
    fn at_end<'a>(&'a self, turn: &'a Turn) -> impl Iterator<Item = &'a Waiting> {
        self.queues[turn.queue].waiting.iter().filter(|waiting| waiting.entry.offset == turn.end)
    }

    /// The sequence number of the request that continues a turn, if one was there in time.
    fn follows(&self, turn: &Turn) -> Option<u64> {
        let in_time = self.at_end(turn).any(|waiting| waiting.eligible <= turn.deadline);
        self.at_end(turn).next().filter(|_| in_time).map(|first| first.entry.seq)
    }

    /// Goes on with open turns. `Some` if that decides what to do.
    fn go_on(&mut self, now: Time, draining: bool) -> Option<Choice> {
        let current = self.current;
        let place = |turns: &[Turn]| turns.iter().position(|turn| Some(turn.queue) == current);
        if let Some(choice) = place(&self.turns).and_then(|turn| self.continue_turn(now, turn)) {
            return Some(choice);
        }
        if let Some(turn) = place(&self.turns) {
            let Turn { sequence, deadline, .. } = self.turns[turn];
            if !sequence || draining || deadline <= now {
                self.end_turn(turn);
            } else if self.one_at_a_time {
                return Some(Choice::Wait(deadline, WaitReason::Contiguous));
            }
        }
        self.current = None;
        let continued = |this: &Quantum| {
            let noted = |turn: &Turn| this.at_end(turn).map(|waiting| waiting.order).min();
            (0..this.turns.len())
                .filter(|&turn| this.follows(&this.turns[turn]).is_some())
                .min_by_key(|&turn| noted(&this.turns[turn]))
        };
        while let Some(turn) = continued(self) {
            if let Some(choice) = self.continue_turn(now, turn) {
                return Some(choice);
            }
        }
        while let Some(over) = self.turns.iter().position(|turn| draining || turn.deadline <= now) {
            self.end_turn(over);
        }
        None
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

    /// The queue whose oldest request is the oldest of all, if that has waited too long.
    fn aged_queue(&self, now: Time) -> Option<usize> {
        let busy = (0..self.queues.len()).filter(|&queue| !self.queues[queue].waiting.is_empty());
        let eldest = busy.min_by_key(|&queue| self.queues[queue].oldest().seq)?;
        aged(&self.queues[eldest].oldest(), now, self.age_max_ns).then_some(eldest)
    }

    fn step(&mut self) {
        for queue in self.queues.iter_mut().filter(|queue| !queue.waiting.is_empty()) {
            queue.step(self.quantum_base);
        }
    }

    fn pick(&mut self, now: Time, draining: bool) -> Choice {
        if let Some(queue) = self.aged_queue(now) {
            let run = self.queues[queue].walk_from(self.queues[queue].oldest().seq, self.caps);
            self.begin_turn(now, queue, &run, 0);
            return Choice::Serve(run);
        }
        for queue in &mut self.queues {
            queue.pause = queue.pause.filter(|&(until, _)| now < until && !draining);
        }
        self.step();
        loop {
            let busy = |queue: &usize| !self.queues[*queue].waiting.is_empty();
            let free = |queue: &usize| self.queues[*queue].pause.is_none();
            let ready =
                |queue: &usize| self.queues[*queue].run_quantum >= self.queues[*queue].run_bytes(self.caps);
            let all = 0..self.queues.len();
            if !all.clone().any(|queue| busy(&queue)) {
                return Choice::Idle;
            }
            if !all.clone().filter(busy).any(|queue| free(&queue)) {
                let earliest = all.filter(busy).filter_map(|queue| self.queues[queue].pause).min();
                let (until, reason) = earliest.expect("each of them waits");
                return Choice::Wait(until, reason);
            }
            let candidates = all.filter(busy).filter(free).filter(ready);
            let chosen = match self.one_at_a_time {
                true => candidates.min_by_key(|&queue| self.queues[queue].oldest().seq),
                false => candidates.min_by_key(|&queue| self.queues[queue].ticket),
            };
            let Some(chosen) = chosen else {
                self.step();
                continue;
            };
            let queue = &mut self.queues[chosen];
            if self.wait_max > Span::ZERO
                && !draining
                && let Some(reason) = queue.wait_reason(self.caps)
            {
                queue.pause = Some((now + self.wait_max, reason));
                continue;
            }
            let run = queue.walk_from(queue.run[0], self.caps);
            let granted = queue.run_quantum;
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
        self.next_order += 1;
        let queue = &mut self.queues[place];
        queue.waiting.push(Waiting {
            entry,
            quantum: 0,
            eligible: now,
            order: self.next_order,
            waited_shift: false,
            waited_better: false,
        });
        queue.waiting.sort_by_key(|waiting| (waiting.entry.offset, waiting.entry.seq));
        queue.form(self.caps);
    }

    fn choose(&mut self, now: Time, draining: bool) -> Choice {
        if self.queues.iter().all(|queue| queue.waiting.is_empty()) {
            return Choice::Idle;
        }
        self.go_on(now, draining).unwrap_or_else(|| self.pick(now, draining))
    }

    fn completed(&mut self, now: Time) {
        if self.one_at_a_time {
            for turn in &mut self.turns {
                turn.deadline = now + self.contiguous_wait;
            }
        }
    }

    fn take(&mut self) -> Vec<Entry> {
        let taken = self.queues.iter().flat_map(Queue::entries).collect();
        self.queues.clear();
        self.turns.clear();
        self.current = None;
        taken
    }

    fn depth_max(&self) -> u32 {
        if self.one_at_a_time { 1 } else { u32::MAX }
    }
}
