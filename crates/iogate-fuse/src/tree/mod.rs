//! The operations over a tree: each is one of [`Tree`]'s, by path, in the caller's name.
//!
//! All of them may take as long as the tree does, which may be at the other end of a network, so the transports
//! keep them away from what should not wait.

mod attr;
mod dir;
mod entry;
mod file;
mod locks;
mod node;
mod nodes;
mod xattr;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iogate_core::wire::Attr;
use iogate_vfs::{Caller, Tree};
use rustix::io::Errno;

use self::dir::OpenDir;
use self::file::OpenFile;
use self::nodes::{Nodes, Place};
use crate::abi::{InHeader, op};
use crate::app::Applications;
use crate::file_names::FileNames;
use crate::file_system::{Agreed, FileSystem as Mounted, Opened, errno_of};
use crate::handle::Handles;
use crate::options::{CacheMode, MountOptions};

/// A mounted tree.
pub(crate) struct FileSystem {
    tree: Arc<dyn Tree>,
    nodes: Nodes,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    /// Who may have locked bytes: nodes, and the kernel's numbers for owners.
    lockers: Mutex<HashSet<(u64, u64)>>,
    names: Arc<FileNames>,
    applications: Arc<Applications>,
    cache: CacheMode,
    timeout: Duration,
    agreed: Agreed,
}

/// The attributes of a tree's root, which has to be a directory.
pub(crate) fn root(tree: &dyn Tree) -> io::Result<Attr> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let attr = tree.attr(Caller::new(uid, gid), Path::new(""))?;
    match attr.mode & libc::S_IFMT {
        libc::S_IFDIR => Ok(attr),
        _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
    }
}

impl FileSystem {
    /// In whose name a request is carried out.
    fn caller(&self, header: &InHeader) -> Caller {
        let groups = self.applications.groups(header.pid, header.uid, header.gid);
        Caller { groups, ..Caller::new(header.uid, header.gid) }
    }

    fn lockers(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.lockers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(
        tree: Arc<dyn Tree>,
        root: &Attr,
        options: &MountOptions,
        agreed: Agreed,
        names: Arc<FileNames>,
        applications: Arc<Applications>,
    ) -> FileSystem {
        FileSystem {
            tree,
            nodes: Nodes::new(root),
            files: Handles::default(),
            dirs: Handles::default(),
            lockers: Mutex::default(),
            names,
            applications,
            cache: options.cache,
            timeout: options.metadata_timeout,
            agreed,
        }
    }

    /// Carries out an operation at places of the tree, and once more where a rename has changed their paths meanwhile.
    fn at<const N: usize, R>(
        &self,
        places: [Place<'_>; N],
        mut operation: impl FnMut([&Path; N]) -> io::Result<R>,
    ) -> Result<R, Errno> {
        let mut located = self.nodes.locate(places)?;
        loop {
            let errno = match operation(located.paths.each_ref().map(PathBuf::as_path)) {
                Ok(result) => return Ok(result),
                Err(error) => errno_of(&error),
            };
            let lost = matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::STALE);
            if !lost || !self.nodes.may_have_moved(&located) {
                return Err(errno);
            }
            let again = self.nodes.locate(places)?;
            if again.paths == located.paths {
                return Err(errno);
            }
            located = again;
        }
    }
}

impl Mounted for FileSystem {
    fn forget(&self, node: u64, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno> {
        Ok(self.files.get(handle)?)
    }

    fn path_of(&self, handle: u64) -> Option<PathBuf> {
        let open = self.files.get(handle).ok()?;
        let [path] = self.nodes.locate([(open.node.id, b"")]).ok()?.paths;
        Some(path)
    }

    fn is_far(&self) -> bool {
        true
    }

    fn may_be_slow(&self, opcode: u32) -> bool {
        // A close may give locks back.
        opcode == op::FLUSH && self.agreed.shares_locks
            || !matches!(
                opcode,
                op::OPENDIR | op::RELEASEDIR | op::FLUSH | op::COPY_FILE_RANGE | op::IOCTL | op::TMPFILE
            )
    }
}
