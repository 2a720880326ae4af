//! The process's turns: one for each place where it has written to marked files, from the first write on.
//!
//! Nobody holds the state while a turn is waited for or given back; the place is then *changing*, and other threads wait until it
//! is not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_turn::Place;
use libc::ssize_t;

use super::claims::{self, Claim};
use super::{marks, settings};
use crate::failed::{errno, guarded, set_errno};
use crate::page::borrow;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// A place is no longer changing, or a turn is over.
static CHANGED: Condvar = Condvar::new();

#[derive(Default)]
struct State {
    /// By descriptor.
    files: HashMap<c_int, Marked>,
    /// Numbers given to files so far.
    numbers: u64,
    places: Vec<Known>,
    /// Turns so far.
    turns: u64,
    /// There is a thread that ends idle turns.
    is_watched: bool,
}

/// An open file that counts.
#[derive(Clone, Copy)]
pub(super) struct Marked {
    /// Descriptors of one open file have one number.
    number: u64,
    /// Device and inode.
    identity: (u64, u64),
    /// Which of the places, once it has been written to.
    place: Option<usize>,
}

/// A place that has been written to.
struct Known {
    place: Place,
    phase: Phase,
}

enum Phase {
    Free,
    Changing,
    Held(Turn),
}

struct Turn {
    claim: Claim,
    /// Unlike that of any other turn of the process.
    number: u64,
    /// Files written in this turn that have not been closed or synced since.
    written: Vec<u64>,
    /// Writes underway.
    writing: usize,
    bytes: u64,
    last_write: Instant,
}

/// A write underway.
struct Ticket {
    place: usize,
    turn: u64,
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(state: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn turn(&mut self, place: usize) -> Option<&mut Turn> {
        match &mut self.places[place].phase {
            Phase::Held(turn) => Some(turn),
            _ => None,
        }
    }

    /// Notes the place of a file, which is looked up when the file is first written to.
    fn place(&mut self, file: u64, found: Place) {
        let known = self.places.iter().position(|known| known.place.name() == found.name());
        let place = known.unwrap_or_else(|| {
            self.places.push(Known { place: found, phase: Phase::Free });
            self.places.len() - 1
        });
        for marked in self.files.values_mut().filter(|marked| marked.number == file) {
            marked.place = Some(place);
        }
    }

    fn is_open(&self, number: u64) -> bool {
        self.files.values().any(|file| file.number == number)
    }
}

/// Notes that a descriptor is of a file that counts.
pub(super) fn add(fd: c_int, identity: (u64, u64)) {
    let mut state = lock();
    state.numbers += 1;
    let number = state.numbers;
    state.files.insert(fd, Marked { number, identity, place: None });
    marks::mark(fd);
}

/// Notes that a descriptor is about to be nobody's. Returns the files that this may be the end of.
pub(super) fn forget(fd: c_int) -> Vec<Marked> {
    if !marks::is_marked(fd) {
        return Vec::new();
    }
    marks::unmark(fd);
    lock().files.remove(&fd).into_iter().collect()
}

/// As [`forget`], for the descriptors of a range.
pub(super) fn forget_range(first: c_uint, last: c_uint) -> Vec<Marked> {
    let mut state = lock();
    let gone = state.files.extract_if(|fd, _| (first..=last).contains(&(*fd as c_uint)));
    gone.map(|(fd, file)| {
        marks::unmark(fd);
        file
    })
    .collect()
}

/// Takes back [`forget`]: the descriptor has stayed what it was.
pub(super) fn remember(fd: c_int, files: Vec<Marked>) {
    for file in files {
        lock().files.insert(fd, file);
        marks::mark(fd);
    }
}

/// Notes that a descriptor is another of the same open file.
pub(super) fn duplicate(fd: c_int, new: c_int) {
    let mut state = lock();
    let Some(file) = state.files.get(&fd).copied() else { return };
    if (new as usize) < crate::table::FDS {
        state.files.insert(new, file);
        marks::mark(new);
        drop(state);
        if new == 1 || new == 2 {
            crate::stdio::now_ours(new);
        }
    }
}

/// Carries out a write in a turn.
#[cold]
pub(super) fn write(fd: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    // A program may look at errno after a call that has succeeded.
    let before = errno();
    match begin(fd) {
        Ok(ticket) => {
            set_errno(before);
            let result = call();
            if let Some(ticket) = ticket {
                let errno = errno();
                end(&ticket, result);
                set_errno(errno);
            }
            result
        }
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Waits for the turn that a write to a marked file needs. `None` if it needs none after all.
fn begin(fd: c_int) -> Result<Option<Ticket>, c_int> {
    let mut state = lock();
    let mut is_checked = false;
    loop {
        // A turn that is not from here: of the program itself, or of its MPI library. One of ours that is being taken or given
        // back counts as inside, too, and nothing may be written in it.
        if claims::is_inside() && state.places.iter().all(|known| matches!(known.phase, Phase::Free)) {
            return Ok(None);
        }
        let Some(Marked { number, identity, place }) = state.files.get(&fd).copied() else { return Ok(None) };
        let Some(place) = place else {
            // Nobody else waits while the file system is asked: it may not answer.
            drop(state);
            let Ok(found) = guarded(|| claims::place_of(fd)) else { return Ok(None) };
            state = lock();
            state.place(number, found);
            continue;
        };
        match &mut state.places[place].phase {
            Phase::Held(turn) => {
                if !turn.written.contains(&number) {
                    turn.written.push(number);
                }
                turn.writing += 1;
                return Ok(Some(Ticket { place, turn: turn.number }));
            }
            Phase::Changing => state = wait(state),
            Phase::Free if is_checked => state = take_turn(state, place)?,
            Phase::Free => {
                drop(state);
                is_checked = is_still(fd, identity);
                state = lock();
                if !is_checked && state.files.get(&fd).is_some_and(|file| file.number == number) {
                    state.files.remove(&fd);
                    marks::unmark(fd);
                }
            }
        }
    }
}

/// Whether a descriptor is of the file that was marked. It may have been closed past us, and be a socket now.
fn is_still(fd: c_int, identity: (u64, u64)) -> bool {
    let now = borrow(fd).and_then(rustix::fs::fstat);
    now.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == identity)
}

/// Claims a place, and waits until it is this process's turn there.
fn take_turn(
    mut state: MutexGuard<'static, State>,
    place: usize,
) -> Result<MutexGuard<'static, State>, c_int> {
    let wanted = state.places[place].place.clone();
    state.places[place].phase = Phase::Changing;
    drop(state);
    let claimed = guarded(|| Claim::make(&wanted));
    let mut state = lock();
    let result = match claimed {
        Ok(claim) => {
            state.turns += 1;
            let number = state.turns;
            let turn =
                Turn { claim, number, written: Vec::new(), writing: 0, bytes: 0, last_write: Instant::now() };
            state.places[place].phase = Phase::Held(turn);
            if !state.is_watched {
                state.is_watched = start_watching();
            }
            Ok(state)
        }
        Err(failed) => {
            state.places[place].phase = Phase::Free;
            Err(crate::failed::errno_of(&failed).raw_os_error())
        }
    };
    CHANGED.notify_all();
    result
}

/// A write is over.
fn end(ticket: &Ticket, result: ssize_t) {
    let mut state = lock();
    let Some(turn) = state.turn(ticket.place).filter(|turn| turn.number == ticket.turn) else { return };
    turn.writing -= 1;
    turn.bytes += u64::try_from(result).unwrap_or(0);
    turn.last_write = Instant::now();
    end_if_done(state, ticket.place);
}

/// A file has been synced. What is written to it from now on needs another turn, unless others are being written in this one.
pub(super) fn synced(fd: c_int) {
    let errno = errno();
    let state = lock();
    if let Some(Marked { number, place: Some(place), .. }) = state.files.get(&fd).copied() {
        is_done_with(state, place, number);
    }
    set_errno(errno);
}

/// Descriptors of these files have been closed.
pub(super) fn closed(files: Vec<Marked>) {
    if files.is_empty() {
        return;
    }
    let errno = errno();
    for file in files {
        let state = lock();
        if let (Some(place), false) = (file.place, state.is_open(file.number)) {
            is_done_with(state, place, file.number);
        }
    }
    set_errno(errno);
}

fn is_done_with(mut state: MutexGuard<'static, State>, place: usize, file: u64) {
    if let Some(turn) = state.turn(place) {
        turn.written.retain(|written| *written != file);
        end_if_done(state, place);
    }
}

fn end_if_done(mut state: MutexGuard<'static, State>, place: usize) {
    if state.turn(place).is_some_and(|turn| turn.written.is_empty() && turn.writing == 0) {
        drop(give_back(state, place));
    }
}

/// Ends a turn.
fn give_back(mut state: MutexGuard<'static, State>, place: usize) -> MutexGuard<'static, State> {
    let phase = std::mem::replace(&mut state.places[place].phase, Phase::Changing);
    drop(state);
    if let Phase::Held(turn) = phase {
        let _ = guarded(|| {
            turn.claim.give_back(turn.bytes);
            Ok(())
        });
    }
    let mut state = lock();
    state.places[place].phase = Phase::Free;
    CHANGED.notify_all();
    state
}

/// Ends all turns, as the program does.
pub(crate) fn end_all() {
    if !settings::is_active() || crate::failed::is_inside() {
        return;
    }
    let mut state = lock();
    for place in 0..state.places.len() {
        if state.turn(place).is_some() {
            state = give_back(state, place);
        }
    }
}

/// Starts the thread that ends idle turns, and ends with the last turn. Without one, a turn ends when its files are closed.
fn start_watching() -> bool {
    // The program's signals are for its own threads.
    // SAFETY: both sets are made before they are used.
    let before = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = std::thread::Builder::new().name("iogate-idle".into()).stack_size(256 << 10).spawn(watch);
    // SAFETY: the mask that was there.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread.is_ok()
}

/// How long until it is looked again at a turn in which a write is going on, however soon turns end without one.
const WRITING_LOOK: Duration = Duration::from_millis(10);

fn watch() {
    let idle = settings::get().map_or(Duration::MAX, |settings| settings.idle);
    let mut state = lock();
    loop {
        let now = Instant::now();
        let mut left: Option<Duration> = None;
        let mut over = None;
        for (place, Known { phase, .. }) in state.places.iter().enumerate() {
            let Phase::Held(turn) = phase else { continue };
            let rest = match turn.writing {
                0 => idle.checked_sub(now - turn.last_write).filter(|rest| !rest.is_zero()),
                _ => Some(idle.max(WRITING_LOOK)),
            };
            match rest {
                None => over = Some(place),
                Some(rest) => left = Some(left.map_or(rest, |left| left.min(rest))),
            }
        }
        match (over, left) {
            (Some(place), _) => state = give_back(state, place),
            (None, Some(left)) => {
                state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            (None, None) => {
                state.is_watched = false;
                return;
            }
        }
    }
}

thread_local! {
    /// The state, held by a thread that forks: the child must find it whole.
    static FORKING: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Sees to it that children of `fork` take turns of their own.
pub(super) fn watch_forks() {
    // SAFETY: the three do what such functions may.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
}

extern "C" fn before_fork() {
    let state = lock();
    FORKING.with_borrow_mut(|held| *held = Some(state));
}

extern "C" fn after_fork() {
    FORKING.with_borrow_mut(Option::take);
}

extern "C" fn in_child() {
    let Some(mut state) = FORKING.with_borrow_mut(Option::take) else { return };
    state.is_watched = false;
    for place in &mut state.places {
        // The turn is the parent's to give back.
        std::mem::forget(std::mem::replace(&mut place.phase, Phase::Free));
    }
}
