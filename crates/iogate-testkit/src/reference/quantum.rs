//! aioli and mlf: quanta that grow while requests wait, turns that continue, waits for runs that may grow.
//! (The rules: the table at the head of [`super`].)

use iogate_core::sched::{Prices, param};
use iogate_core::{FileId, Op, SchedulerConfig, SchedulerKind, Span, Time, WaitReason};

use super::priced::Priced;
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
    priced: Option<Priced>,
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
            quantum_base: config.value(&param::QUANTUM_BASE),
            contiguous_wait: config.span(&param::CONTIGUOUS_WAIT),
            wait_max: config.span(&param::WAIT_MAX),
            age_max_ns: config.value(&param::AGE_MAX),
            queues: Vec::new(),
            turns: Vec::new(),
            current: None,
            next_ticket: 0,
            next_order: 0,
            priced: (config.value(&param::WAITS) == param::Waits::Priced as u64).then(Priced::default),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Until when a turn stays open whose dispatch begins now.
    fn deadline(&self, now: Time) -> Time {
        if self.priced.is_some() { Time::MAX } else { now + self.contiguous_wait }
    }

    /// Takes a run out of a queue and notes it in its history; returns whether it began where the last ended.
    fn serve(&mut self, queue: usize, run: &[Entry]) -> bool {
        if let Some(priced) = &mut self.priced {
            let end = run[run.len() - 1].end();
            let follows = self.queues[queue].waiting.iter().any(|waiting| waiting.entry.offset == end);
            priced.dispatched(queue, end, run[0].app, follows);
        }
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
        let deadline = self.deadline(now);
        self.current = Some(queue);
        self.turns.push(Turn {
            queue,
            granted,
            served,
            left: granted.saturating_sub(served),
            end: run[run.len() - 1].end(),
            sequence,
            deadline,
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
        let is_long = self.turns[turn].served >= self.quantum_base << FACTOR_LOG2_MAX;
        if run.is_empty() || is_long && self.aged_queue(now).is_some() {
            self.end_turn(turn);
            return None;
        }
        let sequence = self.serve(queue, &run);
        self.current = Some(queue);
        let deadline = self.deadline(now);
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
            let Turn { queue, end, sequence, deadline, .. } = self.turns[turn];
            let op = self.queues[queue].op;
            let until = match &self.priced {
                None => Some(deadline).filter(|_| sequence && deadline > now),
                Some(priced) if self.one_at_a_time => {
                    priced.wait(now, queue, op, end, self.ahead()).map(|(until, _)| until)
                }
                Some(_) => Some(deadline).filter(|_| deadline > now),
            };
            match until.filter(|_| !draining) {
                None => self.end_turn(turn),
                Some(until) if self.one_at_a_time => {
                    return Some(Choice::Wait(until, WaitReason::Contiguous));
                }
                Some(_) => {}
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

    /// Queues that have something.
    fn ahead(&self) -> u32 {
        self.queues.iter().filter(|queue| !queue.waiting.is_empty()).count() as u32
    }

    /// Keeps each free slot for a continuation that is worth it, if there are that many.
    fn keep_slots(&mut self, now: Time) -> Option<Choice> {
        let priced = self.priced.as_ref()?;
        let mut waits = Vec::new();
        for queue in priced.recent() {
            if let Some(turn) = self.turns.iter().position(|turn| turn.queue == queue)
                && let Some((until, gain)) =
                    priced.wait(now, queue, self.queues[queue].op, self.turns[turn].end, self.ahead())
            {
                waits.push((gain, until, turn));
            }
        }
        let free = (priced.depth - priced.in_service) as usize;
        if waits.len() < free {
            return None;
        }
        waits.sort_by_key(|(gain, ..)| std::cmp::Reverse(*gain));
        waits.truncate(free);
        for &(_, until, turn) in &waits {
            self.turns[turn].deadline = self.turns[turn].deadline.max(until);
        }
        let until = waits.iter().map(|(_, until, _)| *until).min()?;
        Some(Choice::Wait(until, WaitReason::Contiguous))
    }

    /// Until when a queue whose first run has a reason to wait does so.
    fn hold(&mut self, now: Time, queue: usize, others: bool) -> Option<Time> {
        let Some(priced) = &mut self.priced else { return Some(now + self.wait_max) };
        let this = &mut self.queues[queue];
        this.waiting[0].waited_shift = true;
        this.waiting[0].waited_better = true;
        let run = this.walk_from(this.run[0], self.caps);
        let from = this.last.expect("it had a dispatch").end;
        priced.look(now, queue, from, run[0].offset, run[run.len() - 1].end());
        let loss = if others { 0 } else { priced.prices.idle_loss(priced.in_service) };
        priced.hold(now, queue, this.op, loss)
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
        if !self.one_at_a_time
            && !draining
            && let Some(choice) = self.keep_slots(now)
        {
            return choice;
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
                let Some(priced) = &self.priced else { return Choice::Wait(until, reason) };
                let first = self.queues.iter().position(|queue| queue.pause == Some((until, reason)));
                let first = first.expect("it waits");
                let loss = priced.prices.idle_loss(priced.in_service);
                if let Some(again) = priced.hold(now, first, self.queues[first].op, loss) {
                    return Choice::Wait(until.min(again), reason);
                }
                self.queues[first].pause = None;
                continue;
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
            let others = (0..self.queues.len()).any(|queue| queue != chosen && busy(&queue) && free(&queue));
            let waits = (self.wait_max > Span::ZERO || self.priced.is_some()) && !draining;
            if waits
                && let Some(reason) = self.queues[chosen].wait_reason(self.caps)
                && let Some(until) = self.hold(now, chosen, others)
            {
                self.queues[chosen].pause = Some((until, reason));
                continue;
            }
            let queue = &mut self.queues[chosen];
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
        if let Some(priced) = &mut self.priced {
            priced.came(now, place, entry.offset);
        }
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

    fn know_device(&mut self, prices: &Prices, in_service: u32, depth: u32) {
        if let Some(priced) = &mut self.priced {
            (priced.prices, priced.in_service, priced.depth) = (*prices, in_service, depth);
        }
    }

    fn completed(&mut self, now: Time, run: &[Entry]) {
        let (file, op, end) = (run[0].file, run[0].op, run[run.len() - 1].end());
        if let Some(priced) = &mut self.priced {
            let queue = self.queues.iter().position(|queue| queue.file == file && queue.op == op);
            let Some(queue) = queue else { return };
            priced.completed(now, queue, end);
            let saving = priced.prices.saving(op, 0);
            let open =
                |turn: &&mut Turn| turn.queue == queue && turn.end == end && turn.deadline == Time::MAX;
            if !self.one_at_a_time
                && let Some(turn) = self.turns.iter_mut().find(open)
            {
                turn.deadline = now + saving + saving;
            }
        } else if self.one_at_a_time {
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
