//! Turns as clients see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iogate_core::Span;
use iogate_core::wire::*;
use iogate_net::coordinator::{CoordinatorConfig, Ending, Limits, Place, Probed, Prober};

use super::raw::Raw;
use super::{Setup, config, hello, place, resume, wait_until};

const SHORT: &str = "lease=200ms";

#[test]
fn one_after_another_in_the_order_in_which_they_came() {
    let setup = Setup::new("");
    let mut clients: Vec<_> = (0..4).map(|_| setup.client()).collect();
    let mut ids = Vec::new();
    for (n, client) in clients.iter_mut().enumerate() {
        ids.push(client.claim(place("scratch")));
        wait_until("it is in line", || {
            let status = setup.status();
            status.holders.len() + status.waiting == n + 1
        });
    }
    let mut last = 0;
    for n in 0..4 {
        clients[n + 1..].iter_mut().for_each(Raw::is_silent);
        let token = clients[n].granted(ids[n]);
        assert!(token > last);
        last = token;
        clients[n].acked = ids[n] + 1;
        clients[n].release(token).done();
    }
    let status = setup.status();
    assert_eq!((status.counters.granted, status.counters.released, status.counters.bytes), (4, 4, 20));
    let tokens: Vec<_> = status.finished.iter().map(|finished| finished.token).collect();
    assert!(tokens.is_sorted_by(|a, b| a > b) && tokens.len() == 4, "{tokens:?}");
    assert!(
        status.finished.iter().all(|finished| finished.ending == Ending::Released && finished.label == "job")
    );
}

#[test]
fn targets_that_are_apart_are_held_together() {
    let setup = Setup::new("");
    let (mut one, mut two, mut three) = (setup.client(), setup.client(), setup.client());
    let token = one.turn(Claim { members: &[0, 0, 0, 0, 2, 0, 0, 0], ..place("scratch") });
    two.turn(Claim { members: &[1, 0, 0, 0], ..place("scratch") });
    two.turn(place("home"));
    let id = three.claim(Claim { members: &[2, 0, 0, 0], ..place("scratch") });
    three.is_silent();
    let status = setup.status();
    assert_eq!((status.holders.len(), status.waiting), (3, 1));
    assert_eq!((&status.holders[0].targets[..], &status.waiters[0].targets[..]), (&[0, 2][..], &[2][..]));
    one.release(token).done();
    three.granted(id);
}

#[test]
fn refusals_reach_their_sender_alone() {
    let limits = Limits { claims_per_session: 3, targets_per_claim: 2, ..Limits::default() };
    let places = vec![
        Place { name: "scratch".into(), targets: Some(4) },
        Place { name: "home".into(), targets: None },
    ];
    let setup = Setup::with(CoordinatorConfig { limits, places, ..config("claims_max=10") });
    let mut other = setup.client();
    let held = other.turn(place("scratch"));
    let mut client = setup.client();
    let claim = Request::Claim;
    client.refused(&claim(place("nowhere")), libc::ENOENT, "there is no place `nowhere`");
    client.refused(&claim(place("")), libc::EINVAL, "name of a place");
    client.refused(&claim(Claim { place: &[0xff], ..place("") }), libc::EINVAL, "UTF-8");
    client.refused(
        &claim(place("a\0b")),
        libc::EINVAL,
        r"control characters, of at most 1024 bytes, found `a\x00b`",
    );
    client.refused(&claim(Claim { party: b"\0", ..place("scratch") }), libc::EINVAL, "name of a job");
    client.refused(
        &claim(Claim { members: &[0xff; 4], ..place("scratch") }),
        libc::EINVAL,
        "no target 4294967295",
    );
    client.refused(&claim(Claim { label: &[b'x'; 2000], ..place("home") }), libc::EINVAL, "1024");
    let members = |members| claim(Claim { members, ..place("scratch") });
    client.refused(&members(&[1]), libc::EINVAL, "4 bytes each");
    client.refused(&members(&[0; 12]), libc::EINVAL, "at most 2");
    client.refused(&members(&[1, 0, 0, 0, 0, 0, 0, 0]), libc::EINVAL, "ascending");
    client.refused(&members(&[4, 0, 0, 0]), libc::ENOENT, "there is no target 4");
    client.refused(
        &Request::Release(Release { token: held, bytes: 0 }),
        libc::ESTALE,
        "not held by this client",
    );
    client.refused(&Request::Renew(Renew { token: held }), libc::ESTALE, "not held by this client");
    client.refused(&Request::Cancel(Cancel { claim: 99 }), libc::EINVAL, "no claim 99 that waits");
    client.refused(&Request::Evict(Evict { token: 12345 }), libc::ESTALE, "nobody holds");
    let read = Transfer { handle: 1, flags: 0, offset: 0, bytes: 1, app: 0, client: 0, issued: 0 };
    client.refused(&Request::Read(read), libc::EOPNOTSUPP, "coordinator");
    client.claim(place("scratch"));
    client.refused(&claim(place("scratch")), libc::EDEADLK, "claimed one of these targets");
    client.turn(Claim { members: &[0, 0, 0, 0], ..place("home") });
    client.turn(Claim { members: &[1, 0, 0, 0], ..place("home") });
    client.refused(&claim(Claim { members: &[2, 0, 0, 0], ..place("home") }), libc::EAGAIN, "3 claims");
    other.turn(Claim { members: &[3, 0, 0, 0], ..place("home") });
    other.refused(
        &claim(Claim { members: &[2, 0, 0, 0], ..place("home") }),
        libc::EAGAIN,
        "5 claims, which is its limit",
    );
    other.renew(held).ok::<Renewed>();
    other.release(held).done();
}

#[test]
fn the_export_without_a_name_is_the_one_there_is() {
    let setup = Setup::new("");
    Raw::greet_with(setup.unix(), Hello { export: b"", ..hello() }).turn(place("scratch"));
}

#[test]
fn a_claim_that_is_cancelled_or_whose_client_ends_is_out_of_the_way() {
    let setup = Setup::new("");
    let (mut one, mut two, mut three) = (setup.client(), setup.client(), setup.client());
    let token = one.turn(place("scratch"));
    let waiting = two.claim(place("scratch"));
    two.is_silent();
    let last = three.claim(place("scratch"));
    three.is_silent();
    let cancel = two.send(&Request::Cancel(Cancel { claim: waiting }), &[]);
    let (first, second) = (two.reply(), two.reply());
    assert_eq!((first.id, first.errno), (waiting, libc::ECANCELED));
    assert_eq!(second.id, cancel);
    second.done();
    one.ask(&Request::Goodbye(Goodbye {}), &[]).done();
    assert!(three.granted(last) > token);
    let status = setup.status();
    assert_eq!((status.counters.cancelled, status.sessions), (2, 2));
    let mut late = resume(setup.unix(), &one);
    assert_eq!(late.welcome.unwrap().resumed, 0, "it said that it ends");
    late.is_silent();
}

#[test]
fn who_dies_with_a_turn_loses_it_after_a_lease() {
    let setup = Setup::new(SHORT);
    let (mut one, mut two) = (setup.client(), setup.client());
    let first = one.turn(place("scratch"));
    let id = two.claim(place("scratch"));
    two.is_silent();
    drop(one);
    let second = two.granted(id);
    assert!(second > first);
    let status = setup.status();
    assert_eq!((status.counters.lost, status.finished[0].ending), (1, Ending::Lost));
    wait_until("the session without claims is forgotten", || setup.status().sessions == 1);
}

#[test]
fn who_renews_keeps_its_turn() {
    let setup = Setup::new(SHORT);
    let (mut one, mut two) = (setup.client(), setup.client());
    let token = one.turn(place("scratch"));
    let id = two.claim(place("scratch"));
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        let renewed: Renewed = one.renew(token).ok();
        assert!((1..=200_000_000).contains(&renewed.lease));
    }
    two.is_silent();
    one.release(token).done();
    two.granted(id);
}

#[test]
fn a_client_that_comes_back_has_what_it_had() {
    let setup = Setup::new("lease=5s");
    let (mut one, mut two) = (setup.client(), setup.client());
    let token = one.turn(place("scratch"));
    let id = two.claim(place("scratch"));
    two.is_silent();
    let session = one.welcome.unwrap().session;
    let mut thief = Raw::connect(setup.tcp());
    thief.write(&Raw::bytes(0, 0, &Request::Hello(Hello { session, auth: auth::NONE, ..hello() }), &[]));
    thief.is_cut(libc::EACCES, "another user's");
    let again = resume(setup.unix(), &one);
    assert_eq!(again.welcome.unwrap().resumed, 1);
    one.is_over();
    let mut one = again;
    let mut two = resume(setup.unix(), &two);
    // It does not know whether the coordinator has its claim.
    two.write(&Raw::bytes(id, id, &Request::Claim(place("scratch")), &[]));
    two.is_silent();
    assert_eq!(setup.status().waiting, 1);
    one.release(token).done();
    let second = two.granted(id);
    // Nor whether its release was heard.
    let mut one = resume(setup.unix(), &one);
    one.release(token).done();
    // Nor whether it was granted.
    let mut two = resume(setup.unix(), &two);
    two.write(&Raw::bytes(id, id, &Request::Claim(place("scratch")), &[]));
    assert_eq!(two.granted(id), second);
}

#[test]
fn a_party_holds_together_if_it_is_one_users() {
    let setup = Setup::new("");
    let claim = Claim { party: b"slurm:7", ..place("scratch") };
    let (mut one, mut two) = (setup.client(), setup.client());
    let (first, second) = (one.turn(claim), two.turn(claim));
    assert!(second > first);
    assert_eq!(setup.status().holders[1].admission, "joined");
    let mut stranger = Raw::greet_with(setup.tcp(), hello());
    stranger.claim(claim);
    stranger.is_silent();
    assert_eq!(setup.status().waiting, 1);
}

#[test]
fn a_turn_is_taken_away_by_those_who_may() {
    let setup = Setup::new("");
    let (mut holder, mut next) = (setup.client(), setup.client());
    let token = holder.turn(place("scratch"));
    let id = next.claim(place("scratch"));
    next.is_silent();
    let mut stranger = Raw::greet_with(setup.tcp(), hello());
    stranger.refused(&Request::Evict(Evict { token }), libc::EPERM, "its own user");
    let mut owner = setup.client();
    owner.ask(&Request::Evict(Evict { token }), &[]).done();
    next.granted(id);
    holder.refused(&Request::Renew(Renew { token }), libc::ESTALE, "not held");
    assert_eq!(setup.status().finished[0].ending, Ending::Evicted);
}

#[test]
fn release_and_claim_may_go_out_together() {
    let setup = Setup::new("");
    let mut client = setup.client();
    let mut token = client.turn(place("scratch"));
    for _ in 0..100 {
        let release =
            Raw::bytes(client.next, client.next, &Request::Release(Release { token, bytes: 1 }), &[]);
        let claim = Raw::bytes(client.next + 1, client.next, &Request::Claim(place("scratch")), &[]);
        client.write(&[release, claim].concat());
        let replies = [client.reply(), client.reply()];
        assert!(replies.iter().any(|reply| reply.id == client.next && reply.errno == 0), "{replies:?}");
        let granted = replies.iter().find(|reply| reply.id == client.next + 1).unwrap();
        token = granted.ok::<Granted>().token;
        client.next += 2;
    }
}

#[test]
fn the_status_is_json_for_whoever_asks() {
    let setup = Setup::new("order=shortest,slots=2");
    let mut client = setup.client();
    client.turn(Claim { bytes: 1 << 30, ..place("scratch") });
    let reply = client.ask(&Request::Status(Status {}), &[]);
    let status: iogate_net::coordinator::Status = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!((status.rules.order.as_str(), status.rules.slots), ("shortest", 2));
    let holder = &status.holders[0];
    assert_eq!(
        (holder.place.as_str(), holder.label.as_str(), holder.client.as_str()),
        ("scratch", "job", "test")
    );
    assert!(holder.is_connected && holder.lease_left_ms <= 10_000 && status.leads);
}

#[test]
fn a_turn_on_a_probed_place_begins_when_it_is_quiet() {
    let is_quiet = Arc::new(AtomicBool::new(false));
    let quiet = Arc::clone(&is_quiet);
    let prober = Prober::new(move |goes_on| {
        while !quiet.load(Ordering::SeqCst) {
            if !goes_on() {
                return Err("nobody waits".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Probed { attempts: 1, is_quiet: true })
    });
    let probers = [("scratch".to_owned(), prober)].into();
    let setup = Setup::with(CoordinatorConfig { probers, ..config(SHORT) });
    let (mut one, mut two, mut three) = (setup.client(), setup.client(), setup.client());
    one.turn(place("home"));
    let first = one.claim(place("scratch"));
    // Longer than a lease: the coordinator keeps the turn meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    one.is_silent();
    two.claim(place("scratch"));
    two.is_silent();
    let third = three.claim(place("scratch"));
    three.is_silent();
    let status = setup.status();
    let probing = status.holders.iter().find(|holder| holder.place == "scratch").unwrap();
    assert_eq!((probing.admission.as_str(), status.waiting), ("probing", 2));
    // Who gives up while it is probed for is out of the way.
    one.send(&Request::Cancel(Cancel { claim: first }), &[]);
    assert_eq!((one.reply().errno, one.reply().errno), (libc::ECANCELED, 0));
    drop(two);
    is_quiet.store(true, Ordering::SeqCst);
    three.granted(third);
    assert!(setup.status().counters.probed_quiet >= 1);
}

#[test]
fn a_place_that_hangs_keeps_no_other_place_from_being_probed() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let hangs = Prober::new(move |_| {
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("it hung".into())
    });
    let answers = Prober::new(|_| Ok(Probed { attempts: 1, is_quiet: true }));
    let probers = [("scratch".to_owned(), hangs), ("home".to_owned(), answers)].into();
    let setup = Setup::with(CoordinatorConfig { probers, ..config("slots=40") });
    let mut waiting: Vec<_> = (0..20).map(|_| setup.client()).collect();
    for client in &mut waiting {
        client.claim(place("scratch"));
    }
    setup.client().turn(place("home"));
    is_over.store(true, Ordering::SeqCst);
}

#[test]
fn a_party_is_a_users_and_known_by_its_name_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::at(dir.path(), "");
    let (mut one, mut two) = (setup.client(), Raw::greet_with(setup.tcp(), hello()));
    let token = one.turn(Claim { party: b"job", ..place("scratch") });
    two.claim(Claim { party: b"job", ..place("scratch") });
    two.is_silent();
    drop(setup);
    let setup = Setup::at(dir.path(), "");
    let mut three = setup.client();
    assert!(three.turn(Claim { party: b"job", ..place("scratch") }) > token);
    let status = setup.status();
    assert_eq!((status.holders[1].admission.as_str(), status.waiting), ("joined", 1));
}

#[test]
fn one_user_leaves_room_for_the_claims_of_others() {
    let setup = Setup::new("claims_max=6");
    let mut greedy: Vec<_> = (0..4).map(|_| setup.client()).collect();
    greedy[0].turn(place("scratch"));
    for client in &mut greedy[1..3] {
        client.claim(place("scratch"));
        client.is_silent();
    }
    greedy[3].refused(&Request::Claim(place("scratch")), libc::EAGAIN, "has 3 claims, which is its limit");
    let mut other = Raw::greet_with(setup.tcp(), hello());
    other.turn(place("home"));
    greedy[2].ask(&Request::Goodbye(Goodbye {}), &[]).done();
    greedy[3].claim(place("scratch"));
    greedy[3].is_silent();
    assert_eq!(setup.status().waiting, 2);
}

#[test]
fn a_turn_ends_when_it_is_as_long_as_it_may_be_at_its_place() {
    let turn_max = [("scratch".to_owned(), Span::from_millis(400))].into();
    let setup = Setup::with(CoordinatorConfig { turn_max, ..config("lease=20s") });
    let (mut one, mut two, mut three) = (setup.client(), setup.client(), setup.client());
    let (token, elsewhere) = (one.turn(place("scratch")), three.turn(place("home")));
    let id = two.claim(place("scratch"));
    while one.renew(token).errno == 0 {
        three.renew(elsewhere).ok::<Renewed>();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(two.granted(id) > token);
    three.renew(elsewhere).ok::<Renewed>();
    assert_eq!(setup.status().finished[0].ending, Ending::Overlong);
}

#[test]
fn weights_of_users_are_the_coordinators_if_it_has_any() {
    let weights = [(7, 50)].into();
    let setup = Setup::with(CoordinatorConfig { weights, ..config("order=weighted") });
    // As much time for both; the second one's weight is 50, though it says 1.
    let (mut boast, mut modest) = (setup.client(), Raw::greet_with(setup.tcp(), hello()));
    let (loud, quiet) = (
        Claim { party: b"a", weight: 1_000_000, ..place("scratch") },
        Claim { party: b"b", weight: 1, ..place("scratch") },
    );
    for (client, claim) in [(&mut boast, loud), (&mut modest, quiet)] {
        let token = client.turn(claim);
        std::thread::sleep(Duration::from_millis(60));
        client.release(token).done();
    }
    let mut holder = setup.client();
    let token = holder.turn(Claim { party: b"c", ..place("scratch") });
    boast.claim(loud);
    boast.is_silent();
    let id = modest.claim(quiet);
    modest.is_silent();
    holder.release(token).done();
    modest.granted(id);
}
