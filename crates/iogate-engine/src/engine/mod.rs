//! The loop around a gate: clock, submit / next / complete, results.

mod abort;
mod accounts;
mod at_once;
mod choosing;
mod counters;
mod entitled;
mod flight;
mod frame;
mod over;
mod paths;
mod placing;
mod pool;
mod shared;
mod sharing;
mod table;
mod waiter;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::features::AppSeen;
use iogate_core::auto::{Choice, Storage};
use iogate_core::global_policy::Terms;
use iogate_core::policy::Policy;
use iogate_core::profile::Findings;
use iogate_core::recording::RecordingError;
use iogate_core::sched::ConfigError;
use iogate_core::stats::top::TopApps;
use iogate_core::{FileId, FileLayout, Gate, GateConfig, Op, Rejected, SchedulerConfig, Time};

use crate::lock::lock;
use crate::origin::Origin;
use crate::store::{FileHandle, Finished, Store};
use crate::sync::Mutex;
use abort::AbortOnUnwind;
pub use accounts::Accounts;
pub use entitled::ClassBy;
pub use paths::PathClass;
use shared::Shared;
pub use sharing::{Coordinates, SharingStatus};
use table::Done;
use waiter::Mailbox;

/// One request with the memory that it reads into or writes from.
#[derive(Debug)]
pub struct Transfer {
    /// The open file.
    pub file: FileHandle,
    /// Read or write.
    pub op: Op,
    /// First byte in the file.
    pub offset: u64,
    /// The memory: first byte.
    pub memory: *mut u8,
    /// The memory: length, and so the length of the request. Not zero.
    pub bytes: u32,
    /// Who sent it.
    pub origin: Origin,
    /// Of a write: refused with `EEXIST` if the file already reaches behind its first byte when its turn comes, and that is not by the
    /// same bytes.
    pub extends: bool,
}

// SAFETY: the memory belongs to whoever submits the transfer, who promises not to touch it until its completion.
unsafe impl Send for Transfer {}

/// Called once with the number of bytes transferred (fewer than asked for at the end of a file, or when a device
/// is full) or the store's error. May run in the submitting thread, before `submit` returns, or in any other; it
/// must not block. It may submit the next transfer, and best does so while the gate has room.
pub type Completion = Box<dyn FnOnce(io::Result<usize>) + Send>;

/// Why a transfer was not taken; its completion is not called.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The engine is shutting down.
    #[error("the gate is closed")]
    Closed,
    /// The gate refused the request: it is malformed, or has more pieces than an empty gate takes.
    #[error(transparent)]
    Rejected(Rejected),
    /// Whoever sent it has gone while it waited for room.
    #[error("nobody waits for it any more")]
    Unwanted,
}

impl From<Rejected> for SubmitError {
    fn from(rejected: Rejected) -> SubmitError {
        match rejected {
            Rejected::Closed => SubmitError::Closed,
            rejected => SubmitError::Rejected(rejected),
        }
    }
}

impl SubmitError {
    /// Whether an error, of a completion, is [`SubmitError::Unwanted`].
    pub fn is_unwanted(error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        matches!(inner, Some(SubmitError::Unwanted))
    }
}

impl From<SubmitError> for io::Error {
    fn from(error: SubmitError) -> io::Error {
        let kind = match error {
            SubmitError::Closed => io::ErrorKind::BrokenPipe,
            SubmitError::Rejected(_) => io::ErrorKind::InvalidInput,
            SubmitError::Unwanted => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

/// A gate, its clock and its store.
///
/// Where nothing is queued and the scheduler need not wait, the submitting thread carries its own request out.
/// A thread that completes a dispatch carries on with what the gate then says. The engine's own threads come in
/// where the gate has asked to be woken, where several dispatches are to be in service at once, and where a
/// submitter should not be kept.
pub struct Engine {
    shared: Arc<Shared>,
    /// Which applications metrics name.
    top: Mutex<TopApps>,
    /// Held while the policy is changed: what shares one must not be started by two at once.
    policy_changes: std::sync::Mutex<()>,
    placing: placing::Placing,
    paths: paths::Paths,
}

/// Most bytes that `read_at` and `write_at` submit as one request; what is longer is several, one after another.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

impl Engine {
    /// Starts a gate over a store. Fails if its settings are refused or no thread can be started.
    pub fn new(gate: &GateConfig, store: Arc<dyn Store>) -> io::Result<Arc<Engine>> {
        let invalid = |why: ConfigError| io::Error::new(io::ErrorKind::InvalidInput, why.to_string());
        let gate = Gate::new(gate).map_err(invalid)?;
        let shared = Arc::new(Shared::new(gate, store));
        shared.pool.start(&shared)?;
        Ok(Arc::new(Engine {
            shared,
            top: Mutex::new(TopApps::default()),
            policy_changes: Default::default(),
            placing: placing::Placing::default(),
            paths: paths::Paths::default(),
        }))
    }

    /// Submits a transfer. Blocks while the gate is full (back-pressure); one that would not fit an empty gate (it
    /// is split into more pieces than `queue_max`) is rejected.
    ///
    /// # Safety
    /// `transfer.memory` must be valid for `transfer.bytes` bytes (reads, or reads and writes for `Op::Read`),
    /// and not touched by anybody else, until the completion has been called.
    pub unsafe fn submit(self: &Arc<Self>, transfer: Transfer, done: Completion) -> Result<(), SubmitError> {
        let mut list = frame::list();
        let submitted = self.shared.accept(transfer, Done::Call(done), &mut list)?;
        self.carry_out(&mut list, Some(submitted));
        frame::recycle(list);
        Ok(())
    }

    /// Submits several transfers, which the gate has all seen before the first of them is carried out: what arrives
    /// together is ordered and aggregated together. One that is not taken completes with an error
    /// ([`io::ErrorKind::BrokenPipe`] when the engine is shutting down, else [`io::ErrorKind::InvalidInput`]).
    ///
    /// # Safety
    /// As [`Engine::submit`], for each.
    pub unsafe fn submit_all(self: &Arc<Self>, batch: impl IntoIterator<Item = (Transfer, Completion)>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.submit_all_then(batch, || true, || {}) };
    }

    /// As [`Engine::submit_all`], but the store is told what has become of them ([`Store::finished`]), for front ends that are their
    /// own stores: that needs no closure for each. A thread that `stays` carries out all that follows, too, instead of leaving it to the
    /// engine's threads after a while: for dispatches that take no time, where waking another thread costs more.
    ///
    /// # Safety
    /// As [`Engine::submit`], for each.
    pub unsafe fn submit_for_store(self: &Arc<Self>, batch: impl IntoIterator<Item = Transfer>, stays: bool) {
        let mut list = frame::list();
        let batch = batch.into_iter().map(|transfer| {
            let memory = transfer.memory;
            (transfer, Done::Tell(memory))
        });
        let (submitted, refused) = self.shared.accept_all(batch, &|| true, &mut list);
        let mut told: Vec<Finished> = (refused.into_iter())
            .filter_map(|(error, done)| match done {
                Done::Tell(memory) => Some(Finished { memory, result: Err(error.into()) }),
                Done::Call(_) | Done::Wake(_) => None,
            })
            .collect();
        if !told.is_empty() {
            self.shared.tell(&mut told);
        }
        self.carry_out(&mut list, (!stays).then_some(submitted));
        frame::recycle(list);
    }

    /// As [`Engine::submit_all`], and calls `accepted` in between: when the gate has seen all, and before this thread
    /// carries out any of them. Who submits from several threads in an order lets the next one go there.
    ///
    /// Before the first, and when one has waited for room, `is_wanted` is asked, under the gate's lock: it must be quick, and take
    /// no lock. Once it says no, that transfer and the rest complete with [`SubmitError::Unwanted`], before `accepted`. So what
    /// comes after the end of a sender, in any thread, is not followed by what the sender had waiting.
    ///
    /// # Safety
    /// As [`Engine::submit`], for each.
    pub unsafe fn submit_all_then(
        self: &Arc<Self>,
        batch: impl IntoIterator<Item = (Transfer, Completion)>,
        is_wanted: impl Fn() -> bool,
        accepted: impl FnOnce(),
    ) {
        let mut list = frame::list();
        let batch = batch.into_iter().map(|(transfer, done)| (transfer, Done::Call(done)));
        let (submitted, refused) = self.shared.accept_all(batch, &is_wanted, &mut list);
        for (error, done) in refused {
            if let Done::Call(done) = done {
                done(Err(error.into()));
            }
        }
        accepted();
        self.carry_out(&mut list, Some(submitted));
        frame::recycle(list);
    }

    /// Carries out what the gate has said to a submitter.
    fn carry_out(&self, list: &mut frame::List, submitted: Option<Time>) {
        if frame::is_open(Arc::as_ptr(&self.shared)) {
            // In a completion: the loop below it on this thread's stack carries it out.
            while let Some(work) = list.pop_front() {
                if let Some(work) = frame::put(Arc::as_ptr(&self.shared), work) {
                    self.shared.work_off(work);
                }
            }
        }
        self.shared.work(list, submitted);
    }

    /// Reads in the calling thread's name and waits for it. Fewer bytes than asked for: end of file.
    pub fn read_at(
        self: &Arc<Self>,
        file: &FileHandle,
        origin: Origin,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        // SAFETY: the buffer is borrowed exclusively until this returns.
        unsafe { self.transfer(file, origin, Op::Read, offset, buffer.as_mut_ptr(), buffer.len()) }
    }

    /// Writes in the calling thread's name and waits for it. Fewer bytes than given, as `write(2)`: the device
    /// is full, or failed after them; writing the rest tells which.
    pub fn write_at(
        self: &Arc<Self>,
        file: &FileHandle,
        origin: Origin,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<usize> {
        // SAFETY: the bytes are borrowed until this returns, and a write only reads them.
        unsafe { self.transfer(file, origin, Op::Write, offset, bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    /// Transfers and waits.
    ///
    /// # Safety
    /// `memory` must be valid for `bytes` bytes (to be written to, for `Op::Read`) until this returns.
    unsafe fn transfer(
        &self,
        file: &FileHandle,
        origin: Origin,
        op: Op,
        offset: u64,
        memory: *mut u8,
        bytes: usize,
    ) -> io::Result<usize> {
        let mut transferred = 0;
        while transferred < bytes {
            let piece = (bytes - transferred).min(TRANSFER_BYTES_MAX);
            let transfer = Transfer {
                file: FileHandle::clone(file),
                op,
                offset: offset.saturating_add(transferred as u64),
                memory: memory.wrapping_add(transferred),
                bytes: piece as u32,
                origin,
                extends: false,
            };
            match self.transfer_one(transfer) {
                Ok(got) => {
                    transferred += got;
                    if got < piece {
                        break;
                    }
                }
                // As in `Pending::into_result`: a short read would mean the end of the file.
                Err(_) if op == Op::Write && transferred > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(transferred)
    }

    fn transfer_one(&self, transfer: Transfer) -> io::Result<usize> {
        let mailbox = Mailbox::new();
        // The store may still write into the caller's memory, and the result into the mailbox.
        let _guard = AbortOnUnwind::new();
        // SAFETY: the mailbox is not moved, and this waits below whenever the waiter was accepted.
        let done = Done::Wake(unsafe { mailbox.waiter() });
        let mut list = frame::list();
        let submitted = self.shared.accept(transfer, done, &mut list)?;
        self.shared.work(&mut list, Some(submitted));
        frame::recycle(list);
        if !mailbox.is_done() && frame::has_work(Arc::as_ptr(&self.shared)) {
            // In a completion, which should not wait; if it does, others carry out what is in its hands.
            self.shared.part_with_frame();
        }
        mailbox.wait()
    }

    /// Changes the algorithm, live. From then on none is chosen.
    pub fn switch(&self, scheduler: &SchedulerConfig) {
        let Ok(()) = self.shared.pin(|_| Ok::<_, Infallible>(scheduler.clone()));
    }

    /// Says what is known of the storage, for priced waits and for [`Engine::choose`].
    pub fn know(&self, storage: Storage) {
        self.shared.know(storage);
    }

    /// Lets the algorithm be chosen from here on, beginning with the one in force, until [`Engine::switch`]. `budget` is how many
    /// requests may be simulated a second. A gate with several targets stays as it is: see [`Engine::choice`].
    pub fn choose(&self, budget: u64) -> io::Result<()> {
        self.shared.choose(budget)
    }

    /// What is chosen, and why; none if it is not.
    pub fn choice(&self) -> Option<Choice> {
        self.shared.choice()
    }

    /// What has been learnt of the storage while the algorithm was chosen, with what it began with; none if nothing was, or all is known.
    pub fn findings(&self) -> Option<Findings> {
        self.shared.findings()
    }

    /// Changes settings by a text (see [`SchedulerConfig::changed`]) for the gate that is this `node` of its layer; with
    /// `scheduler=auto` the algorithm and its parameters are chosen. The error is for people.
    pub fn set(&self, text: &str, node: u32) -> Result<(), String> {
        let mut items = text.split([',', ' ']).filter(|item| !item.is_empty());
        if items.next() == Some("scheduler=auto") {
            return match items.next() {
                Some(more) => Err(format!(
                    "'{more}' and scheduler=auto: what chooses a scheduler chooses its parameters, too"
                )),
                None => self.choose(REQUESTS_PER_S).map_err(|error| error.to_string()),
            };
        }
        self.shared.pin(|current| current.changed(text, node))
    }

    /// Says who is entitled to what, live, and what a class of it is; `None`: nobody to more than others. Front ends then give requests
    /// the application that [`Engine::class_by`] asks for; those that are in the gate keep theirs.
    ///
    /// # Errors
    /// As [`Policy::check`]; the policy before it stays.
    pub fn set_policy(&self, policy: Option<(ClassBy, &Policy)>) -> Result<(), ConfigError> {
        let _one_at_a_time = lock(&self.policy_changes);
        self.change_policy(policy)
    }

    fn change_policy(&self, policy: Option<(ClassBy, &Policy)>) -> Result<(), ConfigError> {
        let by = policy.map_or(ClassBy::App, |(by, _)| by);
        if let Some((_, policy)) = policy {
            policy.check()?;
        }
        // Nobody else may have what this gate uses by another policy from here on.
        self.shared.stop_sharing();
        self.shared.kick(|state, now| state.gate.set_policy(now, policy.map(|(_, policy)| policy)))?;
        self.placing.policy_changed(policy.is_some());
        self.paths.policy_changed(policy);
        self.shared.class_by.set(by);
        Ok(())
    }

    /// As [`Engine::set_policy`], with a policy that many gates share: this one has of it what the coordinator allots. `expected` is
    /// how many gates there are thought to be where it has never answered; 0: such a gate gets nothing.
    ///
    /// # Errors
    /// As [`Engine::set_policy`]; or no thread can be started: then there is no policy.
    pub fn share_policy(
        &self,
        by: ClassBy,
        terms: Terms,
        expected: u32,
        coordinator: Arc<dyn Coordinates>,
    ) -> Result<(), String> {
        let _one_at_a_time = lock(&self.policy_changes);
        self.change_policy(Some((by, &terms.policy))).map_err(|error| error.to_string())?;
        self.shared.share(terms, expected, coordinator).map_err(|error| {
            // Nothing would ever be allotted.
            let _ = self.change_policy(None);
            error.to_string()
        })
    }

    /// How this gate gets on with a policy that it shares; `None`: it shares none.
    pub fn sharing(&self) -> Option<SharingStatus> {
        self.shared.sharing_status()
    }

    /// What the application of a request is to be.
    pub fn class_by(&self) -> ClassBy {
        self.shared.class_by.get()
    }

    /// Gives a file a layout of its own, or takes it away. Holds for requests submitted from now on.
    pub fn set_layout(&self, file: FileId, layout: Option<Arc<FileLayout>>) {
        self.shared.set_layout(file, layout);
    }

    /// Looks at the gate (statistics, settings, length) under its lock: be quick.
    pub fn with_gate<R>(&self, look: impl FnOnce(&Gate, Time) -> R) -> R {
        let now = self.shared.clock.now();
        look(&self.shared.lock().gate, now)
    }

    /// Looks at arrivals from now on, for [`Engine::seen`]. It costs each request some 50 ns.
    pub fn watch_arrivals(&self) {
        self.shared.lock().seen.get_or_insert_default();
    }

    /// What the arrivals of each application look like since [`Engine::watch_arrivals`]: a copy, made under the gate's lock.
    pub fn seen(&self) -> Vec<AppSeen> {
        self.shared.lock().seen.as_ref().map_or_else(Vec::new, |seen| seen.apps().to_vec())
    }

    /// Reads what a recording has from event `from` on, as at most `room` bytes (see [`iogate_core::recording`]). From 0 it begins if
    /// there is none of this name; with `u64::MAX` it ends.
    pub fn record(&self, name: u64, from: u64, room: usize) -> Result<Vec<u8>, RecordingError> {
        let now = self.shared.clock.now();
        let recordings = &mut self.shared.lock().recordings;
        if from == u64::MAX {
            recordings.end(name);
            return Ok(Vec::new());
        }
        recordings.read(now, name, from, room)
    }

    /// Takes no more, completes what was accepted, stops the engine's threads. May be called again. Dropping the
    /// engine does the same. In a completion it returns at once, and the rest happens behind it.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.shutdown();
    }
}
