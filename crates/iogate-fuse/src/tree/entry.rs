//! Names: looking them up, making, removing and renaming them.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::wire::Attr;
use iogate_vfs::Caller;
use rustix::io::Errno;

use super::FileSystem;
use super::nodes::Place;
use crate::abi::{EntryOut, InHeader, MkdirIn, MknodIn, Rename2In};
use crate::operations::Names;

/// The attribute that holds the access list which a directory hands down.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

impl FileSystem {
    /// Counts a lookup of the file that is at a place.
    fn enter(&self, place: Place<'_>, attr: &Attr) -> Result<EntryOut, Errno> {
        let node = self.nodes.enter(place, attr)?;
        Ok(self.entry_out(&node, attr))
    }

    /// The permissions of a new file: the umask has no say in a directory that hands an access list down.
    pub(super) fn new_mode(&self, caller: Caller, parent: u64, mode: u32, umask: u32) -> Result<u32, Errno> {
        let masked = mode & !(umask & 0o777);
        if masked == mode {
            return Ok(mode);
        }
        let node = self.nodes.get(parent)?;
        let hands_down = !node.has_no_xattrs(self.timeout)
            && node.has_default_list(self.timeout, || {
                self.at([(parent, b"")], |[path]| self.tree.xattr(caller, path, DEFAULT_LIST)).is_ok()
            });
        Ok(if hands_down { mode } else { masked })
    }

    fn make_node(&self, header: &InHeader, arg: MknodIn, name: &CStr) -> Result<EntryOut, Errno> {
        let place = (header.nodeid, name.to_bytes());
        let caller = self.caller(header);
        let mode = self.new_mode(caller, header.nodeid, arg.mode, arg.umask)?;
        let attr = self.at([place], |[path]| self.tree.make_node(caller, path, mode, arg.rdev))?;
        self.enter(place, &attr)
    }
}

impl Names for FileSystem {
    fn lookup(&self, header: &InHeader, name: &CStr) -> Result<EntryOut, Errno> {
        let place = (header.nodeid, name.to_bytes());
        let attr = self.at([place], |[path]| self.tree.attr(self.caller(header), path))?;
        self.enter(place, &attr)
    }

    fn mknod(&self, header: &InHeader, arg: MknodIn, name: &CStr) -> Result<EntryOut, Errno> {
        self.make_node(header, arg, name)
    }

    fn mkdir(&self, header: &InHeader, arg: MkdirIn, name: &CStr) -> Result<EntryOut, Errno> {
        let mode = libc::S_IFDIR | (arg.mode & 0o7777);
        self.make_node(header, MknodIn { mode, umask: arg.umask, ..MknodIn::default() }, name)
    }

    fn symlink(&self, header: &InHeader, name: &CStr, target: &CStr) -> Result<EntryOut, Errno> {
        let place = (header.nodeid, name.to_bytes());
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        let attr = self.at([place], |[path]| self.tree.symlink(self.caller(header), target, path))?;
        self.enter(place, &attr)
    }

    fn readlink(&self, header: &InHeader) -> Result<Vec<u8>, Errno> {
        let place = (header.nodeid, &b""[..]);
        self.at([place], |[path]| self.tree.read_link(self.caller(header), path))
    }

    fn link(&self, header: &InHeader, node: u64, name: &CStr) -> Result<EntryOut, Errno> {
        let place = (header.nodeid, name.to_bytes());
        let places = [(node, &b""[..]), place];
        let attr = self.at(places, |[path, to]| self.tree.link(self.caller(header), path, to))?;
        self.enter(place, &attr)
    }

    fn unlink(&self, header: &InHeader, name: &CStr, directory: bool) -> Result<(), Errno> {
        let place = (header.nodeid, name.to_bytes());
        self.at([place], |[path]| self.tree.unlink(self.caller(header), path, directory))?;
        self.nodes.unlinked(place);
        Ok(())
    }

    fn rename(&self, header: &InHeader, arg: Rename2In, from: &CStr, to: &CStr) -> Result<(), Errno> {
        let (from, to) = ((header.nodeid, from.to_bytes()), (arg.newdir, to.to_bytes()));
        let exchange = arg.flags & libc::RENAME_EXCHANGE != 0;
        self.at([from, to], |[path, to_path]| {
            let rename = || self.tree.rename(self.caller(header), path, to_path, arg.flags).map(drop);
            self.nodes.rename(from, to, exchange, rename)
        })
    }
}
