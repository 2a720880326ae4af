//! The store of an engine for C: a dispatch is carried out by a function of the program's.
//!
//! What the engine takes for the memory of a request is its slot, above as many bits as a request may have bytes: nobody follows it, and
//! the engine moves it on for a stripe as it would memory.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::{FileId, Op};
use iogate_engine::store::{Finished, Io, IoDone, OpenMode, Segment, StoreFile};
use iogate_engine::{FileHandle, Store};

use crate::Failed;
use crate::intake::Intake;
use crate::slab::Slab;
use crate::slots::{Kept, Slots};
use crate::starts;
use crate::types::{CCarryOut, CDispatch, CPart, CStart};
use crate::underway::Underway;

/// Bits of a request's bytes.
const BYTES_BITS: u32 = 32;
const _: () = assert!(usize::BITS == 64, "a slot and a place in its request are one pointer");

thread_local! {
    /// The engine that has called the innermost function of a program that this thread is in; null: it is in none.
    static INSIDE: Cell<*const Common> = const { Cell::new(ptr::null()) };
    /// A vector for the parts of a dispatch, used before by this thread.
    static SPARE: RefCell<Vec<CPart>> = const { RefCell::new(Vec::new()) };
    /// A vector for the functions that requests are over for.
    static CALLS: RefCell<Vec<(Kept, i64)>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is in a function of a program, which must not wait.
pub(crate) fn is_inside() -> bool {
    !INSIDE.get().is_null()
}

/// A file, by the program's number.
#[derive(Debug)]
pub(crate) struct CFile(pub(crate) FileId);

impl StoreFile for CFile {
    fn id(&self) -> FileId {
        self.0
    }
}

/// How the program carries out dispatches.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// It returns when it has; it may keep its thread.
    CarryOut(CCarryOut, bool),
    /// It says so later.
    Start(CStart),
}

impl How {
    /// Whether dispatches take no time of the thread that hands them out.
    pub(crate) fn is_quick(self) -> bool {
        !matches!(self, How::CarryOut(_, true))
    }
}

/// What an engine, its store and its completions share.
pub(crate) struct Common {
    pub(crate) how: How,
    /// For the program's functions; a pointer of its own.
    pub(crate) user: *mut c_void,
    pub(crate) slots: Slots,
    pub(crate) intake: Intake,
    flights: Flights,
    /// Calls of the program's `start`: the engine does not wait for them, as what they start may be over before they return.
    pub(crate) starting: Underway,
}

/// What the program has started; in lines of the cache that submitters leave alone.
#[derive(Default)]
#[repr(align(128))]
struct Flights(Mutex<Slab<Box<Flight>>>);

// SAFETY: `user` is the program's, which is told that its functions are called in any thread.
unsafe impl Send for Common {}
// SAFETY: as above; all else is `Sync`.
unsafe impl Sync for Common {}

/// A dispatch that the program has started.
pub(crate) struct Flight {
    io: Io,
    done: IoDone,
    parts: Vec<CPart>,
    pieces: Pieces,
}

impl Flight {
    fn end(self, result: io::Result<u64>) {
        let Flight { io, done, mut parts, .. } = self;
        parts.clear();
        SPARE.set(parts);
        done(io, result);
    }
}

/// Which parts are handed out now: all, or those between cancelled ones.
#[derive(Clone, Copy, Default)]
struct Pieces {
    /// The first part, and its place in `io.segments`.
    begin: usize,
    end: usize,
    /// Bytes that are accounted for, of the dispatch's beginning.
    bytes: u64,
}

/// The memory of a request as the engine knows it.
pub(crate) fn token(index: u32) -> *mut u8 {
    ptr::without_provenance_mut((index as usize + 1) << BYTES_BITS)
}

/// The slot of a request, and a place in it.
fn place(memory: *mut u8) -> (u32, usize) {
    let place = memory.addr();
    ((place >> BYTES_BITS) as u32 - 1, place & u32::MAX as usize)
}

impl Common {
    pub(crate) fn new(how: How, user: *mut c_void, queue_max: u32) -> Common {
        Common {
            how,
            user,
            slots: Slots::new(queue_max),
            intake: Intake::new(queue_max),
            flights: Flights::default(),
            starting: Underway::default(),
        }
    }

    /// Calls a function of the program's.
    fn inside<R>(&self, call: impl FnOnce() -> R) -> R {
        let before = INSIDE.replace(self);
        let result = call();
        INSIDE.set(before);
        result
    }

    /// Whether this thread is in a function that this engine has called, innermost: until that returns, the engine is not over.
    pub(crate) fn is_calling(&self) -> bool {
        ptr::eq(INSIDE.get(), self)
    }

    /// A part of a dispatch; none if its request was cancelled.
    fn part(&self, segment: &Segment, offset: u64) -> Option<CPart> {
        let (index, delta) = place(segment.memory);
        // SAFETY: the request is in the dispatch at hand, and so in use.
        let (request, kept) = unsafe { self.slots.begin(index) }?;
        let memory = if kept.memory.is_null() { kept.memory } else { kept.memory.wrapping_byte_add(delta) };
        Some(CPart { request, user: kept.user, memory, offset, bytes: segment.bytes as u32, reserved: 0 })
    }

    /// The next piece of a dispatch: its parts, without the cancelled ones before it, which count as carried out. False if there is none.
    fn next_piece(&self, io: &Io, pieces: &mut Pieces, parts: &mut Vec<CPart>) -> bool {
        parts.clear();
        pieces.begin = pieces.end;
        let mut offset = io.offset + pieces.bytes;
        for segment in &io.segments[pieces.end..] {
            match self.part(segment, offset) {
                Some(part) => parts.push(part),
                None if parts.is_empty() => {
                    pieces.begin += 1;
                    pieces.bytes += segment.bytes as u64;
                }
                None => break,
            }
            offset += segment.bytes as u64;
            pieces.end += 1;
        }
        !parts.is_empty()
    }

    /// What the program did of a piece. True if the dispatch goes on.
    fn account(io: &Io, pieces: &mut Pieces, result: io::Result<u64>) -> Result<bool, io::Error> {
        let asked: u64 = io.segments[pieces.begin..pieces.end].iter().map(|part| part.bytes as u64).sum();
        match result {
            Ok(bytes) => {
                pieces.bytes += bytes.min(asked);
                Ok(bytes >= asked)
            }
            // Of a write what came before counts; a read that is short would be at the end of its file.
            Err(_) if io.op == Op::Write && pieces.bytes > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn carry_out(&self, io: &Io, function: CCarryOut) -> io::Result<u64> {
        let mut parts = SPARE.take();
        let mut pieces = Pieces::default();
        let mut result = Ok(true);
        while matches!(result, Ok(true)) && self.next_piece(io, &mut pieces, &mut parts) {
            let dispatch = dispatch_of(io, 0, &parts);
            // SAFETY: the program's function, with its own pointer and a struct that lives until it returns.
            let bytes = self.inside(|| unsafe { function(self.user, &raw const dispatch) });
            let said = match u64::try_from(bytes) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(io::Error::from_raw_os_error(errno(bytes))),
            };
            result = Common::account(io, &mut pieces, said);
        }
        parts.clear();
        SPARE.set(parts);
        result.map(|_| pieces.bytes)
    }

    /// Goes on with a flight, by what the program has said of its piece, and with those that it says so of before its function has
    /// returned: one behind another, or they would nest.
    fn go_on(&self, flight: Box<Flight>, result: io::Result<u64>, function: CStart) {
        let mut next = Some((flight, result));
        while let Some((mut flight, result)) = next {
            match Common::account(&flight.io, &mut flight.pieces, result) {
                Ok(true) => self.hand_out(flight, function),
                Ok(false) => {
                    let bytes = flight.pieces.bytes;
                    flight.end(Ok(bytes));
                }
                Err(error) => flight.end(Err(error)),
            }
            next = starts::take(self);
        }
    }

    /// Hands the next piece of a flight to the program, or gives the engine its result.
    fn hand_out(&self, mut flight: Box<Flight>, function: CStart) {
        let Flight { io, pieces, parts, .. } = &mut *flight;
        if !self.next_piece(io, pieces, parts) {
            let bytes = flight.pieces.bytes;
            return flight.end(Ok(bytes));
        }
        let mut dispatch = dispatch_of(io, 0, parts);
        dispatch.id = self.lock().insert(flight);
        let _call = self.starting.begin();
        starts::open(self);
        // SAFETY: as in `carry_out`. The program may complete the dispatch meanwhile, and knows that its parts are gone then.
        self.inside(|| unsafe { function(self.user, &raw const dispatch) });
        starts::close();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slab<Box<Flight>>> {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dispatch that the program has started is over.
    pub(crate) fn complete(&self, handle: u64, bytes: u64, error: c_int) -> Result<(), Failed> {
        let stale = || {
            Failed::new(libc::ESTALE, "no such dispatch is in service: it has been completed, or never was")
        };
        let How::Start(function) = self.how else { return Err(stale()) };
        if error < 0 {
            return Err(Failed::invalid(format!("error is {error}: expected 0, or an errno number above")));
        }
        let mut flights = self.lock();
        let asked: u64 = {
            let flight = flights.get_mut(handle).ok_or_else(stale)?;
            flight.parts.iter().map(|part| u64::from(part.bytes)).sum()
        };
        if bytes > asked {
            return Err(Failed::invalid(format!("{bytes} bytes of a dispatch of {asked}: expected no more")));
        }
        let flight = flights.remove(handle).ok_or_else(stale)?;
        drop(flights);
        let result = if error == 0 { Ok(bytes) } else { Err(io::Error::from_raw_os_error(error)) };
        if let Some((flight, result)) = starts::put(self, flight, result) {
            self.go_on(flight, result, function);
        }
        Ok(())
    }
}

/// A request's result as C has it.
fn said(result: &io::Result<usize>) -> i64 {
    match result {
        Ok(bytes) => *bytes as i64,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && error.raw_os_error().is_none() => {
            -i64::from(libc::ESHUTDOWN)
        }
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// The errno number that the program's function has returned below zero.
fn errno(result: i64) -> c_int {
    match c_int::try_from(result.unsigned_abs()) {
        Ok(errno) if errno > 0 => errno,
        _ => libc::EIO,
    }
}

fn dispatch_of(io: &Io, id: u64, parts: &[CPart]) -> CDispatch {
    CDispatch {
        id,
        file: io.file.id().0,
        offset: parts.first().map_or(io.offset, |part| part.offset),
        bytes: parts.iter().map(|part| u64::from(part.bytes)).sum(),
        op: io.op as u32,
        target: io.target.0,
        app: io.origin.app.0,
        part_count: parts.len() as u32,
        parts: parts.as_ptr(),
    }
}

/// The store of an engine for C.
pub(crate) struct CStore(pub(crate) Arc<Common>);

impl Store for CStore {
    fn open(&self, _path: &Path, _mode: OpenMode) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "files of the C library are numbers"))
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "files of the C library are numbers"))
    }

    fn start(&self, io: Io, done: IoDone) {
        match self.0.how {
            How::CarryOut(function, _) => {
                let result = self.0.carry_out(&io, function);
                done(io, result);
            }
            How::Start(function) => {
                let flight = Flight { io, done, parts: SPARE.take(), pieces: Pieces::default() };
                // Nothing was asked for yet, and so many bytes were transferred.
                self.0.go_on(Box::new(flight), Ok(0), function);
            }
        }
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        match self.0.how {
            How::CarryOut(function, _) => Some(self.0.carry_out(io, function)),
            How::Start(_) => None,
        }
    }

    fn submits(&self) -> bool {
        true
    }

    fn finished(&self, finished: &mut Vec<Finished>) {
        let common = &self.0;
        let mut calls = CALLS.take();
        for Finished { memory, result } in &*finished {
            // SAFETY: the request is over: this is said once.
            let (kept, cancelled) = unsafe { common.slots.free(place(*memory).0) };
            let result = if cancelled { -i64::from(libc::ECANCELED) } else { said(result) };
            calls.extend(kept.map(|kept| (kept, result)));
        }
        // Before the calls, which may submit again.
        common.intake.give(finished.iter().map(|over| common.slots.handle(place(over.memory).0)));
        for (kept, result) in calls.drain(..) {
            if let Some(done) = kept.done {
                // SAFETY: the program's function and pointer.
                common.inside(|| unsafe { done(kept.user, result) });
            }
        }
        CALLS.set(calls);
    }

    fn blocks(&self) -> bool {
        !self.0.how.is_quick()
    }

    fn sync(&self, _file: &FileHandle, _data_only: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the program makes its files durable itself"))
    }
}

/// A handle on the file of a number: the thread keeps those of its last files.
pub(crate) fn file(id: u64) -> FileHandle {
    const KEPT: usize = 64;
    thread_local! {
        static FILES: RefCell<[Option<Arc<CFile>>; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
    }
    let make = || Arc::new(CFile(FileId(id)));
    // Numbers of files may be addresses, or hashes.
    let place = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
    let kept = FILES.try_with(|files| {
        let kept = &mut files.borrow_mut()[place];
        match kept {
            Some(file) if file.0.0 == id => Arc::clone(file),
            _ => Arc::clone(kept.insert(make())),
        }
    });
    // A thread that ends keeps nothing.
    kept.unwrap_or_else(|_| make())
}
