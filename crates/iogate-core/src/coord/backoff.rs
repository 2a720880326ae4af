//! Backing off: an application measures how fast the storage is before it begins, and waits a while if that is slow.
//!
//! Source: A. B. Sreenivasa, *I/O Coordination for Co-Running Scientific Applications to Improve Parallel I/O Performance*, 2012,
//! section 3.1: algorithm 1, with priming and the min prober of section 3.1.2. Nothing here writes or sleeps: the driver does, and
//! says what it measured.

use crate::time::{Span, Time};

/// How to probe, and how to back off.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BackoffConfig {
    /// Bytes of one probe.
    pub probe_bytes: u64,
    /// Probes whose smallest throughput counts; at least 1.
    pub probes: u32,
    /// Between two probes of one attempt.
    pub pause: Span,
    /// Bytes written before each probe, and not timed; 0: none.
    pub prime_bytes: u64,
    /// The quiet throughput, in bytes per second, as calibrated; 0: not known, and any storage counts as quiet.
    pub quiet: u64,
    /// Thousandths of the quiet throughput from which on the storage counts as quiet.
    pub threshold: u32,
    /// Attempts after which the application begins whatever it measures.
    pub attempts_max: u32,
    /// The base of the growing range of random numbers.
    pub base: u32,
    /// The exponent after the first attempt.
    pub exponent_start: u32,
    /// What the random number multiplies.
    pub sleep_unit: Span,
    /// What each sleep has besides.
    pub sleep_fixed: Span,
}

impl Default for BackoffConfig {
    fn default() -> BackoffConfig {
        BackoffConfig {
            probe_bytes: 3 << 20,
            probes: 3,
            pause: Span::from_millis(100),
            prime_bytes: 256 << 10,
            quiet: 0,
            threshold: 850,
            attempts_max: 8,
            base: 2,
            exponent_start: 1,
            sleep_unit: Span::from_secs(1),
            sleep_fixed: Span::from_secs(1),
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write (and flush) `prime` bytes, then time how long `bytes` more take, flush included, and say so.
    Probe {
        /// Not timed.
        prime: u64,
        /// Timed.
        bytes: u64,
    },
    /// Ask again then.
    Sleep(Time),
    /// Begin.
    Proceed(Verdict),
}

/// Why an application begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The storage is quiet.
    Quiet,
    /// It has tried often enough.
    TriedEnough,
}

/// One wait for quiet storage.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// Of xorshift; never 0.
    random: u64,
    attempts: u32,
    /// Probes of this attempt so far, and the smallest throughput among them.
    probed: u32,
    slowest: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Probing,
    Sleeping(Time),
    Done(Verdict),
}

impl Backoff {
    /// A wait that begins with a probe. The same seed gives the same sleeps.
    pub fn new(config: BackoffConfig, seed: u64) -> Backoff {
        // A splitmix step: small seeds give unlike sequences.
        let mut random = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        random = (random ^ (random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Backoff {
            config,
            random: (random ^ (random >> 27)) | 1,
            attempts: 0,
            probed: 0,
            slowest: u64::MAX,
            state: State::Probing,
        }
    }

    /// What to do now.
    pub fn next(&mut self, now: Time) -> Step {
        if let State::Sleeping(until) = self.state {
            if now < until {
                return Step::Sleep(until);
            }
            self.state = State::Probing;
        }
        match self.state {
            State::Done(verdict) => Step::Proceed(verdict),
            _ => Step::Probe { prime: self.config.prime_bytes, bytes: self.config.probe_bytes },
        }
    }

    /// A probe of `bytes` took `elapsed`. With several targets, the driver reports the slowest. Says nothing once it has begun.
    pub fn probed(&mut self, now: Time, bytes: u64, elapsed: Span) {
        if let State::Done(_) = self.state {
            return;
        }
        let throughput = u128::from(bytes) * 1_000_000_000 / u128::from(elapsed.as_nanos().max(1));
        self.slowest = self.slowest.min(u64::try_from(throughput).unwrap_or(u64::MAX));
        self.probed += 1;
        let enough = u128::from(self.config.quiet) * u128::from(self.config.threshold) / 1000;
        // One slow probe settles it: the smallest counts.
        let is_slow = u128::from(self.slowest) < enough;
        if !is_slow && self.probed < self.config.probes.max(1) {
            self.state = State::Sleeping(now + self.config.pause);
            return;
        }
        self.attempts += 1;
        self.probed = 0;
        self.slowest = u64::MAX;
        self.state = if !is_slow {
            State::Done(Verdict::Quiet)
        } else if self.attempts >= self.config.attempts_max {
            State::Done(Verdict::TriedEnough)
        } else {
            State::Sleeping(now + self.sleep())
        };
    }

    /// Attempts so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    fn sleep(&mut self) -> Span {
        let exponent = self.config.exponent_start.saturating_add(self.attempts - 1);
        let range = u64::from(self.config.base).saturating_pow(exponent).max(1);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let factor = self.random % range;
        self.config.sleep_fixed + Span::from_nanos(self.config.sleep_unit.as_nanos().saturating_mul(factor))
    }
}
