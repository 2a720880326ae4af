//! A naive file system on a modelled disk, as a [`Tree`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::FileId;
use iogate_core::wire::{Attr, Change, Entry, Gone, Identity, Space, Written, attr, open, set};
use iogate_engine::{FileHandle, Origin, Store};
use iogate_vfs::{Caller, ObjectName, OpenHow, Tree, TreeFile};

use super::Planted;
use super::disk::Disk;
use super::store::{AtOnce, Data, Held};

const OBJECT: &[u8] = b"user.iogate.object";
/// The folder of files that are removed and have objects.
const REMOVED: &str = ".iogate/removed";

/// A directory of a modelled machine, as a process there sees it.
#[derive(Clone)]
pub(super) struct SimTree {
    disk: Arc<Mutex<Disk>>,
    /// Which of the processes that used the disk it is.
    life: u64,
    /// A defect of who serves it.
    planted: Option<Planted>,
}

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl SimTree {
    /// For a process that begins.
    pub(super) fn new(disk: Arc<Mutex<Disk>>, planted: Option<Planted>) -> SimTree {
        let life = disk.lock().unwrap_or_else(PoisonError::into_inner).lives;
        SimTree { disk, life, planted }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is about to lose a name: who has it open keeps it, under another one. So does who has to remove its objects.
    fn loses_name(&self, disk: &mut Disk, inode: u64, path: &Path) {
        let is_last = disk.links(inode) == 1 + u32::from(is_noted(disk, inode))
            && path.parent() != Some(Path::new(REMOVED));
        if is_last && !disk.is_used(inode) {
            note(disk, inode);
        }
        disk.changes();
        if is_last && disk.is_used(inode) {
            disk.names.orphans.insert(inode);
        }
    }

    /// The objects that nobody can reach any more, if a file that has lost a name is gone.
    fn gone(&self, disk: &Disk, inode: u64) -> Gone {
        let forgets_handles = self.planted == Some(Planted::GoneTooEarly);
        let has_name = disk.links(inode) > u32::from(is_noted(disk, inode));
        let is_gone = !has_name && (forgets_handles || !disk.is_used(inode));
        if is_gone { Gone { object: object(disk, inode) } } else { Gone::NONE }
    }
}

/// The file at a path.
fn find(disk: &Disk, path: &Path) -> io::Result<u64> {
    disk.names.by_path.get(path).copied().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Fails if nothing can be made at a path.
fn may_make(disk: &Disk, path: &Path) -> io::Result<()> {
    let parent = find(disk, path.parent().unwrap_or(Path::new("")))?;
    match disk.inodes.get(&parent) {
        Some(inode) if inode.mode & libc::S_IFMT == libc::S_IFDIR => {}
        _ => return errno(libc::ENOTDIR),
    }
    if disk.names.by_path.contains_key(path) { errno(libc::EEXIST) } else { Ok(()) }
}

/// Fails if the file at a path is not the one that is meant.
fn find_meant(disk: &Disk, path: &Path, meant: Identity) -> io::Result<u64> {
    let inode = find(disk, path)?;
    if meant == Identity::default() || meant == identity(disk, inode) {
        Ok(inode)
    } else {
        errno(libc::ESTALE)
    }
}

fn identity(disk: &Disk, inode: u64) -> Identity {
    let generation = disk.inodes.get(&inode).map_or(0, |inode| inode.generation);
    Identity { inode, generation }
}

fn object(disk: &Disk, inode: u64) -> [u8; 16] {
    let text = disk.names.attributes.get(&(inode, OBJECT.to_vec()));
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| u128::from_str_radix(text, 16).ok()).map_or([0; 16], u128::to_be_bytes)
}

fn attr_of(disk: &Disk, number: u64) -> io::Result<Attr> {
    let Some(inode) = disk.inodes.get(&number) else { return errno(libc::ESTALE) };
    let links = disk.links(number);
    Ok(Attr {
        inode: number,
        size: inode.bytes.len() as u64,
        blocks: inode.bytes.len().div_ceil(512) as u64,
        mode: inode.mode,
        links,
        block_bytes: 4096,
        flags: if links == 0 && inode.handles > 0 { attr::KEPT } else { 0 },
        object: object(disk, number),
        ..Attr::default()
    })
}

fn change(disk: &mut Disk, inode: u64, change: &Change) -> io::Result<Attr> {
    if change.which & set::SIZE != 0 {
        disk.set_size(inode, change.size);
    }
    attr_of(disk, inode)
}

fn attribute(disk: &Disk, inode: u64, name: &[u8]) -> io::Result<Vec<u8>> {
    let value = disk.names.attributes.get(&(inode, name.to_vec()));
    value.cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODATA))
}

fn set_attribute(disk: &mut Disk, inode: u64, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
    let is_there = disk.names.attributes.contains_key(&(inode, name.to_vec()));
    match flags as i32 {
        libc::XATTR_CREATE if is_there => return errno(libc::EEXIST),
        libc::XATTR_REPLACE if !is_there => return errno(libc::ENODATA),
        _ => {}
    }
    disk.changes();
    disk.names.attributes.insert((inode, name.to_vec()), value.to_vec());
    Ok(())
}

fn attributes(disk: &Disk, inode: u64) -> Vec<u8> {
    let names = disk.names.attributes.keys().filter(|(of, _)| *of == inode);
    names.flat_map(|(_, name)| name.iter().copied().chain([0])).collect()
}

/// The name of a file among those that are removed, if it has objects.
fn note_path(disk: &Disk, inode: u64) -> Option<PathBuf> {
    let object = object(disk, inode);
    (object != [0; 16]).then(|| Path::new(REMOVED).join(format!("{:032x}", u128::from_be_bytes(object))))
}

fn is_noted(disk: &Disk, inode: u64) -> bool {
    note_path(disk, inode).is_some_and(|path| disk.names.by_path.contains_key(&path))
}

/// Gives a file that has objects a name among those that are removed.
fn note(disk: &mut Disk, inode: u64) {
    if let Some(path) = note_path(disk, inode)
        && !disk.names.by_path.contains_key(&path)
    {
        disk.changes();
        disk.names.by_path.insert(path, inode);
    }
}

impl Tree for SimTree {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(AtOnce)
    }

    fn verifier(&self) -> u64 {
        1 + self.lock().boots
    }

    fn is_local(&self) -> bool {
        true
    }

    fn gives_ends(&self) -> bool {
        true
    }

    fn open(&self, _caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        let mut disk = self.lock();
        if disk.is_crowded() {
            return errno(libc::EMFILE);
        }
        let wants = |flag| how.flags & flag != 0;
        let is_removed_list = path == Path::new(REMOVED);
        if is_removed_list && find(&disk, path).is_err() {
            disk.make(libc::S_IFDIR | 0o700, path);
        }
        let found = if wants(open::AGAIN) {
            let named = find(&disk, path).ok().filter(|&inode| identity(&disk, inode) == how.identity);
            let orphan = disk.names.orphans.get(&how.identity.inode).copied();
            let orphan = orphan.filter(|&inode| identity(&disk, inode) == how.identity);
            named.or(orphan).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
        } else {
            find(&disk, path)
        };
        let number = match found {
            Ok(_) if wants(open::EXCLUSIVE) => return errno(libc::EEXIST),
            Ok(inode) => inode,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && wants(open::CREATE) => {
                may_make(&disk, path)?;
                disk.make(libc::S_IFREG | how.mode & 0o7777, path)
            }
            Err(error) => return Err(error),
        };
        let Some(inode) = disk.inodes.get(&number) else { return errno(libc::ESTALE) };
        let is_file = inode.mode & libc::S_IFMT == libc::S_IFREG;
        if wants(open::WRITE) && !is_file {
            return errno(libc::EISDIR);
        }
        if wants(open::TRUNCATE) && !inode.bytes.is_empty() {
            disk.set_size(number, 0);
        }
        let mut named = ObjectName::default();
        if how.stripes && is_file {
            named.object = object(&disk, number);
            if named.object == [0; 16] && wants(open::WRITE) {
                // No two files of a run have the same, nor those of two machines.
                let name = u128::from(number) << 64 | 0xA5 << 120 | u128::from(disk.boots);
                // Nothing leads to a new file that has no attribute yet: no crash leaves the one without the other.
                if self.planted == Some(Planted::LateObject) {
                    disk.changes();
                }
                let name_text = format!("{name:032x}").into_bytes();
                disk.names.attributes.insert((number, OBJECT.to_vec()), name_text);
                named = ObjectName { object: name.to_be_bytes(), is_new: true };
            }
        }
        let opened = attr_of(&disk, number)?;
        let identity = identity(&disk, number);
        if let Some(inode) = disk.inodes.get_mut(&number) {
            inode.handles += 1;
        }
        drop(disk);
        let tree = self.clone();
        let of = Arc::new(Opened { tree, identity });
        let data: FileHandle = Arc::new(Held(Arc::clone(&of) as Arc<dyn Data>));
        Ok(Arc::new(SimFile { of, data, opened, named, appends: wants(open::APPEND) }))
    }

    fn attr(&self, _caller: Caller, path: &Path) -> io::Result<Attr> {
        let disk = self.lock();
        attr_of(&disk, find(&disk, path)?)
    }

    fn set_attr(&self, _caller: Caller, path: &Path, identity: Identity, how: &Change) -> io::Result<Attr> {
        let mut disk = self.lock();
        let inode = find_meant(&disk, path, identity)?;
        change(&mut disk, inode, how)
    }

    fn read_dir(
        &self,
        _caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        let disk = self.lock();
        let mut entries = Vec::new();
        for (at, &inode) in &disk.names.by_path {
            if at.parent() == Some(path)
                && let Some(name) = at.file_name()
            {
                entries.push((name.as_encoded_bytes().to_vec(), attr_of(&disk, inode)?));
            }
        }
        drop(disk);
        for (next, (name, attr)) in (1..).zip(entries).skip(after as usize) {
            if !each(&Entry { next, name_bytes: name.len() as u16, attr }, &name) {
                break;
            }
        }
        Ok(())
    }

    fn make_node(&self, _caller: Caller, path: &Path, mode: u32, _device: u32) -> io::Result<Attr> {
        let mut disk = self.lock();
        may_make(&disk, path)?;
        let inode = disk.make(mode, path);
        attr_of(&disk, inode)
    }

    fn symlink(&self, _caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        let mut disk = self.lock();
        may_make(&disk, path)?;
        let number = disk.make(libc::S_IFLNK | 0o777, path);
        if let Some(inode) = disk.inodes.get_mut(&number) {
            inode.target = target.as_os_str().as_encoded_bytes().to_vec();
        }
        attr_of(&disk, number)
    }

    fn link(&self, _caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        let mut disk = self.lock();
        let inode = find(&disk, path)?;
        may_make(&disk, to)?;
        disk.changes();
        disk.names.by_path.insert(to.to_path_buf(), inode);
        attr_of(&disk, inode)
    }

    fn read_link(&self, _caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        let inode = find(&disk, path)?;
        disk.inodes.get(&inode).map_or_else(|| errno(libc::ESTALE), |inode| Ok(inode.target.clone()))
    }

    fn unlink(&self, _caller: Caller, path: &Path, _directory: bool) -> io::Result<Gone> {
        let mut disk = self.lock();
        let inode = find(&disk, path)?;
        self.loses_name(&mut disk, inode, path);
        disk.names.by_path.remove(path);
        Ok(if path.starts_with(REMOVED) { Gone::NONE } else { self.gone(&disk, inode) })
    }

    fn rename(&self, _caller: Caller, path: &Path, to: &Path, _flags: u32) -> io::Result<Gone> {
        let mut disk = self.lock();
        let inode = find(&disk, path)?;
        let victim = find(&disk, to).ok().filter(|&victim| victim != inode);
        match victim {
            Some(victim) => self.loses_name(&mut disk, victim, to),
            None => disk.changes(),
        }
        disk.names.by_path.remove(path);
        disk.names.by_path.insert(to.to_path_buf(), inode);
        Ok(victim.map_or(Gone::NONE, |victim| self.gone(&disk, victim)))
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { block_bytes: 4096, name_bytes_max: 255, ..Space::default() })
    }

    fn xattr(&self, _caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        attribute(&disk, find(&disk, path)?, name)
    }

    fn set_xattr(
        &self,
        _caller: Caller,
        path: &Path,
        identity: Identity,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        let mut disk = self.lock();
        let inode = find_meant(&disk, path, identity)?;
        set_attribute(&mut disk, inode, name, value, flags)
    }

    fn xattrs(&self, _caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        Ok(attributes(&disk, find(&disk, path)?))
    }

    fn remove_xattr(&self, _caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()> {
        let mut disk = self.lock();
        let inode = find_meant(&disk, path, identity)?;
        attribute(&disk, inode, name)?;
        disk.changes();
        disk.names.attributes.remove(&(inode, name.to_vec()));
        Ok(())
    }

    fn identity(&self, _caller: Caller, path: &Path) -> io::Result<Identity> {
        let disk = self.lock();
        Ok(identity(&disk, find(&disk, path)?))
    }
}

/// A handle.
struct Opened {
    tree: SimTree,
    identity: Identity,
}

impl Opened {
    /// To change something: only as long as the process lives.
    fn lock_living(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.lock();
        if self.is_over(&disk) { errno(libc::EIO) } else { Ok(disk) }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.tree.lock()
    }

    fn is_over(&self, disk: &Disk) -> bool {
        disk.lives != self.tree.life
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut disk = self.lock();
        if self.is_over(&disk) {
            return;
        }
        let Some(inode) = disk.inodes.get_mut(&self.identity.inode) else { return };
        inode.handles = inode.handles.saturating_sub(1);
        let is_last = inode.handles == 0 && !disk.is_old(self.identity.inode);
        if is_last && disk.names.orphans.contains(&self.identity.inode) {
            disk.changes();
            disk.names.orphans.remove(&self.identity.inode);
        }
    }
}

impl Data for Opened {
    fn id(&self) -> FileId {
        FileId(self.identity.inode)
    }

    fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        let Some(inode) = disk.inodes.get(&self.identity.inode) else { return errno(libc::ESTALE) };
        let start = (offset as usize).min(inode.bytes.len());
        let end = (start + bytes).min(inode.bytes.len());
        Ok(inode.bytes[start..end].to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8], extends: bool) -> io::Result<usize> {
        if extends && self.size()? > offset {
            let there = self.read(offset, bytes.len())?;
            return if there == bytes { Ok(bytes.len()) } else { errno(libc::EEXIST) };
        }
        match self.lock_living()?.write(self.identity.inode, offset, bytes) {
            0 if !bytes.is_empty() => errno(libc::ENOSPC),
            count => Ok(count),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(attr_of(&self.lock(), self.identity.inode)?.size)
    }
}

/// An open file.
pub(super) struct SimFile {
    of: Arc<Opened>,
    data: FileHandle,
    opened: Attr,
    named: ObjectName,
    appends: bool,
}

impl TreeFile for SimFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn identity(&self) -> Identity {
        self.of.identity
    }

    fn attr(&self) -> io::Result<Attr> {
        attr_of(&self.of.lock(), self.of.identity.inode)
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        Ok(self.opened)
    }

    fn object(&self) -> ObjectName {
        self.named
    }

    fn close(&self) -> Gone {
        let mut disk = self.of.lock();
        let inode = self.of.identity.inode;
        // Whether it is the last handle, which goes when this is dropped.
        let is_last = disk.inodes.get(&inode).is_some_and(|inode| inode.handles == 1) && !disk.is_old(inode);
        let has_name = disk.links(inode) > u32::from(is_noted(&disk, inode));
        if !is_last || has_name || self.of.is_over(&disk) {
            return Gone::NONE;
        }
        note(&mut disk, inode);
        disk.changes();
        disk.names.orphans.remove(&inode);
        Gone { object: object(&disk, inode) }
    }

    fn set_attr(&self, _caller: Caller, how: &Change) -> io::Result<Attr> {
        change(&mut *self.of.lock_living()?, self.of.identity.inode, how)
    }

    fn sync(&self, _data_only: bool) -> io::Result<u64> {
        let mut disk = self.of.lock();
        if !disk.sync(self.of.identity.inode) {
            return errno(libc::EIO);
        }
        drop(disk);
        Ok(self.verifier())
    }

    fn verifier(&self) -> u64 {
        let disk = self.of.lock();
        let failures = disk.inodes.get(&self.of.identity.inode).map_or(0, |inode| inode.failures);
        1 + disk.boots + (failures << 32)
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        let (inode, mut disk) = (self.of.identity.inode, self.of.lock());
        match mode as i32 {
            libc::FALLOC_FL_COLLAPSE_RANGE => disk.collapse(inode, offset, bytes),
            0 => {
                let size = attr_of(&disk, inode)?.size;
                disk.set_size(inode, size.max(offset + bytes));
            }
            _ => return errno(libc::EOPNOTSUPP),
        }
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        let size = self.attr()?.size;
        if offset >= size {
            return errno(libc::ENXIO);
        }
        Ok(if hole { size } else { offset })
    }

    fn xattr(&self, _caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        attribute(&self.of.lock(), self.of.identity.inode, name)
    }

    fn set_xattr(&self, _caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        set_attribute(&mut *self.of.lock_living()?, self.of.identity.inode, name, value, flags)
    }

    fn appends_elsewhere(&self) -> bool {
        self.appends
    }

    /// Whole or not at all.
    fn append(&self, _caller: Caller, _origin: Origin, bytes: &[u8]) -> Option<io::Result<Written>> {
        let inode = self.of.identity.inode;
        let mut disk = self.of.lock();
        let append = || {
            let offset = attr_of(&disk, inode)?.size;
            let count = disk.write(inode, offset, bytes);
            if count < bytes.len() {
                disk.set_size(inode, offset);
                return errno(libc::ENOSPC);
            }
            Ok((offset, count as u32))
        };
        let appended: io::Result<(u64, u32)> = {
            let mut append = append;
            append()
        };
        drop(disk);
        Some(appended.map(|(offset, bytes)| Written { offset, bytes, verifier: self.verifier() }))
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::Layout;
    use iogate_sim::rng::Rng;
    use iogate_vfs::StripedTree;

    use super::*;

    /// Whichever of its machines crashes when stripes have first been used, they can be used again.
    #[test]
    fn stripes_survive_a_crash_after_their_first_use() {
        for (seed, crashes) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1)]) {
            let disks = [0, 1].map(|stream| Arc::new(Mutex::new(Disk::new(Rng::new(seed, stream)))));
            let tree =
                |disk: &Arc<Mutex<Disk>>| -> Arc<dyn Tree> { Arc::new(SimTree::new(Arc::clone(disk), None)) };
            let layout = Layout { first_target: 0, stripe_bytes: 1024, targets: 1 };
            let mount = || StripedTree::new(tree(&disks[0]), vec![tree(&disks[1])], layout).map(drop);
            mount().unwrap();
            disks[crashes].lock().unwrap().reboot();
            mount().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
