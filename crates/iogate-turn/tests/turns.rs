//! Taking turns, against a coordinator.

#[path = "common/coordinator.rs"]
mod coordinator;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use coordinator::Coordinator;
use iogate_core::Span;
use iogate_core::coord::CoordConfig;
use iogate_net::Endpoint;
use iogate_net::turns::ClaimError;
use iogate_turn::{Place, Settings, Turn, TurnError, Turns, Wish};

fn config(lease_ms: u64) -> CoordConfig {
    CoordConfig { lease: Span::from_millis(lease_ms), ..CoordConfig::default() }
}

fn unix(folder: &Path) -> Endpoint {
    Endpoint::Unix(folder.join("socket"))
}

/// As a process of its own would have them.
fn turns(endpoint: &Endpoint, more: &[(&str, &str)]) -> Turns {
    let settings = Settings::read(&|name| match name {
        "IOGATE_COORD" => Some(endpoint.to_string()),
        "IOGATE_COORD_AUTH" => Some("none".into()),
        _ => more.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    });
    Turns::new(settings.unwrap()).unwrap()
}

fn take(turns: &Turns) -> Turn {
    turns.take(&Place::named("scratch"), &Wish::default()).unwrap()
}

#[test]
fn turns_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    for endpoint in [unix(folder.path()), "127.0.0.1:0".parse().unwrap()] {
        let coordinator = Coordinator::start(&endpoint, config(10_000));
        let endpoint = coordinator.endpoint();
        let (inside, tokens) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let turns = turns(&endpoint, &[]);
                    for _ in 0..50 {
                        let turn = take(&turns);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        let before = tokens.swap(turn.token() as u32, Ordering::SeqCst);
                        assert!(before < turn.token() as u32 && turn.is_valid());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turn.release().unwrap();
                    }
                });
            }
        });
        assert_eq!(coordinator.entries(), 0);
        assert!(coordinator.connections() <= 4, "one connection each is enough");
    }
}
