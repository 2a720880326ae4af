//! Taking turns, against a coordinator.

#[path = "common/coordinator.rs"]
mod coordinator;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use coordinator::Coordinator;
use iogate_core::Span;
use iogate_core::coord::CoordConfig;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_net::Endpoint;
use iogate_net::turns::ClaimError;
use iogate_turn::{Calibration, Place, Settings, Turn, TurnError, Turns, Wish};

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

/// Exactly one waits, for as long as it takes to be sure that the claim has arrived.
fn waits(coordinator: &Coordinator, count: usize) {
    coordinator.wait_until(|coordinator| coordinator.waiting() == count);
}

#[test]
fn a_turn_is_renewed_while_it_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(3000));
    let turns = turns(&coordinator.endpoint(), &[]);
    let turn = take(&turns);
    coordinator.wait_until(|coordinator| coordinator.renewals() > 0);
    assert!(turn.is_valid());
    turn.release().unwrap();
    assert_eq!(coordinator.entries(), 0);
}

#[test]
fn a_turn_that_is_taken_away_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(200));
    let turns = turns(&coordinator.endpoint(), &[]);
    let turn = take(&turns);
    coordinator.evict(turn.token());
    coordinator.wait_until(|_| !turn.is_valid());
    assert_eq!(turn.release().unwrap_err().token, 1);
    let turn = take(&turns);
    coordinator.evict(turn.token());
    assert!(turn.release().is_err(), "even before its clock tells");
    take(&turns).release().unwrap();
}

#[test]
fn a_coordinator_that_can_keep_no_claims_is_as_good_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    coordinator.refuse_claims(libc::ENOSPC, "the coordinator can keep no claims: no space");
    let lenient = turns(&coordinator.endpoint(), &[]);
    for _ in 0..2 {
        let turn = take(&lenient);
        assert_eq!((turn.token(), turn.is_valid()), (0, true));
        turn.release().unwrap();
    }
    let strict = turns(&coordinator.endpoint(), &[("IOGATE_STRICT", "1")]);
    let refused = |turns: &Turns| turns.take(&Place::named("scratch"), &Wish::default()).unwrap_err();
    assert_eq!(refused(&strict).errno(), libc::ENOSPC);
    // What is the job's own mistake is told, strict or not.
    for errno in [libc::EINVAL, libc::ENOENT] {
        coordinator.refuse_claims(errno, "there is no place `scratch`");
        assert_eq!(refused(&lenient).errno(), errno);
    }
    coordinator.accept();
    assert!(take(&lenient).token() > 0, "it takes turns again");
}

#[test]
fn a_turn_ends_by_its_own_clock_when_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(150));
    let turns = turns(&coordinator.endpoint(), &[]);
    let turn = take(&turns);
    coordinator.be_deaf(true);
    coordinator.wait_until(|_| !turn.is_valid());
    coordinator.be_deaf(false);
    drop(turn);
    coordinator.wait_until(|coordinator| coordinator.entries() == 0);
}

#[test]
fn a_turn_ends_though_its_renewal_is_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    // It is renewed after 8 s, and an answer is waited for as long: more than its end may take.
    let coordinator = Coordinator::start(&unix(folder.path()), config(24_000));
    let turns = turns(&coordinator.endpoint(), &[]);
    let turn = take(&turns);
    coordinator.be_deaf(true);
    coordinator.wait_until(|coordinator| coordinator.unheard() == 1);
    turn.release().unwrap();
    let asked = (coordinator.unheard(), coordinator.connections());
    assert_eq!(asked, (1, 1), "the renewal is still waited for, and nothing else was asked");
    coordinator.be_deaf(false);
    coordinator.wait_until(|coordinator| coordinator.entries() == 0);
    assert_eq!(coordinator.renewals(), 1, "its end is told at once, not when it would be renewed again");
}

/// Three that wait one behind the other: first, second, third.
fn line(
    coordinator: &Coordinator,
    endpoint: &Endpoint,
    between: impl FnOnce(&Turn),
) -> (Vec<&'static str>, Result<(), iogate_net::turns::Lost>) {
    let order = std::sync::Mutex::new(Vec::new());
    let first = turns(endpoint, &[]);
    let turn = take(&first);
    let released = std::thread::scope(|scope| {
        for (index, name) in ["second", "third"].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let turns = turns(endpoint, &[]);
                let turn = take(&turns);
                order.lock().unwrap().push(name);
                turn.release().unwrap();
            });
            waits(coordinator, index + 1);
        }
        between(&turn);
        turn.release()
    });
    (order.into_inner().unwrap(), released)
}

#[test]
fn a_cut_connection_keeps_turns_and_places_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(2000));
    let (order, released) = line(&coordinator, &coordinator.endpoint(), |turn| {
        for _ in 0..3 {
            coordinator.cut();
            coordinator.wait_until(|coordinator| coordinator.connections() >= 2);
            assert!(turn.is_valid());
        }
    });
    assert_eq!(order, ["second", "third"]);
    released.unwrap();
    assert_eq!(coordinator.entries(), 0);
}

#[test]
fn a_coordinator_that_starts_again_knows_who_has_what() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = unix(folder.path());
    let (begin, kill) = mpsc::channel();
    let coordinator = Coordinator::start(&endpoint, config(2000));
    let first = turns(&endpoint, &[]);
    let turn = take(&first);
    let waiting = std::thread::spawn({
        let endpoint = endpoint.clone();
        move || {
            let turns = turns(&endpoint, &[]);
            begin.send(()).unwrap();
            let turn = take(&turns);
            let token = turn.token();
            turn.release().unwrap();
            token
        }
    });
    kill.recv().unwrap();
    waits(&coordinator, 1);
    let journal = coordinator.kill();
    let coordinator = Coordinator::restart(&endpoint, config(2000), journal);
    // The holder, too, comes back.
    coordinator.wait_until(|coordinator| coordinator.connections() == 2);
    assert!(turn.is_valid());
    let token = turn.token();
    turn.release().unwrap();
    assert_eq!(waiting.join().unwrap(), token + 1);
}

#[test]
fn a_coordinator_that_has_forgotten_is_asked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = unix(folder.path());
    let coordinator = Coordinator::start(&endpoint, config(1000));
    let first = turns(&endpoint, &[]);
    let turn = take(&first);
    let waiting = std::thread::spawn({
        let endpoint = endpoint.clone();
        move || take(&turns(&endpoint, &[])).release()
    });
    waits(&coordinator, 1);
    drop(coordinator);
    let coordinator = Coordinator::start(&endpoint, config(1000));
    waiting.join().unwrap().unwrap();
    coordinator.wait_until(|_| !turn.is_valid());
    assert!(turn.release().is_err(), "nobody knows it any more");
}

#[test]
fn without_a_coordinator_jobs_go_on_unless_they_are_strict() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = unix(folder.path());
    let strict = turns(&endpoint, &[("IOGATE_PATIENCE", "100ms"), ("IOGATE_STRICT", "1")]);
    let error = strict.take(&Place::named("scratch"), &Wish::default()).unwrap_err();
    assert_eq!(error.errno(), libc::EHOSTUNREACH);
    assert!(error.to_string().contains(&endpoint.to_string()), "{error}");
    let patient = turns(&endpoint, &[("IOGATE_PATIENCE", "100ms")]);
    let turn = take(&patient);
    assert_eq!((turn.token(), turn.is_valid(), turn.share()), (0, true, 1000));
    turn.release().unwrap();
    let _coordinator = Coordinator::start(&endpoint, config(10_000));
    assert_eq!(take(&patient).token(), 1, "and come back to it");
}

#[test]
fn a_coordinator_that_comes_in_time_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = unix(folder.path());
    let mut coordinator = None;
    let mut watch = |waiting: &iogate_net::turns::Waiting| {
        if coordinator.is_none() {
            assert!(waiting.unreached.is_some());
            coordinator = Some(Coordinator::start(&endpoint, config(10_000)));
        }
        std::ops::ControlFlow::Continue(())
    };
    let turns = turns(&endpoint, &[]);
    let turn = turns.take_watched(&Place::named("scratch"), &Wish::default(), &mut watch).unwrap();
    assert_eq!(turn.token(), 1);
}

#[test]
fn the_one_that_leads_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let standby = Coordinator::start(&unix(folder.path()), config(10_000));
    standby.refuse(libc::ECONNREFUSED, "coordinator b leads");
    let leader = Coordinator::start(&"127.0.0.1:0".parse().unwrap(), config(10_000));
    let both = [standby.endpoint().to_string(), leader.endpoint().to_string()].join(",");
    let settings = Settings::read(&|name| match name {
        "IOGATE_COORD" => Some(both.clone()),
        "IOGATE_COORD_AUTH" => Some("none".into()),
        "IOGATE_PATIENCE" => Some("20s".into()),
        "IOGATE_STRICT" => Some("1".into()),
        _ => None,
    });
    let turns = Turns::new(settings.unwrap()).unwrap();
    let turn = take(&turns);
    // Now the other one leads, and knows nothing of that turn.
    leader.refuse(libc::ECONNREFUSED, "coordinator a leads");
    standby.accept();
    leader.cut();
    assert!(turn.release().is_ok(), "it was valid to its end");
    assert_eq!(take(&turns).token(), 1);
    assert_eq!(standby.entries(), 0);
}

#[test]
fn who_will_not_be_taken_does_not_try_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    coordinator.refuse(libc::ENOENT, "there is no export `turns`: this server has data");
    let hour = [("IOGATE_PATIENCE", "3600s"), ("IOGATE_STRICT", "1")];
    let strict = turns(&coordinator.endpoint(), &hour);
    let error = strict.take(&Place::named("scratch"), &Wish::default()).unwrap_err();
    assert!(error.to_string().contains("this server has data"), "{error}");
    assert_eq!(take(&turns(&coordinator.endpoint(), &hour[..1])).token(), 0);
}

#[test]
fn who_gives_up_leaves_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    let (one, other) = (turns(&coordinator.endpoint(), &[]), turns(&coordinator.endpoint(), &[]));
    let turn = take(&one);
    let place = Place::named("scratch");
    let soon = Duration::from_millis(30);
    let error = other.take_within(&place, &Wish::default(), soon).unwrap_err();
    assert!(matches!(error, TurnError::Claim(ClaimError::TimedOut { .. })), "{error}");
    assert_eq!(coordinator.entries(), 1);
    let mut asked = 0;
    let mut watch = |waiting: &iogate_net::turns::Waiting| {
        assert!(waiting.unreached.is_none());
        asked += 1;
        std::ops::ControlFlow::Break(())
    };
    let error = other.take_watched(&place, &Wish::default(), &mut watch).unwrap_err();
    assert_eq!((error.errno(), asked), (libc::EINTR, 1));
    assert_eq!(coordinator.entries(), 1);
    turn.release().unwrap();
    assert!(other.take_within(&place, &Wish::default(), Duration::from_secs(20)).is_ok());
    assert_eq!(coordinator.connections(), 2, "both go on with the connections that they had");
}

#[test]
fn a_job_is_one_party_and_a_thread_does_not_wait_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    let place = Place::named("scratch");
    let alone = turns(&coordinator.endpoint(), &[]);
    let turn = take(&alone);
    let error = alone.take(&place, &Wish::default()).unwrap_err();
    assert_eq!(error.errno(), libc::EDEADLK);
    drop(turn);
    let job = |name| turns(&coordinator.endpoint(), &[("IOGATE_JOB", name)]);
    let (a, also_a, b) = (job("a"), job("a"), job("b"));
    let turn = take(&a);
    let inner = take(&a);
    assert_eq!(inner.token(), turn.token(), "the same turn");
    let joined = take(&also_a);
    assert_ne!(joined.token(), turn.token(), "another process's own");
    turn.release().unwrap();
    joined.release().unwrap();
    let soon = Duration::from_millis(30);
    assert!(b.take_within(&place, &Wish::default(), soon).is_err(), "the inner one holds it still");
    inner.release().unwrap();
    assert!(b.take_within(&place, &Wish::default(), Duration::from_secs(20)).is_ok());
}

#[test]
fn targets_are_claimed_apart() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    let turns = turns(&coordinator.endpoint(), &[]);
    let of = |targets: &[u32]| Wish { targets: targets.to_vec(), ..Wish::default() };
    let place = Place::named("scratch");
    let low = turns.take(&place, &of(&[0, 1])).unwrap();
    let high = turns.take(&place, &of(&[2, 3])).unwrap();
    assert!(high.token() > low.token());
    assert_eq!(turns.take(&place, &of(&[1, 2])).unwrap_err().errno(), libc::EDEADLK);
    let refused = turns.take(&place, &of(&[9, 8])).unwrap_err();
    assert_eq!(refused.errno(), libc::EINVAL, "{refused}");
    assert_eq!(coordinator.entries(), 2);
}

#[test]
fn a_policy_says_how_to_wait() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&unix(folder.path()), config(10_000));
    let directory = folder.path().to_str().unwrap();
    let places = format!("{directory}=scratch");
    let of = |policy: &str, more: &[(&str, &str)]| {
        let given = [
            ("IOGATE_POLICY", policy),
            ("IOGATE_PLACES", places.as_str()),
            ("IOGATE_CALIBRATION", directory),
        ];
        turns(&coordinator.endpoint(), &[&given[..], more].concat())
    };
    let take = |turns: &Turns| {
        let place = Place::of(folder.path(), turns.settings()).unwrap();
        turns.take(&place, &Wish::default())
    };
    assert_eq!(take(&of("none", &[])).unwrap().token(), 0);
    let strict = [("IOGATE_STRICT", "1")];
    assert_eq!(take(&of("backoff", &strict)).unwrap_err().errno(), libc::ENODATA, "not calibrated");
    assert_eq!(coordinator.entries(), 0);
    let turn = take(&of("lock+backoff", &[])).unwrap();
    assert!(turn.token() > 0 && turn.report().is_none());
    drop(turn);
    let calibrating = of("none", &[]);
    let place = Place::of(folder.path(), calibrating.settings()).unwrap();
    let config =
        BackoffConfig { probe_bytes: 4096, prime_bytes: 0, pause: Span::ZERO, ..BackoffConfig::default() };
    let measured = Calibration::measure(&place, &config, 5).unwrap();
    assert!(measured.lowest <= measured.quiet && measured.quiet <= measured.highest && measured.rounds == 5);
    // However busy this machine is.
    Calibration { quiet: 1, ..measured }.write(folder.path()).unwrap();
    for (policy, is_locked) in [("backoff", false), ("lock+backoff", true)] {
        let turn = take(&of(policy, &strict)).unwrap();
        assert_eq!(turn.report().unwrap().attempts, 1);
        assert_eq!(turn.token() > 0, is_locked);
    }
    let turns = of("backoff", &strict);
    assert_eq!(turns.take(&Place::named("scratch"), &Wish::default()).unwrap_err().errno(), libc::EINVAL);
}
