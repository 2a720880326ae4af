//! A gate's way to the coordinator of a policy that it shares with others.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iogate_core::coord::EXPORT;
use iogate_core::coord::claimant::{Calls, Reply};
use iogate_core::global_policy::{GateId, Grant, Report};
use iogate_core::wire::{Allotments, Goodbye, Record, ReportUse, Request};
use iogate_engine::{Coordinates, lock};
use iogate_vfs::policy_file::{Global, System, TlsFiles};

use crate::Endpoint;
use crate::system::random;
use crate::transport::auth::{Credential, group_number, user_number};
use crate::transport::blocking::{receive, send};
use crate::transport::{
    Connected, Dial, Introduction, Socket, TlsClient, TlsError, Way, connect, dial, dial_tls,
};

/// A connection is tried for at least so long, however little time is left.
const CONNECT_MIN: Duration = Duration::from_millis(1);

/// The users of this machine, and coordinators on sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisSystem;

impl System for ThisSystem {
    fn user(&self, name: &str) -> Option<u32> {
        user_number(name).ok().flatten()
    }

    fn group(&self, name: &str) -> Option<u32> {
        group_number(name).ok().flatten()
    }

    fn coordinator(&self, global: &Global) -> Result<Arc<dyn Coordinates>, String> {
        let parse = |text: &String| {
            text.parse::<Endpoint>().map_err(|_| {
                format!("the policy, global.coordinator: expected HOST:PORT or unix:PATH, found {text}")
            })
        };
        let endpoints: Vec<Endpoint> = global.coordinators.iter().map(parse).collect::<Result<_, _>>()?;
        let (auth, dial) = match &global.tls {
            Some(files) => {
                load(files).map_err(|error| format!("the policy, global.tls: {error}"))?;
                (Credential::Socket, dial_renewed(files.clone()))
            }
            None => (Credential::usual(&endpoints), Arc::new(dial) as Dial),
        };
        let mut id = [0; 8];
        random(&mut id).map_err(|error| format!("no random number for the gate: {error}"))?;
        Ok(Arc::new(Reporter {
            name: global.coordinators.join(", "),
            auth,
            endpoints,
            dial,
            gate: GateId(u64::from_le_bytes(id)),
            terms: global.terms.digest(),
            line: Mutex::default(),
        }))
    }
}

fn load(files: &TlsFiles) -> Result<TlsClient, TlsError> {
    TlsClient::load(&files.servers, &files.certificate, &files.key)
}

/// Reaches coordinators by the certificate that is there then: a gate outlives it, and has the next one without being told.
fn dial_renewed(files: TlsFiles) -> Dial {
    Arc::new(move |endpoint, timeout| {
        let tls = load(&files).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        dial_tls(tls, None)(endpoint, timeout)
    })
}

struct Reporter {
    name: String,
    endpoints: Vec<Endpoint>,
    auth: Credential,
    dial: Dial,
    gate: GateId,
    terms: u64,
    line: Mutex<Line>,
}

/// A connection to the coordinator that leads, if there is one. One that is lost takes its session with it: another one says the same.
#[derive(Default)]
struct Line {
    socket: Option<Box<dyn Socket>>,
    calls: Calls,
    /// Which of the endpoints is tried first: the one that took this gate, until it fails.
    first: usize,
    /// For the classes of a report.
    room: Vec<u8>,
}

impl Coordinates for Reporter {
    fn report(&self, report: &Report, within: Duration) -> Result<Option<Grant>, String> {
        let line = &mut *lock(&self.line);
        let mut room = std::mem::take(&mut line.room);
        let letter = report.letter(self.gate, self.terms, &mut room).map_err(|excess| excess.to_string())?;
        let answer = self.ask(line, letter, Instant::now() + within);
        line.room = room;
        match answer {
            Ok(reply) if reply.errno != 0 => Err(reply.text),
            Ok(_) if report.leaves => {
                // The coordinator need not keep the session.
                line.calls.post(&Request::Goodbye(Goodbye {}));
                let _ = self.send(line, Instant::now() + within);
                line.socket = None;
                Ok(None)
            }
            Ok(reply) => {
                let allotments = Allotments::decode(&reply.fields).map_err(|error| error.to_string())?;
                Grant::of_letter(&allotments).map(Some).map_err(|error| error.to_string())
            }
            Err(error) => {
                line.socket = None;
                // Also if it took this gate: one that hangs may do that, and answer no more.
                line.first = (line.first + 1) % self.endpoints.len();
                Err(error)
            }
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Reporter {
    /// Asks, and waits for the answer. After an error the connection is of no use.
    fn ask(&self, line: &mut Line, letter: ReportUse<'_>, deadline: Instant) -> Result<Reply, String> {
        if line.socket.is_none() {
            self.connect(line, deadline)?;
        }
        let id = line.calls.post(&Request::ReportUse(letter));
        self.send(line, deadline).map_err(|error| error.to_string())?;
        loop {
            if let Some(reply) = line.calls.take().map_err(|error| error.to_string())? {
                match reply.id {
                    0 => return Err(format!("the coordinator ends the connection: {}", reply.text)),
                    found if found == id => return Ok(reply),
                    // The answer to one that was given up.
                    _ => continue,
                }
            }
            let Some(socket) = &line.socket else { return Err("the connection is lost".into()) };
            // A whole answer has come when it can be taken: no more is read than it has.
            let missing = line.calls.missing();
            let received = receive(&**socket, line.calls.room(missing), deadline);
            line.calls.arrived(missing, if received.is_ok() { missing } else { 0 });
            received.map_err(|error| error.to_string())?;
        }
    }

    fn send(&self, line: &mut Line, deadline: Instant) -> io::Result<()> {
        let Some(socket) = &line.socket else { return Ok(()) };
        line.calls.unsent().try_for_each(|bytes| send(&**socket, bytes, deadline))?;
        line.calls.all_sent();
        Ok(())
    }

    /// Reaches the first coordinator that takes this gate, beginning with the one that did last. Each has its part of the time: one that
    /// hangs leaves some for the others.
    fn connect(&self, line: &mut Line, deadline: Instant) -> Result<(), String> {
        let mut tried = Vec::new();
        for (step, left) in (1..=self.endpoints.len() as u32).rev().enumerate() {
            let index = (line.first + step) % self.endpoints.len();
            let timeout = (deadline.saturating_duration_since(Instant::now()) / left).max(CONNECT_MIN);
            let way = Way { dial: &self.dial, timeout, auth: &self.auth };
            let name = format!("gate of pid {}", std::process::id());
            let client = Introduction { name: &name, export: EXPORT, ..Introduction::default() };
            match connect(&self.endpoints[index], &way, &client) {
                Ok(Connected { socket, welcome, .. }) => {
                    line.calls = Calls::default();
                    line.calls.linked(welcome.session, false, (welcome.uid, welcome.gid));
                    (line.socket, line.first) = (Some(socket), index);
                    return Ok(());
                }
                Err(error) => tried.push(error.of_coordinator()),
            }
        }
        Err(tried.join("; "))
    }
}
