//! Mapped memory and writes of the same pages at the same moment: nothing that was written is lost.

mod common;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use common::on_all_mounts;

const PAGE: usize = 4096;
const PAGES: usize = 64;
const ROUNDS: u64 = 12;
/// Threads of each kind.
const THREADS: usize = 4;
/// Bytes between the places of two threads in a page.
const STRIDE: usize = PAGE / (2 * THREADS);

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
    let value = |thread: usize, page: usize| round << 32 | (page as u64) << 8 | thread as u64 + 1;
    std::thread::scope(|scope| {
        for thread in 0..2 * THREADS {
            let (file, mapping, together) = (&file, &mapping, &together);
            scope.spawn(move || {
                for page in 0..PAGES {
                    together.wait();
                    let offset = page * PAGE + thread * STRIDE;
                    let value = value(thread, page);
                    if thread % 2 == 0 {
                        mapping.store(offset, value);
                    } else {
                        file.write_all_at(&value.to_ne_bytes(), offset as u64).unwrap();
                    }
                }
            });
        }
    });
    let mut lost = Vec::new();
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
    on_all_mounts(|mount| {
        let lost: Vec<String> = (0..ROUNDS)
            .flat_map(|round| lost(&mount.at("shared"), &mount.source.join("shared"), round))
            .collect();
        assert!(lost.is_empty(), "{} lost: {:#?}", lost.len(), &lost[..lost.len().min(8)]);
    });
}
