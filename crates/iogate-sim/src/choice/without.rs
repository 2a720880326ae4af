//! What is said of a recording without one of its applications, against mixes that are carried out without that one.

use iogate_core::auto::without::{Counterfactual, Doubt, Gain, Known, Recording};
use iogate_core::blame::{Account, Accounting, window};
use iogate_core::recording::Event;
use iogate_core::sched::Prices;
use iogate_core::{AppId, Span, Time};

use super::gains::{Pair, blamed};
use super::mix::{Mix, fifo};
use super::run::{Ran, run, run_recorded};

/// What is known of the storage, beside what was recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// The profile that a measurement gives.
    Profile,
    /// All of it.
    Device,
}

/// What a mix was looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All of it, from the beginning to the end.
    Whole,
    /// Of one of which nobody comes to an end, from 2 s on 5 s, or as long as it takes for as many requests as may be.
    Window,
}

/// Most requests of a mix of which nobody comes to an end.
const REQUESTS_MAX: u64 = 200_000;
/// From when until when a window is.
const WINDOW: (Time, Time) = (Time::from_nanos(2_000_000_000), Time::from_nanos(7_000_000_000));

/// When one without an application ends, whatever has become of the others.
const LONGEST: Time = Time::from_nanos(10_000_000_000);

/// What was said of a pair, and what was so.
#[derive(Clone, Debug)]
pub struct Said {
    /// What was so, and what the accounts say.
    pub pair: Pair,
    /// What the application gains, in seconds; or why that is not said.
    pub gain: Result<f64, Doubt>,
}

impl Said {
    /// Whether what was said is so, as [`Pair::agrees`] has it.
    pub fn is_right(&self) -> bool {
        self.gain.is_ok_and(|gain| Pair { blamed: gain, ..self.pair }.agrees())
    }
}

/// All pairs of a mix with `fifo`, and what is said of them for each of what may be known.
///
/// # Panics
/// If no gate is like that of a mix.
pub fn said(mix: &Mix, look: Look, besides: &[Beside]) -> Vec<Vec<Said>> {
    let mix = &match look {
        Look::Whole => mix.clone(),
        Look::Window => mix.endless_until(WINDOW.1),
    };
    let seen = Seen::of(mix, look);
    let Ok(recording) = Recording::new(&seen.events, seen.end) else {
        return besides.iter().map(|_| Vec::new()).collect();
    };
    let without: Vec<Ran> = (1..=mix.apps())
        .map(|by| {
            let without = match look {
                Look::Whole => mix.without(by),
                // What becomes slower is waited for.
                Look::Window => mix.endless_until(LONGEST).without(by),
            };
            run(&without, &fifo(), None, 2 * REQUESTS_MAX)
        })
        .collect();
    let (profile, pricing) = (mix.storage.profile(), mix.storage.pricing());
    let gate = mix.config(&fifo());
    let each = |beside: &Beside| {
        let known = match beside {
            Beside::Nothing => Known::Recorded,
            Beside::Profile => Known::Profile(&profile),
            Beside::Device => Known::Device(&*pricing),
        };
        let counterfactual = Counterfactual::new(&recording, &gate, known).expect("a mix has a gate");
        let mut all = Vec::new();
        for (by, ran) in (1..).zip(&without) {
            for (app, gain) in counterfactual.without(AppId(by)).expect("a mix has a gate") {
                let Some((took, less)) = seen.took(app, ran) else { continue };
                let blamed = blamed(&seen.accounts, app.0, by);
                let pair = Pair { app: app.0, by, took, gain: took - less, blamed };
                let part = |gain: Gain| gain.without.as_secs_f64() / gain.took.as_secs_f64();
                all.push(Said { pair, gain: gain.map(|gain| took * (1.0 - part(gain))) });
            }
        }
        all
    };
    besides.iter().map(each).collect()
}

/// What was seen of a mix.
struct Seen {
    events: Vec<Event>,
    /// When it was over, if it was.
    end: Option<Time>,
    accounts: Vec<Account>,
    completions: Vec<Vec<u64>>,
    /// Of each application: how many of its requests had completed as the window began and as it ended.
    numbers: Vec<(usize, usize)>,
}

impl Seen {
    fn of(mix: &Mix, look: Look) -> Seen {
        let (mut is_on, mut before) = (false, None);
        let (most, from) = match look {
            Look::Whole => (u64::MAX, Time::ZERO),
            Look::Window => (REQUESTS_MAX, WINDOW.0),
        };
        // Where the most requests come sooner, the window does.
        let from = match look {
            Look::Whole => from,
            Look::Window => {
                let end = last(&run_recorded(mix, &fifo(), most, |_, _, _| {}).events);
                from.min(Time::from_nanos(end.as_nanos() / 7 * 2))
            }
        };
        let prices = Prices::default();
        let Ran { events, accounts, completions, .. } = run_recorded(mix, &fifo(), most, |now, gate, _| {
            if !std::mem::replace(&mut is_on, true) {
                gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &prices)));
            }
            if now >= from && before.is_none() {
                before = gate.accounts(now);
            }
        });
        let end = last(&events).min(if look == Look::Window { WINDOW.1 } else { Time::MAX });
        let numbers = completions.iter().map(|times| {
            let until = |time: Time| times.partition_point(|at| *at <= time.as_nanos());
            if look == Look::Whole { (0, times.len()) } else { (until(from), until(end)) }
        });
        let numbers = numbers.collect();
        let within = |event: &Event| match event {
            Event::Arrived { time, .. } | Event::Completed { time, .. } => *time >= from && *time <= end,
            Event::Lost { .. } => true,
        };
        Seen {
            events: events.into_iter().filter(within).collect(),
            end: (look == Look::Whole).then_some(end + Span::from_secs(10)),
            accounts: window(&before.unwrap_or_default(), &accounts),
            completions,
            numbers,
        }
    }

    /// How long an application took for what it did in the window, here and in `other`, in seconds. `None`: it did nothing, or did not get
    /// so far.
    fn took(&self, app: AppId, other: &Ran) -> Option<(f64, f64)> {
        let app = app.0 as usize - 1;
        let (from, to) = self.numbers[app];
        let took = |times: &[u64]| {
            let begin = if from == 0 { 0 } else { *times.get(from - 1)? };
            Some((*times.get(to.checked_sub(1)?)? - begin) as f64 / 1e9)
        };
        Some((took(&self.completions[app])?, took(&other.completions[app])?)).filter(|_| to > from)
    }
}

fn last(events: &[Event]) -> Time {
    let time = |event: &Event| match event {
        Event::Arrived { time, .. } | Event::Completed { time, .. } => *time,
        Event::Lost { .. } => Time::ZERO,
    };
    events.iter().map(time).max().unwrap_or_default()
}
