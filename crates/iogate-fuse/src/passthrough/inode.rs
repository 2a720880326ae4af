//! The files that the kernel knows: node id <-> (device, inode).
//!
//! Each is held by an `O_PATH` descriptor; when those run short, by the source file system's handle for it, which is
//! opened for the time of an operation.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, RwLock};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::last_errno;
use crate::abi::ROOT_ID;
use crate::append::Appends;
use crate::coherence::Coherence;

/// A file of the source that the kernel has looked up and not yet forgotten.
#[derive(Debug)]
pub(crate) struct Inode {
    key: Key,
    holder: Holder,
    pub(crate) appends: Arc<Appends>,
    pub(crate) coherence: Arc<Coherence>,
    /// How many handles of it are open.
    pub(super) open: AtomicU32,
}

/// Device and inode number.
type Key = (u64, u64);

/// What leads to a file, whatever happens to its names.
#[derive(Debug)]
enum Holder {
    /// Keeps the inode number from being used again.
    Descriptor(OwnedFd),
    /// Contains what tells the inode from a later one with the same number.
    Handle(SystemHandle),
}

/// An inode with a descriptor for it, for the time of an operation.
#[derive(Debug)]
pub(crate) struct HeldInode {
    pub(crate) inode: Arc<Inode>,
    opened: Option<OwnedFd>,
}

impl AsFd for HeldInode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match (&self.opened, &self.inode.holder) {
            (Some(opened), _) => opened.as_fd(),
            (None, Holder::Descriptor(descriptor)) => descriptor.as_fd(),
            (None, Holder::Handle(_)) => unreachable!("a handle is opened when an inode is taken"),
        }
    }
}

impl HeldInode {
    /// A path that names the file itself.
    pub(crate) fn proc_path(&self) -> ProcPath {
        ProcPath::new(self.as_fd())
    }
}

/// The source file system's name for a file (`struct file_handle`).
#[derive(Debug, PartialEq, Eq)]
struct SystemHandle {
    kind: i32,
    bytes: Box<[u8]>,
}

/// `struct file_handle` with room for the longest.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; libc::MAX_HANDLE_SZ as usize],
}

impl SystemHandle {
    /// The handle of an open file; `None` where the file system has none.
    fn of(file: BorrowedFd<'_>) -> Option<SystemHandle> {
        let mut raw =
            RawHandle { bytes: libc::MAX_HANDLE_SZ as u32, kind: 0, data: [0; libc::MAX_HANDLE_SZ as usize] };
        let mut mount_id = 0;
        let handle = (&raw mut raw).cast();
        // SAFETY: the handle has as much room as it says, and the empty path ends with a zero.
        let result = unsafe {
            let flags = libc::AT_EMPTY_PATH;
            libc::name_to_handle_at(file.as_raw_fd(), c"".as_ptr(), handle, &raw mut mount_id, flags)
        };
        let bytes = raw.data.get(..raw.bytes as usize)?.into();
        (result == 0).then_some(SystemHandle { kind: raw.kind, bytes })
    }

    /// Opens the file, on the file system that `root` is on. Needs `CAP_DAC_READ_SEARCH`.
    fn open(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let mut raw = RawHandle {
            bytes: self.bytes.len() as u32,
            kind: self.kind,
            data: [0; libc::MAX_HANDLE_SZ as usize],
        };
        raw.data[..self.bytes.len()].copy_from_slice(&self.bytes);
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the handle is as long as it says.
        match unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut raw).cast(), flags) } {
            -1 => Err(last_errno()),
            // SAFETY: a new descriptor, owned by nobody else.
            opened => Ok(unsafe { OwnedFd::from_raw_fd(opened) }),
        }
    }
}

impl Inode {
    fn new(key: Key, holder: Holder) -> Inode {
        Inode { key, holder, appends: Arc::default(), coherence: Arc::default(), open: AtomicU32::new(0) }
    }

    /// Its device and its inode number.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether this is the file that a descriptor of the same device and inode number leads to.
    fn is(&self, file: BorrowedFd<'_>) -> bool {
        match &self.holder {
            Holder::Descriptor(_) => true,
            Holder::Handle(handle) => SystemHandle::of(file).as_ref() == Some(handle),
        }
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
    /// A descriptor of the root, for opening handles.
    root: OwnedFd,
    root_device: u64,
    /// Most descriptors to hold.
    descriptors_max: usize,
}

#[derive(Debug)]
struct Table {
    by_id: HashMap<u64, (Arc<Inode>, u64)>,
    by_key: HashMap<Key, u64>,
    next_id: u64,
    descriptors: usize,
}

impl InodeTable {
    /// A table that contains the source directory as the root, which is never forgotten.
    pub(crate) fn new(root: OwnedFd, descriptors_max: usize) -> Result<InodeTable, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let key = key(&stat);
        // Handles cannot be opened by an `O_PATH` descriptor.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened_root = rustix::fs::openat(&root, c".", flags, Mode::empty())?;
        let holder = Holder::Descriptor(root);
        let inode = Arc::new(Inode::new(key, holder));
        let table = Table {
            by_id: HashMap::from([(ROOT_ID, (inode, 1))]),
            by_key: HashMap::from([(key, ROOT_ID)]),
            next_id: ROOT_ID + 1,
            descriptors: 1,
        };
        Ok(InodeTable {
            table: RwLock::new(table),
            root: opened_root,
            root_device: stat.st_dev,
            descriptors_max,
        })
    }

    /// The root, open.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The inode with this node id; `ESTALE` if the kernel should not know it or the file is gone.
    pub(crate) fn get(&self, id: u64) -> Result<HeldInode, Errno> {
        let table = self.table.read().expect("no table operation panics");
        let inode = table.by_id.get(&id).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)?;
        drop(table);
        let opened = match &inode.holder {
            Holder::Descriptor(_) => None,
            Holder::Handle(handle) => Some(handle.open(self.root.as_fd())?),
        };
        Ok(HeldInode { inode, opened })
    }

    /// Counts a lookup of the file that `path_fd` leads to and whose attributes are `stat`; returns its node id.
    pub(crate) fn look_up(&self, path_fd: OwnedFd, stat: &Stat) -> u64 {
        let key = key(stat);
        let mut table = self.table.write().expect("no table operation panics");
        let Table { by_id, by_key, next_id, descriptors } = &mut *table;
        if let Some(&id) = by_key.get(&key)
            && let Some((inode, lookups)) = by_id.get_mut(&id)
            && inode.is(path_fd.as_fd())
        {
            *lookups += 1;
            return id;
        }
        let id = *next_id;
        *next_id += 1;
        let holder = self.holder(path_fd, stat, *descriptors);
        *descriptors += usize::from(matches!(holder, Holder::Descriptor(_)));
        let inode = Arc::new(Inode::new(key, holder));
        by_id.insert(id, (inode, 1));
        // What had the same number is gone: the kernel forgets it by its id.
        by_key.insert(key, id);
        id
    }

    fn holder(&self, path_fd: OwnedFd, stat: &Stat, descriptors: usize) -> Holder {
        if descriptors >= self.descriptors_max
            && stat.st_dev == self.root_device
            && let Some(handle) = SystemHandle::of(path_fd.as_fd())
            && handle.open(self.root.as_fd()).is_ok()
        {
            return Holder::Handle(handle);
        }
        Holder::Descriptor(path_fd)
    }

    /// Takes back `count` lookups; with the last, the file is no longer held.
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
            if table.by_key.get(&inode.key) == Some(&id) {
                table.by_key.remove(&inode.key);
            }
            table.descriptors -= usize::from(matches!(inode.holder, Holder::Descriptor(_)));
            // Closes outside the lock.
            drop(table);
            drop(inode);
        }
    }
}

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_handle_when_descriptors_run_short() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(dir.path().join(name), flags, Mode::empty()).unwrap()
        };
        let table = InodeTable::new(open("."), 2).unwrap();
        let look_up = |name: &str| {
            let path_fd = open(name);
            let stat = rustix::fs::fstat(&path_fd).unwrap();
            (table.look_up(path_fd, &stat), stat)
        };
        let names = ["a", "b", "c", "d"];
        for name in names {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let ids = names.map(|name| look_up(name).0);
        assert!(table.table.read().unwrap().descriptors <= 2 || !rustix::process::geteuid().is_root());
        for (name, id) in names.iter().zip(ids) {
            std::fs::rename(dir.path().join(name), dir.path().join(format!("renamed-{name}"))).unwrap();
            let held = table.get(id).unwrap();
            let path =
                std::path::PathBuf::from(String::from_utf8(held.proc_path().as_bytes().to_vec()).unwrap());
            assert_eq!(std::fs::read_to_string(path).unwrap(), **name);
            assert_eq!(look_up(&format!("renamed-{name}")).0, id, "the same file is the same inode");
        }
        // Forgotten after as many lookups as there were.
        table.forget(ids[3], 1);
        assert!(table.get(ids[3]).is_ok());
        table.forget(ids[3], 1);
        assert_eq!(table.get(ids[3]).unwrap_err(), Errno::STALE);
        assert_ne!(look_up("renamed-d").0, ids[3], "node ids are not used again");
    }

    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let open = |path: &std::path::Path| {
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).unwrap()
        };
        let table = InodeTable::new(open(dir.path()), 1).unwrap();
        let mut seen = HashMap::new();
        for _ in 0..50 {
            std::fs::write(&path, "x").unwrap();
            let path_fd = open(&path);
            let stat = rustix::fs::fstat(&path_fd).unwrap();
            let id = table.look_up(path_fd, &stat);
            assert_eq!(seen.insert(id, stat.st_ino), None, "a new file has a new id");
            std::fs::remove_file(&path).unwrap();
        }
    }
}
