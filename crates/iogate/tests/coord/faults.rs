//! Clients take turns while the coordinator is killed, stopped and started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::History;
use super::daemon::{Daemon, unix};

#[test]
fn no_two_hold_at_once_whatever_happens_to_the_coordinator() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, state) = (unix(dir.path(), "socket"), dir.path().join("state"));
    let listen = socket.to_string();
    let args = ["--listen", &listen, "--state", state.to_str().unwrap(), "--set", "lease=400ms"];
    let mut coordinator = Daemon::coordinator(&args);
    let (history, is_over) = (History::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 1..=6 {
            let (history, is_over, socket) = (&history, &is_over, &socket);
            scope.spawn(move || {
                history.client(number, std::slice::from_ref(socket), || is_over.load(Ordering::SeqCst));
            });
        }
        let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
        for round in 0..12 {
            history.grows_by(10);
            match round % 4 {
                0 => {
                    coordinator.kill();
                    coordinator.again();
                }
                1 => {
                    // Longer than a lease: holders must notice by their own clocks.
                    coordinator.signal(Signal::STOP);
                    pause(600);
                    coordinator.signal(Signal::CONT);
                }
                2 => {
                    coordinator.kill();
                    pause(500);
                    coordinator.again();
                }
                _ => {
                    assert!(coordinator.end());
                    coordinator.again();
                }
            }
        }
        history.grows_by(10);
        is_over.store(true, Ordering::SeqCst);
    });
    history.check();
}
