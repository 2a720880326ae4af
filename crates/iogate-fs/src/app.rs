//! Which application a calling process belongs to.
//!
//! What a process says itself counts ([`Told`]), else the rule of [`iogate_net::app`]. A thread of its own reads `/proc`, because that can wait for the process itself
//! (its memory map may be locked while it waits for one of its reads); nothing waits for that thread for long.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use iogate_core::{AppId, ClientId};
use iogate_engine::Origin;
use iogate_net::app::{AppFile, Process, application};

use crate::told::Told;

/// How long a process is believed to be the one that was looked at: process ids are not used again this soon.
const TRUSTED: Duration = Duration::from_secs(1);
/// How long a request waits for its process to be looked at, before it counts as of an unknown application.
const PATIENCE: Duration = Duration::from_millis(100);
/// Processes remembered.
const PROCESSES_MAX: usize = 4096;
/// Names remembered.
const NAMES_MAX: usize = 4096;

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
    names: Arc<AppNames>,
    told: Arc<Told>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    app: AppId,
    client: ClientId,
    /// When the process started, in ticks since boot: tells it from a later one with the same id.
    started: u64,
    seen: Instant,
    /// Of what processes had said by then.
    version: u64,
}

impl Known {
    fn is_fresh(&self, told: &Told) -> bool {
        self.seen.elapsed() < TRUSTED && self.version == told.version()
    }
}

struct Question {
    pid: u32,
    answer: SyncSender<Known>,
}

impl Applications {
    /// `programs` have fixed applications.
    pub(crate) fn new(programs: AppFile) -> std::io::Result<Applications> {
        let known = Arc::new(RwLock::new(HashMap::new()));
        let names = Arc::new(AppNames::default());
        let (to_resolver, questions) = mpsc::channel();
        let told = Arc::new(Told::default());
        let resolver = Resolver { known: known.clone(), names: names.clone(), told: told.clone(), programs };
        // Ends with the last sender.
        std::thread::Builder::new().name("iogate-apps".into()).spawn(move || resolver.run(&questions))?;
        Ok(Applications { known, to_resolver, names, told })
    }

    pub(crate) fn names(&self) -> Arc<AppNames> {
        self.names.clone()
    }

    pub(crate) fn told(&self) -> Arc<Told> {
        self.told.clone()
    }

    /// Who sends a request, by the process (or thread) id in it; 0 is the kernel itself.
    pub(crate) fn origin(&self, pid: u32) -> Origin {
        if pid == 0 {
            return Origin::default();
        }
        let known = self.known.read().expect("no map operation panics").get(&pid).copied();
        let known = match known {
            Some(known) if known.is_fresh(&self.told) => Some(known),
            _ => self.ask(pid),
        };
        known.map_or(Origin { client: ClientId(pid), ..Origin::default() }, |known| Origin {
            app: known.app,
            client: known.client,
            issued: None,
        })
    }

    fn ask(&self, pid: u32) -> Option<Known> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.to_resolver.send(Question { pid, answer }).ok()?;
        answered.recv_timeout(PATIENCE).ok()
    }
}

struct Resolver {
    known: Arc<RwLock<HashMap<u32, Known>>>,
    names: Arc<AppNames>,
    told: Arc<Told>,
    programs: AppFile,
}

impl Resolver {
    fn run(&self, questions: &Receiver<Question>) {
        for Question { pid, answer } in questions {
            let before = self.known.read().expect("no map operation panics").get(&pid).copied();
            let known = match before {
                // Another request of the same process has asked meanwhile.
                Some(known) if known.is_fresh(&self.told) => known,
                before => self.look_at(pid, before),
            };
            // Whoever asked may have lost patience.
            let _ = answer.try_send(known);
        }
    }

    fn look_at(&self, pid: u32, before: Option<Known>) -> Known {
        let version = self.told.version();
        let (session, started) = stat(pid).unwrap_or_default();
        let mut known = match before {
            Some(before) if before.started == started && before.version == version => before,
            _ => {
                let process = process_of(pid).unwrap_or(pid);
                let app = self.application(pid, process, session);
                Known { app, client: ClientId(process), started, seen: Instant::now(), version }
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

    fn application(&self, pid: u32, process: u32, session: u32) -> AppId {
        if let Some(app) = self.told.by(process) {
            self.names.add(app, || app.to_string());
            return app;
        }
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let seen = Seen { pid, session, environment };
        let Some((app, name)) = application(&seen, &self.programs) else { return AppId(0) };
        self.names.add(app, || name);
        app
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
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use iogate_net::app::application_of_word;
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
        let child = std::process::Command::new("sleep").arg("5").env("IOGATE_APP", "simulation").spawn();
        let mut child = child.expect("sleep is there");
        // Before its exec the child still has this process's environment.
        std::thread::sleep(Duration::from_millis(200));
        let origin = applications.origin(child.id());
        assert_eq!(origin.app, application_of_word("simulation"));
        assert_eq!(origin.client, ClientId(child.id()));
        assert_eq!(applications.names().get(origin.app).as_deref(), Some("simulation"));
        assert_eq!(applications.origin(child.id()).app, origin.app);
        let told = applications.told();
        for wrong in [&b"0"[..], b"", b"-1", b"weather", b"\xff"] {
            assert_eq!(told.tell(child.id(), wrong), Err(Errno::INVAL), "{wrong:?}");
        }
        told.tell(child.id(), b"99").expect("it is there");
        assert_eq!(applications.origin(child.id()).app, AppId(99), "it counts at once");
        assert_eq!(applications.names().get(AppId(99)).as_deref(), Some("99"));
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        assert_eq!(told.tell(child.id(), b"7"), Err(Errno::SRCH));
        assert_eq!(told.by(child.id()), None, "a later process of that number has said nothing");
        assert_eq!(applications.origin(0).app, AppId(0));
    }
}
