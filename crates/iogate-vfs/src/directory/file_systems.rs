//! Which file a file is, where other file systems are mounted below a directory, or subvolumes lie there.
//!
//! An inode's number and time of birth tell files of one file system apart. Of another one than the root's, what names that is mixed in:
//! two network file systems that know no times of birth have the same numbers, and so has a snapshot of a subvolume. The number
//! of the device is no name: it is another one after a boot.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hasher;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::hash::IdHasher;
use iogate_core::wire::{Attr, Identity};
use iogate_engine::layouts::mounts::Mount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::stat::{self, Known};
use crate::tree::is_of;

/// The file systems at and below a directory.
pub(super) struct FileSystems {
    /// The device of the directory itself.
    root: u64,
    names: Mutex<Names>,
}

/// What is known of file systems by their devices. Only of those that are mounted: what is not, as a subvolume, can leave its
/// device to another one unseen.
#[derive(Default)]
struct Names {
    of_device: HashMap<u64, u64>,
    /// What is mounted, by its device. No device of a subvolume is in it: kept, so that the list is not read for each of their files.
    mounted: Arc<HashMap<u64, Mounted>>,
    /// The list of mounts, which tells of changes.
    mounts: Option<File>,
}

/// What is mounted, as the list of mounts calls it.
struct Mounted {
    fs_type: String,
    source: String,
}

impl FileSystems {
    /// Of what is at and below an open directory.
    pub(super) fn below(root: impl AsFd) -> Result<FileSystems, Errno> {
        Ok(FileSystems { root: stat::of(root)?.device, names: Mutex::default() })
    }

    /// Which file this is, if it is on the root's own file system.
    pub(super) fn own_identity(&self, known: &Known) -> Option<Identity> {
        (known.device == self.root).then(|| identity(known, None))
    }

    /// Attributes that tell which file system they are of. By the device's number, which is there to be had for every name of a
    /// listing: after a boot it may be another one, and clients look such names up again.
    pub(super) fn attr(&self, known: &Known) -> Attr {
        let mut attr = known.attr;
        if known.device != self.root {
            let mut hasher = IdHasher::default();
            hasher.write_u64(known.device);
            attr.set_file_system(((hasher.finish() >> 40) as u32).max(1));
        }
        attr
    }

    /// Which file this is, of which `known` was found by the descriptor (`O_PATH` or not).
    pub(super) fn identity(&self, known: &Known, fd: impl AsFd) -> Result<Identity, Errno> {
        match self.own_identity(known) {
            Some(own) => Ok(own),
            None => Ok(identity(known, Some(self.name(known.device, fd)?))),
        }
    }

    /// As [`FileSystems::identity`], of what is looked at now.
    pub(super) fn identity_of(&self, fd: impl AsFd) -> Result<Identity, Errno> {
        let fd = fd.as_fd();
        self.identity(&stat::of(fd)?, fd)
    }

    /// Fails with `ESTALE` if this is not the file that is meant, unless that is zero.
    pub(super) fn expect(&self, held: impl AsFd, meant: Identity) -> Result<(), Errno> {
        let is_meant = meant == Identity::default() || is_of(self.identity_of(held)?, meant);
        if is_meant { Ok(()) } else { Err(Errno::STALE) }
    }

    /// A number for the name of the file system that a descriptor's file is on.
    fn name(&self, device: u64, fd: impl AsFd) -> Result<u64, Errno> {
        let names = self.names()?;
        if let Some(&name) = names.of_device.get(&device) {
            return Ok(name);
        }
        let mounted = Arc::clone(&names.mounted);
        drop(names);
        // Without the lock: to ask a network file system may take long.
        let id = rustix::fs::fstatvfs(fd)?.f_fsid;
        let mount = mounted.get(&device);
        let name = number(device, id, mount);
        if mount.is_some() {
            let mut names = self.names()?;
            // Else the device may be another one's meanwhile.
            if Arc::ptr_eq(&names.mounted, &mounted) {
                names.of_device.insert(device, name);
            }
        }
        Ok(name)
    }

    /// What is known, and is so still.
    fn names(&self) -> Result<MutexGuard<'_, Names>, Errno> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.is_current() {
            // A change is told once: if the list cannot be read now, nothing old is to be left.
            *names = Names::default();
            // Opened before it is read: it tells of what changes from here on.
            let mounts = File::open("/proc/self/mountinfo").ok();
            *names = Names { of_device: HashMap::new(), mounted: Arc::new(Mounted::all()?), mounts };
        }
        Ok(names)
    }
}

impl Names {
    /// Whether nothing has been mounted or taken away since the list was opened.
    fn is_current(&self) -> bool {
        let Some(mounts) = &self.mounts else { return false };
        let mut polled = [PollFd::new(mounts, PollFlags::PRI)];
        let is_told = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
        is_told && !polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
    }
}

impl Mounted {
    /// All, by their devices. No file system is asked for that.
    fn all() -> Result<HashMap<u64, Mounted>, Errno> {
        let mounts = Mount::all().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let mut all = HashMap::new();
        for Mount { device, fs_type, source, .. } in mounts {
            // One device can be mounted in several places, by several names: the first counts.
            all.entry(device).or_insert(Mounted { fs_type, source });
        }
        Ok(all)
    }
}

/// The file system's own id, where that is more than the number of its device, and what is mounted: copies have the same id, and network
/// file systems often none.
fn number(device: u64, id: u64, mount: Option<&Mounted>) -> u64 {
    let mut hasher = IdHasher::default();
    hasher.write_u64(if id == device { 0 } else { id });
    if let Some(mount) = mount {
        hasher.write(mount.fs_type.as_bytes());
        hasher.write_u8(0);
        hasher.write(mount.source.as_bytes());
    }
    hasher.finish()
}

/// A file system that keeps no time of birth cannot tell a file from an earlier one with its number.
fn identity(known: &Known, file_system: Option<u64>) -> Identity {
    let generation = file_system.map_or(known.birth, |name| {
        let mut hasher = IdHasher::default();
        hasher.write_u64(name);
        hasher.write_u64(known.birth);
        // As a time it is before 1990: such a file counts as older than every start of a server, which may be so. Zero is no generation.
        hasher.finish() >> 5 | 1
    });
    Identity { inode: known.attr.inode, generation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &str) -> Mounted {
        Mounted { fs_type: "nfs".into(), source: source.into() }
    }

    fn known(device: u64, birth: u64) -> Known {
        Known { attr: Attr { inode: 7, ..Attr::default() }, device, birth }
    }

    #[test]
    fn a_file_system_has_its_own_name() {
        let [one, other] = ["server:/one", "server:/other"].map(mount);
        for id in [0, 9] {
            assert_ne!(number(50, id, Some(&one)), number(50, id, Some(&other)), "a copy has the same id");
        }
        assert_eq!(number(50, 0, Some(&one)), number(51, 51, Some(&one)), "the device's number is no name");
        assert_ne!(number(50, 9, None), number(50, 10, None), "subvolumes");
    }

    #[test]
    fn files_of_the_root_s_file_system_are_known_by_their_birth() {
        for birth in [0, 1_800_000_000_000_000_000] {
            let plain = identity(&known(1, birth), None);
            assert_eq!(plain, Identity { inode: 7, generation: birth });
            let [one, other] = [1, 2].map(|name| identity(&known(2, birth), Some(name)));
            assert!(plain != one && one != other && plain != other);
            for mixed in [one, other] {
                assert!(mixed.generation != 0 && mixed.generation < 1_000_000_000_000_000_000);
            }
        }
        let [old, new] = [5, 6].map(|birth| identity(&known(2, birth), Some(1)));
        assert_ne!(old, new, "an earlier file with its number");
    }

    #[test]
    fn what_is_mounted_is_remembered_until_the_mounts_change() {
        let [root, proc] = ["/", "/proc"].map(|path| File::open(path).unwrap());
        let systems = FileSystems::below(&root).unwrap();
        let found = systems.identity_of(&proc).unwrap();
        let device = stat::of(&proc).unwrap().device;
        assert!(systems.names.lock().unwrap().of_device.contains_key(&device));
        assert_eq!(systems.identity_of(&proc).unwrap(), found);
        // As of a subvolume: no mount has this device, and it is not remembered.
        let subvolume = systems.name(u64::MAX, &proc).unwrap();
        assert!(!systems.names.lock().unwrap().of_device.contains_key(&u64::MAX));
        assert_eq!(systems.name(u64::MAX, &proc).unwrap(), subvolume);
        systems.names.lock().unwrap().mounts = None;
        assert_eq!(systems.identity_of(&proc).unwrap(), found, "asked again");
    }
}
