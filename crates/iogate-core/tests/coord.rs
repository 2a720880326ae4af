//! The lock table, example by example.

use iogate_core::coord::{
    Admission, Change, Claim, ClaimId, CoordConfig, Decision, Entry, Order, Passing, PlaceId, Refused,
    SessionId, Standing, Table, Targets, Token,
};
use iogate_core::{Span, Time};

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn secs(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

/// Of the session with the same number, on these targets of place 0; none: all.
fn claim(session: u64, members: &[u32]) -> Claim {
    Claim {
        session: SessionId(session),
        request: 1,
        targets: Targets { place: PlaceId(0), members: members.to_vec() },
        weight: 1,
        ..Claim::default()
    }
}

fn of_party(session: u64, party: u64, members: &[u32]) -> Claim {
    Claim { party, ..claim(session, members) }
}

fn table(config: CoordConfig) -> Table {
    Table::new(config, Token(0))
}

fn rules() -> CoordConfig {
    CoordConfig::default()
}

/// Sessions that are granted a turn now, in order, each with how.
fn granted(table: &mut Table, now: Time) -> Vec<(u64, Admission)> {
    let mut all = Vec::new();
    loop {
        match table.next(now) {
            Decision::Granted(grant) => all.push((grant.session.0, grant.admission)),
            Decision::Lost(loss) => panic!("{loss:?}"),
            Decision::WaitUntil(until) if until <= now => panic!("waits until {until:?} at {now:?}"),
            Decision::WaitUntil(_) | Decision::Idle => return all,
        }
    }
}

fn sessions(table: &mut Table, now: Time) -> Vec<u64> {
    granted(table, now).into_iter().map(|(session, _)| session).collect()
}

fn token_of(table: &Table, session: u64) -> Token {
    let mut entries = table.entries().filter(|entry| entry.claim.session == SessionId(session));
    entries.find_map(Entry::token).expect("the session holds a turn")
}

fn release(table: &mut Table, now: Time, session: u64) {
    let token = token_of(table, session);
    table.release(now, SessionId(session), token, 0).expect("it is held");
}

use Admission::{InTurn, Joined, Overdue};

/// The thesis, figure 3.4: two applications and one lock.
#[test]
fn first_come_first_served() {
    let mut table = table(rules());
    for session in 1..=3 {
        table.claim(at(session), claim(session, &[])).unwrap();
    }
    assert_eq!(granted(&mut table, at(3)), [(1, InTurn)]);
    release(&mut table, at(5), 1);
    assert_eq!(granted(&mut table, at(5)), [(2, InTurn)]);
    release(&mut table, at(6), 2);
    assert_eq!(granted(&mut table, at(6)), [(3, InTurn)]);
    release(&mut table, at(7), 3);
    assert_eq!(table.next(at(7)), Decision::Idle);
    assert!(table.is_empty());
    assert_eq!((table.stats().waited, table.stats().held), (secs(2 + 3 + 3), secs(2 + 1 + 1)));
}

/// The thesis, figure 3.5: A1 on servers 0 and 1, A2 on 1 and 2, A3 on 2 and 3.
#[test]
fn with_and_without_order_preservation() {
    for (passing, together) in [(Passing::Preserve, vec![1]), (Passing::Relaxed, vec![1, 3])] {
        let mut table = table(CoordConfig { passing, ..rules() });
        for session in 1..=3 {
            let first = session as u32 - 1;
            table.claim(at(0), claim(session, &[first, first + 1])).unwrap();
        }
        assert_eq!(sessions(&mut table, at(0)), together);
        together.iter().for_each(|session| release(&mut table, at(1), *session));
        assert_eq!(sessions(&mut table, at(1)), [2]);
    }
}

#[test]
fn a_whole_place_is_all_its_targets() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[7])).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    table.claim(at(0), claim(3, &[8])).unwrap();
    let elsewhere = Targets::all_of(PlaceId(1));
    table.claim(at(0), Claim { targets: elsewhere, ..claim(4, &[]) }).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1, 4]);
    release(&mut table, at(1), 1);
    assert_eq!(sessions(&mut table, at(1)), [2]);
    release(&mut table, at(2), 2);
    assert_eq!(sessions(&mut table, at(2)), [3]);
}

#[test]
fn a_party_holds_together() {
    let mut table = table(CoordConfig { join: secs(5), lease: secs(1000), ..rules() });
    table.claim(at(0), of_party(1, 9, &[])).unwrap();
    assert_eq!(granted(&mut table, at(0)), [(1, InTurn)]);
    table.claim(at(1), claim(2, &[])).unwrap();
    table.claim(at(2), of_party(3, 9, &[4])).unwrap();
    assert_eq!(granted(&mut table, at(2)), [(3, Joined)], "others wait, but it is early");
    table.claim(at(6), of_party(4, 9, &[])).unwrap();
    assert_eq!(granted(&mut table, at(6)), [], "too late: it queues");
    table.cancel(at(7), SessionId(2), 1).unwrap();
    assert_eq!(granted(&mut table, at(7)), [(4, Joined)], "nobody else waits");
    table.claim(at(8), claim(2, &[4])).unwrap();
    release(&mut table, at(9), 1);
    release(&mut table, at(9), 4);
    assert_eq!(granted(&mut table, at(9)), [], "one of the party still holds it");
    release(&mut table, at(10), 3);
    assert_eq!(granted(&mut table, at(10)), [(2, InTurn)]);
}

#[test]
fn slots_count_parties() {
    let mut table = table(CoordConfig { slots: 2, ..rules() });
    for (session, party) in [(1, 9), (2, 9), (3, 0), (4, 0)] {
        table.claim(at(0), of_party(session, party, &[1])).unwrap();
    }
    assert_eq!(granted(&mut table, at(0)), [(1, InTurn), (2, Joined), (3, InTurn)]);
    release(&mut table, at(1), 1);
    assert_eq!(granted(&mut table, at(1)), []);
    release(&mut table, at(1), 2);
    assert_eq!(granted(&mut table, at(1)), [(4, InTurn)]);
}

#[test]
fn who_has_waited_too_long_is_let_in() {
    let mut table =
        table(CoordConfig { passing: Passing::Relaxed, block_max: secs(5), lease: secs(100), ..rules() });
    table.claim(at(0), claim(1, &[0])).unwrap();
    table.claim(at(1), claim(2, &[0, 1])).unwrap();
    table.claim(at(2), claim(3, &[1])).unwrap();
    assert_eq!(sessions(&mut table, at(2)), [1, 3]);
    assert_eq!(table.next(at(3)), Decision::WaitUntil(at(6)));
    assert_eq!(granted(&mut table, at(6)), [(2, Overdue)]);
    assert_eq!(table.stats().overdue, 1);
}

#[test]
fn a_turn_that_is_not_renewed_is_lost() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[])).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    let old = token_of(&table, 1);
    assert_eq!(table.renew(at(5), SessionId(1), old), Ok(at(15)));
    assert_eq!(table.next(at(5)), Decision::WaitUntil(at(15)));
    let Decision::Lost(loss) = table.next(at(15)) else { panic!("it is lost") };
    assert_eq!((loss.session, loss.token), (SessionId(1), Some(old)));
    let Decision::Granted(grant) = table.next(at(15)) else { panic!("the next one is granted") };
    assert!(grant.session == SessionId(2) && grant.token > old);
    assert_eq!(table.renew(at(15), SessionId(1), old), Err(Refused::NotHeld { token: old }));
    assert_eq!(
        table.release(at(15), SessionId(1), grant.token, 0),
        Err(Refused::NotHeld { token: grant.token })
    );
}

/// What is read late still counts: a lease ends when `next` says so.
#[test]
fn a_renewal_that_is_handed_in_before_next_counts() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    let token = token_of(&table, 1);
    assert_eq!(table.renew(at(11), SessionId(1), token), Ok(at(21)));
    assert_eq!(table.next(at(11)), Decision::WaitUntil(at(21)));
}

#[test]
fn nobody_loses_a_turn_because_the_coordinator_slept() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[])).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    table.disconnected(at(1), SessionId(2));
    assert_eq!(table.next(at(3600)), Decision::WaitUntil(at(3610)));
    assert_eq!(table.stats().leaps, 1);
    assert!(matches!(table.next(at(3610)), Decision::Lost(loss) if loss.session == SessionId(1)));
    assert!(matches!(table.next(at(3610)), Decision::Lost(loss) if loss.session == SessionId(2)));
    assert_eq!(table.next(at(3610)), Decision::Idle);
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut table = table(rules());
    table.claim(at(100), claim(1, &[])).unwrap();
    let Decision::Granted(grant) = table.next(at(50)) else { panic!("it is granted") };
    assert_eq!((grant.until, grant.waited), (at(110), Span::ZERO));
    assert_eq!(table.renew(at(1), SessionId(1), grant.token), Ok(at(110)));
}

#[test]
fn a_client_that_is_gone_keeps_its_place_for_a_lease() {
    let mut table = table(rules());
    for session in 1..=3 {
        table.claim(at(0), claim(session, &[])).unwrap();
    }
    assert_eq!(sessions(&mut table, at(0)), [1]);
    table.disconnected(at(1), SessionId(2));
    table.disconnected(at(1), SessionId(3));
    table.connected(at(9), SessionId(3));
    let token = token_of(&table, 1);
    table.renew(at(9), SessionId(1), token).unwrap();
    assert_eq!(table.next(at(9)), Decision::WaitUntil(at(11)));
    let Decision::Lost(loss) = table.next(at(11)) else { panic!("its time is over") };
    assert_eq!((loss.session, loss.token), (SessionId(2), None));
    table.release(at(12), SessionId(1), token, 0).unwrap();
    assert_eq!(sessions(&mut table, at(12)), [3]);
}

#[test]
fn a_claim_that_is_sent_again_is_the_same() {
    let mut table = table(rules());
    let first = table.claim(at(0), claim(1, &[])).unwrap();
    assert_eq!(table.claim(at(1), claim(1, &[])), Ok(first));
    let Decision::Granted(grant) = table.next(at(1)) else { panic!("it is granted") };
    assert!(matches!(table.next(at(1)), Decision::WaitUntil(_)));
    assert_eq!(table.claim(at(2), claim(1, &[])), Ok(first));
    assert_eq!(table.claim(at(2), claim(1, &[])), Ok(first));
    assert_eq!(table.next(at(2)), Decision::Granted(grant));
    assert!(matches!(table.next(at(2)), Decision::WaitUntil(_)), "told once");
}

#[test]
fn refusals() {
    let mut table = table(CoordConfig { claims_max: 3, ..rules() });
    assert_eq!(table.claim(at(0), claim(1, &[2, 1])), Err(Refused::Malformed));
    assert_eq!(table.claim(at(0), claim(1, &[1, 1])), Err(Refused::Malformed));
    table.claim(at(0), claim(1, &[1])).unwrap();
    let again = |members: &[u32], party| Claim { request: 2, party, ..claim(1, members) };
    assert_eq!(table.claim(at(0), again(&[0, 1], 0)), Err(Refused::Again { request: 1 }), "it waits");
    assert_eq!(sessions(&mut table, at(0)), [1]);
    assert_eq!(table.claim(at(0), again(&[], 0)), Err(Refused::Again { request: 1 }), "it holds");
    assert_eq!(
        table.claim(at(0), again(&[1], 5)),
        Err(Refused::Again { request: 1 }),
        "only one is of a party"
    );
    table.claim(at(0), again(&[2], 0)).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    assert_eq!(table.claim(at(0), claim(3, &[])), Err(Refused::Full { max: 3 }));
    assert_eq!(table.cancel(at(0), SessionId(1), 1), Err(Refused::NotWaiting { request: 1 }));
    assert_eq!(table.cancel(at(0), SessionId(9), 1), Err(Refused::NotWaiting { request: 1 }));
    assert_eq!(table.evict(at(0), Token(77)), Err(Refused::NotHeld { token: Token(77) }));
    assert_eq!(table.stats().refused, 9);
}

#[test]
fn goodbye_ends_all() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[1])).unwrap();
    table.claim(at(0), Claim { request: 2, ..claim(1, &[2]) }).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1, 1]);
    table.goodbye(at(1), SessionId(1));
    assert_eq!(sessions(&mut table, at(1)), [2]);
    table.goodbye(at(1), SessionId(2));
    assert_eq!(table.next(at(1)), Decision::Idle);
}

#[test]
fn an_evicted_turn_is_lost() {
    let mut table = table(rules());
    table.claim(at(0), claim(1, &[])).unwrap();
    table.claim(at(0), claim(2, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    let token = token_of(&table, 1);
    table.evict(at(1), token).unwrap();
    assert!(matches!(table.next(at(1)), Decision::Lost(loss) if loss.token == Some(token)));
    assert_eq!(sessions(&mut table, at(1)), [2]);
}

/// What a journal holds after these changes.
fn journal(table: &mut Table, kept: &mut Vec<Entry>) {
    for change in table.changes() {
        let (Change::Gone(id) | Change::Put(Entry { id, .. })) = change;
        kept.retain(|entry| entry.id != id);
        if let Change::Put(entry) = change {
            kept.push(entry);
        }
    }
}

#[test]
fn a_restart_loses_nothing() {
    let mut before = table(rules());
    let mut kept = Vec::new();
    for session in 1..=3 {
        before.claim(at(0), claim(session, &[])).unwrap();
    }
    assert_eq!(sessions(&mut before, at(0)), [1]);
    let token = token_of(&before, 1);
    journal(&mut before, &mut kept);
    let mut table = Table::restore(rules(), at(100), token, kept);
    assert_eq!(table.claim(at(101), claim(2, &[])), Ok(ClaimId(2)), "the same claim");
    assert_eq!(table.next(at(101)), Decision::WaitUntil(at(110)), "one lease for everybody");
    table.renew(at(105), SessionId(1), token).unwrap();
    assert!(matches!(table.next(at(110)), Decision::Lost(loss) if loss.session == SessionId(3)));
    table.release(at(112), SessionId(1), token, 0).unwrap();
    let Decision::Granted(grant) = table.next(at(112)) else { panic!("session 2 is next") };
    assert!(grant.session == SessionId(2) && grant.token > token);
    assert_eq!(grant.waited, secs(112));
}

#[test]
fn nothing_is_granted_before_it_begins() {
    let mut table = table(rules());
    table.begin_at(at(10));
    assert_eq!(table.next(at(0)), Decision::Idle);
    table.claim(at(0), claim(1, &[])).unwrap();
    assert_eq!(table.next(at(0)), Decision::WaitUntil(at(10)));
    assert_eq!(sessions(&mut table, at(10)), [1]);
}

#[test]
fn the_shortest_goes_first_until_the_largest_has_aged() {
    let of = |session, gib: u64| Claim { bytes: gib << 30, ..claim(session, &[]) };
    let mut table =
        table(CoordConfig { order: Order::Shortest { ageing: 1 << 30 }, lease: secs(1000), ..rules() });
    table.claim(at(0), of(1, 1)).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    table.claim(at(1), of(2, 100)).unwrap();
    table.claim(at(2), of(3, 50)).unwrap();
    table.claim(at(52), of(4, 50)).unwrap();
    table.claim(at(53), of(5, 1)).unwrap();
    table.claim(at(150), of(6, 1)).unwrap();
    let mut order = Vec::new();
    for session in [1, 3, 5, 2, 4] {
        release(&mut table, at(200), session);
        order.extend(sessions(&mut table, at(200)));
    }
    assert_eq!(order, [3, 5, 2, 4, 6]);
}

#[test]
fn a_size_that_is_not_known_is_that_of_the_last_turn() {
    let mut table = table(CoordConfig { order: Order::Shortest { ageing: 0 }, ..rules() });
    table.claim(at(0), claim(1, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(0)), [1]);
    let token = token_of(&table, 1);
    table.release(at(1), SessionId(1), token, 500).unwrap();
    table.claim(at(2), claim(9, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(2)), [9]);
    table.claim(at(2), claim(1, &[])).unwrap();
    table.claim(at(2), Claim { bytes: 400, ..claim(2, &[]) }).unwrap();
    release(&mut table, at(3), 9);
    assert_eq!(sessions(&mut table, at(3)), [2]);
    assert_eq!(table.entries().last().unwrap().claim.bytes, 500);
}

/// Parties that always want more share the time by their weights.
#[test]
fn weights_share_the_time() {
    let mut table = table(CoordConfig { order: Order::Weighted, ..rules() });
    let weights = [1, 2, 5];
    let lengths = [7, 3, 4];
    let mut held = [0; 3];
    let want = |index: usize, request| Claim {
        request,
        party: index as u64 + 1,
        weight: weights[index],
        ..claim(index as u64, &[])
    };
    (0..3).for_each(|index| drop(table.claim(at(0), want(index, 0))));
    let mut now = 0;
    for request in 1..2000 {
        let Decision::Granted(grant) = table.next(at(now)) else { panic!("somebody is next") };
        let index = grant.session.0 as usize;
        now += lengths[index];
        held[index] += lengths[index];
        table.release(at(now), grant.session, grant.token, 0).unwrap();
        table.claim(at(now), want(index, request)).unwrap();
    }
    for index in 0..3 {
        let fair = now * u64::from(weights[index]) / 8;
        assert!(held[index].abs_diff(fair) <= 20, "{index} held {} of {fair}", held[index]);
    }
}

/// Who was away has no claim to the time that it did not use.
#[test]
fn a_newcomer_does_not_take_all() {
    let mut table = table(CoordConfig { order: Order::Weighted, lease: secs(1000), ..rules() });
    table.claim(at(0), claim(1, &[])).unwrap();
    for request in 2..12 {
        assert_eq!(sessions(&mut table, at(request * 10)), [1]);
        release(&mut table, at(request * 10 + 10), 1);
        table.claim(at(request * 10 + 10), Claim { request, ..claim(1, &[]) }).unwrap();
    }
    table.claim(at(130), claim(2, &[])).unwrap();
    assert_eq!(sessions(&mut table, at(130)), [2]);
    release(&mut table, at(150), 2);
    table.claim(at(150), Claim { request: 2, ..claim(2, &[]) }).unwrap();
    assert_eq!(sessions(&mut table, at(150)), [1], "100 s were its own, alone");
}

#[test]
fn sets_go_side_by_side() {
    let mut table = table(CoordConfig { order: Order::Sets, ..rules() });
    let every = |session, period| Claim { period: secs(period), ..claim(session, &[]) };
    table.claim(at(0), every(1, 1000)).unwrap();
    table.claim(at(0), every(2, 900)).unwrap();
    table.claim(at(0), every(3, 100)).unwrap();
    table.claim(at(0), Claim { targets: Targets::all_of(PlaceId(1)), ..every(4, 10) }).unwrap();
    let mut shares = Vec::new();
    while let Decision::Granted(grant) = table.next(at(0)) {
        shares.push((grant.session.0, grant.share));
    }
    assert_eq!(shares, [(1, 1000), (3, 909), (4, 1000)], "10 to 1; place 1 is another");
    release(&mut table, at(1), 1);
    let Decision::Granted(grant) = table.next(at(1)) else { panic!("the next of its set") };
    assert_eq!((grant.session.0, grant.share), (2, 91));
}

/// A job that does not say how far its turns lie apart is watched, and its processes are in one set.
#[test]
fn periods_are_learnt() {
    let mut table = table(CoordConfig { order: Order::Sets, ..rules() });
    let mut set_of = |request: u64, now: u64| {
        for process in 0..2 {
            let claim = Claim { request, ..of_party(process, 7, &[]) };
            table.claim(at(now), claim).unwrap();
        }
        assert_eq!(sessions(&mut table, at(now)), [0, 1]);
        let periods: Vec<Span> = table.entries().map(|entry| entry.claim.period).collect();
        release(&mut table, at(now + 1), 0);
        release(&mut table, at(now + 1), 1);
        periods
    };
    assert_eq!(set_of(1, 0), [Span::ZERO; 2]);
    assert_eq!(set_of(2, 60), [secs(60); 2]);
    assert_eq!(set_of(3, 160), [secs(80); 2]);
}

#[test]
fn entries_say_who_holds_and_who_is_next() {
    let mut table = table(CoordConfig { order: Order::Shortest { ageing: 0 }, ..rules() });
    for (session, bytes) in [(1, 5), (2, 9), (3, 7)] {
        table.claim(at(0), Claim { bytes, ..claim(session, &[]) }).unwrap();
    }
    assert_eq!(sessions(&mut table, at(0)), [1]);
    let order: Vec<u64> = table.entries().map(|entry| entry.claim.session.0).collect();
    assert_eq!(order, [1, 3, 2]);
    assert!(matches!(table.entries().next().unwrap().standing, Standing::Held { token: Token(1), .. }));
}

#[test]
fn a_turn_that_is_as_long_as_it_may_be_is_lost_however_often_it_is_renewed() {
    let place = PlaceId(0);
    for limit in ["rules", "place"] {
        let config = CoordConfig {
            lease: secs(10),
            turn_max: secs(if limit == "rules" { 25 } else { 600 }),
            ..rules()
        };
        let mut table = table(config);
        if limit == "place" {
            table.limit_turns(place, secs(25));
        }
        let (first, second) = (claim(1, &[]), claim(2, &[]));
        table.claim(at(0), first).unwrap();
        table.claim(at(0), second).unwrap();
        let Decision::Granted(grant) = table.next(at(0)) else { panic!("it is free") };
        assert_eq!(table.renew(at(9), SessionId(1), grant.token), Ok(at(19)));
        assert_eq!(table.renew(at(18), SessionId(1), grant.token), Ok(at(25)), "{limit}");
        assert_eq!(table.renew(at(24), SessionId(1), grant.token), Ok(at(25)));
        assert_eq!(table.next(at(24)), Decision::WaitUntil(at(25)));
        assert!(matches!(table.next(at(25)), Decision::Lost(_)));
        assert!(matches!(table.next(at(25)), Decision::Granted(_)), "the next one has it");
        assert!(table.renew(at(25), SessionId(1), grant.token).is_err());
    }
}
