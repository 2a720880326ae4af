//! A small coordinator around the lock table, which a test can stop, start again, and make forget.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iogate_core::coord::{
    Admission, Claim, CoordConfig, Decision, Entry, Grant, PlaceId, Refused, SessionId, Table, Targets, Token,
};
use iogate_core::wire::{
    Failure, Granted, Hello, Offset, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, Renewed, ReplyHeader,
    Request, RequestHeader, Welcome,
};
use iogate_core::{Span, Time};
use iogate_net::Endpoint;
use iogate_testkit::ports::bound;

/// What outlives the coordinator's process.
#[derive(Default)]
pub(crate) struct Journal {
    entries: Vec<Entry>,
    sessions: HashMap<[u8; 16], SessionId>,
    places: Vec<Vec<u8>>,
    token: u64,
}

pub(crate) struct Coordinator {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    endpoint: Endpoint,
}

struct Shared {
    since: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    table: Table,
    journal: Journal,
    connections: HashMap<u64, Connected>,
    is_stopped: bool,
    /// Tests: what is answered to every Hello.
    refusal: Option<(u16, String)>,
    /// Tests: what is answered to every claim.
    claim_refusal: Option<(u16, String)>,
    /// Tests: nothing is read any more.
    is_deaf: bool,
    /// Requests that came since.
    unheard: usize,
    /// Turns that were renewed.
    renewals: usize,
}

struct Connected {
    session: Option<SessionId>,
    stream: OwnedFd,
}

trait Stream: Read + Write + Send {
    fn twin(&self) -> io::Result<OwnedFd>;
}

impl<T: Read + Write + Send + AsFd> Stream for T {
    fn twin(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Coordinator {
    pub(crate) fn start(endpoint: &Endpoint, config: CoordConfig) -> Coordinator {
        Coordinator::restart(endpoint, config, Journal::default())
    }

    /// With what a coordinator before it has left.
    pub(crate) fn restart(endpoint: &Endpoint, config: CoordConfig, journal: Journal) -> Coordinator {
        let (listener, endpoint) = match endpoint {
            Endpoint::Tcp { host, port } => {
                let listener = bound(|| TcpListener::bind((host.as_str(), *port)));
                let port = listener.local_addr().unwrap().port();
                (Listener::Tcp(listener), Endpoint::Tcp { host: host.clone(), port })
            }
            Endpoint::Unix(path) => {
                let _ = std::fs::remove_file(path);
                (Listener::Unix(UnixListener::bind(path).unwrap()), endpoint.clone())
            }
        };
        let entries = journal.entries.clone();
        let shared = Arc::new(Shared {
            since: Instant::now(),
            state: Mutex::new(State {
                table: Table::restore(config, Time::ZERO, Token(journal.token), entries),
                journal,
                connections: HashMap::new(),
                is_stopped: false,
                refusal: None,
                claim_refusal: None,
                is_deaf: false,
                unheard: 0,
                renewals: 0,
            }),
            changed: Condvar::new(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&shared, &listener))
        };
        let ticking = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut state = ticking.lock();
            while !state.is_stopped {
                let next = state.decide(ticking.now());
                let wait = next.map_or(Duration::from_secs(3600), |until| {
                    Duration::from_nanos(until.since(ticking.now()).as_nanos()) + Duration::from_millis(1)
                });
                state = ticking.changed.wait_timeout(state, wait).unwrap().0;
            }
        });
        Coordinator { shared, accepting: Some(accepting), endpoint }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    pub(crate) fn refuse(&self, errno: i32, text: &str) {
        self.shared.lock().refusal = Some((errno as u16, text.into()));
    }

    pub(crate) fn refuse_claims(&self, errno: i32, text: &str) {
        self.shared.lock().claim_refusal = Some((errno as u16, text.into()));
    }

    pub(crate) fn accept(&self) {
        let mut state = self.shared.lock();
        (state.refusal, state.claim_refusal) = (None, None);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for connected in self.shared.lock().connections.values() {
            let _ = rustix::net::shutdown(&connected.stream, rustix::net::Shutdown::Both);
        }
    }

    /// Reads nothing any more, as a process that was stopped.
    pub(crate) fn be_deaf(&self, is_deaf: bool) {
        self.shared.lock().is_deaf = is_deaf;
        self.shared.changed.notify_all();
    }

    /// Requests that it has not looked at, as it is deaf.
    pub(crate) fn unheard(&self) -> usize {
        self.shared.lock().unheard
    }

    pub(crate) fn waiting(&self) -> usize {
        let state = self.shared.lock();
        state.table.entries().filter(|entry| entry.standing == iogate_core::coord::Standing::Waiting).count()
    }

    pub(crate) fn entries(&self) -> usize {
        self.shared.lock().table.entries().count()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    pub(crate) fn renewals(&self) -> usize {
        self.shared.lock().renewals
    }

    pub(crate) fn evict(&self, token: u64) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.table.evict(now, Token(token)).unwrap();
        state.decide(now);
    }

    /// Waits until something holds of it, at most 20 seconds.
    #[track_caller]
    pub(crate) fn wait_until(&self, holds: impl Fn(&Coordinator) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            assert!(since.elapsed() < Duration::from_secs(60), "it does not come to that");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops as a process that is killed; returns what its journal has.
    pub(crate) fn kill(mut self) -> Journal {
        self.stop();
        let mut state = self.shared.lock();
        let mut journal = std::mem::take(&mut state.journal);
        journal.entries = state.table.entries().cloned().collect();
        journal
    }

    fn stop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
        self.cut();
        // Wakes the one that accepts.
        match &self.endpoint {
            Endpoint::Tcp { host, port } => drop(std::net::TcpStream::connect((host.as_str(), *port))),
            Endpoint::Unix(path) => drop(UnixStream::connect(path)),
        }
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn now(&self) -> Time {
        Time::from_nanos(self.since.elapsed().as_nanos() as u64)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Does what is due, and says when something will be.
    fn decide(&mut self, now: Time) -> Option<Time> {
        let until = loop {
            match self.table.next(now) {
                Decision::Granted(grant) => self.grant(&grant),
                Decision::Lost(_) => {}
                Decision::WaitUntil(until) => break Some(until),
                Decision::Idle => break None,
            }
        };
        self.table.changes().for_each(drop);
        until
    }

    fn grant(&mut self, grant: &Grant) {
        let lease = self.table.config().lease.as_nanos();
        self.journal.token = self.journal.token.max(grant.token.0);
        let granted = Granted {
            token: grant.token.0,
            lease,
            waited: grant.waited.as_nanos(),
            share: grant.share,
            admission: match grant.admission {
                Admission::InTurn => 0,
                Admission::Overdue => 1,
                Admission::Joined => 2,
            },
        };
        self.reply_to(grant.session, grant.request, 0, |fields| granted.encode(fields));
    }

    fn reply_to(&self, session: SessionId, id: u64, errno: u16, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(found) = self.connections.values().find(|found| found.session == Some(session)) {
            let _ = reply(&found.stream, id, errno, encode);
        }
    }

    fn place(&mut self, name: &[u8]) -> PlaceId {
        let places = &mut self.journal.places;
        let index = places.iter().position(|place| place == name).unwrap_or_else(|| {
            places.push(name.to_vec());
            places.len() - 1
        });
        PlaceId(index as u32)
    }
}

fn reply(
    stream: &OwnedFd,
    id: u64,
    errno: u16,
    encode: impl FnOnce(&mut Vec<u8>),
) -> rustix::io::Result<usize> {
    let mut bytes = vec![0; REPLY_HEADER_BYTES];
    encode(&mut bytes);
    let header = ReplyHeader { fields: (bytes.len() - REPLY_HEADER_BYTES) as u16, payload: 0, errno, id };
    bytes[..REPLY_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    rustix::net::send(stream, &bytes, rustix::net::SendFlags::NOSIGNAL)
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    for number in 0.. {
        let stream: Box<dyn Stream> = match listener {
            Listener::Tcp(listener) => {
                let stream = listener.accept().unwrap().0;
                stream.set_nodelay(true).unwrap();
                Box::new(stream)
            }
            Listener::Unix(listener) => Box::new(listener.accept().unwrap().0),
        };
        let mut state = shared.lock();
        if state.is_stopped {
            return;
        }
        let twin = stream.twin().unwrap();
        state.connections.insert(number, Connected { session: None, stream: twin });
        drop(state);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let _ = serve(&shared, number, stream);
            let mut state = shared.lock();
            let now = shared.now();
            if let Some(Connected { session: Some(session), stream }) = state.connections.remove(&number) {
                let _ = rustix::net::shutdown(&stream, rustix::net::Shutdown::Both);
                if !state.is_stopped
                    && !state.connections.values().any(|other| other.session == Some(session))
                {
                    state.table.disconnected(now, session);
                    state.decide(now);
                    shared.changed.notify_all();
                }
            }
        });
    }
}

fn serve(shared: &Arc<Shared>, number: u64, mut stream: Box<dyn Stream>) -> io::Result<()> {
    loop {
        let mut header = [0; REQUEST_HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let header = RequestHeader::from_bytes(&header).map_err(io::Error::other)?;
        let mut fields = vec![0; header.fields.into()];
        stream.read_exact(&mut fields)?;
        let request = Request::decode(header.kind, &fields).map_err(io::Error::other)?;
        let mut state = shared.lock();
        if state.is_deaf {
            state.unheard += 1;
            state = shared.changed.wait_while(state, |state| state.is_deaf && !state.is_stopped).unwrap();
            state.unheard -= 1;
        }
        if state.is_stopped {
            return Ok(());
        }
        assert!(header.acked <= header.id, "{header:?}");
        let now = shared.now();
        let twin = stream.twin()?;
        let id = header.id;
        let session = state.connections.get(&number).and_then(|connected| connected.session);
        let done = |result: Result<(), Refused>| match result {
            Ok(()) => reply(&twin, id, 0, |_| {}),
            Err(refused) => refuse(&twin, id, &refused),
        };
        match (request, session) {
            (Request::Hello(hello), None) => welcome(&mut state, number, &hello, &twin, now)?,
            (_, None) => return Ok(()),
            (Request::Goodbye(_), Some(session)) => {
                state.table.goodbye(now, session);
                done(Ok(()))?;
            }
            (Request::Ping(_), _) => {
                reply(&twin, id, 0, |fields| Offset { offset: 0 }.encode(fields))?;
            }
            (Request::Claim(_), Some(_)) if state.claim_refusal.is_some() => {
                let (errno, text) = state.claim_refusal.as_ref().unwrap();
                reply(&twin, id, *errno, |fields| Failure { text: text.as_bytes() }.encode(fields))?;
            }
            (Request::Claim(claim), Some(session)) => {
                let claim = Claim {
                    session,
                    request: id,
                    targets: Targets {
                        place: state.place(claim.place),
                        members: claim
                            .members
                            .chunks(4)
                            .map(|m| u32::from_le_bytes(m.try_into().unwrap()))
                            .collect(),
                    },
                    party: claim.party.iter().fold(0, |all, byte| all * 31 + u64::from(*byte)),
                    bytes: claim.bytes,
                    weight: claim.weight.max(1),
                    period: Span::from_nanos(claim.period),
                };
                if let Err(refused) = state.table.claim(now, claim) {
                    refuse(&twin, id, &refused)?;
                }
            }
            (Request::Release(release), Some(session)) => {
                done(state.table.release(now, session, Token(release.token), release.bytes))?;
            }
            (Request::Renew(renew), Some(session)) => {
                match state.table.renew(now, session, Token(renew.token)) {
                    Ok(until) => {
                        state.renewals += 1;
                        let lease = until.since(now).as_nanos();
                        reply(&twin, id, 0, |fields| Renewed { lease }.encode(fields))?
                    }
                    Err(refused) => refuse(&twin, id, &refused)?,
                };
            }
            (Request::Cancel(cancel), Some(session)) => {
                let cancelled = state.table.cancel(now, session, cancel.claim);
                if cancelled.is_ok() {
                    failure(&twin, cancel.claim, libc::ECANCELED, "cancelled")?;
                }
                done(cancelled)?;
            }
            (_, Some(_)) => {
                failure(&twin, id, libc::EOPNOTSUPP, "not here")?;
            }
        }
        state.decide(now);
        shared.changed.notify_all();
    }
}

fn welcome(
    state: &mut State,
    number: u64,
    hello: &Hello<'_>,
    stream: &OwnedFd,
    now: Time,
) -> rustix::io::Result<()> {
    if let Some((errno, text)) = &state.refusal {
        return failure(stream, 0, i32::from(*errno), text).map(drop);
    }
    assert_eq!(hello.export, b"turns");
    let known = state.journal.sessions.get(&hello.session).copied();
    let mut name = hello.session;
    let session = known.unwrap_or_else(|| {
        let next = state.journal.sessions.len() as u64 + 1;
        name = [0; 16];
        name[..8].copy_from_slice(&next.to_le_bytes());
        name[8..].copy_from_slice(&(std::ptr::from_ref(state) as u64).to_le_bytes());
        state.journal.sessions.insert(name, SessionId(next));
        SessionId(next)
    });
    for (_, before) in state.connections.iter().filter(|(_, before)| before.session == Some(session)) {
        let _ = rustix::net::shutdown(&before.stream, rustix::net::Shutdown::Both);
    }
    state
        .connections
        .values_mut()
        .filter(|other| other.session == Some(session))
        .for_each(|other| other.session = None);
    if let Some(connected) = state.connections.get_mut(&number) {
        connected.session = Some(session);
    }
    state.table.connected(now, session);
    let welcome = Welcome { instance: 1, credits: 64, nodes: 1, ..Welcome::to(name, known.is_some()) };
    reply(stream, 0, 0, |fields| welcome.encode(fields)).map(drop)
}

fn refuse(stream: &OwnedFd, id: u64, refused: &Refused) -> rustix::io::Result<usize> {
    let errno = match refused {
        Refused::NotHeld { .. } => libc::ESTALE,
        Refused::Again { .. } => libc::EDEADLK,
        Refused::Full { .. } => libc::EAGAIN,
        Refused::NotWaiting { .. } | Refused::Malformed => libc::EINVAL,
    };
    failure(stream, id, errno, &refused.to_string())
}

fn failure(stream: &OwnedFd, id: u64, errno: i32, text: &str) -> rustix::io::Result<usize> {
    reply(stream, id, errno as u16, |fields| Failure { text: text.as_bytes() }.encode(fields))
}
