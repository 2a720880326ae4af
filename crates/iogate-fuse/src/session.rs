//! A connection with the kernel from its first message to its end.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use iogate_engine::{Engine, Store, Workers, privileges};
use iogate_vfs::{Tree, Watchdog};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    Dirent, EntryOut, InHeader, InitIn, InitOut, Input, LkIn, MAJOR, MINOR, MINOR_MIN, OPEN_KILL_SUIDGID,
    OpenIn, OpenOut, OutHeader, SETXATTR_IN_COMPAT_SIZE, SetxattrIn, init, op,
};
use crate::app::{AppNames, Applications};
use crate::buffer::Pool;
use crate::control::{Control, ControlFiles};
use crate::dev;
use crate::error::MountError;
use crate::file_names::FileNames;
use crate::file_system::{Agreed, FileSystem};
use crate::full::Removals;
use crate::interrupt::Waiting;
use crate::mount::{self, Places};
use crate::notify::Notifier;
use crate::options::{CacheMode, LockScope, MountOptions, Transport};
use crate::passthrough::{self, caller};
use crate::{locks, operations, tree, uring};

/// Most requests that the kernel itself starts (read-ahead, asynchronous direct I/O) and that are underway at once.
const BACKGROUND_MAX: u16 = 1024;
const READ_AHEAD_BYTES: u32 = 1 << 20;
const PAGE: u32 = 4096;

/// What the serving threads share.
pub(crate) struct Session {
    pub(crate) fs: Box<dyn FileSystem>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) applications: Arc<Applications>,
    pub(crate) agreed: Agreed,
    control: ControlFiles,
    pub(crate) pool: Arc<Pool>,
    /// For metadata operations that may take long.
    pub(crate) workers: Arc<Workers>,
    /// For submissions that are carried out in the submitting thread and take long.
    pub(crate) data_workers: Arc<Workers>,
    /// For notifications that the kernel keeps until other requests are answered. Nothing else waits for these threads.
    pub(crate) notifying: Arc<Workers>,
    pub(crate) notifier: Notifier,
    /// Processes read and write past the kernel's page cache.
    pub(crate) is_direct: bool,
    pub(crate) device_threads: Watchdog,
    pub(crate) threads_max: usize,
    device: Arc<OwnedFd>,
    /// Locks that programs wait for.
    pub(crate) locks: locks::Asked,
    /// Requests through the device that are given up for who is killed, where what is behind the mount is far.
    pub(crate) waiting: Option<Arc<Waiting>>,
    serving: Mutex<Serving>,
    ended: Condvar,
    /// Files and directories that are open.
    open: AtomicUsize,
    pub(crate) removals: Removals,
}

#[derive(Debug, Default)]
struct Serving {
    threads: usize,
    /// It ends when nothing is open, wherever else it may still be mounted.
    is_leaving: bool,
}

impl Session {
    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Carries out a request that is neither a read nor a write, and appends the reply's body to `out`.
    pub(crate) fn handle(&self, header: &InHeader, input: Input<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        operations::carry_out(&*self.fs, &self.control, self.agreed, header, input, out)?;
        match header.opcode {
            op::OPEN | op::CREATE | op::TMPFILE => {
                self.open.fetch_add(1, Ordering::Relaxed);
                self.remember_class(out);
            }
            op::OPENDIR => {
                self.open.fetch_add(1, Ordering::Relaxed);
            }
            op::RELEASE | op::RELEASEDIR => self.closed(),
            op::UNLINK | op::RENAME | op::RENAME2 => self.removals.note(),
            _ => {}
        }
        if matches!(header.opcode, op::FLUSH | op::RELEASE) && self.agreed.shares_locks {
            self.locks.try_again();
        }
        let is_outdated = match header.opcode {
            // Whoever opens a file sees what was written elsewhere: the kernel compares what it has cached with new attributes.
            op::OPEN if !self.is_direct => true,
            // The kernel does not know that the mode may have changed.
            op::OPEN => {
                let mut input = input;
                input.record::<OpenIn>().is_some_and(|open| open.open_flags & OPEN_KILL_SUIDGID != 0)
            }
            op::FALLOCATE => header.uid != 0,
            _ => false,
        };
        if is_outdated {
            self.notifier.drop_attributes(header.nodeid);
        }
        Ok(())
    }

    /// Takes a lock for a program, or gives it back, in another thread; tells `answer`.
    pub(crate) fn set_lock(
        self: &Arc<Self>,
        header: &InHeader,
        arg: LkIn,
        answer: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let (session, node) = (Arc::clone(self), header.nodeid);
        if arg.lk.kind == libc::F_UNLCK as u32 {
            return self.workers.run(move || {
                let given_back = session.fs.set_lock(arg);
                session.locks.try_again();
                answer(given_back);
            });
        }
        let attempt = move || {
            if session.has_ended() {
                return Err(Errno::NODEV);
            }
            session.fs.set_lock(arg)?;
            // Who had it before may have written elsewhere.
            match session.is_direct {
                true => session.notifier.drop_attributes(node),
                false => session.notifier.drop_pages(node, &(0..u64::MAX)),
            }
            Ok(())
        };
        self.locks.start(header.unique, header.opcode == op::SETLKW, attempt, answer);
    }

    fn closed(&self) {
        let is_last = self.open.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.serving().is_leaving {
            self.ended.notify_all();
        }
    }

    /// Takes back what a reply has given that nobody was there to take: the kernel does not know that it has it.
    pub(crate) fn take_back(&self, header: &InHeader, reply: &[u8]) {
        match header.opcode {
            op::LOOKUP | op::READDIRPLUS => {
                let forget = |entry: EntryOut| self.fs.forget(entry.nodeid, 1);
                entries(header.opcode, reply).filter(|entry| entry.nodeid != 0).for_each(forget);
            }
            op::OPEN | op::OPENDIR => {
                let Ok((OpenOut { fh, .. }, _)) = OpenOut::read_from_prefix(reply) else { return };
                let released =
                    if header.opcode == op::OPEN { self.fs.release(fh) } else { self.fs.releasedir(fh) };
                if released.is_ok() {
                    self.closed();
                }
            }
            _ => {}
        }
    }

    /// Starts a thread that counts as serving until `serve` returns.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: String,
        serve: impl FnOnce(&Arc<Session>) + Send + 'static,
    ) -> std::io::Result<()> {
        self.serving().threads += 1;
        let counted = ServingThread(self.clone());
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                prepare_thread();
                serve(&counted.0);
            })
            .map(drop)
    }

    fn serving(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().expect("counting does not panic")
    }

    fn wait(&self) {
        let goes_on = |serving: &mut Serving| {
            serving.threads > 0 && !(serving.is_leaving && self.open.load(Ordering::Relaxed) == 0)
        };
        drop(self.ended.wait_while(self.serving(), goes_on).expect("counting does not panic"));
    }

    fn leave(&self) {
        self.serving().is_leaving = true;
        self.ended.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.serving().threads == 0
    }
}

/// The entries that a reply has looked up.
fn entries(opcode: u32, mut reply: &[u8]) -> impl Iterator<Item = EntryOut> {
    std::iter::from_fn(move || {
        let (entry, rest) = EntryOut::read_from_prefix(reply).ok()?;
        reply = match Dirent::read_from_prefix(rest) {
            Ok((dirent, _)) if opcode == op::READDIRPLUS => {
                let bytes = size_of::<EntryOut>() + size_of::<Dirent>() + dirent.namelen as usize;
                reply.get(bytes.next_multiple_of(8)..).unwrap_or_default()
            }
            _ => &[],
        };
        Some(entry)
    })
}

/// A thread that is serving.
struct ServingThread(Arc<Session>);

impl Drop for ServingThread {
    fn drop(&mut self) {
        let mut serving = self.0.serving();
        serving.threads -= 1;
        if serving.threads == 0 {
            self.0.ended.notify_all();
            self.0.device_threads.wake();
        }
    }
}

/// Makes the calling thread able to create files in the callers' names.
pub(crate) fn prepare_thread() {
    if let Err(errno) = caller::prepare_thread() {
        tracing::warn!(%errno, "files may be created with the wrong owner or permissions");
    }
}

/// Runs part of a request. A panic in it is a defect, but ends that request only (its reply answers `EIO`).
pub(crate) fn guarded(part: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(part)).is_err() {
        tracing::error!("a request failed by a defect");
    }
}

/// A mounted file system. Dropped, it is detached: it goes away when nobody uses it any more.
pub struct Mounted {
    session: Arc<Session>,
    mountpoint: PathBuf,
    transport: Transport,
    names: Arc<AppNames>,
    file_names: Arc<FileNames>,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

impl Mounted {
    /// Waits until the file system is unmounted, by whomever; after [`Mounted::leave`], until nothing is open.
    pub fn wait(&self) {
        self.session.wait();
    }

    /// Unmounts it; [`MountError::InUse`] if somebody has a file open or works in a directory of it.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.take_off(false)
    }

    /// Unmounts it even if it is in use: nobody can enter it any more, and [`Mounted::wait`] returns when the last
    /// file is closed.
    pub fn detach(&self) -> Result<(), MountError> {
        self.take_off(true)
    }

    /// Lets [`Mounted::wait`] return as soon as no file and no directory is open, even if other mount namespaces have copies of the
    /// mount. To be called when it has been unmounted or detached here.
    pub fn leave(&self) {
        self.session.leave();
    }

    fn take_off(&self, detach: bool) -> Result<(), MountError> {
        // Taken off, somebody else may be mounted there by now.
        if self.session.has_ended() || self.session.serving().is_leaving {
            return Ok(());
        }
        mount::unmount(&self.mountpoint, detach)
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The transport in use: `Device` or `Uring`.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// What the applications seen so far are called.
    pub fn app_names(&self) -> Arc<AppNames> {
        self.names.clone()
    }

    /// What the files of a tree that were opened so far are called. None of a directory: its store sees their names.
    pub fn file_names(&self) -> Arc<FileNames> {
        self.file_names.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.detach()
            && !matches!(error, MountError::NotMounted { .. })
        {
            tracing::error!(%error, "detaching {}", self.mountpoint.display());
        }
    }
}

/// Mounts `source` at `mountpoint`: data goes through `engine` (whose store is `store`), metadata beside it.
pub fn mount(
    source: &Path,
    mountpoint: &Path,
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    options: &MountOptions,
    control: Arc<dyn Control>,
) -> Result<Mounted, MountError> {
    raise_descriptor_limit();
    privileges::keep_mode_bits();
    let Places { source, root, mountpoint } = Places::check(source, mountpoint)?;
    let gate = engine.clone();
    let shares_locks = options.locks.at(&root) == LockScope::Source;
    start(source.as_os_str(), mountpoint, engine, options, control, shares_locks, |agreed, options, _, _| {
        passthrough::FileSystem::new(root, gate, store, options, agreed)
            .map(|fs| Box::new(fs) as Box<dyn FileSystem>)
            .map_err(|errno| MountError::system("reading the source", errno))
    })
}

/// Mounts a tree, which people call `name`, at `mountpoint`: data goes through `engine`, whose store is the tree's,
/// metadata beside it.
pub fn mount_tree(
    tree: Arc<dyn Tree>,
    name: &str,
    mountpoint: &Path,
    engine: Arc<Engine>,
    options: &MountOptions,
    control: Arc<dyn Control>,
) -> Result<Mounted, MountError> {
    let unreadable = |cause| MountError::TreeUnreadable { name: name.to_owned(), cause };
    let mountpoint = mount::check_mountpoint(mountpoint)?;
    mount::check_empty(&mountpoint)?;
    let root = tree::root(&*tree).map_err(unreadable)?;
    let (source, shares_locks) = (OsStr::new(name), tree.shares_locks());
    start(
        source,
        mountpoint,
        engine,
        options,
        control,
        shares_locks,
        |agreed, options, names, applications| {
            Ok(Box::new(tree::FileSystem::new(
                tree,
                &root,
                options,
                agreed,
                names.clone(),
                applications.clone(),
            )))
        },
    )
}

/// Attaches to a mount point that has been checked, and serves the file system that `make` makes.
fn start(
    source: &OsStr,
    mountpoint: PathBuf,
    engine: Arc<Engine>,
    options: &MountOptions,
    control: Arc<dyn Control>,
    shares_locks: bool,
    make: impl FnOnce(
        Agreed,
        &MountOptions,
        &Arc<FileNames>,
        &Arc<Applications>,
    ) -> Result<Box<dyn FileSystem>, MountError>,
) -> Result<Mounted, MountError> {
    let options = &within_bounds(options);
    let applications = Applications::new(options.programs.clone())
        .map_err(|error| MountError::system("starting a thread", error))?;
    let applications = Arc::new(applications);
    let names = applications.names();
    let control = ControlFiles::new(control, applications.told());
    let file_names = Arc::default();
    let device = Arc::new(mount::attach(source, &mountpoint, options)?);
    let guard = DetachGuard(Some(&mountpoint));
    let (agreed, over_uring) = negotiate(&device, options, shares_locks)?;
    let fs = make(agreed, options, &file_names, &applications)?;
    let session = Arc::new(Session {
        locks: locks::Asked::default(),
        waiting: fs.is_far().then(Arc::default),
        fs,
        engine,
        applications,
        agreed,
        control,
        pool: Arc::default(),
        workers: Workers::new("iogate-worker", options.threads_max, prepare_thread),
        data_workers: Workers::new("iogate-worker", options.threads_max, prepare_thread),
        notifying: Workers::new("iogate-notify", options.threads_max, || {}),
        notifier: Notifier::new(device.clone()),
        is_direct: options.cache == CacheMode::Direct,
        device_threads: Watchdog::default(),
        threads_max: options.threads_max,
        device,
        serving: Mutex::default(),
        ended: Condvar::new(),
        open: AtomicUsize::new(0),
        removals: Removals::new(),
    });
    dev::start(&session).map_err(|error| MountError::system("serving /dev/fuse", error))?;
    let mut transport = Transport::Device;
    if over_uring {
        match uring::start(&session, options.queue_depth) {
            Ok(()) => transport = Transport::Uring,
            Err(error) => tracing::warn!(%error, "FUSE over io_uring cannot be used; using /dev/fuse"),
        }
    }
    if options.cache == CacheMode::Page {
        raise_read_ahead(&mountpoint);
    }
    guard.keep();
    Ok(Mounted { session, mountpoint, transport, names, file_names })
}

/// Takes a mount that did not come about off again.
struct DetachGuard<'a>(Option<&'a Path>);

impl DetachGuard<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for DetachGuard<'_> {
    fn drop(&mut self) {
        if let Some(mountpoint) = self.0 {
            let _ = mount::unmount(mountpoint, true);
        }
    }
}

fn within_bounds(options: &MountOptions) -> MountOptions {
    MountOptions {
        threads_max: options.threads_max.max(2),
        queue_depth: options.queue_depth.clamp(1, 1024),
        request_bytes_max: options.request_bytes_max.clamp(PAGE, 1 << 20).next_power_of_two(),
        ..options.clone()
    }
}

/// Agrees with the kernel on the protocol; also says whether requests may come through io_uring.
fn negotiate(
    device: &OwnedFd,
    options: &MountOptions,
    shares_locks: bool,
) -> Result<(Agreed, bool), MountError> {
    let system = |errno: Errno| MountError::system("agreeing with the kernel on the FUSE protocol", errno);
    let mut request = vec![0; (1 << 20) + 4096];
    let length = loop {
        match rustix::io::read(device, &mut request[..]) {
            Err(Errno::INTR) => {}
            read => break read.map_err(system)?,
        }
    };
    let request = &request[..length];
    let malformed = || system(Errno::PROTO);
    let (header, rest) = InHeader::read_from_prefix(request).map_err(|_| malformed())?;
    let (kernel, rest) = InitIn::read_from_prefix(rest).map_err(|_| malformed())?;
    if header.opcode != op::INIT {
        return Err(malformed());
    }
    if kernel.major != MAJOR || kernel.minor < MINOR_MIN {
        return Err(MountError::KernelTooOld { major: kernel.major, minor: kernel.minor });
    }
    let mut offered = u64::from(kernel.flags);
    if offered & init::INIT_EXT != 0
        && let Ok((flags2, _)) = u32::read_from_prefix(rest)
    {
        offered |= u64::from(flags2) << 32;
    }
    let agreed = offered & wanted(options, shares_locks);
    let reply = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: READ_AHEAD_BYTES,
        flags: agreed as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: options.request_bytes_max,
        time_gran: 1,
        max_pages: (options.request_bytes_max / PAGE) as u16,
        flags2: (agreed >> 32) as u32,
        ..InitOut::default()
    };
    let header = OutHeader {
        len: (size_of::<OutHeader>() + size_of::<InitOut>()) as u32,
        error: 0,
        unique: header.unique,
    };
    let message = [header.as_bytes(), reply.as_bytes()].concat();
    rustix::io::write(device, &message).map_err(system)?;
    let setxattr_in_bytes =
        if agreed & init::SETXATTR_EXT != 0 { size_of::<SetxattrIn>() } else { SETXATTR_IN_COMPAT_SIZE };
    let shares_locks = agreed & init::POSIX_LOCKS != 0;
    let agreed_on = Agreed { request_bytes_max: options.request_bytes_max, setxattr_in_bytes, shares_locks };
    Ok((agreed_on, agreed & init::OVER_IO_URING != 0))
}

/// The protocol's features to use. Without POSIX and BSD locks the kernel keeps these itself, between all processes of this mount.
fn wanted(options: &MountOptions, shares_locks: bool) -> u64 {
    let mut wanted = init::ASYNC_READ
        | init::ATOMIC_O_TRUNC
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::AUTO_INVAL_DATA
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::POSIX_ACL
        | init::MAX_PAGES
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    if shares_locks {
        wanted |= init::POSIX_LOCKS | init::FLOCK_LOCKS;
    }
    if options.transport != Transport::Device && uring::is_enabled() {
        wanted |= init::OVER_IO_URING;
    }
    wanted
}

/// Each file that the kernel knows holds a descriptor, so there should be many.
fn raise_descriptor_limit() {
    let system_max: Option<u64> =
        std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: system_max, maximum: system_max };
    if system_max.is_some() && rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%errno, "the limit of open files stays as it is");
    }
}

/// The kernel reads 128 KiB ahead unless it is told otherwise where the device's settings are.
fn raise_read_ahead(mountpoint: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = mountpoint.metadata() else { return };
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, (READ_AHEAD_BYTES >> 10).to_string()) {
        tracing::debug!(%error, path, "read-ahead stays as it is");
    }
}
