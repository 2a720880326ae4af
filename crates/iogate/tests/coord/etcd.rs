//! Two coordinators over a real etcd: one leads, whatever is killed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
use iogate_net::coordinator::Journal;
use iogate_net::coordinator::journal::{ClaimRecord, Record, Standing};
use iogate_net::turns::{Coordinator, CoordinatorOptions, Limits, Wanted};
use rustix::process::Signal;

use super::History;
use super::daemon::{Daemon, Etcd, unix};

#[test]
fn one_leads_at_a_time_whatever_is_killed_or_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut etcd = Etcd::start(&dir.path().join("etcd"));
    let sockets = [unix(dir.path(), "a"), unix(dir.path(), "b")];
    let url = etcd.url.clone();
    let start = |socket: &Endpoint| {
        let listen = socket.to_string();
        let rest = ["--name", "test", "--leader-lease", "2s", "--set", "lease=1s"];
        Daemon::coordinator(&[&["--listen", &listen, "--etcd", &url], &rest[..]].concat())
    };
    let leads = |socket: &Endpoint| {
        let mut asked = Command::new(env!("CARGO_BIN_EXE_iogate"));
        asked.args(["coord", "status", &socket.to_string()]).output().unwrap().status.success()
    };
    let mut coordinators = vec![start(&sockets[0])];
    while !leads(&sockets[0]) {
        std::thread::sleep(Duration::from_millis(50));
    }
    coordinators.push(start(&sockets[1]));
    assert!(!leads(&sockets[1]), "one leads already");
    let (history, is_over) = (History::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 1..=4 {
            let (history, is_over, sockets) = (&history, &is_over, &sockets);
            scope.spawn(move || history.client(number, sockets, || is_over.load(Ordering::SeqCst)));
        }
        history.grows_by(10);
        // It wakes up when the other has taken over, and must not go on as if it had not slept.
        coordinators[0].signal(Signal::STOP);
        while !leads(&sockets[1]) {
            std::thread::sleep(Duration::from_millis(50));
        }
        coordinators[0].signal(Signal::CONT);
        history.grows_by(10);
        coordinators[1].kill();
        history.grows_by(10);
        coordinators[1].again();
        etcd.daemon.kill();
        std::thread::sleep(Duration::from_millis(2500));
        etcd.daemon.again();
        etcd.wait();
        history.grows_by(10);
        assert!(coordinators[0].end());
        history.grows_by(10);
        is_over.store(true, Ordering::SeqCst);
    });
    history.check();
}

#[test]
fn a_node_of_etcd_that_never_answers_holds_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&dir.path().join("etcd"));
    // The kernel takes connections there, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = format!("http://{},{}", silent.local_addr().unwrap(), etcd.url);
    let socket = unix(dir.path(), "a");
    let listen = socket.to_string();
    let _daemon = Daemon::coordinator(&["--listen", &listen, "--etcd", &urls, "--name", "test"]);
    let coordinator = Coordinator::new(vec![socket], CoordinatorOptions::default());
    let wanted = Wanted { place: "scratch".into(), ..Wanted::default() };
    let limits = Limits::patience(Duration::from_secs(30));
    let turn = || coordinator.claim(&wanted, &limits).unwrap().release(0).unwrap();
    turn();
    let began = Instant::now();
    (0..40).for_each(|_| turn());
    assert!(began.elapsed() < Duration::from_secs(40), "{:?} for 40 turns", began.elapsed());
}

fn claim(number: u64) -> Record {
    Record::Claim(ClaimRecord {
        claim: number,
        session: 1,
        request: number,
        place: "scratch".into(),
        members: Vec::new(),
        party: 0,
        job: String::new(),
        bytes: 0,
        weight: 1,
        period: 0,
        label: String::new(),
        arrived: 0,
        held: None,
    })
}

/// Stands between a coordinator and etcd: passes requests on, and may keep answers to itself.
struct Between {
    url: String,
    etcd: String,
    /// The next transaction that puts a claim gets no answer.
    swallows: AtomicBool,
    swallowed: Mutex<Vec<u8>>,
}

impl Between {
    fn start(etcd: &str) -> Arc<Between> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = Arc::new(Between {
            url: format!("http://{}", listener.local_addr().unwrap()),
            etcd: etcd.trim_start_matches("http://").into(),
            swallows: AtomicBool::new(false),
            swallowed: Mutex::default(),
        });
        let this = Arc::clone(&between);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = Arc::clone(&this);
                std::thread::spawn(move || this.pass(stream));
            }
        });
        between
    }

    fn pass(&self, mut client: TcpStream) {
        while let Some(request) = message(&mut client) {
            let answer = self.ask(&request);
            let is_transaction = String::from_utf8_lossy(&request).contains("request_put");
            if is_transaction && self.swallows.swap(false, Ordering::SeqCst) {
                *self.swallowed.lock().unwrap() = request;
                return;
            }
            if client.write_all(&answer).is_err() {
                return;
            }
        }
    }

    fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut etcd = TcpStream::connect(&self.etcd).unwrap();
        etcd.write_all(request).unwrap();
        message(&mut etcd).expect("an answer")
    }
}

/// A request or an answer of HTTP with its body.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut more) = (Vec::new(), [0; 4096]);
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if bytes.len() >= head + 4 + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        match stream.read(&mut more) {
            Ok(count @ 1..) => bytes.extend_from_slice(&more[..count]),
            _ => return None,
        }
    }
}

#[test]
fn a_transaction_is_made_once_however_late_it_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&dir.path().join("etcd"));
    let between = Between::start(&etcd.url);
    let own = unix(dir.path(), "a");
    let mut journal =
        iogate_net::coordinator::Etcd::new(vec![between.url.clone()], "test", own, Duration::from_secs(60))
            .unwrap();
    while journal.standing() != Standing::Leads {
        std::thread::sleep(Duration::from_millis(20));
    }
    let none = || Vec::new();
    journal.load().unwrap();
    let begin = Record::Begin { version: 1, token: 0, number: 0, clock_offset: 0, is_incomplete: false };
    journal.append(&[begin], &mut { none }).unwrap();
    // It was made, and nobody knows: it is sent again, and is not made twice.
    between.swallows.store(true, Ordering::SeqCst);
    journal.append(&[claim(1), claim(2)], &mut { none }).unwrap();
    assert!(!between.swallowed.lock().unwrap().is_empty());
    journal.append(&[Record::Gone(1)], &mut { none }).unwrap();
    // A copy that was on its way all the time.
    between.ask(&between.swallowed.lock().unwrap());
    journal.append(&[Record::Gone(3)], &mut { none }).unwrap();
    let claims: Vec<u64> = journal.load().unwrap().claims.iter().map(|claim| claim.claim).collect();
    assert_eq!(claims, [2], "what is over stays over");
}
