//! What a modelled machine has on its disk and in its memory: names, files, and what a reboot leaves of them.
//!
//! Changes of names, sizes and attributes go to the disk in their order, all of them with any sync; the data of a file page by page,
//! in any order, and for sure with its own sync.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use iogate_sim::rng::Rng;

const PAGE: usize = 4096;
/// So many changes of names are in memory only, at most.
const CHANGES_MAX: usize = 64;

/// What names, attributes and sizes are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) by_path: BTreeMap<PathBuf, u64>,
    /// Files without a name that somebody had open.
    pub(crate) orphans: BTreeSet<u64>,
    pub(crate) attributes: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
}

/// A file, or a directory.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) mode: u32,
    pub(crate) generation: u64,
    pub(crate) bytes: Vec<u8>,
    /// What is on the disk.
    disk: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Handles in the process that uses the disk.
    pub(crate) handles: u32,
    /// Write-backs that have failed since the machine booted.
    pub(crate) failures: u64,
    /// What a symbolic link says.
    pub(crate) target: Vec<u8>,
}

/// Names and files.
#[derive(Debug)]
pub(crate) struct Disk {
    rng: Rng,
    pub(crate) names: Names,
    /// What names were, from what is durable on, to before the last change.
    before: VecDeque<Names>,
    pub(crate) inodes: BTreeMap<u64, Inode>,
    last: u64,
    /// Files up to here may have been open in a process before.
    old: u64,
    pub(crate) boots: u64,
    /// Processes that have used it.
    pub(crate) lives: u64,
    /// Bytes that may be used.
    pub(crate) room: usize,
    /// Of a thousand syncs, so many fail.
    pub(crate) failing: u64,
    /// Of a thousand opens, so many find no descriptor.
    pub(crate) crowded: u64,
    /// Syncs that have failed, so that others' data is lost.
    pub(crate) failed_syncs: u64,
}

impl Disk {
    pub(crate) fn new(rng: Rng) -> Disk {
        let mut disk = Disk {
            rng,
            names: Names::default(),
            before: VecDeque::new(),
            inodes: BTreeMap::new(),
            last: 0,
            old: 0,
            boots: 0,
            lives: 0,
            room: usize::MAX,
            failing: 0,
            crowded: 0,
            failed_syncs: 0,
        };
        disk.make(libc::S_IFDIR | 0o755, Path::new(""));
        // The root is there for good.
        disk.before.clear();
        disk
    }

    /// A name, an attribute or a size is about to change.
    pub(crate) fn changes(&mut self) {
        self.before.push_back(self.names.clone());
        if self.before.len() > CHANGES_MAX {
            self.before.pop_front();
        }
    }

    /// Makes a file at a path where there is none.
    pub(crate) fn make(&mut self, mode: u32, path: &Path) -> u64 {
        self.changes();
        self.last += 1;
        let inode = Inode {
            mode,
            generation: self.last,
            bytes: Vec::new(),
            disk: Vec::new(),
            dirty: BTreeSet::new(),
            handles: 0,
            failures: 0,
            target: Vec::new(),
        };
        self.inodes.insert(self.last, inode);
        self.names.by_path.insert(path.to_path_buf(), self.last);
        self.last
    }

    /// Whether a process before may have had a file open.
    pub(crate) fn is_old(&self, inode: u64) -> bool {
        inode <= self.old
    }

    /// Whether somebody has a file open, or may come back to it.
    pub(crate) fn is_used(&self, inode: u64) -> bool {
        self.is_old(inode) || self.inodes.get(&inode).is_some_and(|inode| inode.handles > 0)
    }

    pub(crate) fn links(&self, inode: u64) -> u32 {
        self.names.by_path.values().filter(|&&at| at == inode).count() as u32
    }

    pub(crate) fn used(&self) -> usize {
        self.inodes.values().map(|inode| inode.bytes.len()).sum()
    }

    /// Writes; returns how many bytes there was room for.
    pub(crate) fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> usize {
        let left = self.room.saturating_sub(self.used());
        let Some(file) = self.inodes.get_mut(&inode) else { return 0 };
        let start = offset as usize;
        let more = (start + bytes.len()).saturating_sub(file.bytes.len());
        // What is behind the room is not written: whole pages. A hole takes room, too.
        let end = match start + bytes.len() {
            end if more > left => (end - (more - left)) / PAGE * PAGE,
            end => end,
        };
        let Some(count) = end.checked_sub(start).filter(|&count| count > 0) else { return 0 };
        if file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        file.bytes[start..end].copy_from_slice(&bytes[..count]);
        file.dirty.extend(start / PAGE..end.div_ceil(PAGE));
        count
    }

    pub(crate) fn set_size(&mut self, inode: u64, size: u64) {
        self.changes();
        let Some(file) = self.inodes.get_mut(&inode) else { return };
        let (old, size) = (file.bytes.len(), size as usize);
        file.bytes.resize(size, 0);
        file.dirty.extend(old.min(size) / PAGE..old.max(size).div_ceil(PAGE));
    }

    /// Takes bytes out of the middle.
    pub(crate) fn collapse(&mut self, inode: u64, offset: u64, bytes: u64) {
        self.changes();
        let Some(file) = self.inodes.get_mut(&inode) else { return };
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        if end < file.bytes.len() {
            file.dirty.extend(start / PAGE..file.bytes.len().div_ceil(PAGE));
            file.bytes.drain(start..end);
        }
    }

    /// Makes a file durable. Returns whether that went well: if not, what was not durable may never be.
    pub(crate) fn sync(&mut self, inode: u64) -> bool {
        let fails = self.rng.below(1000) < self.failing;
        let Some(file) = self.inodes.get_mut(&inode) else { return false };
        if fails {
            file.dirty.clear();
            file.failures += 1;
            self.failed_syncs += 1;
            return false;
        }
        file.disk.resize(file.bytes.len(), 0);
        for page in std::mem::take(&mut file.dirty) {
            file.copy(page);
        }
        self.before.clear();
        let gone: Vec<u64> = self.inodes.keys().copied().filter(|&inode| self.is_gone(inode)).collect();
        gone.iter().for_each(|inode| drop(self.inodes.remove(inode)));
        true
    }

    /// The process that used it is gone.
    pub(crate) fn killed(&mut self) {
        self.lives += 1;
        self.old = self.last;
        self.inodes.values_mut().for_each(|inode| inode.handles = 0);
    }

    /// The machine boots: of changes of names a prefix is left, of pages any.
    pub(crate) fn reboot(&mut self) {
        self.killed();
        self.boots += 1;
        let kept = self.rng.below(self.before.len() as u64 + 1) as usize;
        if let Some(names) = self.before.get(kept) {
            self.names = names.clone();
        }
        self.before.clear();
        let named: BTreeSet<u64> = self.names.by_path.values().chain(&self.names.orphans).copied().collect();
        self.inodes.retain(|inode, _| named.contains(inode));
        for inode in self.inodes.values_mut() {
            inode.failures = 0;
            if self.rng.below(2) == 0 && inode.bytes.len() != inode.disk.len() {
                inode.disk.resize(inode.bytes.len(), 0);
            }
            for page in std::mem::take(&mut inode.dirty) {
                if self.rng.below(2) == 0 {
                    inode.copy(page);
                }
            }
            inode.bytes.clone_from(&inode.disk);
        }
    }

    /// Whether somebody finds no descriptor.
    pub(crate) fn is_crowded(&mut self) -> bool {
        self.rng.below(1000) < self.crowded
    }

    /// Whether nothing leads to a file any more. It goes when that is durable.
    pub(crate) fn is_gone(&self, inode: u64) -> bool {
        self.links(inode) == 0
            && !self.names.orphans.contains(&inode)
            && self.inodes.get(&inode).is_some_and(|inode| inode.handles == 0)
    }
}

impl Inode {
    /// A page goes to the disk, as far as the disk's file reaches.
    fn copy(&mut self, page: usize) {
        let end = ((page + 1) * PAGE).min(self.bytes.len()).min(self.disk.len());
        let start = page * PAGE;
        if start < end {
            self.disk[start..end].copy_from_slice(&self.bytes[start..end]);
        }
    }
}
