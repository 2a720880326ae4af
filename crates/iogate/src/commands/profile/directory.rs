//! Measures a directory: real reads and writes of a nameless file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use indicatif::ProgressBar;
use iogate_core::profile::{Access, Fit, Number, Places, Step, steps};
use iogate_core::units::{KIB, MIB};
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Time,
};
use rustix::fs::OFlags;

use super::Measured;
use crate::attempt::{Attempt, Doing};
use crate::failure::Failure;
use crate::storage;

/// Most bytes of the file; no more than a quarter of what is free.
const REGION: u64 = 4 << 30;
/// Fewest bytes that it takes.
const REGION_MIN: u64 = 64 * MIB;
/// What buffers are aligned to, as direct I/O asks for.
const ALIGNMENT: usize = 4_096;
/// Beyond this, in thousandths, two measurements of the same show that somebody else was at work.
const QUIET: u64 = 200;

/// The file, and how it is read and written.
struct Storage {
    file: File,
    region: u64,
}

/// Measures what the storage of `directory` charges, for about `budget`.
pub(super) fn profile(directory: &Path, budget: Duration, bar: &ProgressBar) -> Result<Measured, Failure> {
    let cannot = |error: io::Error| {
        let full = error.kind() == io::ErrorKind::StorageFull;
        let said = format_args!("{} cannot be profiled", directory.display());
        let failure = Failure::failed(anyhow!(error).context(Attempt::new(Doing::Enter, said)));
        if full {
            failure.hint("it takes a file of 64 MiB to 4 GiB, which has no name and goes away at the end")
        } else {
            failure
        }
    };
    let mut notes = Vec::new();
    let mut storage = open(directory, &mut notes).map_err(cannot)?;
    let steps = steps();
    let share = budget * 4 / 5 / steps.len() as u32;
    let fill = fill(&mut storage, budget / 5, bar).map_err(cannot)?;
    let (mut fit, mut places) = (Fit::default(), Places::new(storage.region, 1));
    fit.fill(&fill);
    let again = Step {
        op: Op::Read,
        access: Access::Random,
        bytes: 16 * KIB,
        in_flight: 1,
        dispatches: 264,
        warm_up: 24,
    };
    let mut first = Vec::new();
    for step in steps.iter().filter(|step| step.access != Access::Fill).chain([&again]) {
        if step.op == Op::Read || step.access == Access::Random {
            storage.file.sync_data().map_err(cannot)?;
        }
        let times = storage.carry_out(step, &mut places, share).map_err(cannot)?;
        // Slow storage has no time for all of them; a quarter of what there was is enough to warm up then.
        let warm_up = (step.warm_up as usize).min(times.len() / 4);
        let counted = &times[warm_up..];
        if (step.op, step.access, step.bytes, step.in_flight) == (Op::Read, Access::Random, 16 * KIB, 1) {
            if first.is_empty() {
                first = counted.to_vec();
            } else {
                notes.extend(disturbance(&first, counted));
            }
        }
        counted.iter().for_each(|ns| fit.add(step.sample(*ns)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let rotational = storage::is_rotational(directory);
    let mut profile = fit.finish(&storage::kind(directory), rotational, None);
    (profile.gate.inline, profile.gate.handed_over) = gate();
    Ok(Measured { profile, notes })
}

/// A file without a name, past the page cache where that is possible.
fn open(directory: &Path, notes: &mut Vec<String>) -> io::Result<Storage> {
    let file = tempfile::tempfile_in(directory)?;
    let found = rustix::fs::fstatvfs(&file)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let region = REGION.min(free / 4) / (4 * MIB) * (4 * MIB);
    if region < REGION_MIN {
        return Err(io::Error::from(rustix::io::Errno::NOSPC));
    }
    let flags = rustix::fs::fcntl_getfl(&file)?;
    if rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).is_err() {
        notes.push("there is no direct I/O here: what is measured is the page cache, too".into());
    }
    Ok(Storage { file, region })
}

/// Writes the file from its start to its end, or for as long as there is time. What is not written is not measured.
fn fill(storage: &mut Storage, budget: Duration, bar: &ProgressBar) -> io::Result<Vec<(u64, u64)>> {
    bar.set_message("writing a file");
    let step =
        Step { op: Op::Write, access: Access::Fill, bytes: 4 * MIB, in_flight: 1, dispatches: 0, warm_up: 0 };
    let mut memory = Memory::new(step.bytes);
    let (begin, mut writes, mut written) = (Instant::now(), Vec::new(), 0);
    while written < storage.region && (begin.elapsed() < budget || written < REGION_MIN) {
        writes.push((step.bytes, storage.access(&step, written, memory.bytes())?));
        written += step.bytes;
    }
    storage.region = written;
    bar.set_message("");
    bar.inc(1);
    Ok(writes)
}

impl Storage {
    /// One read or write, and the nanoseconds that it took.
    fn access(&self, step: &Step, offset: u64, memory: &mut [u8]) -> io::Result<u64> {
        let begin = Instant::now();
        match step.op {
            Op::Read => self.file.read_exact_at(memory, offset)?,
            Op::Write => self.file.write_all_at(memory, offset)?,
        }
        Ok(begin.elapsed().as_nanos() as u64)
    }

    /// The times of a step's dispatches, by as many threads as are to be in flight.
    fn carry_out(&self, step: &Step, places: &mut Places, share: Duration) -> io::Result<Vec<u64>> {
        places.begin(step);
        let offsets: Vec<u64> = (0..step.dispatches).map(|_| places.next(step)).collect();
        let until = Instant::now() + share;
        let next = std::sync::atomic::AtomicUsize::new(0);
        let work = || -> io::Result<Vec<(usize, u64)>> {
            let mut memory = Memory::new(step.bytes);
            let mut times = Vec::new();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                match offsets.get(index) {
                    Some(offset) if index < 8 || Instant::now() < until => {
                        times.push((index, self.access(step, *offset, memory.bytes())?));
                    }
                    _ => return Ok(times),
                }
            }
        };
        let mut times = if step.in_flight == 1 {
            work()?
        } else {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..step.in_flight).map(|_| scope.spawn(work)).collect();
                let joined = threads.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread ended early")))
                });
                joined.collect::<io::Result<Vec<_>>>().map(|all| all.concat())
            })?
        };
        times.sort_unstable();
        Ok(times.into_iter().map(|(_, ns)| ns).collect())
    }
}

/// Bytes at an address that direct I/O takes.
struct Memory {
    all: Vec<u8>,
    start: usize,
    length: usize,
}

impl Memory {
    fn new(bytes: u64) -> Memory {
        let length = bytes as usize;
        let all = vec![0x5a; length + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Memory { all, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.length]
    }
}

/// What two measurements of the same say of the storage.
fn disturbance(first: &[u64], last: &[u64]) -> Option<String> {
    let median = |times: &[u64]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    };
    let (first, last) = (median(first), median(last));
    let apart = first.abs_diff(last) * 1_000 / first.max(last).max(1);
    (apart > QUIET).then(|| {
        format!(
            "the storage was not quiet: the same reads differ by {} % between beginning and end; numbers may be off by as much",
            apart / 10
        )
    })
}

/// What a gate costs by itself, and what it costs to wake another thread.
fn gate() -> (Number, Number) {
    const ROUNDS: u64 = 2_000;
    let number = |ns: u64| Number { value: ns, count: ROUNDS as u32, spread: 0 };
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let config = GateConfig { scheduler, queue_max: 16, depth: 1, layout: Layout::SINGLE };
    let Ok(mut gate) = Gate::new(&config) else { return (number(0), number(0)) };
    let begin = Instant::now();
    for id in 0..ROUNDS {
        let request = Request {
            id: RequestId(id),
            file: FileId(1),
            op: Op::Read,
            offset: id * 4_096,
            bytes: 4_096,
            app: AppId(0),
            client: ClientId(0),
            target: None,
            issued: None,
        };
        if gate.submit(Time::from_nanos(id), &request).is_ok()
            && let Decision::Dispatch(dispatch) = gate.next(Time::from_nanos(id))
        {
            gate.complete(Time::from_nanos(id), dispatch.id, Outcome::Done { bytes: 4_096 });
        }
    }
    let inline = begin.elapsed().as_nanos() as u64 / ROUNDS;
    let (there, here) = (mpsc::channel(), mpsc::channel());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let (wake, answer) = (there.1, here.0);
        scope.spawn(move || wake.into_iter().try_for_each(|()| answer.send(())));
        let (send, receive) = (there.0, here.1);
        for _ in 0..ROUNDS {
            if send.send(()).is_err() || receive.recv().is_err() {
                break;
            }
        }
    });
    // There and back are two.
    let hand_over = begin.elapsed().as_nanos() as u64 / ROUNDS / 2;
    (number(inline), number(inline + hand_over))
}

#[cfg(test)]
mod tests {
    use iogate_core::profile::Class;

    use super::*;

    #[test]
    fn storage_that_changes_is_not_quiet() {
        assert_eq!(disturbance(&[100, 110, 120], &[100, 100, 120]), None);
        let said = disturbance(&[100, 100, 100], &[200, 200, 200]).unwrap();
        assert!(said.contains("not quiet") && said.contains("50 %"), "{said}");
    }

    #[test]
    fn memory_is_aligned() {
        for bytes in [4 * KIB, 4 * MIB] {
            let mut memory = Memory::new(bytes);
            assert_eq!(
                (memory.bytes().as_ptr() as usize % ALIGNMENT, memory.bytes().len() as u64),
                (0, bytes)
            );
        }
    }

    #[test]
    fn a_directory_has_a_profile_and_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // As little time as there is: only the fewest dispatches of each step.
        let measured = match profile(folder.path(), Duration::ZERO, &ProgressBar::hidden()) {
            Ok(measured) => measured,
            // A machine without room for 256 MiB says so.
            Err(_) => return,
        };
        measured.profile.check().unwrap();
        assert!(measured.profile.costs().alone_ns(Op::Read, Class::Jump, 4 * KIB) > 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(profile(&folder.path().join("missing"), Duration::ZERO, &ProgressBar::hidden()).is_err());
    }
}
