//! Names in one tree, data as objects in several: a parallel file system's usual division.
//!
//! Several processes may use the same names and targets without knowing of each other: nothing is cached. A file's id, which its
//! objects are named by, is an extended attribute of the names-file that only one of them can create. What is exact:
//!
//! - A size is where the last byte of the objects is; attributes of a file cost a look at each target, several at once where targets
//!   are far. So do those of the entries of a directory.
//! - Times are the latest of the names-file's and the objects'. A time that is set lies on all of them, so it holds until a
//!   target writes at a later time by its own clock.
//! - Only who has the names removes a file: it counts who has it open, in all processes that use it as a server. It says when a file's
//!   objects can be reached by nobody any more, and whoever is told discards them: when the removal is durable, as a crash may bring
//!   the name back before. Until they are gone the file is listed at the server of names, for successors of those who were told.
//!   What is left all the same, after a crash, leaks: [`StripedTree::sweep`].
//! - An object that is not there is a hole only while the names-file is open: else reads and writes fail with `ESTALE`. They also do
//!   when the names' machine has booted, and what leads to the objects is lost.
//! - Where the names are on another machine, a symbolic link in the last place of a path is not followed by an open.

mod append;
mod file;
mod newness;
mod objects;
mod removing;
mod sweep;
mod unsynced;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iogate_core::ends::Rules;
use iogate_core::file_locks::Note;
use iogate_core::refusal::Refusal;
use iogate_core::wire::{Attr, Change, Entry, Gone, Identity, Space, open, set};
use iogate_core::{Layout, reserved};
use iogate_engine::store::StripedStore;
use iogate_engine::{Engine, Store};

use crate::ends::Ends;
use crate::object_id::{OBJECT, OBJECTS, ObjectId};
use crate::tree::{self, ObjectName, OpenHow, Tree, TreeFile, TreeState};
use crate::{Caller, Clock};
use append::End;
use file::{StripedDirectory, StripedFile};
use objects::{ROOT, Stripes, exists};

pub use sweep::Swept;

/// The attribute of the names' root that says how files are striped.
const STRIPING: &[u8] = b"user.iogate.striping";
/// Entries of a directory whose attributes are completed at once.
const BATCH: usize = 64;

/// Names in one tree, data in several.
pub struct StripedTree {
    names: Arc<dyn Tree>,
    stripes: Arc<Stripes>,
    store: Arc<StripedStore>,
    /// The gate in front of the store.
    engine: OnceLock<Weak<Engine>>,
    /// Of files with names that nobody else gives ends of.
    ends: Arc<Ends>,
}

impl StripedTree {
    /// The tree that has its names in one tree and its data in `targets`, striped by `layout`. Both are also used in root's name,
    /// which servers must not squash. Marks them when they are new. Fails if they were
    /// used otherwise before (with other stripes, in another order, with other names), if the layout is for another number of targets,
    /// or if the names' file system has no extended attributes.
    pub fn new(names: Arc<dyn Tree>, targets: Vec<Arc<dyn Tree>>, layout: Layout) -> io::Result<StripedTree> {
        StripedTree::with_clock(names, targets, layout, Clock::REAL)
    }

    /// As [`StripedTree::new`]; with a simulated clock, nothing is done in threads of its own.
    pub fn with_clock(
        names: Arc<dyn Tree>,
        targets: Vec<Arc<dyn Tree>>,
        layout: Layout,
        clock: Clock,
    ) -> io::Result<StripedTree> {
        let stores = targets.iter().map(|target| target.store()).collect();
        let store = StripedStore::new(stores, layout)?;
        let store = Arc::new(if clock.is_simulated() { store.without_threads() } else { store });
        let stripes = Arc::new(Stripes::new(Arc::clone(&names), targets, layout, clock.clone()));
        let mark = || {
            let id = mark_names(&*names, &layout)?;
            stripes.each(|index| mark_target(&*stripes.targets[index], &*names, &id, index))
        };
        let again =
            |error: io::Error| if error.kind() == io::ErrorKind::Interrupted { mark() } else { Err(error) };
        mark().or_else(again)?;
        let later = Arc::downgrade(&stripes);
        names.when_gone(Arc::new(move |gone| {
            if let Some(stripes) = later.upgrade() {
                stripes.discard_later(gone);
            }
        }));
        let later = Arc::downgrade(&stripes);
        store.when_full(Box::new(move || later.upgrade().is_some_and(|stripes| stripes.make_room())));
        stripes.take_over();
        let (engine, ends) = (OnceLock::new(), Ends::new(Rules::PROCESS, None, clock));
        Ok(StripedTree { names, stripes, store, engine, ends })
    }

    /// The names-file's attributes, completed.
    fn complete(&self, attr: Attr) -> io::Result<Attr> {
        let Some(id) = id_of(&attr) else { return Ok(Attr { object: [0; 16], ..attr }) };
        match self.stripes.opened(id) {
            Some(objects) => objects.attr(|| Ok(attr)),
            None => {
                let objects = self.stripes.attrs(&[Some(id)]).remove(0)?;
                let mut attr = attr;
                self.stripes.complete(&mut attr, objects);
                Ok(attr)
            }
        }
    }

    /// Completes the attributes of a directory's entries, as far as its caller may see them. What cannot be had is left out, as
    /// for entries that may not be looked at.
    fn complete_all(&self, directory: &Path, entries: &mut [(Entry, Vec<u8>)]) {
        let found = {
            let entries = &*entries;
            let ids: Vec<_> = entries.iter().map(|(entry, _)| id_of(&entry.attr)).collect();
            let found = self.stripes.attrs(&ids);
            let found = ids.into_iter().zip(found);
            let found = found.map(|(id, objects)| objects.map(|objects| id.map(|_| objects)));
            found.collect::<Vec<_>>()
        };
        for ((entry, name), found) in entries.iter_mut().zip(found) {
            match found {
                Ok(Some(objects)) => self.stripes.complete(&mut entry.attr, objects),
                Ok(None) => entry.attr.object = [0; 16],
                Err(error) => {
                    let path = join(directory, name);
                    tracing::warn!(?path, %error, "a file's size is not known");
                    let Attr { inode, mode, .. } = entry.attr;
                    entry.attr = Attr { inode, mode: mode & libc::S_IFMT, ..Attr::default() };
                }
            }
        }
    }
}

impl StripedTree {
    /// Removes the objects of removed files that wait for that to be durable, now.
    pub fn finish_removals(&self) {
        self.stripes.make_room();
    }
}

impl Drop for StripedTree {
    fn drop(&mut self) {
        // Where the names are not reached, or in a simulated world, whoever uses them next finds what is left.
        if !self.stripes.clock.is_simulated() && self.names.is_reached() {
            self.stripes.remove_now();
        }
    }
}

/// Of so many servers the state is told.
const STATES_MAX: usize = 16;

/// The id of a file, if it is a file and has one.
fn id_of(attr: &Attr) -> Option<ObjectId> {
    let is_file = attr.mode & libc::S_IFMT == libc::S_IFREG;
    (is_file && attr.object != [0; 16]).then_some(ObjectId(attr.object))
}

fn join(directory: &Path, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    directory.join(std::ffi::OsStr::from_bytes(name))
}

fn unusable(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Sees to it that the names' root says how files are striped. Returns the id of the names.
fn mark_names(names: &dyn Tree, layout: &Layout) -> io::Result<String> {
    let root = Path::new("");
    let striping = format!(
        "first target {}, {} bytes, {} targets",
        layout.first_target, layout.stripe_bytes, layout.targets
    );
    let mark = format!("{} {striping}", ObjectId::random()?);
    let made = exists(names.set_xattr(
        ROOT,
        root,
        Identity::default(),
        STRIPING,
        mark.as_bytes(),
        libc::XATTR_CREATE as u32,
    ));
    let made = made.map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::new(
            io::ErrorKind::Unsupported,
            "names need a file system with extended attributes (user.*), and this one has none: put them on ext4, xfs or btrfs",
        ),
        _ => io::Error::new(error.kind(), format!("names could not be marked as striped: {error}")),
    })?;
    // The root has one too: whoever sees it is told of the files' ones.
    let (id, flags) = (ObjectId::random()?.to_string(), libc::XATTR_CREATE as u32);
    exists(names.set_xattr(ROOT, root, Identity::default(), OBJECT, id.as_bytes(), flags))?;
    if names.attr(ROOT, root)?.object == [0; 16] {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the server of the names does not tell this process what files' objects are named by: have it trust \
             this forwarder (`forwarders` of its export)",
        ));
    }
    let mark = if made { mark.into_bytes() } else { names.xattr(ROOT, root, STRIPING)? };
    let mark = String::from_utf8_lossy(&mark);
    match mark.split_once(' ') {
        Some((id, found)) if found == striping => Ok(id.into()),
        found => Err(unusable(format!(
            "the files with these names are striped otherwise: expected {striping:?}, found {:?}; set what was found",
            found.map_or(&*mark, |(_, found)| found)
        ))),
    }
}

/// Sees to it that a target says whose objects it has: those of the names with this id, once that is durable there.
fn mark_target(target: &dyn Tree, names: &dyn Tree, id: &str, index: usize) -> io::Result<()> {
    exists(target.make_node(ROOT, Path::new(OBJECTS), libc::S_IFDIR | 0o700, 0))?;
    let path = Path::new(OBJECTS).join("TARGET");
    let mark = format!("{id}.{index}");
    if objects::absent(target.read_link(ROOT, &path))?.is_none() {
        let how = OpenHow { flags: open::READ | open::DIRECTORY, ..OpenHow::default() };
        let root = Path::new("");
        names.open(ROOT, root, how)?.sync(false)?;
        // A crash of their machine before the sync may have taken it away, and others may have given them another one.
        let durable = match names.xattr(ROOT, root, STRIPING) {
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Vec::new(),
            found => found?,
        };
        if !durable.starts_with(id.as_bytes()) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the machine of the names has crashed, and has lost their mark; start again",
            ));
        }
    }
    if !exists(target.symlink(ROOT, Path::new(&mark), &path))? {
        let found = target.read_link(ROOT, &path)?;
        if found != mark.as_bytes() {
            return Err(unusable(format!(
                "target {index} has objects of other names, or is another target: expected {mark}, found {}; \
                 name the targets in their first order",
                String::from_utf8_lossy(&found)
            )));
        }
    }
    Ok(())
}

/// Fails if an extended attribute is not the users' business: who could set it could reach another user's objects.
fn refuse_reserved(name: &[u8], errno: i32) -> io::Result<()> {
    if reserved::is_attribute(name) { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
}

/// Names of extended attributes, each followed by a zero byte, but for those that are not the users' business.
fn without_reserved(names: &[u8]) -> Vec<u8> {
    let kept = names.split_inclusive(|&byte| byte == 0).filter(|name| !reserved::is_attribute(name));
    kept.flatten().copied().collect()
}

impl Tree for StripedTree {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn verifier(&self) -> u64 {
        self.stripes.verifier(|target| self.stripes.targets[target].verifier())
    }

    /// Locks are of names-files.
    fn keeps_locks(&self) -> bool {
        self.names.keeps_locks()
    }

    fn note_locks(&self, note: Option<&Note>) -> io::Result<()> {
        self.names.note_locks(note)
    }

    fn noted_locks(&self) -> io::Result<Option<Note>> {
        self.names.noted_locks()
    }

    fn shares_locks(&self) -> bool {
        self.names.shares_locks()
    }

    fn leave_locks(&self) {
        self.names.leave_locks();
    }

    fn begin_grace(&self, time: Duration) -> io::Result<()> {
        self.names.begin_grace(time)?;
        self.stripes.targets.iter().try_for_each(|target| target.begin_grace(time))
    }

    fn is_local(&self) -> bool {
        self.names.is_local() && self.stripes.targets.iter().all(|target| target.is_local())
    }

    fn acts_for_others(&self) -> bool {
        self.names.acts_for_others() && self.stripes.targets.iter().all(|target| target.acts_for_others())
    }

    fn use_engine(&self, engine: &Arc<Engine>) {
        let _ = self.engine.set(Arc::downgrade(engine));
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        self.stripes.remove_due();
        let since = (!self.names.is_local()).then(|| self.stripes.clock.now());
        let verifier = self.names.verifier();
        // The names-file keeps what it has noted, and who cuts the file takes its end.
        let cuts = how.flags & open::TRUNCATE != 0;
        let mut flags = how.flags & !open::TRUNCATE;
        if cuts {
            flags |= open::WRITE;
        }
        let open = || self.names.open(caller, path, OpenHow { flags, stripes: true, ..how });
        let names = match open() {
            // Removed files have names, too, as long as their objects wait.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && self.stripes.make_room() => open(),
            opened => opened,
        }?;
        let writes = how.flags & open::WRITE != 0;
        if !writes && names.opened_attr()?.mode & libc::S_IFMT != libc::S_IFREG {
            return Ok(Arc::new(StripedDirectory::new(names)));
        }
        let ObjectName { object, is_new } = names.object();
        let id = match object == [0; 16] {
            false => ObjectId(object),
            // Nobody has ever written to it, where nobody can.
            true if !writes => ObjectId::random()?,
            true => {
                tracing::error!(?path, "the server of the names does not name the file's objects");
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
        };
        let objects = self.stripes.objects(id);
        let (end, begun) = End::of(&*names, flags, &self.ends, self.names.asks_for_ends())?;
        objects.keep(&names, since, verifier);
        if is_new && how.flags & open::SPREAD == 0 {
            objects.newness.begin(self.stripes.clock.now());
        }
        let parts = Arc::clone(&objects);
        let data = StripedStore::file(parts, how.flags & open::READ != 0, writes);
        let told = objects.losses().into();
        let (store, engine) = (Arc::clone(&self.store), self.engine.get().cloned());
        let file = StripedFile { names, objects, data, writes, is_new, told, end, store, engine };
        if begun.is_some() {
            file.finish_resize()?;
        }
        if cuts && !is_new {
            file.resize_to(0)?;
        }
        Ok(Arc::new(file))
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        self.complete(self.names.attr(caller, path)?)
    }

    fn identity(&self, caller: Caller, path: &Path) -> io::Result<Identity> {
        self.names.identity(caller, path)
    }

    fn is_reached(&self) -> bool {
        self.names.is_reached() && self.stripes.targets.iter().all(|target| target.is_reached())
    }

    fn leads_on(&self, trail: &[u8]) -> Result<(), Refusal> {
        self.names.leads_on(trail)?;
        self.stripes.targets.iter().try_for_each(|target| target.leads_on(trail))
    }

    fn state(&self) -> Option<TreeState> {
        let names = self.names.state().map(|state| (String::from("names"), state));
        let targets = self.stripes.targets.iter().zip(0..);
        let targets = targets.filter_map(|(target, at)| Some((format!("target {at}"), target.state()?)));
        let mut all: Vec<(String, TreeState)> = names.into_iter().chain(targets).collect();
        if all.is_empty() {
            return None;
        }
        let is_well = all.iter().all(|(_, state)| state.is_well);
        // Of many, those that are not well are to be seen.
        all.sort_by_key(|(_, state)| state.is_well);
        let more = all.len().saturating_sub(STATES_MAX);
        all.truncate(STATES_MAX);
        let mut text: Vec<String> =
            all.into_iter().map(|(what, state)| format!("{what}: {}", state.text)).collect();
        if more > 0 {
            text.push(format!("and {more} more"));
        }
        Some(TreeState { text: text.join("; "), is_well })
    }

    fn answers(&self) -> u64 {
        let targets = self.stripes.targets.iter().map(|target| target.answers());
        tree::all_answers(std::iter::once(self.names.answers()).chain(targets))
    }

    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr> {
        if change.which & set::SIZE != 0 {
            // It is the same file then whose permissions are checked and whose objects are cut.
            return tree::resize_by_handle(self, caller, path, identity, change);
        }
        let attr = self.names.set_attr(caller, path, identity, change)?;
        if change.which & (set::ATIME | set::MTIME) != 0
            && let Some(id) = id_of(&attr)
        {
            let objects = self.stripes.objects(id);
            let changed = objects.set_times(change)?;
            return objects.complete(attr, changed);
        }
        self.complete(attr)
    }

    fn read_dir(
        &self,
        caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        let mut after = after;
        let mut entries: Vec<(Entry, Vec<u8>)> = Vec::with_capacity(BATCH);
        loop {
            entries.clear();
            self.names.read_dir(caller, path, after, &mut |entry, name| {
                let takes = entries.len() < BATCH;
                if takes {
                    entries.push((*entry, name.to_vec()));
                }
                takes
            })?;
            let Some((last, _)) = entries.last() else { return Ok(()) };
            after = last.next;
            self.complete_all(path, &mut entries);
            if !entries.iter().all(|(entry, name)| each(entry, name)) {
                return Ok(());
            }
        }
    }

    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr> {
        self.complete(self.names.make_node(caller, path, mode, device)?)
    }

    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        self.names.symlink(caller, target, path)
    }

    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        self.complete(self.names.link(caller, path, to)?)
    }

    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        self.names.read_link(caller, path)
    }

    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone> {
        self.stripes.remove_due();
        let verifier = self.names.verifier();
        self.stripes.discard(self.names.unlink(caller, path, directory)?, verifier);
        Ok(Gone::NONE)
    }

    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone> {
        self.stripes.remove_due();
        let verifier = self.names.verifier();
        self.stripes.discard(self.names.rename(caller, path, to, flags)?, verifier);
        Ok(Gone::NONE)
    }

    /// The room for data is that of all targets.
    fn space(&self) -> io::Result<Space> {
        let mut space = self.names.space()?;
        (space.blocks, space.blocks_free, space.blocks_available) = (0, 0, 0);
        let unit = u128::from(space.block_bytes.max(1));
        for target in self.stripes.each(|target| self.stripes.targets[target].space())? {
            let blocks = |count: u64| (u128::from(count) * u128::from(target.block_bytes) / unit) as u64;
            space.blocks = space.blocks.saturating_add(blocks(target.blocks));
            space.blocks_free = space.blocks_free.saturating_add(blocks(target.blocks_free));
            space.blocks_available = space.blocks_available.saturating_add(blocks(target.blocks_available));
        }
        Ok(space)
    }

    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        refuse_reserved(name, libc::ENODATA)?;
        self.names.xattr(caller, path, name)
    }

    fn set_xattr(
        &self,
        caller: Caller,
        path: &Path,
        identity: Identity,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.set_xattr(caller, path, identity, name, value, flags)
    }

    fn xattrs(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        self.names.xattrs(caller, path).map(|names| without_reserved(&names))
    }

    fn remove_xattr(&self, caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.remove_xattr(caller, path, identity, name)
    }
}
