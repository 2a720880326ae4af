//! A policy that gates share, through a coordinator: who is refused, and what becomes of gates that come, go, and lose it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use iogate_core::global_policy::{Phase, Terms};
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::Engine;
use iogate_engine::store::MemoryStore;
use iogate_net::ThisSystem;
use iogate_vfs::policy_file::Shares;

use super::*;

/// Leases that a test can wait for. The coordinator is at `place`.
fn shares(place: &Endpoint, times: &str) -> Shares {
    let text = format!(
        "by = \"app\"\n[others]\nmax = \"8MiB/s\"\n[global]\ncoordinator = \"{place}\"\ngates = 4\n{times}"
    );
    Shares::parse(&text, &|_| None, &|_| None).unwrap()
}

fn with_terms(terms: Terms) -> Setup {
    let class_names = [(7, "backup".to_owned())].into();
    Setup::with(CoordinatorConfig { terms: Some(terms), class_names, ..config("") })
}

fn engine() -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 64, depth: 4, layout: Layout::SINGLE };
    Engine::new(&gate, Arc::new(MemoryStore::new())).unwrap()
}

fn phase(engine: &Engine) -> Phase {
    engine.sharing().unwrap().phase
}

#[test]
fn who_may_not_share_is_told_why() {
    let somewhere: Endpoint = "127.0.0.1:1".parse().unwrap();
    let terms = shares(&somewhere, "").global.unwrap().terms;
    let setup = with_terms(terms.clone());
    let one = [&7u32.to_le_bytes()[..], &[0; 28]].concat();
    let good = ReportUse {
        gate: 1,
        terms: terms.digest(),
        number: 2,
        applied: 0,
        part: 0,
        leaves: 0,
        classes: &one,
    };
    let mut client = setup.client();
    let allotments = client.ask(&Request::ReportUse(good), &[]);
    let fields = allotments.fields.clone();
    let allotments = Allotments::decode(&fields).unwrap();
    assert_eq!((allotments.number, allotments.classes.len()), (2, CLASS_ALLOTMENT_BYTES));
    let older = ReportUse { number: 1, ..good };
    client.refused(&Request::ReportUse(older), libc::ESTALE, "a later report");
    let other = ReportUse { terms: 5, ..good };
    client.refused(&Request::ReportUse(other), libc::EINVAL, "give both the same file");
    assert_eq!(setup.status().gates.unwrap().others, 1);
    let cut = ReportUse { number: 3, classes: &one[1..], ..good };
    client.refused(&Request::ReportUse(cut), libc::EPROTO, "truncated");
    let mut stranger = Raw::greet_with(setup.tcp(), hello());
    stranger.refused(&Request::ReportUse(ReportUse { gate: 2, ..good }), libc::EACCES, "user 7");
    let status = setup.status().gates.unwrap();
    assert_eq!((status.gates, status.others), (1, 0), "it has come back to the coordinator's policy");
    let second = ReportUse { gate: 9, ..other };
    client.refused(&Request::ReportUse(second), libc::EINVAL, "give both the same file");
    let status = setup.status().gates.unwrap();
    assert_eq!((status.gates, status.others), (1, 1));
    assert_eq!(status.named[0].name.as_deref(), Some("backup"));
    client.ask(&Request::ReportUse(ReportUse { number: 4, leaves: 1, ..good }), &[]).done();
    assert_eq!(setup.status().gates.unwrap().gates, 0);

    let without = Setup::new("");
    without.client().refused(&Request::ReportUse(good), libc::EOPNOTSUPP, "--policy");
    assert_eq!(without.status().gates, None);
}

#[test]
fn gates_come_lose_the_coordinator_and_find_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let place = Endpoint::Unix(dir.path().join("socket"));
    let shares = shares(&place, "lease = \"300ms\"\nreport = \"20ms\"\n");
    let terms = shares.global.as_ref().unwrap().terms.clone();
    let start = || {
        let listener = Listener::bind(&place, Policy::Peer).unwrap();
        let journal = Local::open(&dir.path().join("state")).unwrap();
        let config = CoordinatorConfig { terms: Some(terms.clone()), ..config("") };
        Coordinator::start(config, vec![listener], Box::new(journal)).unwrap()
    };
    let engines = [engine(), engine()];
    for engine in &engines {
        shares.set(engine, &ThisSystem).unwrap();
    }
    wait_until("nobody answers, and it says so", || engines[0].sharing().unwrap().error.is_some());
    let coordinator = start();
    for engine in &engines {
        wait_until("a lease", || phase(engine) == Phase::Lease);
    }
    let gates = |coordinator: &Coordinator| coordinator.status().unwrap().gates.unwrap().gates;
    assert_eq!(gates(&coordinator), 2);

    drop(coordinator);
    wait_until("its part", || phase(&engines[1]) == Phase::Alone);
    let coordinator = start();
    for engine in &engines {
        wait_until("a lease again", || phase(engine) == Phase::Lease);
        assert_eq!(engine.sharing().unwrap().error, None);
    }
    // Who goes says so, whether by another policy or by its end.
    engines[0].set_policy(None).unwrap();
    assert!(engines[0].sharing().is_none());
    wait_until("one gate", || gates(&coordinator) == 1);
    drop(engines);
    wait_until("no gate", || gates(&coordinator) == 0);
}

/// Passes connections to a coordinator on, a little late, and nothing any more once it hangs.
struct Relay {
    place: Endpoint,
    hangs: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

impl Relay {
    fn to(coordinator: &Endpoint) -> Relay {
        let Endpoint::Unix(there) = coordinator.clone() else { panic!("expected a socket's path") };
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("socket");
        let listener = UnixListener::bind(&place).unwrap();
        let hangs = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&hangs);
        thread::spawn(move || {
            for here in listener.incoming() {
                let (state, there) = (Arc::clone(&state), there.clone());
                thread::spawn(move || {
                    // Longer than a coordinator is tried for that only has what another one has left.
                    thread::sleep(Duration::from_millis(20));
                    let (Ok(here), Ok(there)) = (here, UnixStream::connect(there)) else { return };
                    let back = (there.try_clone().unwrap(), here.try_clone().unwrap());
                    let states = (Arc::clone(&state), state);
                    thread::spawn(move || pass_on(here, there, &states.0));
                    pass_on(back.0, back.1, &states.1);
                });
            }
        });
        Relay { place: Endpoint::Unix(place), hangs, _dir: dir }
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, hangs: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if hangs.load(Ordering::SeqCst) {
            return thread::sleep(Duration::from_secs(60));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Its machine is out of reach, or it is stopped: connections stand, or are made, and nobody answers.
#[test]
fn gates_leave_a_coordinator_that_hangs_for_one_that_works() {
    let somewhere: Endpoint = "127.0.0.1:1".parse().unwrap();
    let terms = shares(&somewhere, "").global.unwrap().terms;
    let setups = [(); 2].map(|()| with_terms(terms.clone()));
    let relays = setups.each_ref().map(|setup| Relay::to(setup.unix()));
    let places = relays.each_ref().map(|relay| format!("\"{}\"", relay.place)).join(", ");
    let text =
        format!("by = \"app\"\n[others]\nmax = \"8MiB/s\"\n[global]\ncoordinator = [{places}]\ngates = 4\n");
    let shares = Shares::parse(&text, &|_| None, &|_| None).unwrap();
    let gates = |at: usize| setups[at].status().gates.unwrap().gates;
    // One gate has a connection to it when it hangs, the other one comes later.
    let engines = [engine(), engine()];
    shares.set(&engines[0], &ThisSystem).unwrap();
    wait_until("the first one has it", || gates(0) == 1 && phase(&engines[0]) == Phase::Lease);
    relays[0].hangs.store(true, Ordering::SeqCst);
    shares.set(&engines[1], &ThisSystem).unwrap();
    wait_until("the second one has both", || gates(1) == 2);
    for engine in &engines {
        wait_until("a lease", || phase(engine) == Phase::Lease);
    }
}
