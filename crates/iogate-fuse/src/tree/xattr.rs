//! Extended attributes, and the mount's controls that look like some on the root.

use std::io;
use std::path::Path;

use iogate_core::wire::{Change, set};
use iogate_vfs::TreeFile;
use rustix::io::Errno;

use super::FileSystem;
use super::node::Node;
use crate::abi::{GetxattrIn, InHeader, Input, ROOT_ID, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::control::value_reply;
use crate::file_system::errno_of;

impl FileSystem {
    pub(super) fn getxattr(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: GetxattrIn = input.record().ok_or(Errno::INVAL)?;
        let name = input.name().ok_or(Errno::INVAL)?;
        if header.nodeid == ROOT_ID
            && let Some(value) = self.control.get(name, header)
        {
            return value_reply(out, arg.size, &value?);
        }
        let (caller, name) = (self.caller(header), name.to_bytes());
        let node = self.nodes.get(header.nodeid)?;
        if is_listed(name) && node.has_no_xattrs(self.timeout) {
            return Err(Errno::NODATA);
        }
        let value =
            self.on(&node, |file| file.xattr(caller, name), |path| self.tree.xattr(caller, path, name))?;
        value_reply(out, arg.size, &value)
    }

    pub(super) fn listxattr(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: GetxattrIn = input.record().ok_or(Errno::INVAL)?;
        let (caller, node) = (self.caller(header), self.nodes.get(header.nodeid)?);
        let names = self.on(&node, |file| file.xattrs(caller), |path| self.tree.xattrs(caller, path))?;
        value_reply(out, arg.size, &names)
    }

    pub(super) fn setxattr(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: SetxattrIn = input.record_of(self.agreed.setxattr_in_bytes).ok_or(Errno::INVAL)?;
        let name = input.name().ok_or(Errno::INVAL)?;
        let value = input.rest().get(..arg.size as usize).ok_or(Errno::INVAL)?;
        if header.nodeid == ROOT_ID
            && let Some(result) = self.control.set(name, value, header)
        {
            return result;
        }
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

    pub(super) fn removexattr(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let name = input.name().ok_or(Errno::INVAL)?.to_bytes();
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
