//! A store that takes as long as a modelled device would.
//!
//! The I/O is real, carried out by the store below; its completion is held back until the device would be done.
//! Charged: what the device model charges, in the order in which transfers were started, each
//! beginning when it is started or as soon as the device has a slot for it. Left out: everything between (host, bus, file
//! system metadata; hand-overs between threads are real here), and the device's cache management for `sync`.
//! Where the real I/O is slower than the model, the completion comes when the real I/O is done, and the device's
//! timeline is not moved by that. A transfer that is started
//! in the completion of another begins when that one was due: that this machine's timers wake late is not the device's doing,
//! and would cost a disk a whole revolution where it costs this machine some microseconds.
//!
//! Where files lie is the business of [`Placement`], which the simulator uses as well: the same transfers in the same order
//! find the same addresses.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{Span, Time};

use super::{AppendFile, FileHandle, Io, IoDone, OpenMode, Store};
use crate::clock::Clock;
use crate::engine::precise_sleep;

/// What a modelled device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Time that it was busy.
    pub busy: Span,
    /// Transfers served.
    pub transfers: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Times that it had to reposition.
    pub repositions: u64,
}

thread_local! {
    /// When the completion that this thread reports was due.
    static REPORTED: Cell<Option<Time>> = const { Cell::new(None) };
}

/// A store that takes as long as a modelled device would. See the file's header for what is modelled.
pub struct ModelledStore {
    inner: Arc<dyn Store>,
    timeline: Mutex<Timeline>,
    deliveries: Arc<Deliveries>,
    thread: Option<JoinHandle<()>>,
    clock: Clock,
}

struct Timeline {
    station: Station,
    placement: Placement,
    stats: DeviceStats,
}

impl ModelledStore {
    /// Bytes of a file that lie together on the device where there is no reason for another number: most files are
    /// shorter, and so contiguous, and far from each other, as on a disk that is not fragmented.
    pub const EXTENT_BYTES: u64 = 5 << 30;

    /// The store `inner` with the speed of `device`, on which files lie as `placement` says. Fails if no thread can be started.
    pub fn new(
        inner: Arc<dyn Store>,
        device: Box<dyn Device>,
        placement: Placement,
    ) -> io::Result<ModelledStore> {
        let clock = Clock::new();
        let deliveries = Arc::new(Deliveries::default());
        let queue = Arc::clone(&deliveries);
        let thread = thread::Builder::new().name("iogate-modelled".into()).spawn(move || {
            // Whoever completes goes on with the next dispatch.
            crate::privileges::limit_thread_or_warn();
            queue.deliver(clock);
        })?;
        let stats = DeviceStats::default();
        let timeline = Mutex::new(Timeline { station: Station::new(device), placement, stats });
        Ok(ModelledStore { inner, timeline, deliveries, thread: Some(thread), clock })
    }

    /// What the device has done so far.
    pub fn device_stats(&self) -> DeviceStats {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        DeviceStats {
            busy: timeline.station.busy(),
            repositions: timeline.station.device().repositions(),
            ..timeline.stats
        }
    }
}

impl Timeline {
    /// Serves a dispatch. Returns when the device will be done with it.
    fn serve(&mut self, now: Time, io: &Io) -> Time {
        let bytes = io.segments.iter().map(|segment| segment.bytes as u64).sum::<u64>();
        if bytes == 0 {
            return now;
        }
        let mut visit = self.station.begin(now);
        self.placement.for_each_extent(io.file.id(), io.offset, bytes, |address, bytes| {
            visit.serve(Transfer { op: io.op, address, bytes });
        });
        self.stats.transfers += 1;
        self.stats.bytes += bytes;
        visit.end()
    }
}

impl Store for ModelledStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.inner.open(path, mode)
    }

    fn adopt_appending(&self, fd: OwnedFd) -> io::Result<Arc<AppendFile>> {
        self.inner.adopt_appending(fd)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.inner.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        let due = {
            let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so that times reach the device in order.
            let now = REPORTED.get().unwrap_or_else(|| self.clock.now());
            timeline.serve(now, &io)
        };
        match self.inner.run(&io) {
            Some(result) => self.deliveries.push(Delivery { due, io, result, done }),
            None => {
                let deliveries = Arc::clone(&self.deliveries);
                let done = Box::new(move |io, result| deliveries.push(Delivery { due, io, result, done }));
                self.inner.start(io, done);
            }
        }
    }

    /// What the store below does; the device itself keeps nobody.
    fn blocks(&self) -> bool {
        self.inner.blocks()
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.inner.sync(file, data_only)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.inner.size(file)
    }

    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(file, offset, memory)
    }
}

impl Drop for ModelledStore {
    fn drop(&mut self) {
        self.deliveries.lock().stop = true;
        self.deliveries.changed.notify_all();
        // The last reference may go in a completion, which runs in that thread.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A dispatch that has been carried out, and is reported when it is due.
struct Delivery {
    due: Time,
    io: Io,
    result: io::Result<u64>,
    done: IoDone,
}

/// Deliveries by due time, and the thread that makes them.
#[derive(Default)]
struct Deliveries {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    /// Arrival number of the next delivery: of two that are due at once, the earlier goes first.
    number: u64,
    stop: bool,
}

struct Entry {
    key: (Time, u64),
    delivery: Delivery,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, delivery: Delivery) {
        let mut queue = self.lock();
        let key = (delivery.due, queue.number);
        queue.number += 1;
        let first = queue.heap.peek().is_none_or(|Reverse(entry)| key < entry.key);
        queue.heap.push(Reverse(Entry { key, delivery }));
        drop(queue);
        if first {
            self.changed.notify_one();
        }
    }

    /// The thread: sleeps until the next delivery is due. Ends when it is to stop and nothing is left.
    fn deliver(&self, clock: Clock) {
        precise_sleep();
        let mut queue = self.lock();
        loop {
            let Some(due) = queue.heap.peek().map(|Reverse(entry)| entry.key.0) else {
                if queue.stop {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = clock.now();
            if due > now {
                let timeout = Duration::from_nanos(due.since(now).as_nanos());
                (queue, _) =
                    self.changed.wait_timeout(queue, timeout).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let Some(Reverse(Entry { delivery, .. })) = queue.heap.pop() else { continue };
            drop(queue);
            let Delivery { due, io, result, done } = delivery;
            REPORTED.set(Some(due));
            done(io, result);
            REPORTED.set(None);
            queue = self.lock();
        }
    }
}
