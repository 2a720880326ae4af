//! The files that the kernel knows: node id <-> (device, inode), each held by an `O_PATH` descriptor.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, RwLock};

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::abi::ROOT_ID;

/// A file of the source that the kernel has looked up and not yet forgotten.
///
/// The descriptor keeps the inode number from being used again, so that a node id never changes its meaning.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: u64,
    key: Key,
    path_fd: OwnedFd,
    append: Mutex<Append>,
}

type Key = (u64, u64);

/// Where the next append goes while appends are underway, when the file's size does not show them yet.
#[derive(Debug, Default)]
struct Append {
    underway: u32,
    end: u64,
}

impl Inode {
    /// A path that names the file itself, whatever happens to its names.
    pub(crate) fn proc_path(&self) -> ProcPath {
        ProcPath::new(self.path_fd.as_fd())
    }

    /// The offset of an append of `bytes`: after the file's end and after the appends that are underway.
    pub(crate) fn begin_append(self: &Arc<Self>, file: BorrowedFd<'_>, bytes: u32) -> Result<AppendGuard, Errno> {
        let mut append = self.append.lock().expect("no append panics");
        if append.underway == 0 {
            append.end = rustix::fs::fstat(file)?.st_size as u64;
        }
        let offset = append.end;
        append.end = offset.checked_add(u64::from(bytes)).ok_or(Errno::FBIG)?;
        append.underway += 1;
        Ok(AppendGuard { inode: self.clone(), offset })
    }
}

impl AsFd for Inode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path_fd.as_fd()
    }
}

/// An append that is underway; dropped when it has been carried out.
#[derive(Debug)]
pub(crate) struct AppendGuard {
    inode: Arc<Inode>,
    pub(crate) offset: u64,
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        self.inode.append.lock().expect("no append panics").underway -= 1;
    }
}

/// `/proc/self/fd/N`, on the stack.
pub(crate) struct ProcPath {
    bytes: [u8; 32],
    length: usize,
}

impl ProcPath {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> ProcPath {
        use std::io::Write;
        let mut bytes = [0; 32];
        let mut rest = &mut bytes[..];
        write!(rest, "/proc/self/fd/{}", fd.as_raw_fd()).expect("a descriptor's number fits");
        let length = 32 - rest.len();
        ProcPath { bytes, length }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// All inodes of a mount.
#[derive(Debug)]
pub(crate) struct InodeTable {
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    by_id: HashMap<u64, (Arc<Inode>, u64)>,
    by_key: HashMap<Key, u64>,
    next_id: u64,
}

impl InodeTable {
    /// A table that contains the source directory as the root, which is never forgotten.
    pub(crate) fn new(root: OwnedFd) -> Result<InodeTable, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let key = key(&stat);
        let root = Arc::new(Inode { id: ROOT_ID, key, path_fd: root, append: Mutex::default() });
        let table = Table {
            by_id: HashMap::from([(ROOT_ID, (root, 1))]),
            by_key: HashMap::from([(key, ROOT_ID)]),
            next_id: ROOT_ID + 1,
        };
        Ok(InodeTable { table: RwLock::new(table) })
    }

    /// The inode with this node id; `ESTALE` if the kernel should not know it.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<Inode>, Errno> {
        let table = self.table.read().expect("no table operation panics");
        table.by_id.get(&id).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)
    }

    /// Number of inodes, and so of descriptors held.
    pub(crate) fn len(&self) -> usize {
        self.table.read().expect("no table operation panics").by_id.len()
    }

    /// Counts a lookup of the file that `path_fd` holds and whose attributes are `stat`.
    pub(crate) fn look_up(&self, path_fd: OwnedFd, stat: &Stat) -> Arc<Inode> {
        let key = key(stat);
        let mut table = self.table.write().expect("no table operation panics");
        if let Some(&id) = table.by_key.get(&key)
            && let Some((inode, lookups)) = table.by_id.get_mut(&id)
        {
            *lookups += 1;
            return inode.clone();
        }
        let id = table.next_id;
        table.next_id += 1;
        let inode = Arc::new(Inode { id, key, path_fd, append: Mutex::default() });
        table.by_id.insert(id, (inode.clone(), 1));
        table.by_key.insert(key, id);
        inode
    }

    /// Takes back `count` lookups; the last closes the file.
    pub(crate) fn forget(&self, id: u64, count: u64) {
        if id == ROOT_ID {
            return;
        }
        let mut table = self.table.write().expect("no table operation panics");
        let Some((_, lookups)) = table.by_id.get_mut(&id) else { return };
        *lookups = lookups.saturating_sub(count);
        if *lookups == 0
            && let Some((inode, _)) = table.by_id.remove(&id)
        {
            table.by_key.remove(&inode.key);
            drop(table);
            drop(inode);
        }
    }
}

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}
