//! Random mixes of applications on random storage. Those that anything is tuned on and those that tell how good it is have no seed and
//! no number in common, but for what is nothing: no time to think, one request at a time.

use iogate_core::{FileId, GateConfig, Layout, Op, SchedulerConfig, Span, Time};

use super::run::{Ran, run};
use super::storage::{Numbers, Storage, pick};
use crate::rng::Rng;

/// What mixes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// To improve on.
    Tuning,
    /// To tell how good it is.
    Testing,
}

/// A process, with its requests: so many of them, so many at a time, each after thinking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its application, from 1.
    pub app: u32,
    /// Requests at a time.
    pub outstanding: u32,
    /// All its requests.
    pub requests: u32,
    /// What it does, and until when; the last goes on to the end.
    pub stints: Vec<(Time, Stint)>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stint {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// Bytes of a request.
    pub bytes: u32,
    /// Bytes from one request to the next; 0: anywhere in 1 GiB.
    pub stride: u64,
    /// Where it begins.
    pub start: u64,
    /// From a completion to the next request, on the average.
    pub think: Span,
    /// Requests after which all processes of the application wait for each other; 0: never.
    pub round: u32,
}

/// Applications on storage, behind one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// What its processes draw from.
    pub seed: u64,
    /// What is behind the gate.
    pub storage: Storage,
    /// Dispatches at once.
    pub depth: u32,
    /// All processes.
    pub processes: Vec<Process>,
    /// When all processes end, whatever they have done.
    pub until: Time,
    /// How often all of it is carried out, one after the other, and how long nothing is in between.
    pub rounds: u32,
    /// See `rounds`.
    pub pause: Span,
    /// How many bytes each application says that it moves; nobody says anything if this is empty.
    pub said: Vec<u64>,
}

struct Ranges {
    storage: Numbers,
    bytes: &'static [u32],
    think_us: &'static [u64],
    outstanding: &'static [u32],
    clients: &'static [u32],
    depths: &'static [u32],
    rounds: &'static [u32],
    seconds: &'static [u64],
}

const TUNING: Ranges = Ranges {
    storage: Numbers {
        revolutions_per_minute: &[7_200, 15_000],
        megabytes_per_s: &[60, 150, 250],
        seek_us: &[4_000, 9_000],
        buffers_mib: &[0, 8, 64],
        members: &[2, 6],
        channels: &[4, 8],
        page_us: &[40, 80],
        cores: &[8, 24],
        dispatch_us: &[4, 8],
        hand_over_us: &[10, 35],
        unit_us: &[100, 1_000],
        speedups: &[1_000, 2_000, 12_000],
    },
    bytes: &[4_096, 65_536, 262_144, 1_048_576],
    think_us: &[0, 0, 100, 2_000, 20_000],
    outstanding: &[1, 1, 4],
    clients: &[2, 4, 8],
    depths: &[1, 4, 16],
    rounds: &[0, 0, 0, 10],
    seconds: &[10, 20, 40],
};

const TESTING: Ranges = Ranges {
    storage: Numbers {
        revolutions_per_minute: &[5_400, 10_000],
        megabytes_per_s: &[90, 120, 200],
        seek_us: &[3_000, 7_000, 12_000],
        buffers_mib: &[0, 2, 32],
        members: &[3, 4],
        channels: &[6, 16],
        page_us: &[25, 60],
        cores: &[4, 16],
        dispatch_us: &[3, 6],
        hand_over_us: &[5, 20],
        unit_us: &[50, 300, 2_500],
        speedups: &[1_500, 4_000, 8_000],
    },
    bytes: &[8_192, 32_768, 131_072, 524_288],
    think_us: &[0, 0, 40, 500, 6_000],
    outstanding: &[1, 1, 2, 8],
    clients: &[1, 3, 6, 12],
    depths: &[2, 8, 32],
    rounds: &[0, 0, 0, 16],
    seconds: &[12, 25, 36],
};

impl Set {
    fn ranges(self) -> &'static Ranges {
        match self {
            Set::Tuning => &TUNING,
            Set::Testing => &TESTING,
        }
    }

    /// The seed of its mix with this number.
    fn seed(self, number: u64) -> u64 {
        2 * number + u64::from(self == Set::Testing)
    }
}

/// Most requests of a mix: what is simulated many times must have an end.
const REQUESTS_MAX: u64 = 100_000;
/// Fewest requests of a process.
const REQUESTS_MIN: u32 = 16;

impl Mix {
    /// The mix with this number. With `fifo` it takes some tens of seconds, or as long as the most requests take.
    pub fn random(set: Set, number: u64) -> Mix {
        let (mix, seconds) = Mix::endless(set, number);
        mix.ending(seconds)
    }

    /// The same carried out so often, as jobs are that come again: each time when all have been away for so long.
    pub fn again(self, rounds: u32, pause: Span) -> Mix {
        Mix { rounds, pause, ..self }
    }

    /// The same with applications that say how many bytes they move: `says` makes that of the true number, and is told whose it is, from 0.
    pub fn saying(self, says: impl Fn(usize, u64) -> u64) -> Mix {
        let mut said = vec![0; self.apps() as usize];
        for process in &self.processes {
            said[process.app as usize - 1] +=
                u64::from(process.requests) * u64::from(process.stints[0].1.bytes);
        }
        let said = said.into_iter().enumerate().map(|(app, bytes)| says(app, bytes)).collect();
        Mix { said, ..self }
    }

    /// Other applications on the storage of the mix with this number, behind a gate of the same depth: what was there before it.
    pub fn random_before(set: Set, number: u64) -> Mix {
        let (storage, depth) = {
            let (mix, _) = Mix::endless(set, number);
            (mix.storage, mix.depth)
        };
        let (other, seconds) = Mix::endless(set, number + 2_000_000);
        Mix { storage, depth, ..other }.ending(seconds)
    }

    /// The same with so many requests as end in about so long, with `fifo`.
    fn ending(mut self, seconds: u64) -> Mix {
        let mix = &mut self;
        let mut rng = Rng::new(mix.seed, 2);
        mix.until = Time::ZERO + Span::from_secs(seconds);
        let ran = run(mix, &fifo(), None, REQUESTS_MAX);
        // Some applications are over long before the others.
        let shares: Vec<u32> = (0..4).map(|_| pick(&[100, 100, 50, 25], &mut rng)).collect();
        for (process, done) in mix.processes.iter_mut().zip(&ran.requests) {
            process.requests = (done * shares[process.app as usize - 1] / 100).max(REQUESTS_MIN);
        }
        // All of a round, or its end is waited for in vain.
        mix.level_rounds();
        mix.until = Time::MAX;
        self
    }

    /// The mix with this number, of processes that do something else from `change` on, and end at `until`.
    pub fn random_change(set: Set, number: u64, change: Time, until: Time) -> Mix {
        let (mut mix, _) = Mix::endless(set, number);
        let (other, _) = Mix::endless(set, number + 1_000_000);
        let afterwards: Vec<Stint> = other.processes.iter().map(|process| process.stints[0].1).collect();
        for (index, process) in mix.processes.iter_mut().enumerate() {
            // All of an application go over to the same, each in its part of it.
            let mut stint = afterwards[process.app as usize % afterwards.len()];
            stint.file = FileId(stint.file.0 + 10_000 + index as u64);
            stint.round = 0;
            process.stints[0].0 = change;
            process.stints[0].1.round = 0;
            process.stints.push((Time::MAX, stint));
        }
        mix.until = until;
        mix
    }

    fn endless(set: Set, number: u64) -> (Mix, u64) {
        let (of, seed) = (set.ranges(), set.seed(number));
        let mut rng = Rng::new(seed, 1);
        let storage = Storage::random(&of.storage, &mut rng);
        let depth = pick(of.depths, &mut rng);
        let mut processes = Vec::new();
        for app in 1..=1 + rng.below(4) as u32 {
            processes.extend(application(of, app, &mut rng));
        }
        let seconds = pick(of.seconds, &mut rng);
        let (until, rounds, pause) = (Time::MAX, 1, Span::ZERO);
        (Mix { seed, storage, depth, processes, until, rounds, pause, said: Vec::new() }, seconds)
    }

    fn level_rounds(&mut self) {
        for app in 1..=4 {
            let of_app = || self.processes.iter().filter(|process| process.app == app);
            let least = of_app().map(|process| process.requests).min().unwrap_or(0);
            for process in self.processes.iter_mut().filter(|process| process.app == app) {
                let round = process.stints[0].1.round;
                if let Some(rounds) = least.checked_div(round) {
                    process.requests = rounds.max(2) * round;
                }
            }
        }
    }

    /// A gate in front of it.
    pub fn config(&self, scheduler: &SchedulerConfig) -> GateConfig {
        GateConfig {
            scheduler: scheduler.clone(),
            queue_max: 65_536,
            depth: self.depth,
            layout: Layout::SINGLE,
        }
    }

    /// The same without one of its applications.
    pub fn without(&self, app: u32) -> Mix {
        let mut mix = self.clone();
        // It stays in its place, so that the others draw the same numbers.
        for process in mix.processes.iter_mut().filter(|process| process.app == app) {
            process.requests = 0;
        }
        mix
    }

    /// The same if no process came to an end before `until`.
    pub(super) fn endless_until(&self, until: Time) -> Mix {
        let mut mix = Mix { until, ..self.clone() };
        mix.processes.iter_mut().for_each(|process| process.requests = u32::MAX);
        mix
    }

    /// What each application has carried out.
    pub(super) fn completed(&self, ran: &Ran) -> Vec<u64> {
        let mut sums = vec![0; self.apps() as usize];
        for (process, done) in self.processes.iter().zip(&ran.requests) {
            sums[process.app as usize - 1] += u64::from(*done);
        }
        sums
    }

    /// Its applications' numbers.
    pub fn apps(&self) -> u32 {
        self.processes.iter().map(|process| process.app).max().unwrap_or(0)
    }
}

pub(super) fn fifo() -> SchedulerConfig {
    SchedulerConfig::new(iogate_core::SchedulerKind::Fifo)
}

fn application(of: &Ranges, app: u32, rng: &mut Rng) -> Vec<Process> {
    let count = pick(of.clients, rng);
    let is_shared = rng.below(2) == 0;
    let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
    let bytes = pick(of.bytes, rng);
    let pattern = rng.below(3);
    let think = Span::from_micros(pick(of.think_us, rng));
    let (outstanding, round) = match pick(of.rounds, rng) {
        0 => (pick(of.outstanding, rng), 0),
        round => (1, round),
    };
    let process = |rank: u32| {
        let (b, rank) = (u64::from(bytes), u64::from(rank));
        let (start, stride) = match pattern {
            0 => (rank << 30, b),
            1 => (rank * b, u64::from(count) * b),
            _ => (0, 0),
        };
        let file = FileId(u64::from(app) * 100 + if is_shared { 0 } else { rank });
        let stint = Stint { file, op, bytes, stride, start, think, round };
        Process { app, outstanding, requests: u32::MAX, stints: vec![(Time::MAX, stint)] }
    };
    (0..count).map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of a range that are something.
    fn numbers(of: &Ranges) -> Vec<(&'static str, Vec<u64>)> {
        let wide = |numbers: &[u32]| numbers.iter().map(|number| u64::from(*number)).collect::<Vec<_>>();
        let Numbers { revolutions_per_minute, megabytes_per_s, seek_us, buffers_mib, .. } = of.storage;
        let Numbers {
            members, channels, page_us, cores, dispatch_us, hand_over_us, unit_us, speedups, ..
        } = of.storage;
        vec![
            ("revolutions", revolutions_per_minute.to_vec()),
            ("rates", megabytes_per_s.to_vec()),
            ("seeks", seek_us.to_vec()),
            ("buffers", buffers_mib.to_vec()),
            ("members", members.to_vec()),
            ("channels", channels.to_vec()),
            ("pages", page_us.to_vec()),
            ("cores", cores.to_vec()),
            ("dispatches", dispatch_us.to_vec()),
            ("hand-overs", hand_over_us.to_vec()),
            ("units", unit_us.to_vec()),
            ("speedups", speedups.to_vec()),
            ("bytes", wide(of.bytes)),
            ("think times", of.think_us.to_vec()),
            ("outstanding", wide(of.outstanding)),
            ("clients", wide(of.clients)),
            ("depths", wide(of.depths)),
            ("rounds", wide(of.rounds)),
            ("seconds", of.seconds.to_vec()),
        ]
    }

    #[test]
    fn tuning_and_testing_have_no_number_and_no_seed_in_common() {
        for ((name, tuning), (_, testing)) in numbers(&TUNING).into_iter().zip(numbers(&TESTING)) {
            // Nothing to think of, no buffer, no barrier; one request at a time.
            let shared = |number: &&u64| **number != 0 && (name, **number) != ("outstanding", 1);
            for number in tuning.iter().filter(shared) {
                assert!(!testing.contains(number), "{name}: {number} is in both");
            }
        }
        let seeds = |set: Set| (0..2_000_000).map(move |number| set.seed(number) % 2).collect::<Vec<_>>();
        assert!(seeds(Set::Tuning).iter().all(|parity| *parity == 0));
        assert!(seeds(Set::Testing).iter().all(|parity| *parity == 1));
        for (one, other) in (0..200).flat_map(|one| (0..20).map(move |other| (one, other))) {
            let ((one, _), (other, _)) = (Mix::endless(Set::Tuning, one), Mix::endless(Set::Testing, other));
            assert_ne!(one.storage, other.storage);
            assert_ne!(one.depth, other.depth);
        }
    }
}
