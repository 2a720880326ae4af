//! How far runs are, and how long the rest will take: a bar on a terminal, elsewhere a line each minute.

use std::io::IsTerminal;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iogate_sim::choice::evaluate::in_parallel;

use crate::output::say;

const LINES_EVERY: Duration = Duration::from_secs(60);

/// How many runs at once: as many as were asked for, else as many as there are processors.
pub(crate) fn threads(asked: Option<NonZero<usize>>) -> NonZero<usize> {
    asked.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN))
}

/// Does something for all numbers below `count`, so many at once, and says how far it is. The results are in their order.
pub(crate) fn each<T: Send>(
    what: &str,
    count: usize,
    asked: Option<NonZero<usize>>,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let progress = Progress::new(count as u64);
    progress.begin(what);
    in_parallel(count, threads(asked).get(), work, |_| progress.done())
}

/// Progress of a known number of runs; told from any thread.
pub(crate) struct Progress {
    bar: ProgressBar,
    terminal: bool,
    runs: u64,
    state: Mutex<State>,
}

struct State {
    begin: Instant,
    said: Instant,
    what: String,
    /// Runs that are done, and of these those that were there already.
    done: u64,
    kept: u64,
}

impl Progress {
    pub(crate) fn new(runs: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = match terminal {
            true => ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr_with_hz(10)),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{msg}[{bar:40}] {pos} of {len} runs  {elapsed}{prefix}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let now = Instant::now();
        let state = State { begin: now, said: now, what: String::new(), done: 0, kept: 0 };
        Progress { bar: bar.with_style(style), terminal, runs, state: Mutex::new(state) }
    }

    /// Runs of this come next.
    pub(crate) fn begin(&self, what: &str) {
        self.bar.set_message(format!("{what} "));
        self.state.lock().unwrap_or_else(PoisonError::into_inner).what = format!("{what}: ");
    }

    /// So many runs were there already.
    pub(crate) fn kept(&self, runs: u64) {
        self.bar.inc(runs);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += runs;
        state.kept += runs;
    }

    /// One more run is done.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += 1;
        let elapsed = state.begin.elapsed();
        let rest = remaining(elapsed, state.done - state.kept, self.runs.saturating_sub(state.done));
        if self.terminal {
            self.bar.set_prefix(format!(", about {} to go", shown(rest)));
            self.bar.inc(1);
        } else if state.said.elapsed() >= LINES_EVERY {
            state.said = Instant::now();
            let (what, done) = (&state.what, state.done);
            let (elapsed, rest) = (shown(elapsed), shown(rest));
            say(format_args!("{what}{done} of {} runs in {elapsed}, about {rest} to go", self.runs));
        }
    }

    /// Says something that stays.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| say(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How long the rest takes if its runs take as long as those that were done meanwhile.
fn remaining(elapsed: Duration, done: u64, rest: u64) -> Duration {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done.max(1) as f64 * rest as f64)
        .unwrap_or(Duration::MAX)
}

/// As in `0:07`, `12:30`, `3:00:09`.
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_already_does_not_count_as_fast() {
        let minute = Duration::from_secs(60);
        assert_eq!(remaining(minute, 10, 30), minute * 3);
        assert_eq!(remaining(minute, 0, 0), Duration::ZERO);
        assert_eq!(remaining(Duration::MAX, 1, u64::MAX), Duration::MAX);
        let times = [7, 750, 3 * 3600 + 9].map(|seconds| shown(Duration::from_secs(seconds)));
        assert_eq!(times, ["0:07", "12:30", "3:00:09"]);
    }
}
