//! Which application a calling process belongs to.
//!
//! What a process says itself counts ([`DeclaredApps`]), else the rule of [`iogate_vfs::app`]. A thread of its own reads
//! `/proc`, because that can wait for the process itself (its memory map may be locked while it waits for one of its
//! reads); nothing waits for that thread for long.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use iogate_core::{AppId, BurstSize, ClientId};
use iogate_engine::{ClassBy, Origin};
use iogate_vfs::Groups;
use iogate_vfs::app::{AppFile, Process, account, application, application_of_user, burst, job};

use crate::declared_apps::{Declared, DeclaredApps};

/// How long a process is believed to be the one that was looked at: process ids are not used again this soon.
const TRUSTED: Duration = Duration::from_secs(1);
/// How long what a process was stands in for what it is, where that is not to be had: as long as most outages that hold the resolver up
/// last. Process ids can be used again later, and a request would be charged to another application.
const STANDS_IN: Duration = Duration::from_secs(60);
/// How long a request waits for its process to be looked at, before it counts as of an unknown application.
const PATIENCE: Duration = Duration::from_millis(100);
/// Processes remembered.
const PROCESSES_MAX: usize = 4096;
/// Names remembered.
const NAMES_MAX: usize = 4096;
/// Warnings remembered, so that each is given once; no more are given.
const WARNINGS_MAX: usize = 64;

/// What the applications that were seen are called, for people.
#[derive(Debug, Default)]
pub struct AppNames {
    names: Mutex<HashMap<AppId, String>>,
}

impl AppNames {
    /// The name of an application; `None` if it has not been seen (or too many have).
    pub fn get(&self, app: AppId) -> Option<String> {
        self.names.lock().expect("no map operation panics").get(&app).cloned()
    }

    fn add(&self, app: AppId, name: impl FnOnce() -> String) {
        let mut names = self.names.lock().expect("no map operation panics");
        if names.len() < NAMES_MAX {
            names.entry(app).or_insert_with(name);
        }
    }
}

/// The calling processes of a mount.
#[derive(Debug)]
pub(crate) struct Applications {
    known: Arc<RwLock<HashMap<u32, Known>>>,
    to_resolver: Sender<Question>,
    looking: Arc<Looking>,
    names: Arc<AppNames>,
    told: Arc<DeclaredApps>,
}

/// Since when the resolver looks at a process.
#[derive(Debug, Default)]
struct Looking(Mutex<Option<Instant>>);

impl Looking {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().expect("assigning does not panic") = since;
    }

    /// Whether nobody need ask now: the process that is looked at does not show itself.
    fn is_stuck(&self) -> bool {
        self.0.lock().expect("assigning does not panic").is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    app: AppId,
    /// Its job, if it is in one.
    job: Option<AppId>,
    /// The account that this is charged to.
    account: Option<AppId>,
    /// What it says that its application moves in a burst.
    burst: BurstSize,
    client: ClientId,
    /// When the process started, in ticks since boot: tells it from a later one with the same id.
    started: u64,
    seen: Instant,
    /// What the process had said by then.
    said: Option<Declared>,
    rights: Rights,
}

/// In whose name a thread acted when it was looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Rights {
    uid: u32,
    gid: u32,
    groups: Groups,
}

impl Rights {
    fn is_of(&self, user: (u32, u32)) -> bool {
        (self.uid, self.gid) == user
    }
}

impl Known {
    fn is_fresh(&self, told: &DeclaredApps) -> bool {
        self.seen.elapsed() < TRUSTED && self.is_as_said(told)
    }

    /// Whether this is better than nothing for a request of that user. Of another user it may be another process.
    fn stands_in(&self, uid: u32, told: &DeclaredApps) -> bool {
        self.rights.uid == uid && self.seen.elapsed() < STANDS_IN && self.is_as_said(told)
    }

    /// Whether the process has said nothing since.
    fn is_as_said(&self, told: &DeclaredApps) -> bool {
        self.said == told.said(self.client.0)
    }
}

struct Question {
    pid: u32,
    /// Whoever asks waits from then on.
    since: Instant,
    /// Whom it must have been when it was looked at, if that matters.
    user: Option<(u32, u32)>,
    answer: SyncSender<Known>,
}

impl Applications {
    /// `programs` have fixed applications.
    pub(crate) fn new(programs: AppFile) -> std::io::Result<Applications> {
        let known = Arc::new(RwLock::new(HashMap::new()));
        let names = Arc::new(AppNames::default());
        let (to_resolver, questions) = mpsc::channel();
        let told = Arc::new(DeclaredApps::default());
        let looking = Arc::new(Looking::default());
        let resolver = Resolver {
            known: known.clone(),
            looking: looking.clone(),
            names: names.clone(),
            told: told.clone(),
            programs,
            warned: Mutex::default(),
        };
        // Ends with the last sender.
        std::thread::Builder::new().name("iogate-apps".into()).spawn(move || resolver.run(&questions))?;
        Ok(Applications { known, to_resolver, looking, names, told })
    }

    pub(crate) fn names(&self) -> Arc<AppNames> {
        self.names.clone()
    }

    pub(crate) fn told(&self) -> Arc<DeclaredApps> {
        self.told.clone()
    }

    /// Who sends a request, by the process (or thread) and the user in it, and the account that it is charged to; process 0 is the
    /// kernel itself.
    pub(crate) fn origin(&self, by: ClassBy, pid: u32, uid: u32) -> (Origin, Option<AppId>) {
        if pid == 0 {
            return (Origin::default(), None);
        }
        let user = application_of_user(uid);
        let known = self.known.read().expect("no map operation panics").get(&pid).copied();
        let known = match known {
            Some(known) if known.is_fresh(&self.told) => Some(known),
            // Better what it was a while ago than unknown, as long as another process holds the resolver up.
            old => {
                // Nobody would answer in time.
                let asked = if self.looking.is_stuck() { None } else { self.ask(pid, None) };
                asked.or(old.filter(|old| old.stands_in(uid, &self.told)))
            }
        };
        let (job, account) = known.map_or((None, None), |known| (known.job, known.account));
        let app = match by {
            // Of which file the request is, and so its class, is not known here.
            ClassBy::App | ClassBy::Path => known.map_or(AppId(0), |known| known.app),
            ClassBy::Job => job.unwrap_or(user),
            ClassBy::Account => account.unwrap_or(user),
            ClassBy::User => user,
        };
        let client = known.map_or(ClientId(pid), |known| known.client);
        let burst = known.map_or(BurstSize::UNKNOWN, |known| known.burst);
        (Origin { app, client, issued: None, burst }, account)
    }

    /// The supplementary groups of the process (or thread) that sends a request in the name of this user and group. Unknown if it does
    /// not show them in time, or is another user meanwhile. A change of them alone is seen within a second.
    pub(crate) fn groups(&self, pid: u32, uid: u32, gid: u32) -> Groups {
        // Root needs none.
        if pid == 0 || uid == 0 {
            return Groups::UNKNOWN;
        }
        let user = (uid, gid);
        let known = self.known.read().expect("no map operation panics").get(&pid).copied();
        let known = match known {
            Some(known) if known.is_fresh(&self.told) && known.rights.is_of(user) => Some(known),
            // As above; but permissions are not to be old ones.
            _ if self.looking.is_stuck() => None,
            _ => self.ask(pid, Some(user)).filter(|known| known.rights.is_of(user)),
        };
        known.map_or(Groups::UNKNOWN, |known| known.rights.groups)
    }

    fn ask(&self, pid: u32, user: Option<(u32, u32)>) -> Option<Known> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.to_resolver.send(Question { pid, since: Instant::now(), user, answer }).ok()?;
        answered.recv_timeout(PATIENCE).ok()
    }
}

struct Resolver {
    known: Arc<RwLock<HashMap<u32, Known>>>,
    looking: Arc<Looking>,
    names: Arc<AppNames>,
    told: Arc<DeclaredApps>,
    programs: AppFile,
    /// What was warned of: a job's processes all have the same environment.
    warned: Mutex<HashSet<String>>,
}

impl Resolver {
    fn run(&self, questions: &Receiver<Question>) {
        for Question { pid, since, user, answer } in questions {
            // Whoever asked has lost patience, and others wait.
            if since.elapsed() >= PATIENCE {
                continue;
            }
            let before = self.known.read().expect("no map operation panics").get(&pid).copied();
            let known = match before {
                // Another request of the same process has asked meanwhile.
                Some(known)
                    if known.is_fresh(&self.told) && user.is_none_or(|user| known.rights.is_of(user)) =>
                {
                    known
                }
                before => {
                    self.looking.set(Some(Instant::now()));
                    let known = self.look_at(pid, before);
                    self.looking.set(None);
                    known
                }
            };
            // As above, meanwhile.
            let _ = answer.try_send(known);
        }
    }

    fn look_at(&self, pid: u32, before: Option<Known>) -> Known {
        let (session, started) = stat(pid).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rights = rights(&status);
        let process = process_in(&status).unwrap_or(pid);
        let said = self.told.said(process);
        let mut known = match before {
            Some(before) if before.started == started && before.said == said => Known { rights, ..before },
            _ => {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let shown = Seen { pid, session, environment };
                let (app, job, account) = self.application(&shown, process);
                let burst = burst(&shown).unwrap_or_else(|why| self.warn(&why, process));
                let (client, seen) = (ClientId(process), Instant::now());
                Known { app, job, account, burst, client, started, seen, said, rights }
            }
        };
        known.seen = Instant::now();
        let mut all = self.known.write().expect("no map operation panics");
        if all.len() >= PROCESSES_MAX {
            all.retain(|_, known| known.seen.elapsed() < TRUSTED);
        }
        if all.len() < PROCESSES_MAX {
            all.insert(pid, known);
        }
        known
    }

    /// The application of a process, its job and its account.
    fn application(&self, seen: &Seen, process: u32) -> (AppId, Option<AppId>, Option<AppId>) {
        let known = |(app, name)| {
            self.names.add(app, || name);
            app
        };
        let told = self.told.by(process).map(|app| (app, app.to_string()));
        let app = told.or_else(|| application(seen, &self.programs)).map_or(AppId(0), known);
        (app, job(seen).map(known), account(seen).map(known))
    }

    /// A process has said something that is no size.
    fn warn(&self, why: &str, process: u32) -> BurstSize {
        let mut warned = self.warned.lock().expect("no set operation panics");
        if warned.len() < WARNINGS_MAX && warned.insert(why.into()) {
            tracing::warn!("process {process}: {why}");
        }
        BurstSize::UNKNOWN
    }
}

/// A process, as `/proc` shows it.
struct Seen {
    pid: u32,
    session: u32,
    environment: Vec<u8>,
}

impl Process for Seen {
    fn variable(&self, name: &str) -> Option<String> {
        variable(&self.environment, name)
    }

    fn program(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    fn session(&self) -> u32 {
        self.session
    }
}

/// The value of a variable in the bytes of `/proc/PID/environ`; `None` if it is not there or empty.
fn variable(environment: &[u8], name: &str) -> Option<String> {
    let value = environment
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

/// The session and the start time of a process.
pub(crate) fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, can contain anything; the fields after it start with the third.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields: Vec<&str> =
        std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace().collect();
    Some((fields.get(3)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// The process that a thread belongs to.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    process_in(&status)
}

/// The process in the text of `/proc/PID/status`.
fn process_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// In whose name a thread acts, by the text of its `/proc/PID/status`. Of a text that says less, nobody known.
fn rights(status: &str) -> Rights {
    let numbers = |key: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
    };
    // Real, effective, saved, and that of file systems.
    let of_files = |key| numbers(key)?.get(3).copied();
    match (of_files("Uid:"), of_files("Gid:"), numbers("Groups:")) {
        (Some(uid), Some(gid), Some(groups)) => Rights { uid, gid, groups: Groups::of(groups) },
        _ => Rights::default(),
    }
}

#[cfg(test)]
mod tests {
    use iogate_vfs::app::{application_of_account, application_of_word};
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let environment = b"XIOGATE_APP=1\0IOGATE_APPS=2\0IOGATE_APP=three\0EMPTY=\0";
        assert_eq!(variable(environment, "IOGATE_APP").as_deref(), Some("three"));
        assert_eq!(variable(environment, "EMPTY"), None);
        assert_eq!(variable(environment, "APP"), None);
    }

    #[test]
    fn groups_are_those_of_whoever_acts_on_files() {
        let status =
            "Name:\tx\nTgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t30 10 20 \nNSpid:\t7\n";
        let found = rights(status);
        assert_eq!((found.uid, found.gid, found.groups.list()), (4, 8, Some(&[10, 20, 30][..])));
        assert_eq!(rights("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t \n").groups.list(), Some(&[][..]));
        assert_eq!(rights("Name:\tx\n").groups, Groups::UNKNOWN);
        assert_eq!(process_in(status), Some(7));
        // Another user's groups are nobody's.
        let applications = Applications::new(AppFile::default()).expect("a thread can be started");
        assert_eq!(applications.groups(std::process::id(), 4_000_000, 4_000_000), Groups::UNKNOWN);
        assert_eq!(applications.groups(0, 1, 1), Groups::UNKNOWN);
    }

    #[test]
    fn a_process_that_does_not_show_itself_makes_no_other_one_unknown() {
        let (to_resolver, questions) = mpsc::channel();
        let looking = Arc::new(Looking::default());
        let applications = Applications {
            known: Arc::default(),
            to_resolver,
            looking: Arc::clone(&looking),
            names: Arc::default(),
            told: Arc::default(),
        };
        let old = Known {
            app: AppId(7),
            job: None,
            account: None,
            burst: BurstSize::UNKNOWN,
            client: ClientId(4_000_001),
            started: 1,
            seen: Instant::now().checked_sub(2 * TRUSTED).expect("the machine is up for longer"),
            said: None,
            rights: Rights { uid: 5, gid: 5, groups: Groups::of(Vec::new()) },
        };
        applications.known.write().expect("nothing panics").insert(4_000_001, old);
        let app_of = |pid, uid| applications.origin(ClassBy::App, pid, uid).0.app;
        let app = |pid| app_of(pid, 5);
        // Nobody answers.
        assert_eq!((app(4_000_001), app(4_000_002)), (AppId(7), AppId(0)));
        assert_eq!(
            applications.groups(4_000_001, 5, 5),
            Groups::UNKNOWN,
            "permissions are not to be old ones"
        );
        assert_eq!(questions.try_iter().count(), 3);
        // And that is known: nobody asks.
        looking.set(old.seen.into());
        assert_eq!((app(4_000_001), app(4_000_002)), (AppId(7), AppId(0)));
        assert_eq!(app_of(4_000_001, 6), AppId(0), "another user's process has the number now");
        assert_eq!(applications.groups(4_000_001, 5, 5), Groups::UNKNOWN);
        let seen = Instant::now().checked_sub(STANDS_IN).expect("a time before the boot is one too");
        applications.known.write().expect("nothing panics").insert(4_000_001, Known { seen, ..old });
        assert_eq!(app(4_000_001), AppId(0), "too old");
        assert_eq!(questions.try_iter().count(), 0);
        // Who has waited for long enough does not want to know any more.
        let resolver = Resolver {
            known: Arc::default(),
            looking,
            names: Arc::default(),
            told: Arc::default(),
            programs: AppFile::default(),
            warned: Mutex::default(),
        };
        let (answer, answered) = mpsc::sync_channel(1);
        let question = Question { pid: std::process::id(), since: old.seen, user: None, answer };
        applications.to_resolver.send(question).expect("it is received below");
        drop(applications);
        resolver.run(&questions);
        assert!(answered.recv().is_err());
        assert!(resolver.known.read().expect("nothing panics").is_empty());
    }

    #[test]
    fn a_process_has_a_session_and_threads() {
        // A session of its own: this process's may belong to another process-id namespace, and then has no number.
        let mut child =
            std::process::Command::new("setsid").args(["sleep", "5"]).spawn().expect("setsid is there");
        std::thread::sleep(Duration::from_millis(200));
        let (session, started) = stat(child.id()).expect("/proc is there");
        assert_eq!(session, child.id());
        assert!(started > 0);
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        let pid = std::process::id();
        assert_eq!(process_of(pid), Some(pid));
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(process_of(thread), Some(pid));
    }

    #[test]
    fn a_process_is_looked_at_once() {
        let applications = Applications::new(AppFile::default()).expect("a thread can be started");
        let child = std::process::Command::new("sleep")
            .arg("5")
            .env("IOGATE_APP", "simulation")
            .env("IOGATE_BURST", "10GiB")
            .env("SLURM_JOB_ID", "4711")
            .env("SLURM_JOB_ACCOUNT", "physics")
            .spawn();
        let mut child = child.expect("sleep is there");
        // Before its exec the child still has this process's environment.
        std::thread::sleep(Duration::from_millis(200));
        let (origin, account) = applications.origin(ClassBy::App, child.id(), 0);
        let class = |by, uid| applications.origin(by, child.id(), uid).0.app;
        assert_eq!(origin.app, application_of_word("simulation"));
        assert_eq!(origin.client, ClientId(child.id()));
        assert_eq!(origin.burst, BurstSize::of(10 << 30));
        assert_eq!(account, Some(application_of_account("physics")));
        assert_eq!(class(ClassBy::User, 7), application_of_user(7));
        assert_eq!(class(ClassBy::Job, 7), AppId(4711));
        assert_eq!(class(ClassBy::Account, 7), application_of_account("physics"));
        assert_eq!(applications.names().get(origin.app).as_deref(), Some("simulation"));
        assert_eq!(class(ClassBy::App, 0), origin.app);
        let told = applications.told();
        for wrong in [&b"0"[..], b"", b"-1", b"weather", b"\xff"] {
            assert_eq!(told.tell(child.id(), wrong), Err(Errno::INVAL), "{wrong:?}");
        }
        told.tell(child.id(), b"99").expect("it is there");
        assert_eq!(class(ClassBy::App, 0), AppId(99), "it counts at once");
        assert_eq!(applications.names().get(AppId(99)).as_deref(), Some("99"));
        let mut known = applications.known.read().expect("nothing panics")[&child.id()];
        // However busy the machine is.
        known.seen = Instant::now() + Duration::from_secs(60);
        told.tell(std::process::id(), b"7").expect("it is there");
        told.tell(child.id(), b"99").expect("it is there");
        assert!(known.is_fresh(&told), "nothing new was said by it");
        told.tell(child.id(), b"7").expect("it is there");
        assert!(!known.is_fresh(&told));
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        assert_eq!(told.tell(child.id(), b"7"), Err(Errno::SRCH));
        assert_eq!(told.by(child.id()), None, "a later process of that number has said nothing");
        assert_eq!(applications.origin(ClassBy::App, 0, 0).0.app, AppId(0));
    }
}
