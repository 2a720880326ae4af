//! Which target of a parallel file system holds a byte of a file: asked of the file system that the file lies on.
//!
//! | file system | module | target | how it is asked |
//! |---|---|---|---|
//! | Lustre | [`lustre`] | OST | extended attribute |
//! | BeeGFS | [`beegfs`] | storage target | ioctls |
//! | CephFS, by the kernel's client | [`ceph`] | OSD | virtual attribute and ioctl |
//! | GlusterFS, by FUSE | [`gluster`] | brick, or group of bricks | virtual attributes |
//!
//! What comes back is taken apart by pure functions (`decode` and the like), which refuse what they do not know.

mod ask;
pub mod beegfs;
mod bytes;
pub mod ceph;
pub mod gluster;
pub mod lustre;
pub mod mounts;
mod open;
mod pieces;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use iogate_core::layout::ExtentError;
use iogate_core::{FileLayout, TargetId};
use rustix::fs::FileType;

use self::gluster::Gluster;
use self::mounts::Mount;
pub use self::open::{OpenLayout, OpenLayouts};
use crate::lock;

/// Files whose layouts are kept.
const FILES_MAX: usize = 16_384;

/// A parallel file system whose layouts can be learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Lustre.
    Lustre,
    /// BeeGFS.
    BeeGfs,
    /// CephFS.
    CephFs,
    /// GlusterFS.
    GlusterFs,
}

impl System {
    /// The system that an open file or directory lies on; `None` if it is none of these. Fails if the kernel does not
    /// say.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Option<System>> {
        const LUSTRE: i64 = 0x0BD0_0BD0;
        const BEEGFS: i64 = 0x1983_0326;
        const CEPH: i64 = 0x00C3_6400;
        const FUSE: i64 = 0x6573_5546;
        Ok(match rustix::fs::fstatfs(fd)?.f_type {
            LUSTRE => Some(System::Lustre),
            BEEGFS => Some(System::BeeGfs),
            CEPH => Some(System::CephFs),
            FUSE => match Mount::of(fd)?.as_ref().map(|mount| mount.fs_type.as_str()) {
                Some("fuse.glusterfs") => Some(System::GlusterFs),
                Some("fuse.ceph" | "fuse.ceph-fuse") => Some(System::CephFs),
                _ => None,
            },
            _ => None,
        })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            System::Lustre => "Lustre",
            System::BeeGfs => "BeeGFS",
            System::CephFs => "CephFS",
            System::GlusterFs => "GlusterFS",
        })
    }
}

/// Why a file's layout is not known.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The file system did not answer.
    #[error("{what}: {cause}")]
    Asking {
        /// What was asked for.
        what: String,
        /// Its answer.
        cause: io::Error,
    },
    /// The file system answered something that is not known here (a newer version?).
    #[error("{what}: expected {expected}, got {got}")]
    Malformed {
        /// What was asked for.
        what: &'static str,
        /// What it should have been.
        expected: String,
        /// What it was.
        got: String,
    },
    /// The answer is not a layout.
    #[error(transparent)]
    Extents(#[from] ExtentError),
    /// The file is in shards, which cannot be seen through an ordinary mount.
    #[error(
        "the mounts of {source_name} hide where shards are: mount it once more, somewhere, with \
         `glusterfs --client-pid=-1 --read-only --volfile-server=HOST --volfile-id=/VOLUME DIRECTORY`"
    )]
    ShardsHidden {
        /// What is mounted.
        source_name: String,
    },
}

/// Learns the layouts of files, and keeps them. One is for the files of one file system: targets are numbered in it.
#[derive(Debug, Default)]
pub struct Layouts {
    kept: Mutex<Kept>,
    gluster: Gluster,
    /// Numbers of BeeGFS's targets, in the order of our numbers for them.
    beegfs_targets: Mutex<Vec<u16>>,
}

/// Device and inode number.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Key, Option<Arc<FileLayout>>>,
    /// Oldest first.
    order: VecDeque<Key>,
    systems: HashMap<u64, Option<System>>,
    /// Devices that something has been said about.
    warned: HashSet<u64>,
}

impl Layouts {
    /// Knows nothing yet.
    pub fn new() -> Layouts {
        Layouts::default()
    }

    /// The layout of an open regular file (not one of `O_PATH`), which is asked for when it is not known yet. `None`:
    /// the file system is none of those known, or has not placed the file yet.
    ///
    /// # Errors
    /// If the file system does not answer, or answers what is not known here.
    pub fn of(&self, fd: BorrowedFd<'_>) -> Result<Option<Arc<FileLayout>>, LayoutError> {
        let key = key(fd)?;
        if let Some(layout) = lock(&self.kept).files.get(&key) {
            return Ok(layout.clone());
        }
        self.learn(fd)
    }

    /// As [`Layouts::of`], asking in any case: for a file that was just opened, and may have grown or be another.
    pub fn learn(&self, fd: BorrowedFd<'_>) -> Result<Option<Arc<FileLayout>>, LayoutError> {
        let asking = |cause| LayoutError::Asking { what: "the kind of the file system".into(), cause };
        let stat = rustix::fs::fstat(fd).map_err(|errno| asking(errno.into()))?;
        let known = lock(&self.kept).systems.get(&stat.st_dev).copied();
        let system = match known {
            Some(system) => system,
            None => {
                let system = System::of(fd).map_err(asking)?;
                lock(&self.kept).systems.insert(stat.st_dev, system);
                system
            }
        };
        let layout = match system {
            Some(system) if FileType::from_raw_mode(stat.st_mode).is_file() => {
                self.ask(system, fd, stat.st_size.unsigned_abs())?
            }
            _ => None,
        };
        lock(&self.kept).keep((stat.st_dev, stat.st_ino), layout.clone());
        Ok(layout)
    }

    /// As [`Layouts::learn`], where an application must not notice: what goes wrong is a warning, once for each file
    /// system, and no layout.
    pub fn learn_or_warn(&self, fd: BorrowedFd<'_>) -> Option<Arc<FileLayout>> {
        self.learn(fd).unwrap_or_else(|error| {
            let device = key(fd).map(|key| key.0).unwrap_or_default();
            if lock(&self.kept).warned.insert(device) {
                tracing::warn!(%error, "where files lie is not known: the layout of the settings holds for them");
            }
            None
        })
    }

    /// How many targets the file system of an open file or directory has, where it says (GlusterFS).
    ///
    /// # Errors
    /// As [`Layouts::of`].
    pub fn targets(&self, fd: BorrowedFd<'_>) -> Result<Option<u32>, LayoutError> {
        let asking = |cause| LayoutError::Asking { what: "the kind of the file system".into(), cause };
        match System::of(fd).map_err(asking)? {
            Some(System::GlusterFs) => self.gluster.targets(&mount_of(fd)?).map(Some),
            _ => Ok(None),
        }
    }

    /// What the file system calls a target.
    pub fn target_name(&self, system: System, target: TargetId) -> String {
        let known = match system {
            System::Lustre => Some(format!("OST{:04x}", target.0)),
            System::CephFs => Some(format!("osd.{}", target.0)),
            System::BeeGfs => {
                lock(&self.beegfs_targets).get(target.0 as usize).map(|id| format!("target {id}"))
            }
            System::GlusterFs => self.gluster.name(target),
        };
        known.unwrap_or_else(|| target.to_string())
    }

    fn ask(
        &self,
        system: System,
        fd: BorrowedFd<'_>,
        size: u64,
    ) -> Result<Option<Arc<FileLayout>>, LayoutError> {
        let mut extents = match system {
            System::Lustre => match ask::attribute(fd, lustre::ATTRIBUTE)? {
                Some(value) => lustre::decode(&value)?,
                None => Vec::new(),
            },
            System::BeeGfs => beegfs::extents(fd, |id| self.beegfs_target(id))?,
            System::CephFs => match ask::attribute(fd, ceph::ATTRIBUTE)? {
                Some(value) => ceph::extents(fd, &value, size)?,
                None => Vec::new(),
            },
            System::GlusterFs => self.gluster.extents(fd, &mount_of(fd)?, size)?,
        };
        extents.sort_by_key(|extent| extent.start);
        if extents.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(FileLayout::new(extents)?)))
    }

    /// Numbers without gaps for targets whose own numbers have some, in the order in which they are seen.
    fn beegfs_target(&self, id: u16) -> TargetId {
        let mut seen = lock(&self.beegfs_targets);
        let number = seen.iter().position(|&target| target == id).unwrap_or_else(|| {
            seen.push(id);
            seen.len() - 1
        });
        TargetId(number as u32)
    }
}

impl Kept {
    fn keep(&mut self, key: Key, layout: Option<Arc<FileLayout>>) {
        if self.files.insert(key, layout).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
    }
}

fn key(fd: BorrowedFd<'_>) -> Result<Key, LayoutError> {
    let stat = rustix::fs::fstat(fd);
    let stat =
        stat.map_err(|errno| LayoutError::Asking { what: "a file's number".into(), cause: errno.into() })?;
    Ok((stat.st_dev, stat.st_ino))
}

fn mount_of(fd: BorrowedFd<'_>) -> Result<Mount, LayoutError> {
    let asking = |cause| LayoutError::Asking { what: "the mount of an open file".into(), cause };
    let missing = || asking(io::Error::new(io::ErrorKind::NotFound, "this process does not see it"));
    Mount::of(fd).map_err(asking)?.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        let files = FILES_MAX as u64 + 10;
        for _ in 0..2 {
            (0..files).for_each(|inode| kept.keep((1, inode), None));
        }
        assert_eq!((kept.files.len(), kept.order.len()), (FILES_MAX, FILES_MAX));
        assert!(kept.files.contains_key(&(1, files - 1)) && !kept.files.contains_key(&(1, 0)));
    }

    #[test]
    fn targets_with_gaps_between_their_numbers_get_numbers_without() {
        let layouts = Layouts::new();
        let numbers = [101, 202, 101, 102].map(|id| layouts.beegfs_target(id).0);
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(layouts.target_name(System::BeeGfs, TargetId(1)), "target 202");
        assert_eq!(layouts.target_name(System::BeeGfs, TargetId(9)), "9");
        assert_eq!(layouts.target_name(System::Lustre, TargetId(26)), "OST001a");
    }
}
