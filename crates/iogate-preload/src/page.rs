//! The placeholder of an open file: a descriptor of a page of shared memory with what the kernel keeps of an open file.
//!
//! The memory is a `memfd`, and the descriptor is one of it with `O_PATH`: it can be duplicated, inherited and closed, and
//! mapped by whoever opens it anew through `/proc/self/fd`; but a read or a write of it fails.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use iogate_core::wire::{Identity, PATH_BYTES_MAX};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::mm::{MapFlags, ProtFlags};

const MAGIC: u64 = u64::from_le_bytes(*b"iogate-1");
const NAME: &str = "iogate:";
/// What `/proc/self/fd/N` says of a placeholder begins so.
const LINK: &[u8] = b"/memfd:iogate:";
const BYTES: usize = 8192;

/// What processes share of an open file.
#[repr(C)]
struct Shared {
    magic: AtomicU64,
    /// Held while the position is in use, as the kernel does it; and freed by the kernel when its holder dies.
    position: UnsafeCell<libc::pthread_mutex_t>,
    offset: AtomicU64,
    /// Of `open(2)`.
    flags: AtomicU32,
    inode: AtomicU64,
    generation: AtomicU64,
    /// Held while the path is read or changed.
    name: UnsafeCell<libc::pthread_mutex_t>,
    path_bytes: AtomicU32,
    path: UnsafeCell<[u8; PATH_BYTES_MAX]>,
    /// The number that the descriptor with the lock of `flock` has in each process that shares the open file and has it; 0: there is none.
    lock: AtomicU32,
    /// What that leads to.
    lock_device: AtomicU64,
    lock_number: AtomicU64,
}

const _: () = assert!(size_of::<Shared>() <= BYTES);

/// The page of an open file, mapped.
pub(crate) struct Page {
    shared: NonNull<Shared>,
    /// Those of the memory's file.
    device: u64,
    number: u64,
}

// SAFETY: everything in it is atomic, or behind one of its mutexes.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Makes a placeholder, at the lowest free number.
    pub(crate) fn create(
        flags: c_int,
        close_on_exec: bool,
        identity: Identity,
        path: &[u8],
    ) -> Result<(OwnedFd, Page), Errno> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let memory = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, BYTES as u64)?;
        let page = Page::map(memory.as_fd())?;
        let shared = page.shared();
        for mutex in [&shared.position, &shared.name] {
            init_mutex(mutex)?;
        }
        shared.flags.store(flags as u32, Ordering::Relaxed);
        page.set_identity(identity);
        page.set_path(path)?;
        shared.magic.store(MAGIC, Ordering::Release);
        let placeholder =
            rustix::fs::open(link_of(memory.as_raw_fd()), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let dup_flags = if close_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
        let mut memory = memory;
        rustix::io::dup3(&placeholder, &mut memory, dup_flags)?;
        Ok((memory, page))
    }

    /// The page of a descriptor that came from elsewhere, if it is a placeholder.
    pub(crate) fn adopt(fd: BorrowedFd<'_>) -> Option<Page> {
        let link = link_of(fd.as_raw_fd());
        let name = rustix::fs::readlinkat(CWD, &link, Vec::with_capacity(64)).ok()?;
        if !name.to_bytes().starts_with(LINK) {
            return None;
        }
        let memory = rustix::fs::open(&link, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let page = Page::map(memory.as_fd()).ok()?;
        (page.shared().magic.load(Ordering::Acquire) == MAGIC).then_some(page)
    }

    fn map(memory: BorrowedFd<'_>) -> Result<Page, Errno> {
        let stat = rustix::fs::fstat(memory)?;
        if stat.st_size != BYTES as i64 {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where, so nothing is replaced.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, memory, 0)?
        };
        let shared = NonNull::new(address.cast()).ok_or(Errno::NOMEM)?;
        Ok(Page { shared, device: stat.st_dev, number: stat.st_ino })
    }

    /// Whether a number is that of a placeholder of this page, as the kernel sees it. The page's memory has its inode number for as long as
    /// it is mapped here.
    pub(crate) fn is_behind(&self, fd: c_int) -> bool {
        borrow(fd)
            .and_then(rustix::fs::fstat)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.number))
    }

    /// The same page, for another owner of the mapping.
    ///
    /// # Safety
    /// One of the two must never be dropped.
    pub(crate) unsafe fn alias(&self) -> Page {
        Page { shared: self.shared, device: self.device, number: self.number }
    }

    /// Whether two pages are of one open file.
    pub(crate) fn is_same(&self, other: &Page) -> bool {
        self.number == other.number
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped as long as this lives, and of that size; every pattern of bits is a value of each field.
        unsafe { self.shared.as_ref() }
    }

    /// Takes the position, for reading and writing where it is.
    pub(crate) fn position(&self) -> Result<Position<'_>, Errno> {
        Ok(Position { offset: &self.shared().offset, _held: Held::take(&self.shared().position)? })
    }

    /// Flags of `open(2)`.
    pub(crate) fn flags(&self) -> c_int {
        self.shared().flags.load(Ordering::Relaxed) as c_int
    }

    pub(crate) fn set_flags(&self, flags: c_int) {
        self.shared().flags.store(flags as u32, Ordering::Relaxed);
    }

    pub(crate) fn identity(&self) -> Identity {
        let shared = self.shared();
        Identity {
            inode: shared.inode.load(Ordering::Relaxed),
            generation: shared.generation.load(Ordering::Relaxed),
        }
    }

    /// Before others have the descriptor.
    pub(crate) fn set_identity(&self, identity: Identity) {
        self.shared().inode.store(identity.inode, Ordering::Relaxed);
        self.shared().generation.store(identity.generation, Ordering::Relaxed);
    }

    /// The descriptor with the lock of `flock`, and what it leads to: device and inode. Another process may have made it, and this one not
    /// have it.
    pub(crate) fn lock(&self) -> Option<(c_int, (u64, u64))> {
        let shared = self.shared();
        let fd = shared.lock.load(Ordering::Acquire);
        let file = (shared.lock_device.load(Ordering::Relaxed), shared.lock_number.load(Ordering::Relaxed));
        (fd != 0).then_some((fd as c_int, file))
    }

    /// Before others have the open file.
    pub(crate) fn set_lock(&self, fd: c_int, file: (u64, u64)) {
        let shared = self.shared();
        shared.lock_device.store(file.0, Ordering::Relaxed);
        shared.lock_number.store(file.1, Ordering::Relaxed);
        shared.lock.store(fd as u32, Ordering::Release);
    }

    /// The file's path in the tree.
    pub(crate) fn path(&self) -> Result<Vec<u8>, Errno> {
        let shared = self.shared();
        let _held = Held::take(&shared.name)?;
        let bytes = (shared.path_bytes.load(Ordering::Relaxed) as usize).min(PATH_BYTES_MAX);
        // SAFETY: whoever changes it holds the mutex.
        Ok(unsafe { (&*shared.path.get())[..bytes].to_vec() })
    }

    /// Fails with `ENAMETOOLONG` if there is no room.
    pub(crate) fn set_path(&self, path: &[u8]) -> Result<(), Errno> {
        let shared = self.shared();
        let _held = Held::take(&shared.name)?;
        // SAFETY: we hold the mutex.
        let room = unsafe { &mut *shared.path.get() };
        room.get_mut(..path.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(path);
        shared.path_bytes.store(path.len() as u32, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        let _ = unsafe { rustix::mm::munmap(self.shared.as_ptr().cast(), BYTES) };
    }
}

/// The position of an open file, ours until this is dropped.
pub(crate) struct Position<'a> {
    offset: &'a AtomicU64,
    _held: Held<'a>,
}

impl Position<'_> {
    pub(crate) fn get(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, offset: u64) {
        self.offset.store(offset, Ordering::Relaxed);
    }
}

/// A mutex of a page, held.
struct Held<'a>(&'a UnsafeCell<libc::pthread_mutex_t>);

impl Held<'_> {
    fn take(mutex: &UnsafeCell<libc::pthread_mutex_t>) -> Result<Held<'_>, Errno> {
        // SAFETY: made by `init_mutex` before the page was shared.
        match unsafe { libc::pthread_mutex_lock(mutex.get()) } {
            0 => {}
            libc::EOWNERDEAD => {
                // What it guards is whole at any moment.
                // SAFETY: we hold it.
                unsafe { libc::pthread_mutex_consistent(mutex.get()) };
            }
            error => return Err(Errno::from_raw_os_error(error)),
        }
        Ok(Held(mutex))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread took it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

fn init_mutex(mutex: &UnsafeCell<libc::pthread_mutex_t>) -> Result<(), Errno> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the attributes are made before they are used, and the mutex is nobody else's yet.
    let errors = unsafe {
        [
            libc::pthread_mutexattr_init(attributes.as_mut_ptr()),
            libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED),
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST),
            libc::pthread_mutex_init(mutex.get(), attributes.as_ptr()),
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()),
        ]
    };
    match errors.into_iter().find(|error| *error != 0) {
        Some(error) => Err(Errno::from_raw_os_error(error)),
        None => Ok(()),
    }
}

/// The way to a descriptor of this process.
pub(crate) fn link_of(fd: c_int) -> CString {
    CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default()
}

/// A number that the program has given us.
pub(crate) fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the program promises that it stays open during the call; if it does not, the kernel answers with an error.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
