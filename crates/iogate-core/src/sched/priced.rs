//! Waits that are priced (`waits=priced` of `aioli` and `mlf`): one waits where that is expected to save device time.
//!
//! 1. A *chance* begins with a completion in a queue (the stream) whose next piece has not arrived by then, and ends with the
//!    arrival of a request that begins where that dispatch ended; the time between is the stream's think time. It is counted
//!    whether one has waited or not. A chance counts as "never" when the longest think time has passed, when four later dispatches
//!    of the stream have theirs open, or when 256 chances have begun since.
//! 2. J is what the next piece saves if it goes next, after so many others as were dispatched since or are in service, against one
//!    that lets as many more go first as queues have something ([`Prices::saving_before`]). u is what an idle slot loses. With less
//!    than 8 chances a stream's think times are those of its application; if that has less, nobody waits.
//! 3. With t gone, the wait that is worth most is an edge of a bin up to t + 2 J ([`Think::best_wait`]). If it is worth more than
//!    nothing, the slot is kept until then. This is decided anew at each arrival and completion. Where several streams are worth
//!    it, each takes one free slot, those that are worth most first; if slots remain, others go ahead.
//! 4. Only what may go on is waited for: a stream whose turn has quantum left.
//! 5. A run that would wait for a better one, or for a shifted front (rule 6 of `quantum`), holds up its own queue only, at most J.
//!    Its think times (from the first look at the run until a request comes before it, behind the last dispatch, or at its end
//!    while it is not completed) are counted apart. u is 0 while other queues have runs; when only such queues are left, it is
//!    what an idle slot loses, and the one that would wait least is asked again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::prices::Prices;
use super::think::{BINS, Think, Wait, edge};
use crate::queue::{Pending, QueueId, Run};
use crate::request::AppId;
use crate::time::{Span, Time};

/// With fewer chances a stream's own think times are not believed.
const CHANCES_MIN: u32 = 8;
/// Open chances of a stream.
const OPEN_MAX: usize = 4;
/// Chances that have begun, and are looked at again when they have got too old.
const BEGUN_MAX: usize = 256;
/// Applications with think times of their own; those with equal remainders replace each other.
const APPS: usize = 64;
/// As many others may come between as prices tell of.
pub(super) const RECENT: usize = 16;
/// No offset of a request: nothing begins at the last byte's end.
const NOWHERE: u64 = u64::MAX;
/// What is later counts as never.
const THINK_MAX: Span = edge(BINS - 1);

/// Streams, and what is known of their think times.
pub(super) struct Priced {
    streams: Vec<Stream>,
    apps: Box<[App; APPS]>,
    /// Chances that have begun, oldest first: queue, end, completion.
    begun: VecDeque<(u32, u64, Time)>,
    /// The queues of the last dispatches, by their number.
    recent: [u32; RECENT],
    dispatches: u64,
}

#[derive(Clone, Copy, Default)]
struct App {
    id: AppId,
    next: Think,
    hold: Think,
}

#[derive(Clone, Copy)]
struct Chance {
    /// Where the next piece begins.
    end: u64,
    /// The completion; `Time::MAX`: still in service.
    since: Time,
}

const NO_CHANCE: Chance = Chance { end: NOWHERE, since: Time::MAX };

/// A run that was looked at, and what would make it a better one.
#[derive(Clone, Copy)]
struct Hold {
    /// Behind the last dispatch.
    from: u64,
    start: u64,
    end: u64,
    since: Time,
}

#[derive(Clone)]
struct Stream {
    /// Oldest first.
    chances: [Chance; OPEN_MAX],
    next: Think,
    hold: Option<Hold>,
    holds: Think,
    app: AppId,
    /// The number of its last dispatch.
    dispatch: u64,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream {
            chances: [NO_CHANCE; OPEN_MAX],
            next: Think::default(),
            hold: None,
            holds: Think::default(),
            app: AppId(0),
            dispatch: 0,
        }
    }
}

impl Default for Priced {
    fn default() -> Priced {
        Priced {
            streams: Vec::new(),
            apps: Box::new([App::default(); APPS]),
            begun: VecDeque::with_capacity(BEGUN_MAX),
            recent: [u32::MAX; RECENT],
            dispatches: 0,
        }
    }
}

impl Stream {
    /// Removes the chance at `end`.
    fn close(&mut self, end: u64) -> Option<Chance> {
        let at = self.chances.iter().position(|chance| chance.end == end && end != NOWHERE)?;
        let chance = self.chances[at];
        self.chances[at..].rotate_left(1);
        self.chances[OPEN_MAX - 1] = NO_CHANCE;
        Some(chance)
    }

    /// Adds a chance, in service; returns the one that it replaces.
    fn open(&mut self, end: u64) -> Option<Chance> {
        let oldest = if self.chances[OPEN_MAX - 1].end == NOWHERE { NOWHERE } else { self.chances[0].end };
        let replaced = self.close(end).or_else(|| self.close(oldest));
        if let Some(free) = self.chances.iter_mut().find(|chance| chance.end == NOWHERE) {
            *free = Chance { end, since: Time::MAX };
        }
        replaced
    }

    fn chance(&mut self, end: u64) -> Option<&mut Chance> {
        self.chances.iter_mut().find(|chance| chance.end == end && end != NOWHERE)
    }
}

impl Priced {
    /// A request has arrived in this queue.
    pub(super) fn came(&mut self, now: Time, queue: QueueId, offset: u64) {
        let Some(stream) = self.streams.get_mut(queue.index()) else { return };
        let chance = stream.close(offset).filter(|chance| chance.since != Time::MAX);
        let better = |hold: &mut Hold| (hold.from..hold.start).contains(&offset) || hold.end == offset;
        let hold = stream.hold.take_if(better);
        if let Some(chance) = chance {
            self.count(queue, Some(now.since(chance.since)));
        }
        if let Some(hold) = hold {
            self.count_hold(queue, Some(now.since(hold.since)));
        }
    }

    /// A dispatch has left this queue. `follows`: what continues it has arrived already.
    pub(super) fn dispatched(&mut self, queue: QueueId, end: u64, app: AppId, follows: bool) {
        if self.streams.len() <= queue.index() {
            self.streams.resize_with(queue.index() + 1, Stream::default);
        }
        self.dispatches += 1;
        self.recent[self.dispatches as usize % RECENT] = queue.0;
        let stream = &mut self.streams[queue.index()];
        (stream.app, stream.dispatch) = (app, self.dispatches);
        if !follows && stream.open(end).is_some_and(|replaced| replaced.since != Time::MAX) {
            self.count(queue, None);
        }
    }

    /// A dispatch of this queue has been carried out.
    pub(super) fn completed(&mut self, now: Time, queue: QueueId, end: u64) {
        let Some(stream) = self.streams.get_mut(queue.index()) else { return };
        if let Some(hold) = stream.hold.as_mut().filter(|hold| hold.end == end) {
            hold.end = NOWHERE;
        }
        let Some(chance) = stream.chance(end).filter(|chance| chance.since == Time::MAX) else { return };
        chance.since = now;
        while let Some(&(old, end, since)) = self.begun.front()
            && (self.begun.len() == BEGUN_MAX || now.since(since) >= THINK_MAX)
        {
            self.begun.pop_front();
            let stream = &mut self.streams[old as usize];
            if stream.chance(end).is_some_and(|chance| chance.since == since) {
                stream.close(end);
                self.count(QueueId(old), None);
            }
        }
        self.begun.push_back((queue.0, end, now));
    }

    /// Until when what continues this queue's last dispatch is worth a wait, while `ahead` queues have something, and what that is worth.
    pub(super) fn wait(
        &self,
        now: Time,
        queue: QueueId,
        end: u64,
        ahead: u32,
        pending: &Pending,
    ) -> Option<(Time, u64)> {
        let stream = self.streams.get(queue.index())?;
        let chance = stream.chances.iter().find(|chance| chance.end == end && chance.since != Time::MAX)?;
        let others = (self.dispatches - stream.dispatch).min(RECENT as u64) as u32;
        let saving = pending.prices.saving_before(queue.op(), others.max(pending.in_service), ahead);
        if saving == Span::ZERO {
            return None;
        }
        let gone = now.since(chance.since);
        let loss = pending.prices.idle_loss(pending.in_service);
        let think = self.known(stream, &stream.next, |app| &app.next)?;
        let Wait { until, gain } = think.best_wait(gone, saving, loss, gone + saving + saving)?;
        Some((chance.since + until, gain))
    }

    /// The streams that are worth the free slots, if there is one for each of these; `turn` says where an open turn goes on.
    pub(super) fn waits(
        &self,
        now: Time,
        ahead: u32,
        pending: &Pending,
        turn: impl Fn(QueueId) -> Option<u64>,
    ) -> Waits {
        let mut waits = Waits { streams: [(0, Time::MAX, QueueId(0)); RECENT], len: 0 };
        for others in 0..u64::from(pending.prices.reach()).min(self.dispatches) {
            let number = self.dispatches - others;
            let queue = QueueId(self.recent[number as usize % RECENT]);
            let latest = self.streams.get(queue.index()).is_some_and(|stream| stream.dispatch == number);
            if let Some(end) = turn(queue).filter(|_| latest)
                && let Some((until, gain)) = self.wait(now, queue, end, ahead, pending)
            {
                waits.streams[waits.len] = (gain, until, queue);
                waits.len += 1;
            }
        }
        let free = pending.depth.saturating_sub(pending.in_service) as usize;
        if waits.len < free {
            waits.len = 0;
        } else {
            waits.streams[..waits.len].sort_by_key(|(gain, ..)| core::cmp::Reverse(*gain));
            waits.len = free;
        }
        waits
    }

    /// The first run of a queue has a reason to wait: notes since when.
    pub(super) fn look(&mut self, now: Time, queue: QueueId, from: u64, run: &Run) {
        let Some(stream) = self.streams.get_mut(queue.index()) else { return };
        let same = |hold: &Hold| hold.from == from && hold.start == run.offset;
        if stream.hold.as_ref().is_some_and(same) {
            return;
        }
        let hold = Hold { from, start: run.offset, end: run.end(), since: now };
        if stream.hold.replace(hold).is_some() {
            self.count_hold(queue, None);
        }
    }

    /// Until when the run that was looked at last is worth a wait of its queue, while `loss` idles.
    pub(super) fn hold(&self, now: Time, queue: QueueId, loss: u32, prices: &Prices) -> Option<Time> {
        let stream = self.streams.get(queue.index())?;
        let (hold, saving) = (stream.hold?, prices.saving(queue.op(), 0));
        let think = self.known(stream, &stream.holds, |app| &app.hold)?;
        let wait = think.best_wait(now.since(hold.since), saving, loss, saving)?;
        Some(hold.since + wait.until)
    }

    /// This queue is now another file's.
    pub(super) fn forget(&mut self, queue: QueueId) {
        if let Some(stream) = self.streams.get_mut(queue.index()) {
            *stream = Stream::default();
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.streams.capacity() * size_of::<Stream>()
            + size_of::<[App; APPS]>()
            + self.begun.capacity() * size_of::<(u32, u64, Time)>()
    }

    /// The think times of a stream, or of its application, if there are enough.
    fn known<'a>(
        &'a self,
        stream: &Stream,
        own: &'a Think,
        of: impl Fn(&App) -> &Think,
    ) -> Option<&'a Think> {
        if own.chances() >= CHANCES_MIN {
            return Some(own);
        }
        let app = &self.apps[stream.app.0 as usize % APPS];
        Some(of(app)).filter(|think| app.id == stream.app && think.chances() >= CHANCES_MIN)
    }

    fn count(&mut self, queue: QueueId, think: Option<Span>) {
        let stream = &mut self.streams[queue.index()];
        stream.next.record(think);
        let app = stream.app;
        self.app(app).next.record(think);
    }

    fn count_hold(&mut self, queue: QueueId, think: Option<Span>) {
        let stream = &mut self.streams[queue.index()];
        stream.holds.record(think);
        let app = stream.app;
        self.app(app).hold.record(think);
    }

    fn app(&mut self, id: AppId) -> &mut App {
        let app = &mut self.apps[id.0 as usize % APPS];
        if app.id != id {
            *app = App { id, ..App::default() };
        }
        app
    }
}

/// Streams that each keep a free slot.
pub(super) struct Waits {
    streams: [(u64, Time, QueueId); RECENT],
    len: usize,
}

impl Waits {
    /// Until when, by queue.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Time, QueueId)> + '_ {
        self.streams[..self.len].iter().map(|&(_, until, queue)| (until, queue))
    }
}
