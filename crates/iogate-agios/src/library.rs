//! The library between `agios_init` and `agios_exit`: a gate by hand, and the one thread that asks it and calls the program.

use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{mem, ptr};

use iogate_core::hash::HashMap;
use iogate_core::layout::TARGETS_MAX;
use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, Time};
use iogate_engine::Clock;
use iogate_gate::Failed;
use iogate_gate::hand::{Answer, Hand, slot_of};
use iogate_gate::home::Home;
use iogate_gate::types::{CDispatch, CRequest, HAS_TARGET};

use crate::metrics::{CMetrics, Metrics};

/// Of `agios_init`.
pub(crate) type One = unsafe extern "C" fn(i64) -> *mut c_void;
/// Of `agios_init`.
pub(crate) type Several = unsafe extern "C" fn(*mut i64, i32) -> *mut c_void;
/// Of a request, with a pointer of the program's.
pub(crate) type With = unsafe extern "C" fn(i64, *mut c_void) -> *mut c_void;

/// What is called for a request.
#[derive(Clone, Copy)]
pub(crate) enum Callback {
    /// What `agios_init` was given.
    Init,
    One(One),
    With(With, *mut c_void),
}

// SAFETY: the pointer is the program's, which is told that callbacks come in another thread.
unsafe impl Send for Callback {}

/// By what a program names a request: more than one may have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    /// A hash of the file's name.
    pub(crate) file: u64,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file);
        state.write_u64(self.offset);
        state.write_u64(u64::from(self.bytes) << 1 | self.op as u64);
    }
}

pub(crate) struct Library {
    home: Home,
    clock: Clock,
    one: Option<One>,
    several: Option<Several>,
    queue_ids: u32,
    /// What was added, and the thread has not seen yet: who adds waits for nobody who decides.
    inbox: Mutex<Inbox>,
    /// The thread waits, and is to be woken: it says so with both locks held, when the inbox is empty.
    asleep: AtomicBool,
    state: Mutex<State>,
    /// Something has changed: for the thread.
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Inbox {
    requests: Vec<Added>,
    /// An empty one, used before.
    spare: Vec<Added>,
}

/// A request on its way to the gate.
struct Added {
    now: Time,
    key: Key,
    queue: u32,
    identifier: i64,
    callback: Callback,
}

struct State {
    hand: Hand,
    /// Of requests to the gate.
    flags: u32,
    /// By the slots of their handles.
    requests: Vec<Option<Known>>,
    /// All with a key, in the order in which they were added: a chain through their slots.
    by_key: HashMap<Key, Chain>,
    /// By the slots of their handles, each dispatch that callbacks have.
    out: Vec<Out>,
    metrics: Metrics,
    stop: bool,
}

/// The end of a chain.
const END: u32 = u32::MAX;

struct Chain {
    first: u32,
    last: u32,
}

struct Known {
    handle: u64,
    identifier: i64,
    callback: Callback,
    /// The dispatch, when it is with callbacks.
    out: Option<u64>,
    /// The next one with the same key.
    next: u32,
}

/// A dispatch that callbacks have.
#[derive(Clone, Copy, Default)]
struct Out {
    /// Requests not released yet.
    left: u32,
    bytes: u64,
}

/// The place for a slot, made where there is none.
fn place<T>(list: &mut Vec<T>, slot: usize, empty: fn() -> T) -> &mut T {
    if slot >= list.len() {
        list.resize_with(slot + 1, empty);
    }
    &mut list[slot]
}

impl State {
    /// Gives a request to the gate.
    fn add(&mut self, added: &Added) {
        let Added { now, key, queue, identifier, callback } = *added;
        let request = CRequest {
            size: size_of::<CRequest>(),
            file: key.file,
            offset: key.offset,
            bytes: key.bytes,
            op: key.op as u32,
            // To SW a queue is an application, to TWINS a server.
            app: queue,
            client: 0,
            target: queue,
            flags: self.flags,
            issued_ns: 0,
            user: ptr::null_mut(),
            memory: ptr::null_mut(),
            done: None,
        };
        // `Library::add` and `Key` refuse what the gate would, and there is room for all.
        let Ok(handle) = self.hand.submit(now, &request) else { return };
        let known = Known { handle, identifier, callback, out: None, next: END };
        *place(&mut self.requests, slot_of(handle), || None) = Some(known);
        let slot = slot_of(handle) as u32;
        let chain = self.by_key.entry(key).or_insert(Chain { first: slot, last: slot });
        let before = mem::replace(&mut chain.last, slot);
        if before != slot
            && let Some(before) = &mut self.requests[before as usize]
        {
            before.next = slot;
        }
        self.metrics.added(now, key.file, key.op, key.offset, key.bytes.into());
    }

    /// Takes the first request with a key that is out, or that is not.
    fn take(&mut self, key: &Key, out: bool) -> Option<Known> {
        let chain = self.by_key.get_mut(key)?;
        let (mut before, mut slot) = (END, chain.first);
        loop {
            let known = self.requests.get(slot as usize)?.as_ref()?;
            if known.out.is_some() == out {
                break;
            }
            (before, slot) = (slot, known.next);
        }
        let known = self.requests[slot as usize].take()?;
        match self.requests.get_mut(before as usize) {
            Some(Some(earlier)) => {
                earlier.next = known.next;
                if known.next == END {
                    chain.last = before;
                }
            }
            _ if known.next == END => {
                self.by_key.remove(key);
            }
            _ => chain.first = known.next,
        }
        Some(known)
    }

    /// Notes that the requests of a dispatch are out, and writes whom to call for them.
    fn hand_out(&mut self, dispatch: &CDispatch, calls: &mut Vec<(i64, Callback)>) {
        // SAFETY: the parts are the gate's until the dispatch is completed, which takes this state.
        let parts = unsafe { std::slice::from_raw_parts(dispatch.parts, dispatch.part_count as usize) };
        *place(&mut self.out, slot_of(dispatch.id), Out::default) =
            Out { left: dispatch.part_count, bytes: dispatch.bytes };
        calls.clear();
        for part in parts {
            if let Some(Some(known)) = self.requests.get_mut(slot_of(part.request)) {
                known.out = Some(dispatch.id);
                calls.push((known.identifier, known.callback));
            }
        }
    }
}

impl Library {
    /// A library with its thread.
    pub(crate) fn start(
        one: Option<One>,
        several: Option<Several>,
        scheduler: SchedulerConfig,
        queue_ids: u32,
    ) -> Result<Arc<Library>, Failed> {
        let (layout, flags) = match scheduler.kind() {
            SchedulerKind::Twins if queue_ids > TARGETS_MAX => {
                let text = format!(
                    "max_queue_id is {queue_ids}: TWINS takes them for servers, expected at most {TARGETS_MAX}"
                );
                return Err(Failed::new(libc::EINVAL, text));
            }
            // Each request says its target, so no stripe is looked at.
            SchedulerKind::Twins => (Layout { targets: queue_ids.max(1), ..Layout::SINGLE }, HAS_TARGET),
            _ => (Layout::SINGLE, 0),
        };
        // AGIOS hands out what its algorithm picks, however much is out already.
        let config = GateConfig { scheduler, queue_max: u32::MAX - 1, depth: u32::MAX, layout };
        let state = State {
            hand: Hand::new(&config)?,
            flags,
            requests: Vec::new(),
            by_key: HashMap::default(),
            out: Vec::new(),
            metrics: Metrics::default(),
            stop: false,
        };
        let library = Arc::new(Library {
            home: Home::new()?,
            clock: Clock::new(),
            one,
            several,
            queue_ids,
            inbox: Mutex::default(),
            asleep: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        });
        let for_thread = Arc::clone(&library);
        let thread = thread::Builder::new().name("iogate-agios".into()).spawn(move || for_thread.run())?;
        if let Ok(mut place) = library.thread.lock() {
            *place = Some(thread);
        }
        Ok(library)
    }

    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.home.check()
    }

    /// The state, with all that was added.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Failed> {
        let mut state = self.state.lock().map_err(|_| Failed::poisoned())?;
        let mut inbox = self.inbox()?;
        if inbox.requests.is_empty() {
            return Ok(state);
        }
        let spare = mem::take(&mut inbox.spare);
        let mut requests = mem::replace(&mut inbox.requests, spare);
        drop(inbox);
        for added in requests.drain(..) {
            state.add(&added);
        }
        self.inbox()?.spare = requests;
        Ok(state)
    }

    fn inbox(&self) -> Result<MutexGuard<'_, Inbox>, Failed> {
        self.inbox.lock().map_err(|_| Failed::poisoned())
    }

    /// Asks the gate and calls the program, until the end.
    fn run(&self) {
        // Wakes when a wait is over, not up to 50 us later.
        // SAFETY: it takes a number, and affects this thread's timers only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        let Ok(mut state) = self.lock() else { return };
        let mut calls = Vec::new();
        while !state.stop {
            let now = self.clock.now();
            match state.hand.next(now) {
                Answer::Dispatch(dispatch) => {
                    state.hand_out(&dispatch, &mut calls);
                    drop(state);
                    self.call(&calls);
                }
                Answer::Wait(until, _) => {
                    let span = Duration::from(until.since(now));
                    if self.falls_asleep() {
                        match self.changed.wait_timeout(state, span) {
                            Ok((again, _)) => drop(again),
                            Err(_) => return,
                        }
                    } else {
                        drop(state);
                    }
                }
                Answer::Idle if self.falls_asleep() => match self.changed.wait(state) {
                    Ok(again) => drop(again),
                    Err(_) => return,
                },
                Answer::Idle => drop(state),
            }
            match self.lock() {
                Ok(again) => state = again,
                Err(_) => return,
            }
        }
    }

    /// Whether nothing was added, so that the thread may sleep; who adds then wakes it.
    fn falls_asleep(&self) -> bool {
        let Ok(inbox) = self.inbox() else { return true };
        let nothing = inbox.requests.is_empty();
        self.asleep.store(nothing, Ordering::Relaxed);
        nothing
    }

    /// Lets go of the state, and has the thread ask the gate again.
    fn wake(&self, state: MutexGuard<'_, State>) {
        // Each lock orders it: the thread has said so with this one held, too.
        let asleep = self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed);
        drop(state);
        // Each needless wake-up is a call of the system.
        if asleep {
            self.changed.notify_one();
        }
    }

    fn call(&self, calls: &[(i64, Callback)]) {
        if let Some(several) = self.several
            && calls.iter().all(|(_, callback)| matches!(callback, Callback::Init))
        {
            let mut identifiers: Vec<i64> = calls.iter().map(|(identifier, _)| *identifier).collect();
            // SAFETY: the program's function, with as many identifiers as it is told.
            unsafe { several(identifiers.as_mut_ptr(), identifiers.len() as i32) };
            return;
        }
        for &(identifier, callback) in calls {
            // SAFETY: the program's functions, and its pointer.
            unsafe {
                match (callback, self.one) {
                    (Callback::One(one), _) | (Callback::Init, Some(one)) => one(identifier),
                    (Callback::With(with, user), _) => with(identifier, user),
                    // `add` refuses those.
                    (Callback::Init, None) => ptr::null_mut(),
                };
            }
        }
    }

    pub(crate) fn add(
        &self,
        key: Key,
        identifier: i64,
        queue_id: i32,
        callback: Callback,
    ) -> Result<(), Failed> {
        if matches!(callback, Callback::Init) && self.one.is_none() {
            let text = "the request has no callback, and agios_init was given none";
            return Err(Failed::new(libc::EINVAL, text));
        }
        let queue = match u32::try_from(queue_id) {
            _ if self.queue_ids == 0 => 0,
            Ok(queue) if queue < self.queue_ids => queue,
            _ => {
                let text = format!("queue_id is {queue_id}: expected 0 to {}", self.queue_ids - 1);
                return Err(Failed::new(libc::EINVAL, text));
            }
        };
        let now = self.clock.now();
        let mut inbox = self.inbox()?;
        inbox.requests.push(Added { now, key, queue, identifier, callback });
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            drop(inbox);
            // Who has said that he sleeps does so by then.
            drop(self.state.lock());
            self.changed.notify_one();
        }
        Ok(())
    }

    pub(crate) fn release(&self, key: &Key) -> Result<(), Failed> {
        // What is with a callback has left the inbox.
        let mut state = self.state.lock().map_err(|_| Failed::poisoned())?;
        let released = state.take(key, true).and_then(|known| known.out);
        let Some(dispatch) = released else {
            return Err(Failed::new(libc::ENOENT, "no such request is with a callback"));
        };
        state.metrics.released(key.bytes.into());
        let Some(out) = state.out.get_mut(slot_of(dispatch)) else { return Ok(()) };
        out.left -= 1;
        if out.left == 0 {
            let bytes = out.bytes;
            let now = self.clock.now();
            state.hand.complete(now, dispatch, bytes, false)?;
            self.wake(state);
        }
        Ok(())
    }

    pub(crate) fn cancel(&self, key: &Key) -> Result<(), Failed> {
        let mut state = self.lock()?;
        let Some(known) = state.take(key, false) else {
            return Err(Failed::new(libc::ENOENT, "no such request waits"));
        };
        state.hand.cancel(known.handle)?;
        self.wake(state);
        Ok(())
    }

    pub(crate) fn metrics(&self) -> Result<CMetrics, Failed> {
        Ok(self.lock()?.metrics.take())
    }

    /// Ends the thread, and waits for it unless this is it.
    pub(crate) fn stop(&self) {
        if let Ok(mut state) = self.lock() {
            state.stop = true;
        }
        self.changed.notify_one();
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
