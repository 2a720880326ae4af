//! Appends to a striped file, and its size: by whoever gives out its end.
//!
//! What comes while an append is in flight goes together with the next one: one reservation, then one write of all of it, then the end
//! is given back. Whoever waits for the longest of those that wait does that for the others too; nobody holds a lock meanwhile.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};

use iogate_core::ends::UNKNOWN;
use iogate_core::wire::{AppendRecord, Range, Reserved, Written, open, range};
use iogate_core::{AppId, Op, Span, TargetId};
use iogate_engine::store::{Io, Segment, Store, StripedStore};
use iogate_engine::{FileHandle, Origin, Transfer, lock};

use super::file::StripedFile;
use super::objects::{Ranges, SizeError, again};
use crate::ends::{EndHandle, Ends, Given};
use crate::{Caller, TreeFile};

/// Most bytes, and most records, that go together.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_RECORDS: usize = 1000;
/// Most bytes of a write that extends: a server takes it as one.
const EXTEND_BYTES: usize = 1 << 20;
/// How often a place for records is asked for, while others extend the file elsewhere.
const TRIES: u32 = 100;
/// Ranges that have been had for so many leases may be void.
const LEASES_MAX: u64 = 4;
/// In place of an end in [`StripedFile::settle`]: all records are there, and no range was new. No file reaches there.
const ALL: u64 = 1 << 63;

/// Where the end of a file is given.
pub(super) enum End {
    /// By whoever has the names.
    There,
    /// Here.
    Here(EndHandle),
    /// To nobody: the file is not open for writing.
    Nowhere,
}

impl End {
    /// Of a names-file that has been opened with `flags`. Also returns the size that somebody has begun to set.
    pub(super) fn of(
        names: &dyn TreeFile,
        flags: u32,
        ends: &Arc<Ends>,
        far: bool,
    ) -> io::Result<(End, Option<u64>)> {
        if flags & open::WRITE == 0 {
            return Ok((End::Nowhere, None));
        }
        if far {
            return Ok((End::There, names.pending_size()));
        }
        let (end_handle, begun) = ends.open(names, flags & open::APPEND == 0)?;
        Ok((End::Here(end_handle), begun))
    }
}

/// Those who append to a file in this process.
#[derive(Default)]
pub(super) struct AppendLane {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    records: Vec<Arc<Queued>>,
    is_busy: bool,
}

struct Queued {
    record: AppendRecord,
    bytes: Vec<u8>,
    origin: Origin,
    /// Where it went, and how many bytes of it.
    result: Mutex<Option<io::Result<(u64, u32)>>>,
}

impl Queued {
    fn finish(&self, result: io::Result<(u64, u32)>) {
        *lock(&self.result) = Some(result);
    }
}

impl AppendLane {
    /// Has a record appended: by the calling thread, or by another that is at it for several.
    fn run(&self, queued: &Arc<Queued>, carry_out: impl Fn(&[Arc<Queued>])) -> io::Result<(u64, u32)> {
        let mut queue = lock(&self.queue);
        queue.records.push(Arc::clone(queued));
        loop {
            if let Some(result) = lock(&queued.result).take() {
                return result;
            }
            if queue.is_busy {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_busy = true;
            let batch = queue.take();
            drop(queue);
            let over = Over { lane: self, batch: &batch };
            carry_out(&batch);
            drop(over);
            queue = lock(&self.queue);
        }
    }
}

/// Lets the next ones go on, whatever has become of these.
struct Over<'a> {
    lane: &'a AppendLane,
    batch: &'a [Arc<Queued>],
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        for queued in self.batch {
            lock(&queued.result).get_or_insert_with(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        lock(&self.lane.queue).is_busy = false;
        self.lane.changed.notify_all();
    }
}

impl Queue {
    /// The next records that go together: of one application, in their order.
    fn take(&mut self) -> Vec<Arc<Queued>> {
        let app = self.records.first().map_or(AppId(0), |first| first.origin.app);
        let (mut bytes, mut count) = (0, 0);
        for queued in self.records.iter().take(BATCH_RECORDS) {
            bytes += queued.bytes.len();
            if count > 0 && (bytes > BATCH_BYTES || queued.origin.app != app) {
                break;
            }
            count += 1;
        }
        self.records.drain(..count).collect()
    }
}

/// Records that are written at once.
struct Stretch<'a> {
    offset: u64,
    bytes: Vec<u8>,
    records: Vec<&'a Arc<Queued>>,
    /// Nobody has had the range before.
    is_new: bool,
}

impl Stretch<'_> {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Why an attempt has not carried out all.
enum Halt {
    /// What is left is to be tried again.
    Again,
    /// So it is, but the file was fenced: with handles that are renewed, before the ticket is settled with this end. Who asks again gets
    /// the ranges that it had, unless they have been cut off.
    Fenced {
        ticket: u64,
        end: u64,
    },
    Failed(io::Error),
}

impl StripedFile {
    pub(super) fn append_record(&self, caller: Caller, origin: Origin, bytes: &[u8]) -> io::Result<Written> {
        let wire = caller.origin;
        let record = AppendRecord {
            client: wire.client,
            number: wire.number,
            step: wire.step,
            uid: caller.uid,
            bytes: u32::try_from(bytes.len()).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?,
        };
        let queued = Arc::new(Queued { record, bytes: bytes.to_vec(), origin, result: Mutex::default() });
        let (offset, bytes) = self.objects.appends.run(&queued, |batch| self.append_batch(batch))?;
        Ok(Written { offset, bytes, verifier: self.verifier() })
    }

    fn append_batch(&self, batch: &[Arc<Queued>]) {
        let mut fenced = Vec::new();
        self.append_all(batch, &mut fenced);
        fenced.into_iter().for_each(|(ticket, end)| self.settle(ticket, end));
    }

    /// Also tells what is still to be settled.
    fn append_all(&self, batch: &[Arc<Queued>], fenced: &mut Vec<(u64, u64)>) {
        let mut left: Vec<&Arc<Queued>> = batch.iter().collect();
        for _ in 0..TRIES {
            let halted = match self.append_once(&left) {
                Ok(()) => return,
                Err(Halt::Failed(error)) => Err(error),
                Err(Halt::Again) => Ok(()),
                Err(Halt::Fenced { ticket, end }) => {
                    fenced.push((ticket, end));
                    self.objects.renew()
                }
            };
            if let Err(error) = halted {
                for queued in left {
                    lock(&queued.result).get_or_insert_with(|| Err(again(&error)));
                }
                return;
            }
            left.retain(|queued| lock(&queued.result).is_none());
            if left.is_empty() {
                return;
            }
        }
    }

    /// Asks for ranges and writes what has none yet there.
    fn append_once(&self, left: &[&Arc<Queued>]) -> Result<(), Halt> {
        let records: Vec<_> = left.iter().map(|queued| queued.record).collect();
        let clock = &self.objects.stripes.clock;
        let asked = clock.now();
        let Given { reserved, ranges, .. } = self.reserve_looking(&records).map_err(Halt::Failed)?;
        let lease = Span::from_nanos(reserved.lease);
        let stretches = stretches(left, &ranges);
        let new = || stretches.iter().filter(|stretch| stretch.is_new);
        let base = new().next().map_or(0, |first| first.offset);
        let top = new().next_back().map_or(ALL, Stretch::end);
        if clock.since(asked).as_nanos() > lease.as_nanos().saturating_mul(LEASES_MAX) {
            self.settle(reserved.ticket, base);
            return Err(Halt::Again);
        }
        for stretch in &stretches {
            // What had its range from before is written there, whatever is there by now: mostly its own bytes.
            let extends = reserved.writers > 0 && stretch.is_new;
            let (count, failure) = self.write_stretch(stretch, extends);
            let mut at = stretch.offset;
            for queued in &stretch.records {
                at += queued.bytes.len() as u64;
                // What is refused or fails behind its first bytes is no record.
                if at > stretch.offset + count as u64 {
                    break;
                }
                queued.finish(Ok((at - queued.bytes.len() as u64, queued.record.bytes)));
            }
            let Some(failure) = failure else { continue };
            let whole = stretch.offset + done_bytes(stretch, count);
            let mut end = if stretch.is_new { whole } else { base };
            if failure.raw_os_error() == Some(libc::ECANCELED) {
                return Err(Halt::Fenced { ticket: reserved.ticket, end });
            }
            if !extends
                && clock.since(asked) < lease
                && stretch.is_new
                && reserved.writers == 0
                && self.objects.set_size(end, false).is_err()
            {
                end = top;
            }
            self.settle(reserved.ticket, end);
            let is_refused = failure.raw_os_error() == Some(libc::EEXIST);
            return Err(if is_refused { Halt::Again } else { Halt::Failed(failure) });
        }
        self.settle(reserved.ticket, top);
        Ok(())
    }

    /// Writes; several times, if that extends and is long, as each part is refused or not. Returns how much is there, and why that
    /// is not all.
    fn write_stretch(&self, stretch: &Stretch<'_>, extends: bool) -> (usize, Option<io::Error>) {
        let origin = stretch.records.first().map_or_else(Origin::default, |first| first.origin);
        let mut total = 0;
        for part in stretch.bytes.chunks(if extends { EXTEND_BYTES } else { usize::MAX }) {
            let mut rest = part;
            while !rest.is_empty() {
                // Its first bytes take no place on the next target: what is short is refused or not as well.
                match self.write_now(stretch.offset + total as u64, rest, origin, extends) {
                    Ok(0) => return (total, Some(io::Error::from_raw_os_error(libc::ENOSPC))),
                    Ok(written) => {
                        total += written;
                        rest = &rest[written..];
                    }
                    Err(error) => return (total, Some(error)),
                }
            }
        }
        (total, None)
    }

    /// Writes through the gate, if there is one, and waits.
    fn write_now(&self, offset: u64, bytes: &[u8], origin: Origin, extends: bool) -> io::Result<usize> {
        let (tell, told) = mpsc::channel();
        let ranges = Arc::new(Ranges(Arc::clone(&self.objects)));
        let file: FileHandle = StripedStore::file(ranges, false, true);
        let memory = bytes.as_ptr().cast_mut();
        match self.engine.as_ref().and_then(std::sync::Weak::upgrade) {
            Some(engine) => {
                let bytes = bytes.len() as u32;
                let transfer = Transfer { file, op: Op::Write, offset, memory, bytes, origin, extends };
                let done = Box::new(move |result| drop(tell.send(result)));
                // SAFETY: a write only reads the bytes, which are borrowed until its answer has come.
                unsafe { engine.submit(transfer, done) }?;
            }
            None => {
                let segments = vec![Segment { memory, bytes: bytes.len() }];
                let io = Io { file, op: Op::Write, offset, target: TargetId(0), origin, extends, segments };
                let done =
                    move |_, result: io::Result<u64>| drop(tell.send(result.map(|bytes| bytes as usize)));
                self.store.start(io, Box::new(done));
            }
        }
        // Who has the memory answers: a completion that is lost ends the process.
        told.recv().unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::EIO)))
    }

    /// Ranges for records, after finishing and looking as told.
    fn reserve_looking(&self, records: &[AppendRecord]) -> io::Result<Given> {
        let mut looked = (0, 0);
        loop {
            match self.reserve_end(looked, records) {
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                    self.finish_resize()?;
                    looked = (0, 0);
                }
                Ok(given) if given.reserved.look != 0 => {
                    let size = match self.objects.size() {
                        Ok(size) => size,
                        Err(error) => {
                            self.settle(given.reserved.ticket, UNKNOWN);
                            return Err(error);
                        }
                    };
                    looked = (given.reserved.ticket, size);
                }
                given => return given,
            }
        }
    }

    fn reserve_end(&self, looked: (u64, u64), records: &[AppendRecord]) -> io::Result<Given> {
        match &self.end {
            End::There => self.names.reserve(looked.0, looked.1, records).unwrap_or_else(|| Err(nobody())),
            End::Here(end_handle) => end_handle.reserve_now(&self.names, looked, records),
            End::Nowhere => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    fn take_end(&self, size: u64) -> io::Result<Given> {
        match &self.end {
            End::There => self.names.resize(size).unwrap_or_else(|| Err(nobody())),
            End::Here(end_handle) => end_handle.resize_now(&self.names, size),
            End::Nowhere => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Gives the end back, without waiting for an answer.
    fn settle(&self, ticket: u64, end: u64) {
        let settled = match &self.end {
            End::There => self.names.settle(ticket, end, false).unwrap_or(Ok(())),
            End::Here(end_handle) => end_handle.settle_now(&self.names, ticket, end),
            End::Nowhere => Ok(()),
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "the end of a striped file could not be given back");
        }
    }

    /// As [`StripedFile::settle`], and waits until it is noted.
    fn settle_noted(&self, ticket: u64, end: u64) -> io::Result<()> {
        match &self.end {
            End::There => self.names.settle(ticket, end, true).unwrap_or(Ok(())),
            End::Here(end_handle) => end_handle.settle_now(&self.names, ticket, end),
            End::Nowhere => Ok(()),
        }
    }

    /// Sets the size, after all appends that have ranges.
    pub(super) fn resize_to(&self, size: u64) -> io::Result<()> {
        loop {
            match self.take_end(size) {
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => self.finish_resize()?,
                given => return self.cut(given?.reserved, size, true),
            }
        }
    }

    /// Finishes what somebody has begun.
    pub(super) fn finish_resize(&self) -> io::Result<()> {
        let Given { reserved, begun, .. } = self.take_end(UNKNOWN)?;
        match begun {
            Some(size) => self.cut(reserved, size, false),
            None => {
                self.settle(reserved.ticket, UNKNOWN);
                Ok(())
            }
        }
    }

    /// Sets the size of the objects, as who has the end; `is_first`: nobody has tried to before.
    fn cut(&self, Reserved { ticket, look, .. }: Reserved, size: u64, is_first: bool) -> io::Result<()> {
        let (is_untouched, error) = match self.objects.set_size(size, look != 0) {
            Ok(()) => return self.settle_noted(ticket, size),
            Err(SizeError::Untouched(error)) => (is_first, error),
            Err(SizeError::InPart(error)) => (false, error),
        };
        // Where it cannot be so large, or nothing was cut, it is as large as it is. Else somebody has to finish it.
        let is_final = is_untouched
            || matches!(
                error.raw_os_error(),
                Some(libc::EFBIG | libc::ENOSPC | libc::EDQUOT | libc::EINVAL | libc::EPERM | libc::EACCES)
            );
        let end = if is_final { self.objects.size().unwrap_or(UNKNOWN) } else { UNKNOWN };
        self.settle_noted(ticket, end)?;
        Err(error)
    }

    /// Does something that may extend the file, while nobody else does.
    pub(super) fn with_end<R>(&self, change: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        loop {
            let Given { reserved, begun, .. } = self.take_end(UNKNOWN)?;
            if let Some(size) = begun {
                self.cut(reserved, size, false)?;
                continue;
            }
            let changed = change();
            self.settle(reserved.ticket, UNKNOWN);
            return changed;
        }
    }
}

/// Bytes of the records that are whole within the first `count` bytes.
fn done_bytes(stretch: &Stretch<'_>, count: usize) -> u64 {
    let mut done = 0;
    for queued in &stretch.records {
        if done + queued.bytes.len() > count {
            break;
        }
        done += queued.bytes.len();
    }
    done as u64
}

/// Contiguous records, in their order; those that are there already are done. Those with new ranges come last.
fn stretches<'a>(left: &[&'a Arc<Queued>], ranges: &[Range]) -> Vec<Stretch<'a>> {
    let mut stretches: Vec<Stretch<'a>> = Vec::new();
    for (queued, range) in left.iter().zip(ranges) {
        if range.is_there == range::THERE {
            queued.finish(Ok((range.offset, queued.record.bytes)));
            continue;
        }
        let is_new = range.is_there == range::NEW;
        match stretches.last_mut() {
            Some(last) if last.end() == range.offset && last.is_new == is_new => {
                last.bytes.extend_from_slice(&queued.bytes);
                last.records.push(queued);
            }
            _ => {
                let (offset, bytes) = (range.offset, queued.bytes.clone());
                stretches.push(Stretch { offset, bytes, records: vec![queued], is_new });
            }
        }
    }
    stretches.sort_by_key(|stretch| (stretch.is_new, stretch.offset));
    stretches
}

fn nobody() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}
