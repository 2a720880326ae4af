//! Two coordinators over a real etcd: one leads, whatever is killed.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
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
