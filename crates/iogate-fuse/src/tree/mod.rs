//! The operations over a tree: each is one of [`Tree`]'s, by path, in the caller's name.
//!
//! All of them may take as long as the tree does, which may be at the other end of a network, so the transports
//! keep them away from what should not wait.

mod attr;
mod dir;
mod entry;
mod file;
mod node;
mod nodes;
mod xattr;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iogate_core::wire::Attr;
use iogate_vfs::{Caller, Tree};
use rustix::io::Errno;

use self::dir::OpenDir;
use self::file::OpenFile;
use self::nodes::{Nodes, Place};
use crate::abi::{InHeader, Input, op};
use crate::app::Applications;
use crate::control::ControlFiles;
use crate::file_names::FileNames;
use crate::file_system::{Agreed, FileSystem as Operations, Opened, errno_of};
use crate::handle::Handles;
use crate::options::{CacheMode, MountOptions};

/// A mounted tree.
pub(crate) struct FileSystem {
    tree: Arc<dyn Tree>,
    nodes: Nodes,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    names: Arc<FileNames>,
    applications: Arc<Applications>,
    control: ControlFiles,
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

    pub(crate) fn new(
        tree: Arc<dyn Tree>,
        root: &Attr,
        options: &MountOptions,
        agreed: Agreed,
        names: Arc<FileNames>,
        applications: Arc<Applications>,
        control: ControlFiles,
    ) -> FileSystem {
        FileSystem {
            tree,
            nodes: Nodes::new(root),
            files: Handles::default(),
            dirs: Handles::default(),
            names,
            applications,
            control,
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

impl Operations for FileSystem {
    fn handle(&self, header: &InHeader, input: Input<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        match header.opcode {
            op::LOOKUP => self.lookup(header, input, out),
            op::GETATTR => self.getattr(header, input, out),
            op::SETATTR => self.setattr(header, input, out),
            op::READLINK => self.readlink(header, out),
            op::SYMLINK => self.symlink(header, input, out),
            op::MKNOD => self.mknod(header, input, out),
            op::MKDIR => self.mkdir(header, input, out),
            op::UNLINK => self.unlink(header, input, false),
            op::RMDIR => self.unlink(header, input, true),
            op::RENAME | op::RENAME2 => self.rename(header, input),
            op::LINK => self.link(header, input, out),
            op::OPEN => self.open(header, input, out),
            op::CREATE => self.create(header, input, out),
            op::FLUSH => self.flush(input),
            op::RELEASE => self.release(input),
            op::FSYNC => self.fsync(input),
            op::FSYNCDIR => self.fsyncdir(header, input),
            op::STATFS => self.statfs(out),
            op::FALLOCATE => self.fallocate(input),
            op::LSEEK => self.lseek(input, out),
            op::OPENDIR => self.opendir(header, out),
            op::READDIR => self.readdir(header, input, out, false),
            op::READDIRPLUS => self.readdir(header, input, out, true),
            op::RELEASEDIR => self.releasedir(input),
            op::GETXATTR => self.getxattr(header, input, out),
            op::SETXATTR => self.setxattr(header, input),
            op::LISTXATTR => self.listxattr(header, input, out),
            op::REMOVEXATTR => self.removexattr(header, input),
            op::IOCTL => Err(Errno::NOTTY),
            // A file without a name could not be given one later, which programs that make one count on.
            op::TMPFILE => Err(Errno::OPNOTSUPP),
            op::DESTROY => Ok(()),
            // Locks stay in the kernel, copies are reads and writes through the gate;
            // the kernel stops asking.
            _ => Err(Errno::NOSYS),
        }
    }

    fn handle_forget(&self, header: &InHeader, input: Input<'_>) {
        input.forgotten(header, |node, count| self.nodes.forget(node, count));
    }

    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno> {
        Ok(self.files.get(handle)?)
    }

    fn may_be_slow(&self, opcode: u32) -> bool {
        !matches!(
            opcode,
            op::OPENDIR | op::RELEASEDIR | op::FLUSH | op::COPY_FILE_RANGE | op::IOCTL | op::TMPFILE
        )
    }
}
