//! Objects on targets: the data of a striped tree's files.
//!
//! The object of a file is `OBJECTS/ab/abcdef...` on each target, by the file's id, and is there from the first write to that
//! target on: what is not there has no bytes. Objects belong to the process; whoever may not open the names-file does not reach them.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use iogate_core::hash::IdHasher;
use iogate_core::wire::{Attr, Change, Identity, attr, open, set};
use iogate_core::{FileId, Layout, Span, TargetId, Time};
use iogate_engine::FileHandle;
use iogate_engine::store::Parts;

use super::append::AppendLane;
use super::newness::Newness;
use super::removing::Removing;
use super::unsynced::Unsynced;
use crate::object_id::{OBJECTS, ObjectId};
use crate::tree::{OpenHow, Tree, TreeFile, Waiting};
use crate::{Caller, Clock};

/// In whose name objects are handled.
pub(super) const ROOT: Caller = Caller::new(0, 0);
/// Most operations in flight at once for one call.
const IN_FLIGHT_MAX: usize = 16;

/// The targets, and the objects that are open.
pub(super) struct Stripes {
    pub(super) names: Arc<dyn Tree>,
    pub(super) targets: Box<[Arc<dyn Tree>]>,
    pub(super) layout: Layout,
    pub(super) clock: Clock,
    are_local: bool,
    open: Mutex<HashMap<ObjectId, Weak<Objects>>>,
    /// Of each target, which directories of objects are known to be durable themselves.
    durable: Box<[[AtomicBool; 256]]>,
    pub(super) removing: Arc<Removing>,
    unsynced: Unsynced,
}

impl Stripes {
    pub(super) fn new(
        names: Arc<dyn Tree>,
        targets: Vec<Arc<dyn Tree>>,
        layout: Layout,
        clock: Clock,
    ) -> Stripes {
        let are_local = targets.iter().all(|target| target.is_local());
        let durable = targets.iter().map(|_| [const { AtomicBool::new(false) }; 256]).collect();
        Stripes {
            names,
            targets: targets.into(),
            layout,
            clock,
            are_local,
            open: Mutex::default(),
            durable,
            removing: Arc::default(),
            unsynced: Unsynced::default(),
        }
    }

    /// Makes it durable that an object is there.
    fn sync_name(&self, target: usize, id: ObjectId) -> io::Result<()> {
        let how = OpenHow { flags: open::READ | open::DIRECTORY, ..OpenHow::default() };
        let sync = |path: PathBuf| self.targets[target].open(ROOT, &path, how)?.sync(false);
        sync(id.directory())?;
        let durable = &self.durable[target][usize::from(id.0[0])];
        if !durable.load(Ordering::Relaxed) {
            sync(PathBuf::from(OBJECTS))?;
            sync(PathBuf::new())?;
            durable.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Does jobs `0..count`, several at once if the targets are far.
    pub(super) fn in_parallel<R: Send>(&self, count: usize, job: impl Fn(usize) -> R + Sync) -> Vec<R> {
        if self.are_local || count < 2 {
            return (0..count).map(job).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return done;
                }
                done.push((index, job(index)));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..count.min(IN_FLIGHT_MAX)).filter_map(start).collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(more) => done.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Does something on each target. Fails if one does, when all are done.
    pub(super) fn each<R: Send>(&self, job: impl Fn(usize) -> io::Result<R> + Sync) -> io::Result<Vec<R>> {
        self.in_parallel(self.targets.len(), job).into_iter().collect()
    }

    /// The objects of a file, shared with all who have it open in this process.
    pub(super) fn objects(self: &Arc<Self>, id: ObjectId) -> Arc<Objects> {
        let mut table = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = table.get(&id).and_then(Weak::upgrade) {
            return objects;
        }
        let slots = self.targets.iter().map(|_| Slot::default()).collect();
        let objects = Arc::new(Objects {
            id,
            stripes: Arc::clone(self),
            slots,
            appends: AppendLane::default(),
            keepers: Mutex::default(),
            led_to_in: AtomicU64::new(0),
            newness: Newness::default(),
            lost: AtomicU64::new(0),
        });
        table.insert(id, Arc::downgrade(&objects));
        objects
    }

    pub(super) fn opened(&self, id: ObjectId) -> Option<Arc<Objects>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&id).and_then(Weak::upgrade)
    }

    /// Of all targets together; `of` one's, or that of a file's object on it.
    pub(super) fn verifier(&self, of: impl Fn(usize) -> u64) -> u64 {
        let mut hasher = IdHasher::default();
        (0..self.targets.len()).for_each(|target| hasher.write_u64(of(target)));
        hasher.finish()
    }

    /// The attributes of files' objects, on all targets each: all are asked for before any is waited for.
    pub(super) fn attrs(&self, ids: &[Option<ObjectId>]) -> Vec<io::Result<Vec<Option<Attr>>>> {
        let paths: Vec<_> = ids.iter().map(|id| id.map(|id| id.path())).collect();
        let asked: Vec<Vec<Waiting<'_, Attr>>> = paths
            .iter()
            .map(|path| {
                let path = path.as_ref();
                self.targets.iter().filter_map(|target| Some(target.begin_attr(ROOT, path?))).collect()
            })
            .collect();
        asked.into_iter().map(|all| all.into_iter().map(|waiting| absent(waiting())).collect()).collect()
    }

    /// Completes a names-file's attributes by those of its objects.
    pub(super) fn complete(&self, attr: &mut Attr, objects: impl IntoIterator<Item = Option<Attr>>) {
        (attr.size, attr.blocks, attr.object) = (0, 0, [0; 16]);
        for (target, object) in objects.into_iter().enumerate() {
            let Some(object) = object else { continue };
            attr.size = attr.size.max(self.layout.outer_size(TargetId(target as u32), object.size));
            attr.blocks = attr.blocks.saturating_add(object.blocks);
            for (time, other) in [
                (&mut attr.atime, object.atime),
                (&mut attr.mtime, object.mtime),
                (&mut attr.ctime, object.ctime),
            ] {
                if (other.seconds, other.nanoseconds) > (time.seconds, time.nanoseconds) {
                    *time = other;
                }
            }
        }
    }

    /// Bytes of a target's object that lie in the file's first `size`.
    pub(super) fn inner_size(&self, target: usize, size: u64) -> u64 {
        self.layout.inner_size(TargetId(target as u32), size)
    }
}

/// Why a size is not set.
#[derive(Debug)]
pub(super) enum SizeError {
    /// No object has changed.
    Untouched(io::Error),
    /// Some may have.
    InPart(io::Error),
}

/// The same error once more, for somebody else.
pub(super) fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// `None` where something is not there.
pub(super) fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The objects of one file, opened when they are first used.
pub(super) struct Objects {
    pub(super) id: ObjectId,
    pub(super) stripes: Arc<Stripes>,
    slots: Box<[Slot]>,
    pub(super) appends: AppendLane,
    keepers: Mutex<Vec<Keeper>>,
    /// The verifier of the names when an open names-file was last known to lead here.
    led_to_in: AtomicU64,
    pub(super) newness: Newness,
    /// How often an object was not found again that this process had written, closed, and not synced.
    lost: AtomicU64,
}

/// An open names-file: as long as it is open, the server of the names does not say that the objects are gone.
struct Keeper {
    names: Arc<dyn TreeFile>,
    /// When that was last asked for, if the names are far.
    confirmed: Option<Time>,
}

/// How long an open names-file counts as open without being asked. Shorter than servers keep sessions without a connection.
const CONFIRMED_FOR: Span = Span::from_millis(500);

#[derive(Default)]
struct Slot {
    file: OnceLock<Arc<dyn TreeFile>>,
    /// Held while opening, so that it is done once.
    opening: Mutex<()>,
    /// Its name is known to be durable: whoever made it need not have seen to that.
    is_named: AtomicBool,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.id)
    }
}

impl Parts for Objects {
    /// Random bits are as good as none in common.
    fn id(&self) -> FileId {
        let [a, b, c, d, e, f, g, h, ..] = self.id.0;
        FileId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    fn part(&self, target: usize, create: bool) -> io::Result<Option<FileHandle>> {
        Ok(self.object(target, create)?.map(|object| FileHandle::clone(object.data())))
    }

    fn asks_afar(&self, target: usize) -> bool {
        let asks_target = self.slots[target].file.get().is_none() && !self.stripes.targets[target].is_local();
        asks_target || self.is_doubted().is_some()
    }

    fn check(&self) -> io::Result<()> {
        self.check_led_to()
    }
}

/// A file's objects, for writes to ranges that records were given.
#[derive(Debug)]
pub(super) struct Ranges(pub(super) Arc<Objects>);

impl Parts for Ranges {
    fn id(&self) -> FileId {
        Parts::id(&*self.0)
    }

    fn part(&self, target: usize, create: bool) -> io::Result<Option<FileHandle>> {
        Ok(self.0.object(target, create)?.map(|object| object.range_data()))
    }

    fn asks_afar(&self, target: usize) -> bool {
        self.0.asks_afar(target)
    }

    fn check(&self) -> io::Result<()> {
        self.0.check()
    }
}

impl Objects {
    /// The names-file has been opened, at some time after `since` if it is far, when the names had this verifier.
    pub(super) fn keep(&self, names: &Arc<dyn TreeFile>, since: Option<Time>, verifier: u64) {
        self.led_to_in.store(verifier, Ordering::Release);
        self.keepers().push(Keeper { names: Arc::clone(names), confirmed: since });
    }

    /// The names-file is about to be closed.
    pub(super) fn let_go(&self, names: &Arc<dyn TreeFile>) {
        let mut keepers = self.keepers();
        let at = keepers.iter().position(|keeper| Arc::ptr_eq(&keeper.names, names));
        let keeper = at.map(|at| keepers.swap_remove(at));
        drop(keepers);
        drop(keeper);
    }

    fn keepers(&self) -> MutexGuard<'_, Vec<Keeper>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails with `ESTALE` if objects that are not there may have been discarded: what is missing then is not a hole.
    pub(super) fn confirm(&self) -> io::Result<()> {
        let before = self.stripes.clock.now();
        let (names, is_far) = match self.keepers().last() {
            None => return Ok(()),
            Some(&Keeper { confirmed: Some(when), .. }) if before.since(when) < CONFIRMED_FOR => {
                return Ok(());
            }
            Some(Keeper { names, confirmed }) => (Arc::clone(names), confirmed.is_some()),
        };
        check_kept(&names.attr()?)?;
        if is_far
            && let Some(keeper) =
                self.keepers().last_mut().filter(|keeper| Arc::ptr_eq(&keeper.names, &names))
        {
            keeper.confirmed = Some(before);
        }
        Ok(())
    }

    /// The verifier of the names, if their machine has booted since a names-file was known to lead here.
    fn is_doubted(&self) -> Option<u64> {
        let verifier = self.stripes.names.verifier();
        (self.led_to_in.load(Ordering::Acquire) != verifier).then_some(verifier)
    }

    /// Fails with `ESTALE` if no open names-file leads here any more since the names' machine has booted: nobody else would see what is
    /// written here.
    pub(super) fn check_led_to(&self) -> io::Result<()> {
        let Some(verifier) = self.is_doubted() else { return Ok(()) };
        let names: Vec<_> = self.keepers().iter().map(|keeper| Arc::clone(&keeper.names)).collect();
        let mut result = Ok(());
        for names in names {
            result = names.attr().and_then(|attr| check_kept(&attr));
            match &result {
                Ok(()) => self.led_to_in.store(verifier, Ordering::Release),
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => continue,
                Err(_) => {}
            }
            break;
        }
        result
    }

    /// The object on a target; created if it is not there and `create` says so.
    pub(super) fn object(&self, target: usize, create: bool) -> io::Result<Option<&Arc<dyn TreeFile>>> {
        let slot = &self.slots[target];
        if let Some(object) = slot.file.get() {
            return Ok(Some(object));
        }
        let _opening = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = slot.file.get() {
            return Ok(Some(object));
        }
        let tree = &self.stripes.targets[target];
        let path = self.id.path();
        let how = |flags| OpenHow { flags, mode: 0o600, ..OpenHow::default() };
        let flags = open::READ | open::WRITE | open::NO_FOLLOW;
        // Of a new file there is none yet, most likely; if there is, it is opened all the same.
        let is_new = create && self.newness.is_likely();
        let mut found = if is_new { None } else { absent(tree.open(ROOT, &path, how(flags)))? };
        if found.is_none() {
            self.confirm()?;
        }
        if found.is_none() && create {
            found = absent(tree.open(ROOT, &path, how(flags | open::CREATE)))?;
            if found.is_none() {
                exists(tree.make_node(ROOT, &self.id.directory(), libc::S_IFDIR | 0o700, 0))?;
                found = Some(tree.open(ROOT, &path, how(flags | open::CREATE))?);
            }
        }
        if let Some(object) = &found {
            self.find(target, Some(object.identity()));
        }
        Ok(found.map(|object| slot.file.get_or_init(|| object)))
    }

    /// This is the object on a target, or there is none. If this process has written another one that it never synced, that is lost.
    fn find(&self, target: usize, found: Option<Identity>) {
        let written = self.stripes.unsynced.take(self.id, target);
        if written.is_some() && written != found {
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The names-file's attributes, completed. They are asked for after the objects' ones: a file that is still open then had all its
    /// objects before.
    pub(super) fn attr(&self, names: impl FnOnce() -> io::Result<Attr>) -> io::Result<Attr> {
        let objects = self.attrs_of(0..self.slots.len(), || Ok(()))?.1;
        self.complete(names()?, objects)
    }

    /// As [`Objects::attr`], where `names` changes the names-file's attributes: while the objects' ones are on their way.
    pub(super) fn changed_attr(&self, names: impl FnOnce() -> io::Result<Attr>) -> io::Result<Attr> {
        let (names, objects) = self.attrs_of(self.used(), names)?;
        self.complete(names, objects)
    }

    /// Asks for the attributes of the objects on some targets, and does something `meanwhile`.
    fn attrs_of<R>(
        &self,
        targets: impl IntoIterator<Item = usize>,
        meanwhile: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<(R, Vec<Option<Attr>>)> {
        let path = self.id.path();
        let mut targets: Vec<usize> = targets.into_iter().collect();
        // This thread would only wait for the last one: it asks that one itself, when it has nothing else to do.
        let last = targets.pop();
        let begin = |target: usize| match self.slots[target].file.get() {
            Some(object) => (target, true, object.begin_attr()),
            None => (target, false, self.stripes.targets[target].begin_attr(ROOT, &path)),
        };
        let asked: Vec<_> = targets.into_iter().map(begin).collect();
        let done = meanwhile()?;
        let mut objects = vec![None; self.slots.len()];
        if let Some(target) = last {
            objects[target] = match self.slots[target].file.get() {
                Some(object) => Some(object.attr()?),
                None => absent(self.stripes.targets[target].attr(ROOT, &path))?,
            };
        }
        for (target, is_open, waiting) in asked {
            objects[target] = if is_open { Some(waiting()?) } else { absent(waiting())? };
        }
        Ok((done, objects))
    }

    /// Completes the names-file's attributes by the objects' ones.
    pub(super) fn complete(&self, mut attr: Attr, objects: Vec<Option<Attr>>) -> io::Result<Attr> {
        if objects.iter().any(Option::is_none) {
            check_kept(&attr)?;
        }
        self.stripes.complete(&mut attr, objects);
        Ok(attr)
    }

    /// Where the last byte ends that is on any target.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.attr(|| Ok(Attr { links: 1, ..Attr::default() }))?.size)
    }

    /// The targets on which there may be objects.
    fn used(&self) -> Vec<usize> {
        let is_new = self.newness.counts(&self.stripes.clock);
        (0..self.slots.len()).filter(|&target| !is_new || self.slots[target].file.get().is_some()).collect()
    }

    /// Sets the file's size; the object that then has the last byte keeps it. With `fences`, all are made and [fenced](crate::fence): also
    /// one that is not there yet can be what somebody writes to later, unless there is no room for it.
    ///
    /// All objects are opened before any is changed: who finds no descriptor for one of them must not cut the others.
    pub(super) fn set_size(&self, size: u64, fences: bool) -> Result<(), SizeError> {
        let last = size.checked_sub(1).map(|last| self.stripes.layout.target_of(last).0 as usize);
        let open = |target| self.object(target, fences || last == Some(target));
        let are_open = self.slots.iter().all(|slot| slot.file.get().is_some());
        let mut opened = match are_open {
            true => (0..self.slots.len()).map(open).collect(),
            false => self.stripes.in_parallel(self.slots.len(), open),
        };
        // With fences, those that can be are fenced all the same: somebody may be late there.
        if !fences && let Some(failed) = opened.iter().position(Result::is_err) {
            return opened.swap_remove(failed).map(drop).map_err(SizeError::Untouched);
        }
        let which = set::SIZE | if fences { set::FENCE } else { 0 };
        let changed = self.stripes.each(|target| match &opened[target] {
            Ok(None) => Ok(()),
            Ok(Some(object)) => {
                let size = self.stripes.inner_size(target, size);
                object.set_attr(ROOT, &Change { which, size, ..Change::default() }).map(drop)
            }
            Err(error)
                if last != Some(target)
                    && matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) =>
            {
                Ok(())
            }
            Err(error) => Err(again(error)),
        });
        changed.map(drop).map_err(SizeError::InPart)
    }

    /// Renews the handles that are open: they may write to ranges that are given from now on.
    pub(super) fn renew(&self) -> io::Result<()> {
        let change = Change { which: set::RENEW, ..Change::default() };
        self.stripes.each(|target| match self.slots[target].file.get() {
            Some(object) => object.set_attr(ROOT, &change).map(drop),
            None => Ok(()),
        })?;
        Ok(())
    }

    /// Sets the times of all objects that are there, as they are set on the names-file.
    /// Returns their attributes.
    pub(super) fn set_times(&self, change: &Change) -> io::Result<Vec<Option<Attr>>> {
        let times = set::ATIME | set::MTIME | set::ATIME_NOW | set::MTIME_NOW;
        let change = Change { which: change.which & times, ..*change };
        let used = self.used();
        let set = |index: usize| match self.slots[used[index]].file.get() {
            Some(object) => object.set_attr(ROOT, &change).map(Some),
            None => {
                let (tree, path) = (&self.stripes.targets[used[index]], self.id.path());
                absent(tree.set_attr(ROOT, &path, Identity::default(), &change))
            }
        };
        let changed = self.stripes.in_parallel(used.len(), set);
        let mut objects = vec![None; self.slots.len()];
        for (target, changed) in used.iter().zip(changed) {
            objects[*target] = changed?;
        }
        Ok(objects)
    }

    /// The same whether an object is there or not, as long as nothing is lost; and another one for other objects: a file has others only
    /// where a crash has taken away what led to those before.
    pub(super) fn verifier(&self) -> u64 {
        let data = self.stripes.verifier(|target| match self.slots[target].file.get() {
            Some(object) => object.verifier(),
            None => self.stripes.targets[target].verifier(),
        });
        data ^ self.id().0
    }

    /// How often writes to one of them were lost.
    pub(super) fn losses(&self) -> u64 {
        let opened = self.slots.iter().filter_map(|slot| slot.file.get());
        self.lost.load(Ordering::Acquire) + opened.map(|object| object.losses()).sum::<u64>()
    }

    /// Makes what is in the objects durable, and that they are there.
    pub(super) fn sync(&self, data_only: bool) -> io::Result<()> {
        self.stripes.each(|target| {
            let Some(object) = self.object(target, false)? else {
                self.find(target, None);
                return Ok(());
            };
            object.sync(data_only)?;
            let slot = &self.slots[target];
            if !slot.is_named.load(Ordering::Relaxed) {
                self.stripes.sync_name(target, self.id)?;
                slot.is_named.store(true, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Whether something was made, or was there before.
pub(super) fn exists<T>(made: io::Result<T>) -> io::Result<bool> {
    match made {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let dirty =
            |slot: &Slot| slot.file.get().filter(|object| !object.is_clean()).map(|object| object.identity());
        let dirty = self.slots.iter().map(dirty).collect();
        self.stripes.unsynced.closed(self.id, dirty, self.stripes.clock.now());
        let mut table = self.stripes.open.lock().unwrap_or_else(PoisonError::into_inner);
        if table.get(&self.id).is_some_and(|known| known.strong_count() == 0) {
            table.remove(&self.id);
        }
    }
}

/// Fails with `ESTALE` if the names-file of these attributes went without regard to those who have it open.
pub(super) fn check_kept(names: &Attr) -> io::Result<()> {
    if names.links == 0 && names.flags & attr::KEPT == 0 {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(())
}
