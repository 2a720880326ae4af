//! The library between `agios_init` and `agios_exit`: a gate by hand, and the one thread that asks it and calls the program.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{mem, ptr};

use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, Time};
use iogate_engine::Clock;
use iogate_gate::Failed;
use iogate_gate::hand::{Answer, Hand};
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// A hash of the file's name.
    pub(crate) file: u64,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

pub(crate) struct Library {
    home: Home,
    clock: Clock,
    one: Option<One>,
    several: Option<Several>,
    queue_ids: u32,
    /// What was added, and the thread has not seen yet: who adds waits for nobody who decides.
    inbox: Mutex<Inbox>,
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
    /// The thread waits, and is to be woken.
    asleep: bool,
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
    requests: HashMap<u64, Known>,
    /// The handles of all with a key, in the order in which they were added.
    by_key: HashMap<Key, VecDeque<u64>>,
    /// Of each dispatch that callbacks have: requests not released yet, and bytes.
    out: HashMap<u64, (u32, u64)>,
    metrics: Metrics,
    stop: bool,
}

struct Known {
    identifier: i64,
    callback: Callback,
    /// The dispatch, when it is with callbacks.
    out: Option<u64>,
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
            flags: HAS_TARGET,
            issued_ns: 0,
            user: ptr::null_mut(),
            memory: ptr::null_mut(),
            done: None,
        };
        // `Library::add` and `Key` refuse what the gate would, and there is room for all.
        let Ok(handle) = self.hand.submit(now, &request) else { return };
        self.requests.insert(handle, Known { identifier, callback, out: None });
        self.by_key.entry(key).or_default().push_back(handle);
        self.metrics.added(now, key.file, key.op, key.offset, key.bytes.into());
    }

    /// Takes the first request with a key that is out, or that is not.
    fn take(&mut self, key: &Key, out: bool) -> Option<(u64, Known)> {
        let handles = self.by_key.get_mut(key)?;
        let fits = |handle: &u64| self.requests.get(handle).is_some_and(|known| known.out.is_some() == out);
        let place = handles.iter().position(fits)?;
        let handle = handles.remove(place)?;
        if handles.is_empty() {
            self.by_key.remove(key);
        }
        Some((handle, self.requests.remove(&handle)?))
    }

    /// Notes that the requests of a dispatch are out.
    fn hand_out(&mut self, dispatch: &CDispatch) -> Vec<(i64, Callback)> {
        // SAFETY: the parts are the gate's until the dispatch is completed, which takes this state.
        let parts = unsafe { std::slice::from_raw_parts(dispatch.parts, dispatch.part_count as usize) };
        self.out.insert(dispatch.id, (dispatch.part_count, dispatch.bytes));
        let mut calls = Vec::with_capacity(parts.len());
        for part in parts {
            if let Some(known) = self.requests.get_mut(&part.request) {
                known.out = Some(dispatch.id);
                calls.push((known.identifier, known.callback));
            }
        }
        calls
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
        // Each request says its target, so no stripe is looked at.
        let layout = Layout { targets: queue_ids.max(1), ..Layout::SINGLE };
        // AGIOS hands out what its algorithm picks, however much is out already.
        let config = GateConfig { scheduler, queue_max: u32::MAX - 1, depth: u32::MAX, layout };
        let state = State {
            hand: Hand::new(&config)?,
            requests: HashMap::new(),
            by_key: HashMap::new(),
            out: HashMap::new(),
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
        while !state.stop {
            let now = self.clock.now();
            match state.hand.next(now) {
                Answer::Dispatch(dispatch) => {
                    let calls = state.hand_out(&dispatch);
                    drop(state);
                    self.call(&calls);
                }
                Answer::Wait(until, _) => {
                    let span = Duration::from_nanos(until.since(now).as_nanos());
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
        let Ok(mut inbox) = self.inbox() else { return true };
        inbox.asleep = inbox.requests.is_empty();
        inbox.asleep
    }

    /// Lets go of the state, and has the thread ask the gate again.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let asleep = self.inbox().is_ok_and(|mut inbox| mem::take(&mut inbox.asleep));
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
        if mem::take(&mut inbox.asleep) {
            drop(inbox);
            // Who has said that he sleeps does so by then.
            drop(self.state.lock());
            self.changed.notify_one();
        }
        Ok(())
    }

    pub(crate) fn release(&self, key: &Key) -> Result<(), Failed> {
        let mut state = self.lock()?;
        let released = state.take(key, true).and_then(|(_, known)| known.out);
        let Some(dispatch) = released else {
            return Err(Failed::new(libc::ENOENT, "no such request is with a callback"));
        };
        state.metrics.released(key.bytes.into());
        let Some((left, bytes)) = state.out.get_mut(&dispatch) else { return Ok(()) };
        *left -= 1;
        if *left == 0 {
            let bytes = *bytes;
            state.out.remove(&dispatch);
            let now = self.clock.now();
            state.hand.complete(now, dispatch, bytes, false)?;
            self.wake(state);
        }
        Ok(())
    }

    pub(crate) fn cancel(&self, key: &Key) -> Result<(), Failed> {
        let mut state = self.lock()?;
        let Some((handle, _)) = state.take(key, false) else {
            return Err(Failed::new(libc::ENOENT, "no such request waits"));
        };
        state.hand.cancel(handle)?;
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
