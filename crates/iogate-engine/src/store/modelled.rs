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
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iogate_core::device::{Device, Ended, Placement, Station, Transfer};
use iogate_core::{Span, Time};

use super::{AppendFile, FileHandle, Io, IoDone, OpenMode, Store};
use crate::clock::{Clock, precise_sleep};

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
    timeline: Arc<Mutex<Timeline>>,
    deliveries: Arc<Deliveries>,
    thread: Option<JoinHandle<()>>,
    clock: Clock,
}

struct Timeline {
    station: Station,
    placement: Placement,
    stats: DeviceStats,
    /// Whether the device orders by itself, so that an end is known only when it is there.
    queueing: bool,
}

/// When a dispatch is due.
#[derive(Clone, Copy)]
enum Due {
    At(Time),
    /// The device will tell of it by this number.
    Told(u64),
}

impl ModelledStore {
    /// Bytes of a file that lie together on the device where there is no reason for another number: most files are
    /// shorter, and so contiguous, and far from each other, as on a disk that is not fragmented.
    pub const EXTENT_BYTES: u64 = 5 << 30;

    /// The store `inner` with the speed of `device`, on which files lie as `placement` says. Fails if no thread can be started.
    pub fn new(
        inner: Arc<dyn Store>,
        mut device: Box<dyn Device>,
        placement: Placement,
    ) -> io::Result<ModelledStore> {
        let clock = Clock::new();
        let deliveries = Arc::new(Deliveries::default());
        let queue = Arc::clone(&deliveries);
        let (stats, queueing) = (DeviceStats::default(), device.queueing().is_some());
        let timeline =
            Arc::new(Mutex::new(Timeline { station: Station::new(device), placement, stats, queueing }));
        let device = queueing.then(|| Arc::clone(&timeline));
        let thread = thread::Builder::new().name("iogate-modelled".into()).spawn(move || {
            // Whoever completes goes on with the next dispatch.
            crate::privileges::limit_thread_or_warn();
            queue.deliver(clock, device.as_deref());
        })?;
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
    fn serve(&mut self, now: Time, io: &Io) -> Due {
        let bytes = io.segments.iter().map(|segment| segment.bytes as u64).sum::<u64>();
        if bytes == 0 {
            return Due::At(now);
        }
        if self.queueing {
            let mut pieces = Vec::new();
            self.placement.for_each_piece(io.op, io.file.id(), io.offset, bytes, |address, bytes| {
                pieces.push(Transfer { op: io.op, address, bytes });
            });
            let number = self.stats.transfers;
            self.station.submit(now, number, false, pieces);
            self.stats.transfers += 1;
            self.stats.bytes += bytes;
            return Due::Told(number);
        }
        let mut visit = self.station.begin(now);
        self.placement.for_each_piece(io.op, io.file.id(), io.offset, bytes, |address, bytes| {
            visit.serve(Transfer { op: io.op, address, bytes });
        });
        self.stats.transfers += 1;
        self.stats.bytes += bytes;
        Due::At(visit.end())
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
        if matches!(due, Due::Told(_)) {
            self.deliveries.look_again();
        }
        match self.inner.run(&io) {
            Some(result) => self.deliveries.carried_out(due, Delivery { io, result, done }),
            None => {
                let deliveries = Arc::clone(&self.deliveries);
                let done = Box::new(move |io, result| {
                    deliveries.carried_out(due, Delivery { io, result, done });
                });
                self.inner.start(io, done);
            }
        }
    }

    /// What the store below does; the device itself keeps nobody.
    fn blocks(&self) -> bool {
        self.inner.blocks()
    }

    fn asks_afar(&self) -> bool {
        self.inner.asks_afar()
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
    /// In a device that orders by itself: what has been carried out and is not served, or the other way round.
    halves: HashMap<u64, Half>,
    /// Grows when the device may have something to tell that it had not before.
    version: u64,
    stop: bool,
}

enum Half {
    CarriedOut(Delivery),
    Served(Time),
}

impl Queue {
    /// Adds a delivery; whether it is the first.
    fn add(&mut self, due: Time, delivery: Delivery) -> bool {
        let key = (due, self.number);
        self.number += 1;
        let first = self.heap.peek().is_none_or(|Reverse(entry)| key < entry.key);
        self.heap.push(Reverse(Entry { key, delivery }));
        first
    }
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

    /// A dispatch has been carried out.
    fn carried_out(&self, due: Due, delivery: Delivery) {
        let mut queue = self.lock();
        let due = match due {
            Due::At(due) => due,
            Due::Told(number) => match queue.halves.remove(&number) {
                Some(Half::Served(due)) => due,
                _ => {
                    queue.halves.insert(number, Half::CarriedOut(delivery));
                    return;
                }
            },
        };
        let first = queue.add(due, delivery);
        drop(queue);
        if first {
            self.changed.notify_one();
        }
    }

    /// The device has served a dispatch.
    fn served(&self, ended: &Ended) {
        let mut queue = self.lock();
        match queue.halves.remove(&ended.id) {
            Some(Half::CarriedOut(delivery)) => {
                queue.add(ended.end, delivery);
            }
            _ => {
                queue.halves.insert(ended.id, Half::Served(ended.end));
            }
        }
    }

    /// The device has been given something.
    fn look_again(&self) {
        self.lock().version += 1;
        self.changed.notify_one();
    }

    /// The thread: sleeps until the next delivery is due, or the device has something to tell. Ends when it is to stop and nothing is left.
    fn deliver(&self, clock: Clock, timeline: Option<&Mutex<Timeline>>) {
        precise_sleep();
        let mut queue = self.lock();
        loop {
            let now = clock.now();
            let due = queue.heap.peek().map(|Reverse(entry)| entry.key.0);
            if due.is_some_and(|due| due <= now) {
                let Some(Reverse(Entry { key: (due, _), delivery })) = queue.heap.pop() else { continue };
                drop(queue);
                let Delivery { io, result, done } = delivery;
                REPORTED.set(Some(due));
                done(io, result);
                REPORTED.set(None);
                queue = self.lock();
                continue;
            }
            // One end after the other, so that who goes on with the next dispatch does so before later ends are known.
            let mut next = None;
            if let Some(timeline) = timeline {
                let version = queue.version;
                drop(queue);
                let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
                let ended = timeline.station.ended(now);
                next = timeline.station.next_event();
                drop(timeline);
                if let Some(ended) = &ended {
                    self.served(ended);
                }
                queue = self.lock();
                if ended.is_some() || queue.version != version {
                    continue;
                }
            }
            let due = queue.heap.peek().map(|Reverse(entry)| entry.key.0);
            let Some(at) = due.into_iter().chain(next).min() else {
                if queue.stop && queue.halves.is_empty() {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let timeout = Duration::from(at.since(clock.now()));
            if timeout > Duration::ZERO {
                (queue, _) =
                    self.changed.wait_timeout(queue, timeout).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
