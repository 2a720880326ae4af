//! The server: threads that wait for all connections together, read calls, and carry them out.
//!
//! Who reads a call carries it out, as to wake another thread costs more than most calls do. The kernel tells of what comes once, and of
//! what comes then another thread, so that what takes its time holds nobody up; of several calls that came together, others take their
//! part.

mod access;
mod budget;
mod callbacks;
mod connection;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iogate_engine::{Completion, Transfer, lock};
use iogate_vfs::Watchdog;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::rpc::records;
use crate::service::{Asked, Callbacks, Export, Front, Job, Lasting, Service, Spawn};
use crate::wire::STATUS_PROGRAM;
use access::Admission;
pub use access::{Access, Network, NetworkError};
pub use budget::Limits;
use budget::{Budget, Client};
use callbacks::ToClients;
use connection::{Charge, Connection, accept, scratch};

const LISTENER: u64 = 0;
const JOBS: u64 = 1;
const END: u64 = 2;
const RESTARTS: u64 = 3;
const FIRST_CONNECTION: u64 = 16;

/// How often files are closed that nobody uses.
const SWEEP: Duration = Duration::from_secs(5);
/// How long calls that were taken may go on when the server ends.
const DRAIN: Duration = Duration::from_secs(10);
/// Most bytes of a datagram that says that a machine was started again.
const DATAGRAM_BYTES_MAX: usize = 4 << 10;

/// All that a server needs.
pub struct ServerConfig {
    /// What is served. Handles have an export's place here in them.
    pub exports: Vec<Export>,
    /// Who may come in.
    pub access: Access,
    /// What it may spend.
    pub limits: Limits,
}

/// What a server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections.
    pub connections: usize,
    /// Calls that are underway.
    pub underway: usize,
    /// Bytes of these.
    pub bytes: usize,
    /// Calls since it began.
    pub calls: u64,
    /// Connections that were refused, and calls of those that may only ask whether the server is there.
    pub refused: u64,
}

struct Waiting {
    client: Arc<Client>,
    job: Job,
}

/// What the threads share.
struct Shared {
    epoll: OwnedFd,
    /// Counts jobs that wait.
    jobs_told: OwnedFd,
    end_told: OwnedFd,
    listener: TcpListener,
    access: Access,
    budget: Budget,
    front: OnceLock<Front>,
    callbacks: Arc<ToClients>,
    /// Where machines say that they were started again.
    restarts: OnceLock<UdpSocket>,
    jobs: Mutex<VecDeque<Waiting>>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next_token: AtomicU64,
    paused: Mutex<Vec<Arc<Connection>>>,
    paused_count: AtomicUsize,
    watchdog: Watchdog,
    handles: Mutex<Vec<JoinHandle<()>>>,
    draining: AtomicBool,
    ended: AtomicBool,
    calls: AtomicU64,
    refused: AtomicU64,
}

/// A server. Ends when dropped.
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// Serves exports to who connects to a listener.
    pub fn start(config: ServerConfig, listener: TcpListener) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let callbacks = Arc::new(ToClients::new(listener.local_addr()?.ip()));
        let shared = Arc::new(Shared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            jobs_told: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?,
            end_told: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            listener,
            access: config.access,
            budget: Budget::new(config.limits),
            front: OnceLock::new(),
            callbacks,
            restarts: OnceLock::new(),
            jobs: Mutex::default(),
            connections: Mutex::default(),
            next_token: FIRST_CONNECTION.into(),
            paused: Mutex::default(),
            paused_count: 0.into(),
            watchdog: Watchdog::default(),
            handles: Mutex::default(),
            draining: false.into(),
            ended: false.into(),
            calls: 0.into(),
            refused: 0.into(),
        });
        let weak = Arc::downgrade(&shared);
        let spawn = move |client: IpAddr, job: Job| match weak.upgrade() {
            Some(shared) => shared.queue(&shared.budget.client(client), job),
            None => job(),
        };
        let spawn: Spawn = Arc::new(spawn);
        let front = Front::new(config.exports, &spawn)?;
        let callbacks: Arc<dyn Callbacks> = Arc::clone(&shared.callbacks) as _;
        front.set_callbacks(&callbacks);
        let _ = shared.front.set(front);
        let server = Server { shared };
        server.shared.begin()?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.listener.local_addr()
    }

    /// Listens for machines that say that they were started again, by datagrams at the address and the port of the connections. Once.
    ///
    /// # Errors
    /// If the port is another one's.
    pub fn listen_for_restarts(&self) -> io::Result<()> {
        let socket = UdpSocket::bind(self.address()?)?;
        socket.set_nonblocking(true)?;
        let socket = self.shared.restarts.get_or_init(|| socket);
        let (data, flags) = (EventData::new_u64(RESTARTS), EventFlags::IN | EventFlags::EXCLUSIVE);
        Ok(epoll::add(&self.shared.epoll, socket, data, flags)?)
    }

    /// For how long handles of all exports stay good.
    pub fn lasting(&self) -> Lasting {
        self.shared.front().lasting()
    }

    /// What it does.
    pub fn counts(&self) -> Counts {
        let (underway, bytes) = self.shared.budget.underway();
        Counts {
            connections: lock(&self.shared.connections).len(),
            underway,
            bytes,
            calls: self.shared.calls.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
        }
    }

    /// Takes no more calls, answers those that were taken, and ends. May be called again.
    pub fn shutdown(&self) {
        let shared = &self.shared;
        shared.draining.store(true, Ordering::SeqCst);
        let until = Instant::now() + DRAIN;
        while shared.budget.underway().0 > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        shared.ended.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&shared.end_told, &1u64.to_ne_bytes());
        shared.watchdog.wake();
        loop {
            // The watch may be starting one.
            let handles = std::mem::take(&mut *lock(&shared.handles));
            if handles.is_empty() {
                break;
            }
            for handle in handles {
                handle.thread().unpark();
                let _ = handle.join();
            }
        }
        let connections: Vec<_> = lock(&shared.connections).values().cloned().collect();
        connections.iter().for_each(|connection| connection.close(shared));
        lock(&shared.paused).clear();
        // What was not committed is the clients' to send again; what fails here nobody could be told.
        shared.front().sweep();
        shared.front().sweep();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Shared {
    fn front(&self) -> &Front {
        self.front.get().unwrap_or_else(|| unreachable!("it is there before any thread is"))
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn begin(self: &Arc<Self>) -> io::Result<()> {
        let add = |fd: BorrowedFd<'_>, token, flags| -> io::Result<()> {
            Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
        };
        add(self.listener.as_fd(), LISTENER, EventFlags::IN | EventFlags::EXCLUSIVE)?;
        add(self.jobs_told.as_fd(), JOBS, EventFlags::IN | EventFlags::EXCLUSIVE)?;
        add(self.end_told.as_fd(), END, EventFlags::IN)?;
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..cpus.clamp(2, self.budget.limits.threads.max(2)) {
            self.start_thread()?;
        }
        let shared = Arc::clone(self);
        let watch =
            std::thread::Builder::new().name("iogate-nfs-watch".into()).spawn(move || shared.watch())?;
        self.watchdog.set_thread(watch.thread());
        lock(&self.handles).push(watch);
        let shared = Arc::clone(self);
        let sweep =
            std::thread::Builder::new().name("iogate-nfs-sweep".into()).spawn(move || shared.sweep())?;
        lock(&self.handles).push(sweep);
        let shared = Arc::clone(self);
        let locks = std::thread::Builder::new()
            .name("iogate-nfs-locks".into())
            .spawn(move || shared.look_at_locks())?;
        self.callbacks.set_thread(locks.thread());
        lock(&self.handles).push(locks);
        Ok(())
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let number = self.watchdog.add();
        let shared = Arc::clone(self);
        let started =
            std::thread::Builder::new().name(format!("iogate-nfs-{number}")).spawn(move || shared.serve());
        match started {
            Ok(handle) => lock(&self.handles).push(handle),
            Err(error) => {
                self.watchdog.remove();
                return Err(error);
            }
        }
        Ok(())
    }

    fn watch(self: Arc<Self>) {
        while !self.has_ended() {
            self.watchdog.rest(None, || self.has_ended());
            let start = || {
                if let Err(error) = self.start_thread() {
                    tracing::warn!(%error, "no further thread can be started");
                }
            };
            self.watchdog.watch(self.budget.limits.threads, None, || self.has_ended(), start);
        }
    }

    /// Closes what nobody uses, until the server ends.
    fn sweep(self: Arc<Self>) {
        iogate_engine::privileges::limit_thread_or_warn();
        while !self.has_ended() {
            std::thread::park_timeout(SWEEP);
            guarded(|| self.front().sweep());
            let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
            for connection in connections.iter().filter(|connection| connection.is_stalled()) {
                tracing::info!(client = %connection.client.address, "a client does not take its answers, or send the rest of a call: its connection is closed");
                connection.close(&self);
            }
        }
    }

    /// Looks after locks, until the server ends.
    fn look_at_locks(self: Arc<Self>) {
        iogate_engine::privileges::limit_thread_or_warn();
        while !self.has_ended() {
            let mut soon = SWEEP;
            guarded(|| soon = self.front().look_at_locks().into());
            std::thread::park_timeout(soon);
        }
    }

    fn serve(self: Arc<Self>) {
        iogate_engine::privileges::limit_thread_or_warn();
        let (mut scratch, mut calls) = (scratch(), Vec::new());
        let mut events: Vec<Event> = Vec::with_capacity(1);
        while !self.has_ended() {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "connections cannot be waited for");
                    return;
                }
            }
            let Some(event) = events.first() else { continue };
            let (token, flags) = (event.data.u64(), event.flags);
            if token == END {
                return;
            }
            self.watchdog.on_busy();
            guarded(|| match token {
                LISTENER => self.accept(),
                JOBS => self.work(),
                RESTARTS => self.hear_of_restarts(&mut scratch),
                _ => self.on_event(token, flags, &mut scratch, &mut calls),
            });
            calls.clear();
            self.watchdog.on_idle();
        }
    }

    fn accept(self: &Arc<Self>) {
        if self.is_draining() {
            return;
        }
        let (stream, address) = match accept(&self.listener) {
            Ok(accepted) => accepted,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    tracing::debug!(%error, "a connection cannot be accepted");
                    // Without descriptors the kernel would tell again at once.
                    std::thread::sleep(Duration::from_millis(10));
                }
                return;
            }
        };
        let client = self.budget.client(address.ip().to_canonical());
        let limits = &self.budget.limits;
        let admission = self.access.admission(address);
        // Who may only ask leaves room for who may do more.
        let share = if admission == Admission::Calls { 1 } else { 2 };
        let is_full = lock(&self.connections).len() >= limits.connections / share
            || client.connections.load(Ordering::SeqCst) >= limits.connections_per_client / share;
        if is_full || admission == Admission::Nothing {
            let why = if is_full { "there are too many" } else { "it is not admitted" };
            return self.count_refused(&address, why);
        }
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let connection = Connection::new(token, client, stream, admission == Admission::Calls, self);
        lock(&self.connections).insert(token, Arc::clone(&connection));
        let data = EventData::new_u64(token);
        if epoll::add(&self.epoll, connection.fd(), data, EventFlags::ET).is_err() {
            return connection.close(self);
        }
        connection.rearm(self);
    }

    /// Takes what machines say that were started again. What is no call of that, and of nobody who may call, is not answered.
    fn hear_of_restarts(&self, scratch: &mut [u8]) {
        let Some(socket) = self.restarts.get() else { return };
        let room = scratch.len().min(DATAGRAM_BYTES_MAX);
        while let Ok((got, from)) = socket.recv_from(&mut scratch[..room]) {
            if self.access.admission(from) != Admission::Calls {
                self.count_refused(&from, "it may not say that it was started again");
                continue;
            }
            let (record, client) = (&scratch[..got], from.ip().to_canonical());
            let answer = match self.front().ask(record) {
                Asked::Answered(answer) => answer,
                Asked::Other(asking) if asking.program() == STATUS_PROGRAM => {
                    self.front().status(client, &asking, record)
                }
                _ => continue,
            };
            let _ = socket.send_to(&answer.head[records::MARK_BYTES..], from);
        }
    }

    /// Anybody may try, and shall not fill the log.
    fn count_refused(&self, client: &dyn std::fmt::Display, why: &str) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(%client, why, count, "a client is refused");
        }
    }

    fn on_event(
        self: &Arc<Self>,
        token: u64,
        flags: EventFlags,
        scratch: &mut [u8],
        calls: &mut Vec<(Vec<u8>, Charge)>,
    ) {
        let connection = lock(&self.connections).get(&token).cloned();
        let Some(connection) = connection else { return };
        connection.begin();
        let is_broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if flags.contains(EventFlags::OUT) || is_broken {
            connection.flush();
        }
        let mut goes_on = true;
        if flags.contains(EventFlags::IN) || is_broken || connection.has_more() {
            let is_ending = flags.contains(EventFlags::RDHUP);
            goes_on = connection.receive(self, scratch, is_ending, calls);
        }
        // They are counted, and only then this is asked: so either the end waits for them, or they are not begun. Their client asks again.
        if self.is_draining() {
            calls.clear();
        }
        if goes_on {
            connection.rearm(self);
        } else {
            connection.close(self);
        }
        self.carry_out(&connection, calls);
    }

    /// Carries out calls that have come together.
    fn carry_out(self: &Arc<Self>, connection: &Arc<Connection>, calls: &mut Vec<(Vec<u8>, Charge)>) {
        let front = self.front();
        let address = connection.client.address;
        let (mut batch, mut first, mut gate) = (Vec::new(), None, None::<&Arc<Service>>);
        self.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
        for (record, charge) in calls.drain(..) {
            let mut asked = front.ask(&record);
            if let (false, Asked::Data(asking) | Asked::Other(asking)) = (connection.may_call, &asked) {
                self.count_refused(&address, "its port is one that any user of its machine may have");
                asked = Asked::Answered(asking.refused());
            }
            match asked {
                Asked::Answered(answer) => connection.send(answer, Some(charge)),
                Asked::Nonsense(error) => {
                    tracing::debug!(%error, client = %address, "a connection is closed");
                    connection.close(self);
                    break;
                }
                Asked::Data(asking) => {
                    let to = Arc::clone(connection);
                    let respond = move |answer| to.send(answer, Some(charge));
                    let service = front.service(&asking, &record);
                    // A batch is for one gate.
                    if let Some(other) = gate.replace(service).filter(|other| !Arc::ptr_eq(other, service)) {
                        submit(other, std::mem::take(&mut batch));
                    }
                    service.transfer(address, &asking, record, &mut batch, Box::new(respond));
                }
                Asked::Other(asking) => {
                    let (to, shared) = (Arc::clone(connection), Arc::clone(self));
                    let respond = Box::new(move |answer| to.send(answer, Some(charge)));
                    let job: Job =
                        Box::new(move || shared.front().carry_out(address, &asking, &record, respond));
                    if first.is_none() {
                        first = Some(job);
                    } else {
                        self.queue(&connection.client, job);
                    }
                }
            }
        }
        if let Some(service) = gate {
            submit(service, batch);
        }
        if let Some(job) = first {
            self.run(&connection.client, job);
        }
    }

    /// Runs a job in this thread, unless the client has as many as it may have.
    fn run(self: &Arc<Self>, client: &Arc<Client>, job: Job) {
        if client.running.fetch_add(1, Ordering::SeqCst) >= self.budget.limits.threads_per_client {
            client.running.fetch_sub(1, Ordering::SeqCst);
            return self.queue(client, job);
        }
        guarded(job);
        client.running.fetch_sub(1, Ordering::SeqCst);
        self.work_on();
    }

    /// Leaves a job to whoever has time.
    fn queue(&self, client: &Arc<Client>, job: Job) {
        lock(&self.jobs).push_back(Waiting { client: Arc::clone(client), job });
        let _ = rustix::io::write(&self.jobs_told, &1u64.to_ne_bytes());
    }

    /// Somebody has left a job.
    fn work(self: &Arc<Self>) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.jobs_told, &mut count[..]);
        self.work_on();
    }

    /// Carries out jobs while there are some whose clients may have another thread.
    fn work_on(self: &Arc<Self>) {
        loop {
            let most = self.budget.limits.threads_per_client;
            let mut jobs = lock(&self.jobs);
            let may_run = |waiting: &Waiting| waiting.client.running.load(Ordering::SeqCst) < most;
            let Some(place) = jobs.iter().position(may_run) else { return };
            let Some(Waiting { client, job }) = jobs.remove(place) else { return };
            client.running.fetch_add(1, Ordering::SeqCst);
            drop(jobs);
            guarded(job);
            client.running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A connection's client has as much underway as it may have.
    fn pause(&self, connection: &Arc<Connection>) {
        self.paused_count.fetch_add(1, Ordering::SeqCst);
        lock(&self.paused).push(Arc::clone(connection));
        // It may have got its answers just before.
        self.resume();
    }

    /// Something is not underway any more: who waits for that is read from again.
    fn resume(&self) {
        if self.paused_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut ready = Vec::new();
        lock(&self.paused).retain(|connection| {
            let is_ready = connection.is_closed() || connection.may_go_on(&self.budget);
            if is_ready {
                ready.push(Arc::clone(connection));
            }
            !is_ready
        });
        self.paused_count.fetch_sub(ready.len(), Ordering::SeqCst);
        // Not under the lock: one that cannot be read from is closed, and what it has underway is given back.
        ready.iter().for_each(|connection| connection.resume(self));
    }

    fn ask(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// A connection has ended.
    fn forget(&self, connection: &Connection) {
        let _ = epoll::delete(&self.epoll, connection.fd());
        lock(&self.connections).remove(&connection.token);
    }
}

/// Hands reads and writes of an export to its gate.
fn submit(service: &Service, batch: Vec<(Transfer, Completion)>) {
    if !batch.is_empty() {
        // SAFETY: the memory of each belongs to its completion, which the engine calls when it is done with it.
        unsafe { service.engine().submit_all(batch) };
    }
}

/// Runs what must not end the thread.
fn guarded(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!("a defect in a call: it is not answered, and the server goes on");
    }
}
