//! Mapped memory and writes of the same pages at the same moment: nothing that was written is lost.
//!
//! Who maps a file is another process than the one that serves the mount. In one process, a page fault that waits for the mount
//! holds the memory map that the serving threads need when requests come over io_uring: a deadlock in the kernel, which no signal
//! ends.

mod common;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use common::on_all_mounts;

const PAGE: usize = 4096;
const PAGES: usize = 64;
const ROUNDS: u64 = 12;
/// Threads of each kind.
const THREADS: usize = 4;
/// Bytes between the places of two threads in a page.
const STRIDE: usize = PAGE / (2 * THREADS);

/// In the environment of the process that maps: the mount, and its source.
const MOUNT: &str = "IOGATE_TEST_MOUNT";
const SOURCE: &str = "IOGATE_TEST_SOURCE";

/// Runs a test on a mount of each kind, in a process of its own: this program again, asked for just this test.
fn in_a_process_of_its_own(test: &str, run: impl Fn(&Path, &Path)) {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let (Some(mount), Some(source)) = (path(MOUNT), path(SOURCE)) {
        return run(&mount, &source);
    }
    on_all_mounts(|mount| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", test, "--nocapture"]);
        program.env(MOUNT, &mount.path).env(SOURCE, &mount.source);
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let is_one_passed = output.status.success() && said.contains(" 1 passed");
        assert!(is_one_passed, "{said}{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// A shared mapping of a whole file.
struct Mapping {
    start: *mut u8,
}

// SAFETY: threads use it by volatile stores to places of their own.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File) -> Mapping {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), PAGES * PAGE, both, MapFlags::SHARED, file, 0).unwrap() };
        Mapping { start: start.cast() }
    }

    fn store(&self, offset: usize, value: u64) {
        assert!(offset + 8 <= PAGES * PAGE);
        // SAFETY: inside of the mapping, aligned, and no reference to the memory exists.
        unsafe { self.start.add(offset).cast::<u64>().write_volatile(value) }
    }

    fn load(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= PAGES * PAGE);
        // SAFETY: as for storing.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    fn sync(&self) {
        // SAFETY: the mapping has this size.
        unsafe { msync(self.start.cast(), PAGES * PAGE, MsyncFlags::SYNC).unwrap() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping has this size, and nobody uses it any more.
        unsafe { munmap(self.start.cast(), PAGES * PAGE).unwrap() }
    }
}

/// Half of the threads store to a mapping, half write, each to places of its own in each page, all to the same page at
/// the same moment. Says what is not there afterwards.
fn lost(path: &Path, source: &Path, round: u64) -> Vec<String> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len((PAGES * PAGE) as u64).unwrap();
    let mapping = Mapping::new(&file);
    let together = Barrier::new(2 * THREADS);
    let unseen = AtomicU64::new(0);
    let value = |thread: usize, page: usize| (round << 32) | ((page as u64) << 8) | (thread as u64 + 1);
    std::thread::scope(|scope| {
        for thread in 0..2 * THREADS {
            let (file, mapping, together, unseen) = (&file, &mapping, &together, &unseen);
            scope.spawn(move || {
                for page in 0..PAGES {
                    together.wait();
                    let offset = page * PAGE + thread * STRIDE;
                    let value = value(thread, page);
                    if thread % 2 == 0 {
                        mapping.store(offset, value);
                    } else {
                        // The others wait for this thread, so it goes on.
                        let written = file.write_all_at(&value.to_ne_bytes(), offset as u64);
                        if written.is_err() || mapping.load(offset) != value {
                            unseen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut lost = match unseen.into_inner() {
        0 => Vec::new(),
        unseen => vec![format!("{unseen} writes that failed, or were answered and not seen in the mapping")],
    };
    let mut compare = |place: &str, load: &dyn Fn(usize) -> u64| {
        for (page, thread) in (0..PAGES).flat_map(|page| (0..2 * THREADS).map(move |thread| (page, thread))) {
            let found = load(page * PAGE + thread * STRIDE);
            if found != value(thread, page) {
                let how = if thread % 2 == 0 { "stored" } else { "written" };
                lost.push(format!("{place}: what was {how} by {thread} to page {page}, found {found:x}"));
            }
        }
    };
    compare("mapping", &|offset| mapping.load(offset));
    mapping.sync();
    for (place, path) in [("mount", path), ("source", source)] {
        let bytes = std::fs::read(path).unwrap();
        compare(place, &|offset| u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap()));
    }
    lost
}

#[test]
fn stores_to_a_mapping_and_writes_of_the_same_pages_are_all_kept() {
    in_a_process_of_its_own(
        "stores_to_a_mapping_and_writes_of_the_same_pages_are_all_kept",
        |mount, source| {
            let lost: Vec<String> = (0..ROUNDS)
                .flat_map(|round| lost(&mount.join("shared"), &source.join("shared"), round))
                .collect();
            assert!(lost.is_empty(), "{} lost: {:#?}", lost.len(), &lost[..lost.len().min(8)]);
        },
    );
}

#[test]
fn appends_to_a_page_that_is_stored_to_are_kept() {
    const BEFORE: usize = PAGE / 2;
    in_a_process_of_its_own("appends_to_a_page_that_is_stored_to_are_kept", |mount, source| {
        for round in 0..ROUNDS / 3 {
            let path = mount.join("log");
            std::fs::write(&path, [0; BEFORE]).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mapping = Mapping::new(&file);
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 1_u64.. {
                        (0..BEFORE).step_by(8).for_each(|offset| mapping.store(offset, n));
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        if n % 16 == 0 {
                            mapping.sync();
                        }
                    }
                });
                let mut log = OpenOptions::new().append(true).open(&path).unwrap();
                for n in 1..=(PAGE - BEFORE) as u64 / 8 {
                    log.write_all(&((round << 32) | n).to_ne_bytes()).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            mapping.sync();
            for path in [&path, &source.join("log")] {
                let bytes = std::fs::read(path).unwrap();
                assert_eq!(bytes.len(), PAGE);
                for (n, record) in (1..).zip(bytes[BEFORE..].chunks(8)) {
                    assert_eq!(record, ((round << 32) | n).to_ne_bytes(), "record {n} of {}", path.display());
                }
            }
        }
    });
}
