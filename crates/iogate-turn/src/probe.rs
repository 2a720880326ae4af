//! Probing: how fast a file system is just now, and waiting while it is slower than when it is quiet. When to probe and how long to
//! wait is decided in [`iogate_core::coord::backoff`]; this writes, times and sleeps.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iogate_core::coord::backoff::{self, Backoff, BackoffConfig};
use iogate_core::{Span, Time};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use iogate_core::coord::backoff::Verdict;

use crate::calibration::throughput;

/// What the names of files begin with that are there for a moment, where a file cannot do without one.
const NAME: &str = ".iogate-probe-";
/// Bytes of one write.
const PIECE_BYTES: usize = 1 << 20;
/// How often who waits is asked whether to wait on.
const TICK: Duration = Duration::from_secs(1);

/// Why there was no probe, or no more of them.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The directory cannot be written to.
    #[error("{} cannot be probed: {source}", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A probe that does not fit.
    #[error(
        "{} cannot be probed: probes of {bytes} bytes take that much room for a moment, and {free} bytes are free there",
        directory.display()
    )]
    NoRoom {
        /// Which.
        directory: PathBuf,
        /// Of a probe.
        bytes: u64,
        /// On the file system.
        free: u64,
    },
    /// A place without a directory.
    #[error("{place} cannot be probed: expected a directory in it, found only its name")]
    NoDirectory {
        /// Its name.
        place: String,
    },
    /// Nothing to compare with.
    #[error(
        "{place} is not calibrated: run `iogate probe --calibrate DIR` there when nobody uses it (looked in {})",
        shown(directories)
    )]
    NotCalibrated {
        /// The place.
        place: String,
        /// Where its file was looked for.
        directories: Vec<PathBuf>,
    },
    /// The file of a calibration is none.
    #[error("the calibration {} cannot be used: {why}", path.display())]
    Calibration {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The time is over.
    #[error("not quiet in time")]
    TimedOut,
    /// Whoever watched did not want to wait on.
    #[error("the wait was interrupted")]
    Interrupted,
}

impl ProbeError {
    /// The errno for it.
    pub fn errno(&self) -> i32 {
        match self {
            ProbeError::Directory { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            ProbeError::NoRoom { .. } => libc::ENOSPC,
            ProbeError::NoDirectory { .. } => libc::EINVAL,
            ProbeError::NotCalibrated { .. } => libc::ENODATA,
            ProbeError::Calibration { .. } => libc::EBADMSG,
            ProbeError::TimedOut => libc::ETIMEDOUT,
            ProbeError::Interrupted => libc::EINTR,
        }
    }
}

fn shown(directories: &[PathBuf]) -> String {
    directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// How a wait went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Times that it was looked whether the storage is quiet.
    pub attempts: u32,
    /// Why it is over.
    pub verdict: Verdict,
    /// What was measured, in order: each probe's attempt, from 1 on, and its throughput in bytes per second, that of the slowest
    /// directory.
    pub probes: Vec<(u32, u64)>,
    /// When each attempt began and ended, since the wait began.
    pub spans: Vec<(Duration, Duration)>,
    /// How long it took.
    pub waited: Duration,
}

/// What to do after a piece has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the next piece, and say how long it took.
    Write,
    /// Write nothing for so long; then the next piece.
    Sleep(Duration),
    /// Write on: there is nothing to say any more.
    Proceed(Verdict),
}

/// A wait whose probes are the first pieces of the output itself: nothing is written for the sake of measuring.
#[derive(Debug)]
pub struct Probe {
    backoff: Backoff,
    probe_bytes: u64,
    since: Instant,
    /// Pieces that are not a whole probe yet.
    bytes: u64,
    elapsed: Duration,
    verdict: Option<Verdict>,
}

impl Probe {
    /// Begins. `config` is that of a calibration ([`crate::Calibration::apply`]).
    pub fn begin(config: &BackoffConfig) -> Probe {
        let probe_bytes = config.probe_bytes.max(1);
        // What comes first in a file primes by itself.
        let config = BackoffConfig { prime_bytes: 0, pause: Span::ZERO, ..config.clone() };
        Probe {
            backoff: Backoff::new(config, seed()),
            probe_bytes,
            since: Instant::now(),
            bytes: 0,
            elapsed: Duration::ZERO,
            verdict: None,
        }
    }

    /// A piece has been written and flushed in `elapsed`. Pieces count together until they are as long as the probes of the
    /// calibration.
    pub fn piece_written(&mut self, bytes: u64, elapsed: Duration) -> Step {
        if let Some(verdict) = self.verdict {
            return Step::Proceed(verdict);
        }
        self.bytes += bytes;
        self.elapsed += elapsed;
        if self.bytes < self.probe_bytes {
            return Step::Write;
        }
        let now = time_since(self.since);
        self.backoff.probed(now, std::mem::take(&mut self.bytes), std::mem::take(&mut self.elapsed).into());
        match self.backoff.next(now) {
            backoff::Step::Probe { .. } => Step::Write,
            backoff::Step::Sleep(until) => Step::Sleep(until.since(now).into()),
            backoff::Step::Proceed(verdict) => {
                self.verdict = Some(verdict);
                Step::Proceed(verdict)
            }
        }
    }

    /// Times that it was looked whether the storage is quiet.
    pub fn attempts(&self) -> u32 {
        self.backoff.attempts()
    }
}

/// Probes the file systems of some directories, each of which must be quiet, and backs off until they are, or it has tried often
/// enough. `watch` is called at least once a second and may end the wait.
///
/// # Errors
/// If a directory cannot be written to, the deadline is over, or `watch` ends the wait.
pub fn wait_until_quiet(
    directories: &[&Path],
    config: &BackoffConfig,
    deadline: Option<Instant>,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Report, ProbeError> {
    let since = Instant::now();
    let mut backoff = Backoff::new(config.clone(), seed());
    let (mut probes, mut spans) = (Vec::new(), Vec::<(Duration, Duration)>::new());
    loop {
        match backoff.next(time_since(since)) {
            backoff::Step::Probe { prime, bytes } => {
                if spans.len() == backoff.attempts() as usize {
                    spans.push((since.elapsed(), Duration::ZERO));
                }
                let mut slowest = Duration::ZERO;
                for directory in directories {
                    slowest = slowest.max(measure(directory, prime, bytes)?);
                }
                probes.push((backoff.attempts() + 1, throughput(bytes, slowest)));
                backoff.probed(time_since(since), bytes, slowest.into());
                if let Some(last) = spans.last_mut() {
                    last.1 = since.elapsed();
                }
            }
            backoff::Step::Sleep(until) => {
                let left = Duration::from(until.since(time_since(since)));
                let left_of_all = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left_of_all.is_some_and(|all| all < left) {
                    return Err(ProbeError::TimedOut);
                }
                std::thread::sleep(left.min(TICK));
            }
            backoff::Step::Proceed(verdict) => {
                let (attempts, waited) = (backoff.attempts(), since.elapsed());
                return Ok(Report { attempts, verdict, probes, spans, waited });
            }
        }
        if watch().is_break() {
            return Err(ProbeError::Interrupted);
        }
    }
}

/// Writes a file of dummy data in a directory: `prime` bytes, then so many more, whose time is the result, flushes included. Nothing is
/// left of it, however this ends: the file has no name when its data is written.
///
/// # Errors
/// If the directory cannot be written to, or is full.
pub fn measure(directory: &Path, prime: u64, bytes: u64) -> Result<Duration, ProbeError> {
    let timed = || -> io::Result<Duration> {
        let file = nameless(directory)?;
        let piece = dummy();
        fill(&file, &piece, 0, prime)?;
        if prime > 0 {
            file.sync_all()?;
        }
        let since = Instant::now();
        fill(&file, &piece, prime, bytes)?;
        file.sync_all()?;
        Ok(since.elapsed())
    };
    timed().map_err(|source| ProbeError::Directory { directory: directory.to_owned(), source })
}

fn fill(file: &File, piece: &[u8], from: u64, bytes: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes {
        let length = (bytes - written).min(piece.len() as u64) as usize;
        file.write_all_at(&piece[..length], from + written)?;
        written += length as u64;
    }
    Ok(())
}

/// A file that goes when it is closed.
fn nameless(directory: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
        // NFS and others cannot; old kernels take it for an attempt to write to the directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        opened => return Ok(opened?.into()),
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let node = rustix::system::uname();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}{}-{}-{number}", node.nodename().to_string_lossy(), std::process::id());
        let path = directory.join(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, mode) {
            // Of a process before this one that was killed in between.
            Err(Errno::EXIST) => {}
            opened => {
                let file = opened?.into();
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

/// Bytes that no file system can make less of, others each time.
fn dummy() -> Vec<u8> {
    let mut random = seed() | 1;
    let mut bytes = Vec::with_capacity(PIECE_BYTES);
    while bytes.len() < PIECE_BYTES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bytes.extend_from_slice(&random.to_le_bytes());
    }
    bytes
}

/// Not the same in two processes: they must not back off in step.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers, the time and the process do.
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) != Ok(bytes.len()) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        return since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
    }
    u64::from_le_bytes(bytes)
}

fn time_since(since: Instant) -> Time {
    Time::from_nanos(since.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So low that everything is quiet, or so high that nothing is.
    fn config(quiet: u64) -> BackoffConfig {
        BackoffConfig {
            probe_bytes: 64 << 10,
            prime_bytes: 4 << 10,
            pause: Span::from_millis(1),
            quiet,
            attempts_max: 3,
            sleep_unit: Span::from_millis(1),
            sleep_fixed: Span::from_millis(1),
            ..BackoffConfig::default()
        }
    }

    fn go_on() -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn a_quiet_file_system_is_probed_once_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let report = wait_until_quiet(&[folder.path()], &config(1), None, &mut go_on).unwrap();
        assert_eq!((report.attempts, report.verdict), (1, Verdict::Quiet));
        assert_eq!(report.probes.len(), 3, "the smallest of three counts");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_busy_one_is_probed_until_it_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let report = wait_until_quiet(&[folder.path()], &config(u64::MAX), None, &mut go_on).unwrap();
        assert_eq!((report.attempts, report.verdict), (3, Verdict::TriedEnough));
        let attempts: Vec<u32> = report.probes.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(attempts, [1, 2, 3], "one slow probe settles an attempt");
        assert_eq!(report.spans.len(), 3);
        assert!(report.spans.is_sorted() && report.spans.iter().all(|(began, ended)| began < ended));
    }

    #[test]
    fn a_wait_ends_when_its_time_or_its_owner_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let long = BackoffConfig { sleep_fixed: Span::from_secs(100), ..config(u64::MAX) };
        let wait = |deadline, watch: &mut dyn FnMut() -> ControlFlow<()>| {
            wait_until_quiet(&[folder.path()], &long, deadline, watch).unwrap_err()
        };
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(matches!(wait(Some(soon), &mut go_on), ProbeError::TimedOut));
        assert!(matches!(wait(None, &mut || ControlFlow::Break(())), ProbeError::Interrupted));
    }

    #[test]
    fn the_slowest_directory_counts() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = wait_until_quiet(&[folder.path(), &missing], &config(1), None, &mut go_on).unwrap_err();
        assert_eq!(error.errno(), libc::ENOENT);
        assert!(error.to_string().contains("missing"), "{error}");
    }

    #[test]
    fn pieces_of_the_output_are_probes() {
        let config = BackoffConfig { quiet: 1_000_000, probes: 1, attempts_max: 2, ..config(0) };
        let probe_bytes = config.probe_bytes;
        let mut probe = Probe::begin(&config);
        assert_eq!(
            probe.piece_written(probe_bytes / 2, Duration::from_millis(1)),
            Step::Write,
            "half a probe"
        );
        // 64 KiB in 1.001 s: slow.
        let Step::Sleep(_) = probe.piece_written(probe_bytes / 2, Duration::from_secs(1)) else {
            panic!("it does not back off")
        };
        std::thread::sleep(Duration::from_millis(5));
        let fast = Duration::from_micros(100);
        assert_eq!(probe.piece_written(probe_bytes, fast), Step::Proceed(Verdict::Quiet));
        assert_eq!(probe.piece_written(1, Duration::from_secs(9)), Step::Proceed(Verdict::Quiet), "for good");
        assert_eq!(probe.attempts(), 2);
    }
}
