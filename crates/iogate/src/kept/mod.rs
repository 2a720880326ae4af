//! What was learnt of what storage charges, kept from one mount or server to the next: per file system, in small files.
//!
//! | file | what |
//! |---|---|
//! | `mod` | what a gate begins with, and the thread that keeps what it learns |
//! | `place` | which file system a directory is of |
//! | `folder` | files that are written whole |
//!
//! Several gates may be in front of one file system. Each writes those cells that it has measured itself since its beginning, over what the
//! file has by then; all others stay as they are. So the last one counts where several have measured the same, and nothing is lost of
//! what only one has.

mod folder;
mod place;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use iogate_core::auto::Storage;
use iogate_core::profile::{Findings, Refit};
use iogate_engine::Engine;
use iogate_report::units;
use iogate_sim::learnt::{self, Learnt};
use iogate_turn::calibration::file_name;

use crate::output::say;
use crate::state;
use folder::Folder;
pub(crate) use place::Place;

/// Names the folder, or says [`NOWHERE`].
pub(crate) const VARIABLE: &str = "IOGATE_PROFILES";
/// That nothing is kept.
const NOWHERE: &str = "none";
/// How often what changes is written.
const EVERY: Duration = Duration::from_secs(300);

/// Where profiles are kept; none if nowhere.
pub(crate) fn folder() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) if value == NOWHERE => None,
        Some(value) => Some(value.into()),
        None => state::folder("profiles"),
    }
}

/// What is kept of the storage of one gate.
pub(crate) struct KeptPrices {
    folder: Folder,
    place: Place,
    /// What it began with, as it is known after reading it.
    start: Findings,
    /// What it is told to people.
    storage: Storage,
}

impl KeptPrices {
    /// For a directory, if something can be kept of it. What cannot be is said in a warning.
    pub(crate) fn of(directory: &Path, direct: bool) -> Option<KeptPrices> {
        let path = folder()?;
        let Some(place) = Place::of(directory, direct) else {
            let shown = directory.display();
            warn(&format!("nothing is kept of {shown}: nothing says for certain which file system it is"));
            return None;
        };
        let folder = Folder::make(&path).inspect_err(|error| {
            let shown = path.display();
            warn(&format!("what is learnt of {} is not kept: {shown}: {error}", directory.display()));
        });
        Some(KeptPrices::within(folder.ok()?, place))
    }

    fn within(folder: Folder, place: Place) -> KeptPrices {
        let mut storage = Storage::unknown(&place.kind, place.rotational);
        let mut start = Findings::default();
        match kept(&folder, &place) {
            Ok(Some(learnt)) => {
                let refit = Refit::from_findings(&place.kind, place.rotational, &learnt.findings);
                start = refit.findings();
                storage = storage
                    .with_findings(&learnt.findings)
                    .told(format!("kept since {}", units::date(learnt.since)));
            }
            Ok(None) => {}
            Err(why) => warn(&format!("{why}: it begins anew")),
        }
        KeptPrices { folder, place, start, storage }
    }

    /// What a gate begins with.
    pub(crate) fn storage(&self) -> Storage {
        self.storage.clone()
    }

    /// Keeps what `engine` learns, now and then, until [`Keeper::end`].
    pub(crate) fn start(self, engine: &Arc<Engine>) -> Option<Keeper> {
        let (end, ended) = mpsc::channel::<()>();
        let engine = Arc::downgrade(engine);
        let work = move || {
            let (mut written, mut warned) = (self.start.clone(), false);
            loop {
                let is_over = !matches!(ended.recv_timeout(EVERY), Err(mpsc::RecvTimeoutError::Timeout));
                let Some(engine) = engine.upgrade() else { return };
                if let Some(findings) = engine.findings().filter(|findings| *findings != written) {
                    match self.keep(&findings) {
                        Ok(()) => written = findings,
                        Err(error) if !warned => {
                            let path = self.folder.path().display();
                            warn(&format!("what was learnt of the storage is not kept: {path}: {error}"));
                            warned = true;
                        }
                        Err(_) => {}
                    }
                }
                if is_over {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("iogate-kept".into()).spawn(work);
        let thread = thread.inspect_err(|error| warn(&format!("what is learnt is not kept: {error}")));
        Some(Keeper { end, thread: thread.ok()? })
    }

    /// Writes what has been found since the beginning, over what is there by now.
    fn keep(&self, findings: &Findings) -> std::io::Result<()> {
        let _alone = self.folder.alone();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        // What is not of this file system, or no text, has been warned of.
        let before = kept(&self.folder, &self.place).ok().flatten();
        let since = before.as_ref().map_or(now, |before| before.since);
        let before = before.map(|before| before.findings).unwrap_or_default();
        let all = findings.onto(&before, &self.start);
        if all == before || all.is_empty() {
            return Ok(());
        }
        let Place { name, kind, device, rotational } = self.place.clone();
        let text = learnt::write(&Learnt {
            place: name,
            kind,
            device,
            rotational,
            since,
            until: now,
            findings: all,
        });
        self.folder.write(&file_name(&self.place.name), &text)
    }
}

/// What is kept of a place, unless it is of something else by now. The error is for people.
fn kept(folder: &Folder, place: &Place) -> Result<Option<Learnt>, String> {
    let name = file_name(&place.name);
    let of = |why: &dyn std::fmt::Display| format!("{}/{name}.toml: {why}", folder.path().display());
    let Some(text) = folder.read(&name).map_err(|error| of(&error))? else { return Ok(None) };
    let learnt = learnt::read(&text).map_err(|error| of(&error))?;
    let refuse = |what: &str, here: &str, there: &str| {
        Err(of(&format!("it is of another {what}: expected {here}, found {there}")))
    };
    if learnt.place != place.name {
        return refuse("file system", &place.name, &learnt.place);
    }
    if learnt.kind != place.kind {
        return refuse("type of file system", &place.kind, &learnt.kind);
    }
    // In a sandbox it may not be known.
    let are_known = !learnt.device.is_empty() && !place.device.is_empty();
    if are_known && learnt.device != place.device {
        return refuse("device", &place.device, &learnt.device);
    }
    if learnt.rotational != place.rotational {
        let called = |rotational| if rotational { "one that rotates" } else { "one that does not rotate" };
        return refuse("device", called(place.rotational), called(learnt.rotational));
    }
    Ok(Some(learnt))
}

/// All that is kept, for who asks.
pub(crate) struct Shelf(Option<Folder>);

impl Shelf {
    /// What is in a folder, which need not be there yet.
    pub(crate) fn open(path: &Path) -> std::io::Result<Shelf> {
        match Folder::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Shelf(None)),
            folder => Ok(Shelf(Some(folder?))),
        }
    }

    /// Of these places, or all; what was learnt last comes first, and of what cannot be read why.
    pub(crate) fn all(&self, places: Option<&[Place]>) -> std::io::Result<Vec<Result<Learnt, String>>> {
        let Some(folder) = &self.0 else { return Ok(Vec::new()) };
        let read = |name: &String| {
            let text = folder.read(name).map_err(|error| error.to_string());
            let learnt = text.and_then(|text| {
                text.map(|text| learnt::read(&text)).transpose().map_err(|error| error.to_string())
            });
            learnt.map_err(|why| format!("{}/{name}.toml: {why}", folder.path().display())).transpose()
        };
        match places {
            Some(places) => Ok(places.iter().filter_map(|place| kept(folder, place).transpose()).collect()),
            None => Ok(folder.names()?.iter().filter_map(read).collect()),
        }
    }

    /// Removes what is kept of these places, or all; of how many something was.
    pub(crate) fn forget(&self, places: Option<&[Place]>) -> std::io::Result<u64> {
        let Some(folder) = &self.0 else { return Ok(0) };
        let names = match places {
            Some(places) => places.iter().map(|place| file_name(&place.name)).collect(),
            None => folder.names()?,
        };
        names.iter().try_fold(0, |count, name| Ok(count + u64::from(folder.remove(name)?)))
    }
}

fn warn(text: &str) {
    say(format_args!("warning: {text}"));
}

/// What keeps what a gate learns.
pub(crate) struct Keeper {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Writes the last of it. The engine must be there still.
    pub(crate) fn end(self) {
        let _ = self.end.send(());
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::Op;
    use iogate_core::profile::{Class, Finding, Number};

    use super::*;

    fn place() -> Place {
        Place { name: "ext4 1".into(), kind: "ext".into(), device: "a disk".into(), rotational: false }
    }

    fn findings(of: &[(Op, u64)]) -> Findings {
        let mut findings = Findings::default();
        for &(op, value) in of {
            let ns = Number { value, count: 100, spread: 10 };
            assert!(findings.add(Finding { op, class: Class::Jump, in_flight: 1, bytes: 4_096, ns }));
        }
        findings
    }

    #[test]
    fn what_several_have_learnt_is_kept_and_nothing_else_is_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = || Folder::make(dir.path()).unwrap();
        let keeping = |place: Place| KeptPrices::within(folder(), place);
        let read = |place: &Place| kept(&folder(), place);
        let (one, other) = (keeping(place()), keeping(place()));
        assert!(one.start.is_empty() && one.storage.prices().is_none());
        one.keep(&Findings::default()).unwrap();
        assert_eq!(read(&place()), Ok(None), "nothing is nothing to keep");
        one.keep(&findings(&[(Op::Read, 1_000)])).unwrap();
        other.keep(&findings(&[(Op::Write, 2_000)])).unwrap();
        let both = read(&place()).unwrap().unwrap();
        assert_eq!(both.findings, findings(&[(Op::Read, 1_000), (Op::Write, 2_000)]));
        // The next one begins with both, and has changed nothing as long as it has measured nothing.
        let next = keeping(place());
        assert!(next.storage.prices().is_some());
        next.keep(&next.start).unwrap();
        assert_eq!(read(&place()).unwrap().unwrap().findings, both.findings);
        next.keep(&findings(&[(Op::Read, 3_000)])).unwrap();
        assert_eq!(
            read(&place()).unwrap().unwrap().findings,
            findings(&[(Op::Read, 3_000), (Op::Write, 2_000)])
        );
        // In a sandbox it may not be known what it lies on.
        assert!(read(&Place { device: String::new(), ..place() }).unwrap().is_some());
        for (another, said) in [
            (
                Place { device: "another".into(), ..place() },
                "of another device: expected another, found a disk",
            ),
            (Place { rotational: true, ..place() }, "of another device: expected one that rotates"),
            (
                Place { kind: "xfs".into(), ..place() },
                "of another type of file system: expected xfs, found ext",
            ),
        ] {
            let why = read(&another).unwrap_err();
            assert!(why.contains(said) && why.lines().count() == 1, "{why}");
            assert!(keeping(another).storage.prices().is_none());
        }
        // Under a name that somebody has given it.
        let renamed = Place { name: "ext4 2".into(), ..place() };
        std::fs::rename(dir.path().join("ext4%201.toml"), dir.path().join("ext4%202.toml")).unwrap();
        assert!(
            read(&renamed).unwrap_err().contains("of another file system: expected ext4 2, found ext4 1")
        );
        // What is refused is written anew.
        keeping(renamed.clone()).keep(&findings(&[(Op::Read, 9)])).unwrap();
        assert_eq!(read(&renamed).unwrap().unwrap().findings, findings(&[(Op::Read, 9)]));
        let shelf = Shelf::open(dir.path()).unwrap();
        assert_eq!(shelf.all(None).unwrap().len(), 1);
        assert_eq!(shelf.forget(Some(&[place()])).unwrap(), 0);
        assert_eq!(shelf.forget(Some(&[renamed])).unwrap(), 1);
        assert_eq!(Shelf::open(&dir.path().join("nowhere")).unwrap().forget(None).unwrap(), 0);
    }
}
