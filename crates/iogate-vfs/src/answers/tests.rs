//! The log over restarts of the server, torn ends and disks that refuse.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".iogate/answers");
    Place { _folder: folder, path }
}

fn open(place: &Place) -> Arc<Answers> {
    Arc::new(Answers::open(&place.path, Keeping::Boot).unwrap())
}

/// A log that can no longer be written.
struct Broken;

fn broken<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EBADF))
}

impl LogFile for Broken {
    fn path(&self) -> &Path {
        Path::new("broken")
    }
}

impl Medium for Broken {
    type Error = io::Error;

    fn boot(&self) -> &str {
        "now"
    }

    fn read(&mut self, _: &str) -> io::Result<Option<Vec<u8>>> {
        broken()
    }

    fn replace(&mut self, _: &str, _: &[u8]) -> io::Result<io::Result<()>> {
        broken()
    }

    fn append(&mut self, _: &str, _: u64, _: &[u8]) -> io::Result<()> {
        broken()
    }

    fn cut(&mut self, _: &str, _: u64) -> io::Result<()> {
        broken()
    }
}

fn key(number: u64) -> Key {
    Key { uid: 1, client: [2; 16], number, step: 0 }
}

fn outcome(fields: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Outcome { kind: 27, errno: 0, fields }.encode(&mut bytes);
    bytes
}

fn new(answers: &Arc<Answers>, number: u64) -> Running {
    match answers.begin(key(number), 1, &[]) {
        Begun::New(running) => running,
        _ => panic!("request {number} is known"),
    }
}

#[test]
fn what_was_answered_is_known_to_the_next_process() {
    let place = place();
    let answers = open(&place);
    let number = answers.number();
    let running = new(&answers, 1);
    running.intend(&Outcome { kind: 0, errno: 0, fields: b"what" }).unwrap();
    running.finish(&Outcome { kind: 27, errno: 0, fields: b"so" });
    new(&answers, 2).intend(&Outcome { kind: 0, errno: 0, fields: b"what" }).unwrap();
    drop(new(&answers, 3));
    drop(answers);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(place.path.parent().unwrap()).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);

    let answers = open(&place);
    assert_eq!(answers.number(), number);
    assert!(matches!(answers.begin(key(1), 1, &[]), Begun::Known(bytes) if bytes == outcome(b"so")));
    assert!(matches!(answers.begin(key(2), 1, &[]), Begun::Unknown), "until it is settled");
    assert_eq!(answers.unsettled().len(), 1);
    drop(new(&answers, 3));
    let note = ToNote { key: key(9), below: 3, state: Noted::Value, bytes: b"value".to_vec() };
    answers.remember(&[note]).unwrap();
    assert!(matches!(answers.begin(key(1), 1, &[]), Begun::Unknown), "the client has the answer");
    drop(answers);

    let answers = open(&place);
    assert_eq!(answers.value(&key(9)).as_deref(), Some(&b"value"[..]));
    assert_eq!(answers.len(), 1);
    drop(answers);
    let synced = Answers::open(&place.path, Keeping::Sync).unwrap();
    assert!(synced.is_empty() && synced.number() != number, "an unsynced log may lack something");
    let number = synced.number();
    drop(synced);
    assert_eq!(Answers::open(&place.path, Keeping::Sync).unwrap().number(), number);
}

#[test]
fn a_torn_end_is_cut_off() {
    let place = place();
    let answers = open(&place);
    new(&answers, 1).finish(&Outcome { kind: 27, errno: 0, fields: b"so" });
    let number = answers.number();
    drop(answers);
    let mut log = std::fs::read(&place.path).unwrap();
    let whole = log.len();
    let again = log[iogate_core::answers::HEADER_BYTES..].to_vec();
    log.extend_from_slice(&again[..again.len() - 1]);
    std::fs::write(&place.path, &log).unwrap();
    let answers = open(&place);
    assert_eq!((answers.number(), answers.len()), (number, 1));
    assert_eq!(std::fs::metadata(&place.path).unwrap().len(), whole as u64);
    drop(answers);
    std::fs::write(&place.path, b"something else").unwrap();
    let answers = open(&place);
    assert!(answers.number() != number && answers.is_empty());
}

#[test]
fn one_request_is_carried_out_once_at_a_time() {
    let answers = open(&place());
    let running = new(&answers, 1);
    assert!(matches!(answers.begin(key(1), 1, &[]), Begun::Running));
    let told = Arc::new(AtomicUsize::new(0));
    let tell = |told: &Arc<AtomicUsize>| {
        let told = Arc::clone(told);
        move || {
            told.fetch_add(1, Ordering::SeqCst);
        }
    };
    answers.wait(&key(1), tell(&told));
    answers.wait(&key(1), tell(&told));
    assert_eq!(told.load(Ordering::SeqCst), 0);
    running.finish(&Outcome { kind: 27, errno: 0, fields: b"so" });
    assert_eq!(told.load(Ordering::SeqCst), 2);
    answers.wait(&key(1), tell(&told));
    assert_eq!(told.load(Ordering::SeqCst), 3, "it is done");
    assert!(matches!(answers.begin(key(1), 1, &[]), Begun::Known(_)));
}

#[test]
fn many_threads_write_one_log_which_stays_small() {
    let place = place();
    let answers = open(&place);
    std::thread::scope(|scope| {
        for client in 0..4u8 {
            let answers = &answers;
            scope.spawn(move || {
                for number in 1..=2_000 {
                    let key = Key { uid: 0, client: [client + 1; 16], number, step: 0 };
                    let Begun::New(running) = answers.begin(key, number, &[]) else { panic!("known") };
                    running.intend(&Outcome { kind: 1, errno: 0, fields: &[client; 1000] }).unwrap();
                    running.finish(&Outcome { kind: 1, errno: 0, fields: &number.to_le_bytes() });
                }
            });
        }
    });
    assert_eq!(answers.len(), 4, "the last one of each client");
    let bytes = std::fs::metadata(&place.path).unwrap().len();
    assert!(bytes < 5 << 20, "{bytes} of 17 million bytes are left");
    let number = answers.number();
    drop(answers);
    let answers = open(&place);
    assert_eq!((answers.number(), answers.len()), (number, 4));
    for client in 0..4u8 {
        let key = Key { uid: 0, client: [client + 1; 16], number: 2_000, step: 0 };
        assert!(matches!(answers.begin(key, 1, &[]), Begun::Known(_)));
        let before = Key { number: 1_999, ..key };
        assert!(matches!(answers.begin(before, 1, &[]), Begun::Unknown), "its client has the answer");
    }
}

#[test]
fn what_cannot_be_noted_is_not_carried_out_and_not_forgotten() {
    let place = place();
    let answers = open(&place);
    let underway = new(&answers, 1);
    underway.intend(&Outcome { kind: 1, errno: 0, fields: b"before" }).unwrap();
    *lock(&answers.state).log.as_mut().expect("nobody writes").medium_mut() = Box::new(Broken);
    let running = new(&answers, 2);
    let error = running.intend(&Outcome { kind: 1, errno: 0, fields: b"what" }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    drop(running);
    drop(new(&answers, 2));
    underway.finish(&Outcome { kind: 27, errno: 0, fields: b"so" });
    assert!(matches!(answers.begin(key(1), 1, &[]), Begun::Known(bytes) if bytes == outcome(b"so")));
}

#[test]
fn a_log_is_one_servers_and_its_folder_the_servers_own() {
    let place = place();
    let answers = open(&place);
    let second = Answers::open(&place.path, Keeping::Boot).map(|_| ()).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    drop(answers);
    let folder = place.path.parent().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    std::os::unix::fs::symlink("/tmp", folder).unwrap();
    let error = Answers::open(&place.path, Keeping::Boot).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}
