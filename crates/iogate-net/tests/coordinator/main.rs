//! A coordinator over real sockets, and clients made by hand.

mod gates;
mod hostile;
mod keeping;
#[path = "../server/raw.rs"]
#[expect(dead_code, reason = "a coordinator serves no files")]
mod raw;
mod turns;

use std::path::Path;
use std::time::{Duration, Instant};

use iogate_core::coord::CoordConfig;
use iogate_core::wire::*;
use iogate_net::coordinator::{Coordinator, CoordinatorConfig, EXPORT, Journal, Local, Status};
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener};
use iogate_vfs::Caller;
use raw::{Raw, Reply};

/// A coordinator over TCP (anybody is user 7) and a Unix socket.
struct Setup {
    coordinator: Coordinator,
    _sockets: tempfile::TempDir,
}

/// Rules with a lease that tests can wait for.
fn config(rules: &str) -> CoordinatorConfig {
    CoordinatorConfig { table: CoordConfig::parse(rules).unwrap(), ..CoordinatorConfig::default() }
}

impl Setup {
    /// With these rules, and a journal that is thrown away.
    fn new(rules: &str) -> Setup {
        Setup::with(config(rules))
    }

    fn with(config: CoordinatorConfig) -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let journal = Local::open(dir.path()).unwrap();
        Setup::over(config, Box::new(journal))
    }

    /// That keeps its state in a directory.
    fn at(dir: &Path, rules: &str) -> Setup {
        Setup::over(config(rules), Box::new(Local::open(dir).unwrap()))
    }

    fn over(config: CoordinatorConfig, journal: Box<dyn Journal>) -> Setup {
        let sockets = tempfile::tempdir().unwrap();
        let anybody = Policy::None { user: Caller::new(7, 8), on_any_network: false };
        let tcp = Listener::bind(&"127.0.0.1:0".parse().unwrap(), anybody).unwrap();
        let unix = Listener::bind(&Endpoint::Unix(sockets.path().join("socket")), Policy::Peer).unwrap();
        let coordinator = Coordinator::start(config, vec![tcp, unix], journal).unwrap();
        Setup { coordinator, _sockets: sockets }
    }

    fn tcp(&self) -> &Endpoint {
        &self.coordinator.endpoints()[0]
    }

    fn unix(&self) -> &Endpoint {
        &self.coordinator.endpoints()[1]
    }

    fn status(&self) -> Status {
        self.coordinator.status().unwrap()
    }

    fn client(&self) -> Raw {
        Raw::greet_with(self.unix(), hello())
    }
}

fn hello() -> Hello<'static> {
    Hello { export: EXPORT.as_bytes(), ..raw::hello() }
}

/// Goes on with a session.
fn resume(endpoint: &Endpoint, before: &Raw) -> Raw {
    let session = before.welcome.unwrap().session;
    let mut raw = Raw::greet_with(endpoint, Hello { session, ..hello() });
    (raw.next, raw.acked) = (before.next, before.acked);
    raw
}

fn place(place: &'static str) -> Claim<'static> {
    Claim { bytes: 0, weight: 0, period: 0, place: place.as_bytes(), members: b"", party: b"", label: b"job" }
}

impl Raw {
    fn claim(&mut self, claim: Claim<'_>) -> u64 {
        self.send(&Request::Claim(claim), &[])
    }

    /// Claims, and waits until it is granted.
    fn turn(&mut self, claim: Claim<'_>) -> u64 {
        let granted: Granted = self.ask(&Request::Claim(claim), &[]).ok();
        granted.token
    }

    fn release(&mut self, token: u64) -> Reply {
        self.ask(&Request::Release(Release { token, bytes: 5 }), &[])
    }

    fn renew(&mut self, token: u64) -> Reply {
        self.ask(&Request::Renew(Renew { token }), &[])
    }

    /// It is refused, with this errno and text.
    fn refused(&mut self, request: &Request<'_>, errno: i32, text: &str) {
        let reply = self.ask(request, &[]);
        assert!(
            reply.errno == errno && reply.text().contains(text),
            "{request:?}: {} {}",
            reply.errno,
            reply.text()
        );
    }

    /// The answer to a request that was sent before.
    fn granted(&mut self, id: u64) -> u64 {
        let reply = self.reply();
        assert_eq!(reply.id, id, "{reply:?}");
        reply.ok::<Granted>().token
    }

    /// Nothing has come.
    fn is_silent(&mut self) {
        let reply = self.ask(&Request::Ping(Ping {}), &[]);
        reply.ok::<Offset>();
    }
}

/// Waits for what happens soon.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
