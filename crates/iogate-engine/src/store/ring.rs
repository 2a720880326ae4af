//! `io_uring` for a directory store: one ring; whoever has a dispatch submits it; one thread takes the completions.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use io_uring::{IoUring, opcode, squeue, types};
use iogate_core::Op;

use super::vectored::SEGMENTS_MAX;
use super::{Io, IoDone, Segment};

/// Submission slots; each entry is submitted at once, so this bounds a burst and not what is in flight.
const ENTRIES: u32 = 256;

/// The completion that ends the thread; every other names a [`Flying`].
const STOP: u64 = 0;

/// A ring and its thread.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    /// Held while entries are put into the submission queue.
    submission: Mutex<()>,
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
        let shared = Arc::new(Shared { ring: IoUring::new(ENTRIES)?, submission: Mutex::new(()) });
        let of_thread = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("iogate-ring".into()).spawn(move || of_thread.take_completions())?;
        Ok(Ring { shared, thread: Some(thread) })
    }

    /// Starts a dispatch on `fd`, which must be of `io.file`, so that it stays open meanwhile.
    pub(super) fn start(&self, fd: BorrowedFd<'_>, align: u64, io: Io, done: IoDone) {
        let fd = fd.as_raw_fd();
        self.shared.go_on(Box::new(Flying { io, done, fd, align, transferred: 0, next: 0, whole: None }));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What is in flight keeps the store alive through its completion, so nothing is.
        self.shared.submit(&opcode::Nop::new().build().user_data(STOP));
        // The last reference may go in a completion, which runs in that thread.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Gives what remains of a dispatch to the kernel.
    fn go_on(&self, flying: Box<Flying>) {
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
        self.submit(&entry.user_data(Box::into_raw(flying) as u64));
    }

    fn submit(&self, entry: &squeue::Entry) {
        let _submission = self.submission.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // SAFETY: the submission queue is only used under the lock. The entry's vector, memory and file live
            // until its completion: `Flying` owns the first and the last, `Engine::submit`'s caller promised the
            // memory.
            let pushed = unsafe { self.ring.submission_shared().push(entry) }.is_ok();
            // Refused for the moment (EINTR, EAGAIN, EBUSY): the entry stays in the queue.
            while self.ring.submit().is_err() {
                thread::yield_now();
            }
            if pushed {
                return;
            }
        }
    }

    /// The thread.
    fn take_completions(&self) {
        // Whoever completes goes on with the next dispatch.
        crate::privileges::limit_thread_or_warn();
        let mut arrived = Vec::new();
        loop {
            if let Err(error) = self.ring.submitter().submit_and_wait(1)
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                tracing::error!(%error, "waiting for io_uring completions");
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
        let result = match usize::try_from(result) {
            Ok(count) => {
                if flying.account(count) {
                    return self.go_on(flying);
                }
                Ok(flying.transferred)
            }
            Err(_) => match -result {
                // Cancelled because the thread that submitted it has ended: this one has not.
                libc::EINTR | libc::EAGAIN | libc::ECANCELED => return self.go_on(flying),
                _ if flying.io.op == Op::Write && flying.transferred > 0 => Ok(flying.transferred),
                error => Err(io::Error::from_raw_os_error(error)),
            },
        };
        flying.restore();
        let Flying { io, done, .. } = *flying;
        done(io, result);
    }
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
