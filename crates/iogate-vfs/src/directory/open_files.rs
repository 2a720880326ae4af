//! Which files of a directory are open, so that a file without a name goes when nobody has it open any more, and not before.
//!
//! A file whose name goes while it is open gets another one in the export's own folder: clients that open it again after a restart of
//! the server find it there. What is open is counted by this process; after a restart, all that was there before counts as open
//! until clients have had time to come back.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::wire::{Gone, Identity};
use iogate_engine::unix_now;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::ProcPath;
use super::file_systems::FileSystems;
use super::stat;
use crate::object_id::ObjectId;
use crate::private;
use crate::tree::WhenGone;

/// The files of a directory that are open.
pub(super) struct OpenFiles {
    root: Arc<OwnedFd>,
    file_systems: Arc<FileSystems>,
    orphans: OnceLock<OwnedFd>,
    removed: OnceLock<OwnedFd>,
    /// Files here may have objects elsewhere.
    has_objects: AtomicBool,
    files: Mutex<HashMap<Identity, Counted>>,
    grace: OnceLock<Grace>,
    /// A thread waits until what is kept can go.
    is_waiting: AtomicBool,
    when_gone: OnceLock<WhenGone>,
}

/// After a start, files that were there before may be opened again.
struct Grace {
    time: Duration,
    until: Instant,
    /// Nanoseconds since the Unix epoch: files that were born later were never open before.
    began: u64,
}

/// A file that is open, or has an extra name.
#[derive(Clone, Copy, Default)]
struct Counted {
    handles: usize,
    /// It has a name in the orphans' folder.
    is_orphan: bool,
    /// It has no other name.
    is_removed: bool,
    /// Nobody has it open, and whoever had may come back until then.
    kept_until: Option<Instant>,
}

/// A file whose name is about to go.
pub(super) struct Victim {
    held: OwnedFd,
    identity: Identity,
    /// What its objects are named by, if it has been noted among those that are removed.
    noted: Option<ObjectId>,
}

impl OpenFiles {
    pub(super) fn new(root: Arc<OwnedFd>, file_systems: Arc<FileSystems>) -> OpenFiles {
        // The root has the attribute then, too.
        let has_objects = stat::object_of(&root) != [0; 16];
        OpenFiles {
            root,
            file_systems,
            orphans: OnceLock::new(),
            removed: OnceLock::new(),
            has_objects: AtomicBool::new(has_objects),
            files: Mutex::default(),
            grace: OnceLock::new(),
            is_waiting: AtomicBool::new(false),
            when_gone: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Counted>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to tell of objects that nobody can reach any more, where no call returns it.
    pub(super) fn when_gone(&self, tell: WhenGone) {
        let _ = self.when_gone.set(tell);
    }

    /// Counts a handle. Without a name, as an `orphan` or as a new temporary file.
    pub(super) fn opened(&self, identity: Identity, is_orphan: bool, is_removed: bool) {
        let mut files = self.lock();
        let counted = files.entry(identity).or_default();
        counted.handles += 1;
        counted.kept_until = None;
        counted.is_orphan |= is_orphan;
        counted.is_removed |= is_removed;
    }

    /// Names of a file that are not the clients' business, and whether its objects are kept though it has no other.
    pub(super) fn extra(&self, identity: Identity) -> (u32, bool) {
        self.lock()
            .get(&identity)
            .map_or((0, false), |counted| (counted.is_orphan.into(), counted.is_removed))
    }

    /// Whether a file has no name, or only the one that it has among those that are removed.
    pub(super) fn is_nameless(&self, identity: Identity, links: u32, object: [u8; 16]) -> bool {
        let note = ObjectId(object).to_string();
        let has_note = |folder| {
            stat::at(folder, &*note)
                .is_ok_and(|found| self.file_systems.own_identity(&found) == Some(identity))
        };
        links == 0 || links == 1 && self.removed.get().is_some_and(has_note)
    }

    /// Takes back a handle. Returns the objects that nobody can reach any more.
    pub(super) fn closed(self: &Arc<Self>, identity: Identity, fd: BorrowedFd<'_>) -> Gone {
        let mut files = self.lock();
        let Some(counted) = files.get_mut(&identity) else { return Gone::NONE };
        counted.handles -= 1;
        let counted = *counted;
        if counted.handles > 0 {
            return Gone::NONE;
        }
        if counted.is_orphan && self.may_come_back(identity) {
            return self.keep_until_end(files, identity);
        }
        files.remove(&identity);
        drop(files);
        if !counted.is_orphan && !counted.is_removed {
            return Gone::NONE;
        }
        self.let_go(identity, counted.is_orphan, fd)
    }

    /// Keeps a file that nobody has open until clients of an earlier process have had time to come back.
    fn keep_until_end(
        self: &Arc<Self>,
        mut files: MutexGuard<'_, HashMap<Identity, Counted>>,
        identity: Identity,
    ) -> Gone {
        let until = self.grace.get().map(|grace| grace.until);
        files.entry(identity).or_default().kept_until = until;
        drop(files);
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "files that were removed stay until the server begins again");
        }
        Gone::NONE
    }

    /// Takes back the handle of a client that was lost: it may come back to a file that has no name.
    pub(super) fn lost(self: &Arc<Self>, identity: Identity, fd: BorrowedFd<'_>) -> Gone {
        let mut files = self.lock();
        let is_kept = match (files.get_mut(&identity), self.grace.get()) {
            (Some(counted), Some(grace)) if counted.handles == 1 && counted.is_orphan => {
                counted.handles = 0;
                counted.kept_until = Some(Instant::now() + grace.time);
                true
            }
            _ => false,
        };
        drop(files);
        if !is_kept {
            return self.closed(identity, fd);
        }
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "files that were removed stay until the server begins again");
        }
        Gone::NONE
    }

    /// Takes away the extra name of a file that nobody has open.
    fn let_go(&self, identity: Identity, is_orphan: bool, fd: BorrowedFd<'_>) -> Gone {
        let noted = if is_orphan { self.note(fd) } else { None };
        if is_orphan
            && let Some(orphans) = self.orphans.get()
            && let Err(errno) = rustix::fs::unlinkat(orphans, name_of(identity), AtFlags::empty())
        {
            tracing::debug!(%errno, inode = identity.inode, "a removed file's last name was gone");
        }
        let links = u32::from(noted.is_some());
        let is_gone = rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink as u32 <= links);
        // An open that found the last name in the same moment counts; whoever closes that one finds no name of the users' either.
        if let Some(counted) = self.lock().get_mut(&identity) {
            counted.is_orphan = is_gone && noted.is_some() && self.link(fd, identity).is_ok();
            counted.is_removed = is_gone;
            noted.into_iter().for_each(|id| self.forget(id));
            return Gone::NONE;
        }
        if !is_gone {
            noted.into_iter().for_each(|id| self.forget(id));
        }
        if is_gone { Gone { object: stat::object_of(fd) } } else { Gone::NONE }
    }

    /// Whether clients of an earlier process of this server may have the file open, and not be back yet.
    fn may_come_back(&self, identity: Identity) -> bool {
        self.grace.get().is_some_and(|grace| {
            (identity.generation == 0 || identity.generation <= grace.began) && Instant::now() < grace.until
        })
    }

    /// What a name leads to, before it goes; `None` if it is no file.
    pub(super) fn victim(&self, held: OwnedFd) -> Result<Option<Victim>, Errno> {
        let known = stat::of(&held)?;
        let is_file = FileType::from_raw_mode(known.attr.mode) == FileType::RegularFile;
        if !is_file {
            return Ok(None);
        }
        let identity = self.file_systems.identity(&known, &held)?;
        Ok(Some(Victim { held, identity, noted: None }))
    }

    /// Files here may have objects elsewhere, from now on.
    pub(super) fn have_objects(&self) {
        self.has_objects.store(true, Ordering::Relaxed);
    }

    /// Whether the file may need another name when its own goes.
    pub(super) fn may_be_kept(&self, victim: &Victim) -> bool {
        self.has_objects.load(Ordering::Relaxed) || self.is_used(victim)
    }

    /// Whether somebody has the file open, or may come back to it.
    fn is_used(&self, victim: &Victim) -> bool {
        let is_open = self.lock().get(&victim.identity).is_some_and(|counted| counted.handles > 0);
        is_open || self.may_come_back(victim.identity)
    }

    /// Gives a file another name: one that is used, to be opened again, and returns true; else one that has objects, until they are
    /// removed. Where that is not possible, it is kept for as long as this process has it open, or a sweep has to find the objects.
    pub(super) fn keep(&self, victim: &mut Victim) -> bool {
        if !self.is_used(victim) {
            victim.noted = self.note(victim.held.as_fd());
            return false;
        }
        match self.link(victim.held.as_fd(), victim.identity) {
            Ok(()) => self.lock().entry(victim.identity).or_default().is_orphan = true,
            Err(error) => {
                tracing::debug!(%error, inode = victim.identity.inode, "an open file loses its name for good");
            }
        }
        true
    }

    /// Gives a file a name among those that are removed, if it has objects. Returns what these are named by.
    fn note(&self, held: BorrowedFd<'_>) -> Option<ObjectId> {
        let id = ObjectId(stat::object_of(held));
        if id == ObjectId([0; 16]) {
            return None;
        }
        let (folder, path) = (self.removed_folder().ok()?, ProcPath::new(held));
        match rustix::fs::linkat(CWD, path.as_bytes(), folder, id.to_string(), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) | Err(Errno::EXIST) => Some(id),
            Err(errno) => {
                tracing::debug!(%errno, %id, "a removed file is not noted: nobody may remove its objects after a crash");
                None
            }
        }
    }

    /// A file is not removed, or not yet.
    fn forget(&self, id: ObjectId) {
        if let Some(folder) = self.removed.get() {
            let _ = rustix::fs::unlinkat(folder, id.to_string(), AtFlags::empty());
        }
    }

    /// Gives an open file a name in the orphans' folder.
    pub(super) fn link(&self, held: BorrowedFd<'_>, identity: Identity) -> io::Result<()> {
        let orphans = self.orphans()?;
        let path = ProcPath::new(held);
        match rustix::fs::linkat(CWD, path.as_bytes(), orphans, name_of(identity), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A name of the file has gone, or has not. Returns the objects that nobody can reach any more.
    pub(super) fn removed(self: &Arc<Self>, victim: &Victim) -> Gone {
        let Ok(stat) = rustix::fs::fstat(&victim.held) else { return Gone::NONE };
        let mut files = self.lock();
        let counted = files.get(&victim.identity).copied().unwrap_or_default();
        let is_noted = victim.noted.is_some();
        let has_name = stat.st_nlink as u32 > u32::from(counted.is_orphan) + u32::from(is_noted);
        let is_used = counted.handles > 0 || counted.is_orphan && self.may_come_back(victim.identity);
        if let Some(id) = victim.noted
            && (has_name || is_used)
        {
            // Opened meanwhile: then it is not removed yet.
            if !has_name && !counted.is_orphan && self.link(victim.held.as_fd(), victim.identity).is_ok() {
                files.entry(victim.identity).or_default().is_orphan = true;
            }
            self.forget(id);
        }
        if is_used {
            files.entry(victim.identity).or_default().is_removed = !has_name;
            if counted.handles == 0 {
                return self.keep_until_end(files, victim.identity);
            }
            return Gone::NONE;
        }
        files.remove(&victim.identity);
        drop(files);
        if counted.is_orphan {
            self.let_go(victim.identity, true, victim.held.as_fd())
        } else if has_name {
            Gone::NONE
        } else {
            Gone { object: stat::object_of(victim.held.as_fd()) }
        }
    }

    /// Holds a file that has no name but the one that it was given here.
    pub(super) fn orphan(&self, identity: Identity) -> Result<OwnedFd, Errno> {
        let orphans = self.orphans().map_err(|_| Errno::NOENT)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(orphans, name_of(identity), flags, Mode::empty())?;
        if self.file_systems.identity_of(&held)? == identity { Ok(held) } else { Err(Errno::STALE) }
    }

    /// The folder, which is made when it is first needed.
    pub(super) fn orphans(&self) -> io::Result<&OwnedFd> {
        if let Some(orphans) = self.orphans.get() {
            return Ok(orphans);
        }
        let orphans = private::folder(self.root.as_fd(), private::ORPHANS)?;
        Ok(self.orphans.get_or_init(|| orphans))
    }

    /// The folder of those that are removed, which is made when it is first needed.
    pub(super) fn removed_folder(&self) -> io::Result<&OwnedFd> {
        if let Some(removed) = self.removed.get() {
            return Ok(removed);
        }
        let removed = private::folder(self.root.as_fd(), private::REMOVED)?;
        Ok(self.removed.get_or_init(|| removed))
    }

    /// Clients of an earlier process of this server may open again what they had open, for so long.
    pub(super) fn begin_grace(self: &Arc<Self>, time: Duration) -> io::Result<()> {
        let grace = Grace { time, until: Instant::now() + time, began: unix_now() };
        if self.grace.set(grace).is_err() {
            return Ok(());
        }
        self.find_orphans()
    }

    /// Has a thread take away what is kept for nobody, when its time is over.
    fn wait(self: &Arc<Self>) -> io::Result<()> {
        let Some(grace) = self.grace.get() else { return Ok(()) };
        if self.is_waiting.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let (files, time) = (Arc::downgrade(self), grace.time);
        let wait = move || {
            loop {
                std::thread::sleep(time.max(Duration::from_millis(10)));
                let Some(files) = files.upgrade() else { return };
                if !files.take_away() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("iogate-orphans".into()).spawn(wait);
        if started.is_err() {
            self.is_waiting.store(false, Ordering::SeqCst);
        }
        started.map(drop)
    }

    /// Takes note of the files that an earlier process has left in the folder, if there is one.
    fn find_orphans(self: &Arc<Self>) -> io::Result<()> {
        let path = format!("{}/{}", private::NAME, private::ORPHANS);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = match rustix::fs::openat(&self.root, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            list => list?,
        };
        for entry in rustix::fs::Dir::new(list)? {
            let entry = entry?;
            let Some(identity) = parse_name(entry.file_name().to_bytes()) else { continue };
            let Ok(held) = self.orphan(identity) else { continue };
            let is_removed = rustix::fs::fstat(&held).is_ok_and(|stat| stat.st_nlink <= 1);
            let mut files = self.lock();
            let counted = files.entry(identity).or_default();
            counted.is_orphan = true;
            counted.is_removed |= is_removed;
            counted.kept_until = self.grace.get().map(|grace| grace.until);
        }
        self.wait()
    }

    /// Takes away what nobody has come back to in time. Returns whether something is kept still.
    fn take_away(&self) -> bool {
        let (now, mut left) = (Instant::now(), Vec::new());
        let mut files = self.lock();
        files.retain(|&identity, counted| {
            let is_left = counted.kept_until.is_some_and(|until| until <= now);
            if is_left {
                left.push(identity);
            }
            !is_left
        });
        let waits = files.values().any(|counted| counted.kept_until.is_some());
        self.is_waiting.store(waits, Ordering::SeqCst);
        drop(files);
        for identity in left {
            let Ok(held) = self.orphan(identity) else { continue };
            self.tell(self.let_go(identity, true, held.as_fd()));
        }
        waits
    }

    /// Says that objects cannot be reached any more.
    pub(super) fn tell(&self, gone: Gone) {
        if gone != Gone::NONE
            && let Some(tell) = self.when_gone.get()
        {
            tell(gone);
        }
    }
}

fn name_of(identity: Identity) -> String {
    format!("{}-{}", identity.inode, identity.generation)
}

fn parse_name(name: &[u8]) -> Option<Identity> {
    let (inode, generation) = std::str::from_utf8(name).ok()?.split_once('-')?;
    Some(Identity { inode: inode.parse().ok()?, generation: generation.parse().ok()? })
}
