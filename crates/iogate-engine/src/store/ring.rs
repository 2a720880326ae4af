//! `io_uring` for a directory store: one ring; whoever has a dispatch submits it; one thread takes the completions.
//!
//! What the kernel refuses for the moment is tried again, without the lock, and the ring's thread takes completions meanwhile:
//! that may be what makes room. If it refuses for good, the ring is broken: what it has in flight completes, and nothing more
//! is given to it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use iogate_core::Op;

use super::vectored::SEGMENTS_MAX;
use super::{Io, IoDone, Segment};

/// Submission slots; each entry is submitted at once, so this bounds a burst and not what is in flight.
const ENTRIES: u32 = 256;

/// The completion that ends the thread; every other names a [`Flying`].
const STOP: u64 = 0;

/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;

/// How often a submission that is refused for the moment is tried again at once; then after [`PAUSE`].
const TRIES_AT_ONCE: u32 = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// A ring and its thread.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    /// Held while entries are put into the submission queue and given to the kernel.
    submission: Mutex<Submission>,
    thread: OnceLock<ThreadId>,
    /// Completions that the ring's thread has taken while it could not submit.
    early: Mutex<Vec<(u64, i32)>>,
    is_broken: AtomicBool,
}

#[derive(Default)]
struct Submission {
    /// Entries ever put into the queue. The kernel takes them in their order.
    pushed: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("io_uring")
    }
}

/// A dispatch that the kernel has.
struct Flying {
    io: Io,
    done: IoDone,
    fd: RawFd,
    /// What offsets must be multiples of: a count that is not one was cut off by the end of the file.
    align: u64,
    transferred: u64,
    /// Index of the first segment that is not done.
    next: usize,
    /// That segment as it was, if part of it is done.
    whole: Option<Segment>,
}

impl Ring {
    /// Fails where the kernel has no `io_uring`, or does not permit it.
    pub(super) fn new() -> io::Result<Ring> {
        let shared = Arc::new(Shared {
            ring: IoUring::new(ENTRIES)?,
            submission: Mutex::default(),
            thread: OnceLock::new(),
            early: Mutex::default(),
            is_broken: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("iogate-ring".into()).spawn(move || of_thread.take_completions())?;
        Ok(Ring { shared, thread: Some(thread) })
    }

    /// Starts a dispatch on `fd`, which must be of `io.file`, so that it stays open meanwhile. Gives it back, not begun, if
    /// the ring is broken.
    pub(super) fn start(
        &self,
        fd: BorrowedFd<'_>,
        align: u64,
        io: Io,
        done: IoDone,
    ) -> Result<(), (Io, IoDone)> {
        let fd = fd.as_raw_fd();
        let flying = Box::new(Flying { io, done, fd, align, transferred: 0, next: 0, whole: None });
        self.shared.go_on(flying).map_err(|(flying, _)| (flying.io, flying.done))
    }

    /// Whether the kernel takes nothing more.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.is_broken()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What is in flight keeps the store alive through its completion, so nothing is.
        let stopped = self.shared.submit(&opcode::Nop::new().build().user_data(STOP));
        // A broken ring's thread cannot be told. The last reference may go in a completion, which runs in that thread.
        if let Some(thread) = self.thread.take()
            && stopped.is_ok()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Gives what remains of a dispatch to the kernel; back if the kernel does not take it.
    fn go_on(&self, flying: Box<Flying>) -> Result<(), (Box<Flying>, io::Error)> {
        let Flying { io, fd, transferred, next, .. } = &*flying;
        let rest = &io.segments[*next..];
        // `Segment` has the layout of `iovec`.
        let (vector, count) = (rest.as_ptr().cast::<libc::iovec>(), rest.len().min(SEGMENTS_MAX) as u32);
        let (fd, offset) = (types::Fd(*fd), io.offset.saturating_add(*transferred));
        let entry = match io.op {
            Op::Read => opcode::Readv::new(fd, vector.cast(), count).offset(offset).build(),
            Op::Write => opcode::Writev::new(fd, vector.cast(), count).offset(offset).build(),
        };
        // Given back to a box by `take_completions`, when the kernel has done with the vector and the memory.
        let flying = Box::into_raw(flying);
        self.submit(&entry.user_data(flying as u64)).map_err(|error| {
            // SAFETY: made just above, and the kernel will never see the entry.
            (unsafe { Box::from_raw(flying) }, error)
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Submission> {
        self.submission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an entry to the kernel. After an error the kernel will never see it.
    fn submit(&self, entry: &squeue::Entry) -> io::Result<()> {
        let mut number = None;
        let mut tries = 0;
        while !self.try_submit(entry, &mut number)? {
            tries += 1;
            self.take_early();
            if tries < TRIES_AT_ONCE {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Puts an entry into the queue, if it is not there by its `number`, and gives the kernel what is there. Whether the kernel
    /// has taken the entry; an error if it never will.
    fn try_submit(&self, entry: &squeue::Entry, number: &mut Option<u64>) -> io::Result<bool> {
        let mut submission = self.lock();
        let is_broken = self.is_broken();
        // SAFETY: the submission queue is only used under the lock. The entry's vector, memory and file live until its
        // completion: `Flying` owns the first and the last, `Engine::submit`'s caller promised the memory.
        if number.is_none() && !is_broken && unsafe { self.ring.submission_shared().push(entry) }.is_ok() {
            submission.pushed += 1;
            *number = Some(submission.pushed);
        }
        // A broken ring must not take what is left in the queue: its memory is no longer promised.
        let submitted = if is_broken { Err(broken()) } else { self.ring.submit().map(drop) };
        // SAFETY: as above.
        let left = unsafe { self.ring.submission_shared() }.len() as u64;
        let is_taken = number.is_some_and(|number| number <= submission.pushed - left);
        match submitted {
            _ if is_taken => Ok(true),
            Ok(()) => Ok(false),
            Err(error) if is_momentary(&error) => Ok(false),
            Err(error) => {
                if !self.is_broken.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, "io_uring takes no more: dispatches are plain calls from here on");
                }
                Err(error)
            }
        }
    }

    /// Makes room in the completion queue, if this is the thread that can.
    fn take_early(&self) {
        if self.thread.get() == Some(&thread::current().id()) {
            self.flush_overflow();
            // SAFETY: this thread alone uses the completion queue.
            let completions = unsafe { self.ring.completion_shared() };
            let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
            early.extend(completions.map(|entry| (entry.user_data(), entry.result())));
        }
    }

    /// Lets the kernel put completions into the queue for which there was no room.
    fn flush_overflow(&self) {
        // SAFETY: submits nothing, waits for nothing.
        let _ = unsafe { self.ring.submitter().enter::<()>(0, 0, GET_EVENTS, None) };
    }

    /// The thread.
    fn take_completions(&self) {
        // Whoever completes goes on with the next dispatch.
        crate::privileges::limit_thread_or_warn();
        let _ = self.thread.set(thread::current().id());
        let mut arrived = Vec::new();
        let mut has_failed = false;
        loop {
            arrived.append(&mut self.early.lock().unwrap_or_else(PoisonError::into_inner));
            if arrived.is_empty() {
                // SAFETY: submits nothing. Who submits sees to it that the kernel takes it.
                let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, GET_EVENTS, None) };
                if let Err(error) = waited
                    && !is_momentary(&error)
                {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::error!(%error, "waiting for io_uring completions: looking for them from time to time");
                    }
                    thread::sleep(PAUSE);
                }
            }
            // SAFETY: this thread alone uses the completion queue.
            let completions = unsafe { self.ring.completion_shared() };
            arrived.extend(completions.map(|entry| (entry.user_data(), entry.result())));
            for (name, result) in arrived.drain(..) {
                if name == STOP {
                    return;
                }
                // SAFETY: made by `Box::into_raw` in `go_on`; the kernel names each once.
                let flying = unsafe { Box::from_raw(name as *mut Flying) };
                self.arrived(flying, result);
            }
        }
    }

    fn arrived(&self, mut flying: Box<Flying>, result: i32) {
        let again = match usize::try_from(result) {
            Ok(count) => flying.account(count),
            // Cancelled because the thread that submitted it has ended: this one has not.
            Err(_) => matches!(-result, libc::EINTR | libc::EAGAIN | libc::ECANCELED),
        };
        let mut error = (result < 0).then(|| io::Error::from_raw_os_error(-result));
        if again {
            match self.go_on(flying) {
                Ok(()) => return,
                Err((back, refused)) => (flying, error) = (back, Some(refused)),
            }
        }
        let result = match error {
            Some(error) if flying.io.op == Op::Read || flying.transferred == 0 => Err(error),
            _ => Ok(flying.transferred),
        };
        flying.restore();
        let Flying { io, done, .. } = *flying;
        done(io, result);
    }
}

/// Refused for the moment: interrupted, no memory, no room for completions.
fn is_momentary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl Flying {
    /// Takes a count. True if something remains that is worth another try.
    fn account(&mut self, mut count: usize) -> bool {
        self.transferred += count as u64;
        let more = count > 0 && (count as u64).is_multiple_of(self.align);
        while let Some(segment) = self.io.segments.get(self.next).copied() {
            if count < segment.bytes {
                if count > 0 {
                    self.whole.get_or_insert(segment);
                    let memory = segment.memory.wrapping_add(count);
                    self.io.segments[self.next] = Segment { memory, bytes: segment.bytes - count };
                }
                return more;
            }
            count -= segment.bytes;
            self.restore();
            self.next += 1;
        }
        false
    }

    /// Puts the segment back that was cut, so that the dispatch goes back as it came.
    fn restore(&mut self) {
        if let Some(whole) = self.whole.take() {
            self.io.segments[self.next] = whole;
        }
    }
}
