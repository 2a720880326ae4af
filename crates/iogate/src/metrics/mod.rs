//! `--http ADDRESS`: what a mount or a server does, for people and for monitoring, over HTTP, by one thread: a live page at `/`, its
//! events at `/events`, and `/metrics`.

mod http;
mod serving;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use iogate_net::Endpoint;
use iogate_net::server::{Server as NetServer, Status};
use iogate_net::transport::{Bound, EndpointError};
use iogate_report::metrics::{Exposed, Server};

use crate::attempt::{Attempt, Doing};
use crate::output::say;

/// A Unix socket is its owner's alone.
const SOCKET_MODE: u32 = 0o600;

/// What monitoring is told of a server.
pub(crate) fn of_server(status: Status) -> Exposed {
    let server = Server {
        up_ms: status.up_ms,
        sessions: status.sessions as u64,
        connections: status.connection_count as u64,
        underway: status.underway as u64,
        memory_bytes: status.memory_bytes as u64,
    };
    Exposed {
        gates: status.exports.into_iter().map(|export| export.gate.summary).collect(),
        server: Some(server),
    }
}

/// Where to listen: HOST:PORT, unix:PATH, or a port of loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) Endpoint);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let endpoint = match text.parse::<u16>() {
            Ok(port) => Ok(Endpoint::Tcp { host: "127.0.0.1".into(), port }),
            Err(_) => text.parse(),
        };
        endpoint.map(Address).map_err(|error: EndpointError| format!("{error}, or a PORT of loopback"))
    }
}

/// Bound, and not serving yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Bound,
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> anyhow::Result<Listener> {
        let socket = Bound::bind(&address.0, SOCKET_MODE, |_| Ok(()))
            .context(Attempt::new(Doing::Listen, "--http"))?;
        Ok(Listener { socket })
    }

    /// Where it listens, as people ask for it: the page, and what monitoring reads.
    pub(crate) fn places(&self) -> [String; 2] {
        match self.socket.address() {
            Some(address) => [format!("http://{address}/"), format!("http://{address}/metrics")],
            None => [self.socket.endpoint().to_string(), self.socket.endpoint().to_string()],
        }
    }

    /// The same, as a server says it when it begins.
    pub(crate) fn lines(&self) -> String {
        let [page, metrics] = self.places();
        format!("page at {page}\nmetrics at {metrics}\n")
    }

    /// What is to be known of an address that others than this machine's users reach.
    pub(crate) fn warning(&self) -> Option<String> {
        let address = self.socket.address().filter(|address| !address.ip().to_canonical().is_loopback())?;
        Some(format!(
            "warning: --http {address} is not loopback: whoever reaches it sees who reads and writes how much here"
        ))
    }

    /// The name that it was given, on loopback.
    fn host(&self) -> Option<String> {
        let is_local = self.socket.address()?.ip().to_canonical().is_loopback();
        match self.socket.endpoint() {
            Endpoint::Tcp { host, .. } if is_local => Some(host.clone()),
            _ => None,
        }
    }

    /// Answers for a server from now on, as long as there is one; warns of an address that others reach.
    pub(crate) fn serve_server(self, server: &Arc<NetServer>) -> anyhow::Result<Serving> {
        self.warning().iter().for_each(say);
        let server = Arc::downgrade(server);
        let told = move || server.upgrade().map(|server| of_server(server.status()));
        self.serve(move || told().unwrap_or_default()).context("no thread for --http")
    }

    /// Answers from now on, in a thread of its own.
    pub(crate) fn serve(self, told: impl Fn() -> Exposed + Send + 'static) -> io::Result<Serving> {
        let (stop, stopped) = UnixStream::pair()?;
        let host = self.host();
        let run = move || serving::serve(&self.socket, host.as_deref(), &stopped, &told);
        let thread = thread::Builder::new().name("iogate-http".into()).spawn(run)?;
        Ok(Serving { stop, thread: Some(thread) })
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use iogate_core::stats::Stats;
    use iogate_core::stats::counters::Counters;
    use iogate_core::stats::summary::{Numbers, Summary};
    use iogate_core::{SchedulerConfig, SchedulerKind};

    use super::serving::{LOOKERS_MAX, REQUESTS_MAX};
    use super::*;

    /// Generous: only what hangs takes so long.
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_port_alone_is_one_of_loopback() {
        let address = |text: &str| text.parse::<Address>().map(|address| address.0.to_string());
        assert_eq!(address("9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:1").unwrap(), "[::1]:1");
        assert_eq!(address("unix:/run/m").unwrap(), "unix:/run/m");
        for wrong in ["", "host", "99999", "unix:"] {
            assert!(address(wrong).unwrap_err().contains("a PORT of loopback"), "{wrong}");
        }
    }

    /// A listener on loopback that answers, and its address.
    fn served() -> (Serving, String) {
        let listener = Listener::bind(&"0".parse().unwrap()).unwrap();
        let address = listener.socket.address().unwrap().to_string();
        (listener.serve(Exposed::default).unwrap(), address)
    }

    /// Sends a request, or a part of one.
    fn ask(address: &str, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn get(address: &str, path: &str) -> String {
        let mut reply = String::new();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n");
        ask(address, &request).read_to_string(&mut reply).unwrap();
        reply
    }

    fn is_gone(mut stream: TcpStream) -> bool {
        match stream.read(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn scrapers_that_stall_keep_no_other_from_its_answer() {
        let (_serving, address) = served();
        let mut stalled = Vec::new();
        for _ in 0..3 * REQUESTS_MAX {
            stalled.push(ask(&address, "GET /metr"));
            let reply = get(&address, "/metrics");
            assert!(
                reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\n# EOF\n"),
                "{reply}"
            );
        }
        assert!(is_gone(stalled.swap_remove(0)), "the oldest ones had to go");
    }

    #[test]
    fn who_looks_is_told_again_and_again_and_too_many_are_refused() {
        const LOOK: &str = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let (serving, address) = served();
        let mut lookers: Vec<_> = (0..LOOKERS_MAX).map(|_| BufReader::new(ask(&address, LOOK))).collect();
        let events = |looker: &mut BufReader<TcpStream>, n: usize| {
            let mut line = String::new();
            let mut seen = 0;
            while seen < n {
                line.clear();
                assert!(looker.read_line(&mut line).unwrap() > 0, "it ends after {seen}");
                seen += usize::from(line == "data: {\"gates\":[]}\n");
            }
        };
        lookers.iter_mut().for_each(|looker| events(looker, 1));
        let mut refused = String::new();
        ask(&address, LOOK).read_to_string(&mut refused).unwrap();
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        // Requests are answered beside them, and one that goes makes room.
        assert!(get(&address, "/").contains("<!doctype html>"));
        drop(lookers.pop());
        let mut next = loop {
            let mut looker = BufReader::new(ask(&address, LOOK));
            let mut line = String::new();
            looker.read_line(&mut line).unwrap();
            if line.starts_with("HTTP/1.1 200 ") {
                break looker;
            }
        };
        events(&mut next, 3);
        events(&mut lookers[0], 3);
        drop(serving);
        let end = next.read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn who_looks_and_does_not_read_loses_its_place() {
        let told = || {
            let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
            let mut gate = Summary::new(&Stats::default(), &scheduler, 1, &Numbers, 1);
            // More than a socket holds.
            gate.counters = Some(Counters { gate: "x".repeat(1 << 20), ..Counters::default() });
            Exposed { gates: vec![gate], server: None }
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http");
        let _serving = Listener::bind(&Address(Endpoint::Unix(path.clone()))).unwrap().serve(told).unwrap();
        let look = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.write_all(b"GET /events HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let stalled: Vec<UnixStream> = (0..LOOKERS_MAX).map(|_| look()).collect();
        let is_taken = || {
            let mut begin = [0; 12];
            look().read_exact(&mut begin).unwrap();
            begin == *b"HTTP/1.1 200"
        };
        let began = Instant::now();
        while !is_taken() {
            assert!(began.elapsed() < LIMIT, "they keep their places");
            thread::sleep(Duration::from_millis(20));
        }
        drop(stalled);
    }

    #[test]
    fn a_socket_is_gone_when_it_is_not_served_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let address = Address(Endpoint::Unix(path.clone()));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&address).unwrap();
        assert_eq!((listener.warning(), listener.host()), (None, None));
        let serving = listener.serve(Exposed::default).unwrap();
        let error = format!("{:#}", Listener::bind(&address).unwrap_err());
        assert!(error.contains("--http") && error.contains("a server listens there"), "{error}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        drop(serving);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    }

    #[test]
    fn an_address_that_others_reach_is_said() {
        let bound = |text: &str| Listener::bind(&text.parse().unwrap()).unwrap();
        assert!(bound("0.0.0.0:0").warning().unwrap().contains("is not loopback"));
        assert_eq!(bound("127.0.0.1:0").warning(), None);
        assert_eq!(bound("localhost:0").host().as_deref(), Some("localhost"));
    }
}
