//! Extended attributes, and the mount's controls that look like some on the root.

use iogate_core::wire::Identity;
use iogate_core::wire::{Change, set};
use rustix::io::Errno;

use super::FileSystem;
use crate::abi::{GetxattrIn, InHeader, Input, ROOT_ID, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::control::value_reply;

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
        let value = self.at([(header.nodeid, b"")], |[path]| self.tree.xattr(caller, path, name))?;
        value_reply(out, arg.size, &value)
    }

    pub(super) fn listxattr(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: GetxattrIn = input.record().ok_or(Errno::INVAL)?;
        let names = self.at([(header.nodeid, b"")], |[path]| self.tree.xattrs(self.caller(header), path))?;
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
        self.at([(node.id, b"")], |[path]| {
            self.tree.set_xattr(caller, path, Identity::default(), name.to_bytes(), value, arg.flags)
        })?;
        node.lists_changed();
        if arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            let attr = self.attr_by_path(caller, &node)?;
            if attr.mode & libc::S_ISGID != 0 {
                let mode = attr.mode & 0o7777 & !libc::S_ISGID;
                let change = Change { which: set::MODE, mode, ..Change::default() };
                self.at([(node.id, b"")], |[path]| {
                    self.tree.set_attr(caller, path, Identity::default(), &change)
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn removexattr(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let name = input.name().ok_or(Errno::INVAL)?.to_bytes();
        let node = self.nodes.get(header.nodeid)?;
        self.at([(node.id, b"")], |[path]| {
            self.tree.remove_xattr(self.caller(header), path, Identity::default(), name)
        })?;
        node.lists_changed();
        Ok(())
    }
}
