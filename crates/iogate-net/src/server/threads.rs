//! The threads that serve connections, and the one that watches.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iogate_vfs::Watchdog;
use rustix::event::epoll::EventFlags;

use super::connection::{Connection, FromOne};
use super::incoming::ReadScratch;
use super::{Shared, THREADS_MAX, guarded, lock};
use crate::transport::poll::{FIRST_CONNECTION, WAKE};
use crate::transport::{Listener, Socket, Source, may_greet, too_many};

/// How often it looks at connections and sessions, at least.
const ROUND: Duration = Duration::from_secs(1);

/// The threads.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) watchdog: Watchdog,
    stopping: AtomicBool,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Ends all threads.
    pub(super) fn stop(&self, shared: &Shared) {
        self.stopping.store(true, Ordering::SeqCst);
        self.watchdog.wake();
        let own = std::thread::current().id();
        // The watch may be starting one.
        loop {
            let handles = std::mem::take(&mut *lock(&self.handles));
            if handles.is_empty() {
                return;
            }
            for handle in handles {
                shared.waker.wake();
                if handle.thread().id() != own {
                    let _ = handle.join();
                }
            }
        }
    }
}

/// Starts the threads.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    shared.poller.add(&shared.waker, WAKE, flags)?;
    for (index, listener) in lock(&shared.listeners).iter().enumerate() {
        shared.poller.add(listener.fd(), index as u64 + 1, EventFlags::IN | EventFlags::ONESHOT)?;
    }
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    for _ in 0..cpus.clamp(2, THREADS_MAX) {
        start_thread(shared)?;
    }
    let watched = Arc::clone(shared);
    let watch = std::thread::Builder::new().name("iogate-net-watch".into()).spawn(move || watch(&watched))?;
    shared.threads.watchdog.set_thread(watch.thread());
    lock(&shared.threads.handles).push(watch);
    Ok(())
}

fn start_thread(shared: &Arc<Shared>) -> io::Result<()> {
    let threads = &shared.threads;
    let number = threads.watchdog.add();
    let server = Arc::clone(shared);
    let started =
        std::thread::Builder::new().name(format!("iogate-net-{number}")).spawn(move || serve(&server));
    match started {
        Ok(handle) => lock(&threads.handles).push(handle),
        Err(error) => {
            threads.watchdog.remove();
            return Err(error);
        }
    }
    Ok(())
}

fn serve(shared: &Arc<Shared>) {
    iogate_engine::privileges::limit_thread_or_warn();
    let mut scratch = ReadScratch::new();
    let mut events = Vec::with_capacity(1);
    loop {
        if let Err(error) = shared.poller.wait(&mut events, None) {
            tracing::error!(%error, "waiting for connections");
            return;
        }
        if shared.threads.is_stopping() {
            // The next one ends too.
            shared.waker.wake();
            return;
        }
        let Some(event) = events.first() else { continue };
        let (token, flags) = (event.data.u64(), event.flags);
        shared.threads.watchdog.on_busy();
        guarded(|| shared.handle(token, flags, &mut scratch));
        // A panic may have left some.
        scratch.taken.clear();
        shared.threads.watchdog.on_idle();
    }
}

impl Shared {
    fn handle(self: &Arc<Self>, token: u64, flags: EventFlags, scratch: &mut ReadScratch) {
        if token == WAKE {
            let mut ready = lock(&self.ready);
            let first = ready.pop_front();
            if !ready.is_empty() {
                self.waker.wake();
            }
            drop(ready);
            if let Some(connection) = first {
                connection.serve(scratch, false);
            }
        } else if token < FIRST_CONNECTION {
            let listener = lock(&self.listeners).get(token as usize - 1).cloned();
            if let Some(listener) = listener {
                self.accept(&listener, token);
            }
        } else {
            let connection = lock(&self.connections).get(&token).cloned();
            let Some(connection) = connection else { return };
            let (readable, writable, is_there) = connection.on_event(flags);
            if writable {
                connection.flush_on();
            }
            if readable {
                connection.serve(scratch, is_there);
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &Arc<Listener>, token: u64) {
        let has_room = listener.accept_some(|socket, source| {
            if let Err(error) = self.welcome(socket, listener, source) {
                tracing::warn!(%error, "a connection could not be taken");
            }
        });
        // Else it is tried again in the next round.
        if has_room {
            self.listen(listener, token);
        }
    }

    /// Has the kernel tell of the next connection.
    fn listen(&self, listener: &Listener, token: u64) {
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        if let Err(error) = self.poller.ask(listener.fd(), token, flags)
            && !self.is_closing()
        {
            tracing::error!(%error, "no more connections at {}", listener.endpoint());
        }
    }

    fn welcome(self: &Arc<Self>, socket: Box<dyn Socket>, at: &Listener, source: Source) -> io::Result<()> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let access = Arc::clone(&at.access);
        let mut connections = lock(&self.connections);
        let mut per_client = lock(&self.per_client);
        let greeting = per_client.get(&source).map(|known| Arc::clone(&known.greeting)).unwrap_or_default();
        let connection = Connection::new(self, token, socket, access, source.clone(), Arc::clone(&greeting));
        connection.register()?;
        let from_one = per_client.entry(source).or_insert(FromOne { connections: 0, greeting });
        let all = (connections.len(), self.limits.connections);
        let own = (from_one.connections, self.limits.connections_per_client);
        let mut too_many = too_many("server", all, own);
        if may_greet(&*connection.socket, all, own)
            && let Some(refusal) = too_many.take()
        {
            let _ = connection.turned_away.set(refusal);
        }
        from_one.connections += 1;
        connections.insert(token, Arc::clone(&connection));
        drop((connections, per_client));
        if self.is_closing() {
            connection.close();
        } else if let Some(refusal) = too_many {
            connection.refuse(&refusal);
        } else {
            connection.await_readable();
        }
        Ok(())
    }

    /// Cuts off who is silent or does not read, and ends sessions that nobody has come back to.
    fn reap(&self) {
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        let (hello, stall) = (self.limits.hello_timeout, self.limits.stall_timeout);
        for connection in connections {
            if let Some(why) = connection.overdue(hello, stall) {
                tracing::warn!(peer = %connection.peer_text(), "connection cut: {why}");
                connection.close();
            }
        }
        let sessions: Vec<_> = lock(&self.sessions).values().cloned().collect();
        for session in sessions {
            if session.is_abandoned() {
                tracing::info!(name = session.name, "nobody came back to a session: its handles are closed");
                self.end(&session);
            }
        }
        for (index, listener) in lock(&self.listeners).clone().iter().enumerate() {
            self.listen(listener, index as u64 + 1);
        }
        self.pool.trim();
        // In case that those who were fed before had no need any more.
        self.feed();
        self.let_in();
        self.look_at_ends();
    }

    fn round(&self) -> Duration {
        let shortest = self.limits.hello_timeout.min(self.limits.stall_timeout).min(self.session_grace);
        ROUND.min(shortest / 4).max(Watchdog::HELD_UP)
    }
}

/// Starts further threads when those that there are do not get on, and looks round from time to time.
fn watch(shared: &Arc<Shared>) {
    let threads = &shared.threads;
    let round = shared.round();
    let mut looked = Instant::now();
    let is_stopping = || threads.is_stopping();
    while !is_stopping() {
        threads.watchdog.watch(THREADS_MAX, Some(looked + round), is_stopping, || {
            if let Err(error) = start_thread(shared) {
                tracing::warn!(%error, "no further thread for connections");
            }
        });
        if looked.elapsed() >= round {
            shared.reap();
            looked = Instant::now();
        }
        threads.watchdog.rest(Some(round.saturating_sub(looked.elapsed())), is_stopping);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
    use iogate_engine::Engine;
    use iogate_engine::store::DirectoryStore;
    use iogate_vfs::DirectoryTree;

    use super::*;
    use crate::Endpoint;
    use crate::server::{Export, Server, ServerConfig};
    use crate::transport::auth::Policy;

    /// A socket of which the kernel has nothing to tell: it is a directory.
    struct NoSocket(OwnedFd);

    impl Socket for NoSocket {
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn read(&self, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    #[test]
    fn nothing_is_kept_of_a_connection_that_cannot_be_taken() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DirectoryStore::new(dir.path()).unwrap());
        let tree = Arc::new(DirectoryTree::new(dir.path(), store.clone()).unwrap());
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let gate = GateConfig { scheduler, queue_max: 64, depth: 8, layout: Layout::SINGLE };
        let export = Export::new("files", Engine::new(&gate, store).unwrap(), tree);
        let config = ServerConfig::alone(vec![export]);
        let endpoint = Endpoint::Unix(dir.path().join("socket"));
        let server = Server::start(config, vec![Listener::bind(&endpoint, Policy::Peer).unwrap()]).unwrap();
        let shared = &server.shared;
        let at = Arc::clone(&lock(&shared.listeners)[0]);
        let socket = NoSocket(std::fs::File::open(dir.path()).unwrap().into());
        let taken = shared.welcome(Box::new(socket), &at, Source::User(7));
        assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(lock(&shared.per_client).is_empty() && lock(&shared.connections).is_empty());
    }
}
