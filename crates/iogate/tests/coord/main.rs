//! Coordinators as processes: what they say, what they keep when they are killed, and what clients see of that.

mod commands;
mod daemon;
mod etcd;
mod faults;
mod memory;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
use iogate_net::turns::{Coordinator, CoordinatorOptions, Limits, Wanted};
use iogate_testkit::turns::Held;

/// Turns that clients have had, and their clock.
struct History {
    clock: Instant,
    turns: Mutex<Vec<Held>>,
}

impl History {
    fn new() -> History {
        History { clock: Instant::now(), turns: Mutex::default() }
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn len(&self) -> usize {
        self.turns.lock().unwrap().len()
    }

    /// Waits until there are so many more turns than now.
    fn grows_by(&self, more: usize) {
        let (begin, wanted) = (Instant::now(), self.len() + more);
        while self.len() < wanted {
            assert!(begin.elapsed() < Duration::from_secs(60), "no turns any more");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes one turn after another until a time.
    fn client(&self, number: u64, endpoints: &[Endpoint], until: impl Fn() -> bool) {
        let coordinator = Coordinator::new(endpoints.to_vec(), CoordinatorOptions::default());
        let limits = Limits { patience: Duration::from_secs(30), timeout: Some(Duration::from_secs(30)) };
        let mut round = number;
        while !until() {
            round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let targets: &[u32] = match (round >> 33) % 4 {
                0 => &[0],
                1 => &[1],
                _ => &[0, 1],
            };
            let wanted = Wanted { place: "scratch".into(), members: targets.to_vec(), ..Wanted::default() };
            let Ok(held) = coordinator.claim(&wanted, &limits) else { continue };
            let mut seen = None;
            for _ in 0..(round >> 40) % 8 + 1 {
                let now = self.now();
                if !held.is_valid() {
                    break;
                }
                seen = Some((seen.map_or(now, |(begin, _)| begin), now));
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Some((begin, end)) = seen {
                let token = held.token();
                let turn = |&target: &u32| Held {
                    client: number,
                    job: None,
                    target: target.into(),
                    token,
                    begin,
                    end,
                };
                self.turns.lock().unwrap().extend(targets.iter().map(turn));
            }
            // That it was lost is no surprise here.
            let _ = held.release(1);
        }
    }

    fn check(&self) {
        let turns = self.turns.lock().unwrap();
        iogate_testkit::turns::check(&turns, 1).unwrap_or_else(|error| panic!("{error}"));
    }
}
