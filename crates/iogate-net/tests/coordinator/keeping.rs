//! What a coordinator keeps, over restarts and without room.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iogate_core::wire::*;
use iogate_net::Endpoint;
use iogate_net::coordinator::journal::{Loaded, Record, Standing};
use iogate_net::coordinator::{Coordinator, Journal, JournalError, Local};
use iogate_net::turns::{self, Wanted};

use super::raw::Raw;
use super::{Setup, config, place, resume, wait_until};

#[test]
fn a_restart_keeps_who_holds_and_who_waits_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::at(dir.path(), "lease=5s");
    let mut clients: Vec<_> = (0..4).map(|_| setup.client()).collect();
    let token = clients[0].turn(place("scratch"));
    let ids: Vec<_> = clients[1..]
        .iter_mut()
        .map(|client| {
            let id = client.claim(place("scratch"));
            client.is_silent();
            id
        })
        .collect();
    drop(setup);
    let setup = Setup::at(dir.path(), "lease=5s");
    let status = setup.status();
    assert_eq!((status.holders[0].token, status.waiting, status.grace_ms), (token, 3, 0));
    let mut clients: Vec<_> = clients.iter().map(|client| resume(setup.unix(), client)).collect();
    assert!(clients.iter().all(|client| client.welcome.unwrap().resumed == 1));
    // In another order than they came in.
    for n in [2, 0, 1] {
        clients[n + 1].write(&Raw::bytes(ids[n], ids[n], &Request::Claim(place("scratch")), &[]));
        clients[n + 1].is_silent();
    }
    clients[0].renew(token).ok::<Renewed>();
    clients[0].release(token).done();
    let mut last = token;
    for n in 0..3 {
        let next = clients[n + 1].granted(ids[n]);
        assert!(next > last);
        last = next;
        clients[n + 1].acked = ids[n] + 1;
        clients[n + 1].release(next).done();
    }
}

#[test]
fn who_does_not_come_back_after_a_restart_is_no_ones_loss() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "lease=300ms";
    let setup = Setup::at(dir.path(), rules);
    let (mut gone, mut waits) = (setup.client(), setup.client());
    gone.turn(place("scratch"));
    waits.claim(place("scratch"));
    waits.is_silent();
    drop(setup);
    let setup = Setup::at(dir.path(), rules);
    let mut new = setup.client();
    let token = new.turn(place("scratch"));
    new.release(token).done();
    wait_until("the sessions are forgotten", || setup.status().sessions == 1);
    assert_eq!(setup.status().counters.lost, 2);
}

#[test]
fn after_a_boot_nothing_is_granted_for_a_lease_and_tokens_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "lease=400ms";
    let setup = Setup::at(dir.path(), rules);
    let before = setup.client().turn(place("scratch"));
    drop(setup);
    std::fs::write(dir.path().join("reserve"), r#"{"boot":"another","token":65536}"#).unwrap();
    std::fs::remove_file(dir.path().join("journal")).unwrap();
    let setup = Setup::at(dir.path(), rules);
    assert!(setup.status().grace_ms > 0);
    let mut client = setup.client();
    let granted: Granted = client.ask(&Request::Claim(place("scratch")), &[]).ok();
    assert!(granted.token > before + 60_000, "{granted:?}");
    assert!(setup.status().grace_ms == 0);
    drop(setup);
    let setup = Setup::at(dir.path(), rules);
    assert_eq!(setup.status().grace_ms, 0, "once is enough");
}

#[test]
fn a_claim_of_before_a_crash_is_in_nobodys_way() {
    let (dir, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = sockets.path().join("coordinator");
    let reached_at = |setup: &Setup| {
        let Endpoint::Unix(socket) = setup.unix() else { panic!("expected a Unix socket") };
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(socket, &link).unwrap();
    };
    let library =
        turns::Coordinator::new(vec![Endpoint::Unix(link.clone())], turns::CoordinatorOptions::default());
    let wanted = Wanted { place: "scratch".into(), ..Wanted::default() };
    let limits = turns::Limits::patience(Duration::from_secs(60));

    // No lease ends here, however busy the machine is.
    let setup = Setup::at(dir.path(), "lease=60s");
    reached_at(&setup);
    let mut holder = setup.client();
    let token = holder.turn(place("scratch"));
    let before = std::thread::scope(|scope| {
        let waits = scope.spawn(|| library.claim(&wanted, &limits).unwrap().token());
        // What is written from here on will be lost.
        let mut kept = String::new();
        wait_until("the journal has both claims", || {
            kept = std::fs::read_to_string(dir.path().join("journal")).unwrap();
            kept.ends_with('\n') && kept.matches("\"request\":").count() >= 2
        });
        holder.release(token).done();
        assert!(waits.join().unwrap() > token);
        kept
    });
    wait_until("its turn is over", || setup.status().held == 0);
    drop(setup);
    std::fs::write(dir.path().join("journal"), before).unwrap();
    std::fs::write(dir.path().join("reserve"), r#"{"boot":"another","token":65536}"#).unwrap();

    let setup = Setup::at(dir.path(), "lease=400ms");
    reached_at(&setup);
    let status = setup.status();
    assert_eq!((status.waiting, status.held), (1, 0), "who held has lost the turn: {status:?}");
    holder = resume(setup.unix(), &holder);
    holder.refused(&Request::Renew(Renew { token }), libc::ESTALE, "");
    let held = library.claim(&wanted, &limits).unwrap();
    assert!(held.token() > 65536);
    held.release(0).unwrap();
}

#[test]
fn a_damaged_journal_is_an_error_and_not_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::at(dir.path(), "");
    setup.client().turn(place("scratch"));
    drop(setup);
    let path = dir.path().join("journal");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let started = Coordinator::start(config(""), Vec::new(), Box::new(Local::open(dir.path()).unwrap()));
    let error = started.err().unwrap().to_string();
    assert!(error.contains("damaged at byte") && error.contains("move it away"), "{error}");
}

/// How a journal fails, and what has been asked of it.
#[derive(Default)]
struct Told {
    /// Another coordinator leads.
    follows: AtomicBool,
    is_full: AtomicBool,
    is_unreadable: AtomicBool,
    loads: AtomicUsize,
    resigned: AtomicUsize,
    appended: Mutex<Vec<Record>>,
}

/// A journal in a directory that fails as a test tells it.
struct Failing {
    inner: Local,
    told: Arc<Told>,
}

impl Failing {
    fn over(dir: &Path, told: &Arc<Told>) -> Box<Failing> {
        Box::new(Failing { inner: Local::open(dir).unwrap(), told: Arc::clone(told) })
    }
}

impl Journal for Failing {
    fn standing(&mut self) -> Standing {
        if self.told.follows.load(Ordering::SeqCst) { Standing::Follows(None) } else { Standing::Leads }
    }

    fn resign(&mut self) {
        self.told.resigned.fetch_add(1, Ordering::SeqCst);
        self.told.follows.store(true, Ordering::SeqCst);
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.told.loads.fetch_add(1, Ordering::SeqCst);
        if self.told.is_unreadable.load(Ordering::SeqCst) {
            return Err(JournalError::Version { path: "here".into(), found: 2, expected: 1 });
        }
        self.inner.load()
    }

    fn append(
        &mut self,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), JournalError> {
        if self.told.is_full.load(Ordering::SeqCst) {
            let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(JournalError::Io { action: "write", path: "journal".into(), source });
        }
        self.told.appended.lock().unwrap().extend_from_slice(records);
        self.inner.append(records, all)
    }

    fn place(&self) -> String {
        "here".into()
    }
}

#[test]
fn without_room_nothing_is_granted_and_with_room_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::<Told>::default();
    let setup = Setup::over(config("lease=5s"), Failing::over(dir.path(), &told));
    let (mut holder, mut waiter, mut late) = (setup.client(), setup.client(), setup.client());
    let token = holder.turn(place("scratch"));
    let id = waiter.claim(place("scratch"));
    waiter.is_silent();
    told.is_full.store(true, Ordering::SeqCst);
    // The first finds out, the second is told at once.
    for _ in 0..2 {
        late.refused(&Request::Claim(place("home")), libc::ENOSPC, "can keep no claims");
    }
    assert!(setup.status().journal_error.unwrap().contains("No space"));
    holder.renew(token).ok::<Renewed>();
    let release = holder.send(&Request::Release(Release { token, bytes: 0 }), &[]);
    std::thread::sleep(Duration::from_millis(250));
    waiter.is_silent();
    told.is_full.store(false, Ordering::SeqCst);
    let released = holder.reply();
    assert_eq!(released.id, release);
    released.done();
    assert!(waiter.granted(id) > token);
    late.turn(place("home"));
    assert_eq!(setup.status().journal_error, None);
    drop(setup);
    let setup = Setup::at(dir.path(), "");
    assert_eq!(setup.status().holders.len(), 2);
}

#[test]
fn what_was_said_is_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::<Told>::default();
    let setup = Setup::over(config(""), Failing::over(dir.path(), &told));
    let mut client = setup.client();
    for _ in 0..20 {
        let token = client.turn(place("scratch"));
        let is_held = |record: &Record| matches!(record, Record::Claim(claim) if claim.held.is_some_and(|held| held.token == token));
        assert!(told.appended.lock().unwrap().iter().any(is_held));
        client.release(token).done();
        assert!(matches!(told.appended.lock().unwrap().last(), Some(Record::Gone(_))));
    }
}

#[test]
fn who_cannot_load_the_journal_tries_less_and_less_and_has_others_lead() {
    let dir = tempfile::tempdir().unwrap();
    let (follows, is_unreadable) = (AtomicBool::new(true), AtomicBool::new(true));
    let told = Arc::new(Told { follows, is_unreadable, ..Told::default() });
    let setup = Setup::over(config(""), Failing::over(dir.path(), &told));
    told.follows.store(false, Ordering::SeqCst);
    wait_until("it has given up", || {
        // Something happens all the time, whether it leads or not.
        setup.status();
        told.resigned.load(Ordering::SeqCst) == 1
    });
    assert_eq!(told.loads.load(Ordering::SeqCst), 5);
    told.is_unreadable.store(false, Ordering::SeqCst);
    told.follows.store(false, Ordering::SeqCst);
    wait_until("it leads", || told.loads.load(Ordering::SeqCst) == 6);
    setup.status();
    setup.client().turn(place("scratch"));
}
