//! The requests of a worker's calls: carried out by threads, so that all of a call are in progress at once.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use iogate_core::Op;
use serde::{Deserialize, Serialize};

use super::target::Target;

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) file: Arc<Target>,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl Request {
    /// Carries it out; `buffer` becomes as long as the request at least.
    fn carry_out(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        if buffer.len() < self.bytes {
            buffer.resize(self.bytes, 0x5a);
        }
        match self.op {
            Op::Read => self.file.read_at(self.offset, &mut buffer[..self.bytes]),
            Op::Write => self.file.write_at(self.offset, &buffer[..self.bytes]),
        }
    }
}

/// What was measured of calls that completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) bytes: u64,
    pub(super) time_ns: u64,
    pub(super) time_max_ns: u64,
    /// Requests, and from the start of each to its end, summed.
    pub(super) requests: u64,
    pub(super) request_time_ns: u64,
    /// Bytes of calls that completed in each I/O phase.
    pub(super) phase_bytes: Vec<u64>,
}

/// Calls in progress, and the threads that carry out their requests.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
    /// For a process without threads.
    buffer: Vec<u8>,
}

struct Shared {
    state: Mutex<State>,
    /// There are requests, or it is over.
    work: Condvar,
    /// A call is complete.
    completed: Condvar,
    clock: fn() -> u64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Request, u64)>,
    /// Calls in progress, by their numbers.
    calls: VecDeque<Call>,
    first_call: u64,
    in_progress: u32,
    in_phase: bool,
    tally: Tally,
    error: Option<io::Error>,
    over: bool,
}

#[derive(Clone, Copy)]
struct Call {
    open: u32,
    bytes: u64,
    issued: u64,
}

impl Pool {
    /// With so many threads, and a clock in nanoseconds.
    pub(super) fn new(threads: u32, clock: fn() -> u64) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            completed: Condvar::new(),
            clock,
        });
        let mut pool = Pool { shared, threads: Vec::new(), buffer: Vec::new() };
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            pool.threads.push(thread.spawn(move || shared.work_off())?);
        }
        Ok(pool)
    }

    /// Issues a call. Without threads, it is complete then.
    pub(super) fn issue(&mut self, requests: &[Request]) -> io::Result<()> {
        let bytes = requests.iter().map(|request| request.bytes as u64).sum();
        let call = Call { open: requests.len() as u32, bytes, issued: (self.shared.clock)() };
        if self.threads.is_empty() {
            let mut start = call.issued;
            for request in requests {
                request.carry_out(&mut self.buffer)?;
                let end = (self.shared.clock)();
                self.shared.lock().tally_request(start, end);
                start = end;
            }
            self.shared.lock().tally(&call, start);
            return Ok(());
        }
        let mut state = self.shared.lock();
        let number = state.first_call + state.calls.len() as u64;
        state.calls.push_back(call);
        state.in_progress += 1;
        state.queue.extend(requests.iter().map(|request| (request.clone(), number)));
        drop(state);
        // As many as there are requests: the others would only look, and sleep again.
        requests.iter().for_each(|_| self.shared.work.notify_one());
        Ok(())
    }

    /// Waits until at most so many calls are in progress.
    pub(super) fn wait_for(&self, most: u32) -> io::Result<()> {
        let state = self.shared.lock();
        let waits = |state: &mut State| state.in_progress > most && state.error.is_none();
        let mut state =
            self.shared.completed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.error.take().map_or(Ok(()), Err)
    }

    /// An I/O phase begins or has ended.
    pub(super) fn phase(&self, begins: bool) {
        let mut state = self.shared.lock();
        state.in_phase = begins;
        if begins {
            state.tally.phase_bytes.push(0);
        }
    }

    /// What was measured, once no call is in progress.
    pub(super) fn tally(&self) -> Tally {
        self.shared.lock().tally.clone()
    }
}

/// Threads call nothing deep.
const STACK_BYTES: usize = 128 << 10;

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread: carries out requests until it is over.
    fn work_off(&self) {
        let mut buffer = Vec::new();
        let mut state = self.lock();
        loop {
            let Some((request, call)) = state.queue.pop_front() else {
                if state.over {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let start = (self.clock)();
            let result = request.carry_out(&mut buffer);
            let end = (self.clock)();
            state = self.lock();
            state.tally_request(start, end);
            match result {
                Ok(()) => state.done(call, end),
                Err(error) => state.error = Some(error),
            }
            self.completed.notify_all();
        }
    }
}

impl State {
    /// A request of a call is complete.
    fn done(&mut self, number: u64, now: u64) {
        let call = &mut self.calls[(number - self.first_call) as usize];
        call.open -= 1;
        if call.open > 0 {
            return;
        }
        let call = *call;
        self.in_progress -= 1;
        self.tally(&call, now);
        while self.calls.front().is_some_and(|call| call.open == 0) {
            self.calls.pop_front();
            self.first_call += 1;
        }
    }

    fn tally_request(&mut self, start: u64, end: u64) {
        self.tally.requests += 1;
        self.tally.request_time_ns += end.saturating_sub(start);
    }

    fn tally(&mut self, call: &Call, now: u64) {
        let took = now.saturating_sub(call.issued);
        let tally = &mut self.tally;
        tally.calls += 1;
        tally.bytes += call.bytes;
        tally.time_ns += took;
        tally.time_max_ns = tally.time_max_ns.max(took);
        if self.in_phase
            && let Some(bytes) = tally.phase_bytes.last_mut()
        {
            *bytes += call.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Each look is a nanosecond.
    fn ticks() -> u64 {
        static TICKS: AtomicU64 = AtomicU64::new(0);
        TICKS.fetch_add(1, Ordering::Relaxed)
    }

    #[test]
    fn calls_complete_with_and_without_threads() {
        for threads in [0, 3] {
            let mounted = tempfile::tempfile().unwrap();
            let file = Arc::new(Target::Mounted(mounted.try_clone().unwrap()));
            let mut pool = Pool::new(threads, ticks).unwrap();
            let request = |offset, bytes| Request { file: file.clone(), op: Op::Write, offset, bytes };
            pool.issue(&[request(0, 10)]).unwrap();
            pool.wait_for(0).unwrap();
            pool.phase(true);
            pool.issue(&[request(10, 5), request(20, 5), request(30, 5)]).unwrap();
            pool.issue(&[request(40, 2)]).unwrap();
            pool.wait_for(0).unwrap();
            pool.phase(false);
            let tally = pool.tally();
            assert_eq!((tally.calls, tally.bytes, tally.phase_bytes), (3, 27, vec![17]), "{threads} threads");
            assert!(tally.time_max_ns > 0 && tally.time_ns >= tally.time_max_ns);
            assert_eq!(mounted.metadata().unwrap().len(), 42);
        }
    }

    #[test]
    fn a_read_past_the_end_of_a_file_is_an_error() {
        for threads in [0, 2] {
            let mounted = tempfile::tempfile().unwrap();
            let file = Arc::new(Target::Mounted(mounted.try_clone().unwrap()));
            let mut pool = Pool::new(threads, ticks).unwrap();
            let request = Request { file, op: Op::Read, offset: 0, bytes: 1 };
            let result = pool.issue(&[request]).and_then(|()| pool.wait_for(0));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
