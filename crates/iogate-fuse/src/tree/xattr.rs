//! Extended attributes.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use iogate_core::wire::{Change, set};
use iogate_vfs::TreeFile;
use rustix::io::Errno;

use super::FileSystem;
use super::node::Node;
use crate::abi::{InHeader, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::control::value_reply;
use crate::file_system::errno_of;
use crate::operations::Xattrs;

impl Xattrs for FileSystem {
    fn getxattr(&self, header: &InHeader, name: &CStr, room: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (caller, name) = (self.caller(header), name.to_bytes());
        let node = self.nodes.get(header.nodeid)?;
        if is_listed(name) && node.has_no_xattrs(self.timeout) {
            return Err(Errno::NODATA);
        }
        let value =
            self.on(&node, |file| file.xattr(caller, name), |path| self.tree.xattr(caller, path, name))?;
        value_reply(out, room, &value)
    }

    fn listxattr(&self, header: &InHeader, room: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (caller, node) = (self.caller(header), self.nodes.get(header.nodeid)?);
        let names = self.on(&node, |file| file.xattrs(caller), |path| self.tree.xattrs(caller, path))?;
        value_reply(out, room, &names)
    }

    fn setxattr(&self, header: &InHeader, arg: SetxattrIn, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let node = self.nodes.get(header.nodeid)?;
        let caller = self.caller(header);
        let (name, identity) = (name.to_bytes(), node.identity());
        let set = self.on(
            &node,
            |file| file.set_xattr(caller, name, value, arg.flags),
            |path| self.tree.set_xattr(caller, path, identity, name, value, arg.flags),
        );
        node.lists_changed();
        set?;
        if arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            let attr = self.attr_by_path(caller, &node)?;
            if attr.mode & libc::S_ISGID != 0 {
                let mode = attr.mode & 0o7777 & !libc::S_ISGID;
                let change = Change { which: set::MODE, mode, ..Change::default() };
                self.on(
                    &node,
                    |file| file.set_attr(caller, &change),
                    |path| self.tree.set_attr(caller, path, identity, &change),
                )?;
            }
        }
        Ok(())
    }

    fn removexattr(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        let name = name.to_bytes();
        let node = self.nodes.get(header.nodeid)?;
        let (caller, identity) = (self.caller(header), node.identity());
        let removed = self.on(
            &node,
            |file| file.remove_xattr(caller, name),
            |path| self.tree.remove_xattr(caller, path, identity, name),
        );
        node.lists_changed();
        removed
    }
}

impl FileSystem {
    /// Carries out an operation on an open file of a node, which is sure to be the node's; else by path.
    fn on<R>(
        &self,
        node: &Node,
        open: impl FnOnce(&dyn TreeFile) -> io::Result<R>,
        mut closed: impl FnMut(&Path) -> io::Result<R>,
    ) -> Result<R, Errno> {
        match node.open_for(0).map(|file| open(&*file).map_err(|error| errno_of(&error))) {
            // Not open, or no longer: whoever keeps the tree has lost the file.
            None | Some(Err(Errno::STALE)) => self.at([(node.id, b"")], |[path]| closed(path)),
            Some(result) => result,
        }
    }
}

/// Whether an extended attribute is in the list of a file's ones if it has it: not those that a file system makes up when it is asked.
fn is_listed(name: &[u8]) -> bool {
    [&b"user."[..], b"security.", b"system.posix_acl_"].iter().any(|prefix| name.starts_with(prefix))
}
