//! Stores that are slow or fail, behind a mount.

mod common;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Mount, all_options, can_mount};
use iogate_core::Op;
use iogate_engine::store::{Io, IoDone, OpenMode};
use iogate_engine::{FileHandle, Store};
use iogate_fs::CacheMode;

/// A directory whose transfers take long, or fail.
struct Troubled {
    store: Arc<dyn Store>,
    delay: Duration,
    failing: AtomicBool,
}

impl Store for Troubled {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        std::thread::sleep(self.delay);
        if self.failing.load(Ordering::Relaxed) {
            let errno = if io.op == Op::Write { libc::ENOSPC } else { libc::EIO };
            return done(io, Err(io::Error::from_raw_os_error(errno)));
        }
        self.store.start(io, done);
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EDQUOT));
        }
        self.store.sync(file, data_only)
    }
}

fn on_troubled_mounts(delay: Duration, test: impl Fn(&Mount, &Troubled)) {
    if !can_mount() {
        return;
    }
    for options in all_options().into_iter().filter(|options| options.cache == CacheMode::Direct) {
        eprintln!("with {:?}", options.transport);
        let mut troubled = None;
        let mount = Mount::with_store(&options, |store| {
            let made = Arc::new(Troubled { store, delay, failing: AtomicBool::new(false) });
            troubled = Some(made.clone());
            made
        });
        test(&mount, &troubled.unwrap());
    }
}

#[test]
fn metadata_does_not_wait_behind_data() {
    on_troubled_mounts(Duration::from_millis(50), |mount, _| {
        let path = mount.at("f");
        std::fs::write(mount.source.join("f"), vec![1; 1 << 20]).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..24_u64 {
                let (path, stop) = (&path, &stop);
                scope.spawn(move || {
                    let file = File::open(path).unwrap();
                    let mut buffer = [0; 4096];
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(file.read_at(&mut buffer, reader * 4096).unwrap(), 4096);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            let mut times: Vec<Duration> = (0..100)
                .map(|number| {
                    let begin = Instant::now();
                    std::fs::create_dir(mount.at(&format!("d{number}"))).unwrap();
                    begin.elapsed()
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            times.sort();
            eprintln!("median {:?}, longest {:?}", times[50], times[99]);
            // Were it behind the reads, it would take a read's time.
            assert!(times[50] < Duration::from_millis(20), "median {:?}", times[50]);
            assert!(times[90] < Duration::from_millis(50), "9 of 10 within {:?}", times[90]);
        });
    });
}

#[test]
fn errors_of_the_store_reach_the_program() {
    on_troubled_mounts(Duration::ZERO, |mount, troubled| {
        std::fs::write(mount.at("f"), b"before").unwrap();
        let file = File::options().read(true).write(true).open(mount.at("f")).unwrap();
        troubled.failing.store(true, Ordering::Relaxed);
        let errno = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(file.read_at(&mut [0; 8], 0)), Some(libc::EIO));
        assert_eq!(errno(file.write_at(b"x", 0)), Some(libc::ENOSPC));
        assert_eq!(errno(file.sync_all().map(|()| 0)), Some(libc::EDQUOT));
        troubled.failing.store(false, Ordering::Relaxed);
        let mut buffer = [0; 8];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
        assert_eq!(&buffer[..6], b"before");
    });
}

#[test]
fn a_closed_gate_answers_with_an_error() {
    on_troubled_mounts(Duration::ZERO, |mount, _| {
        std::fs::write(mount.at("f"), b"before").unwrap();
        let file = File::open(mount.at("f")).unwrap();
        mount.engine.shutdown();
        assert_eq!(file.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(file.metadata().unwrap().len(), 6, "metadata is still served");
    });
}
