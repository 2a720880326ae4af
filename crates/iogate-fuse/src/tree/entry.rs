//! Names: looking them up, making, removing and renaming them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::wire::Attr;
use iogate_vfs::Caller;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::FileSystem;
use super::nodes::Place;
use crate::abi::{InHeader, Input, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, op};

/// The attribute that holds the access list which a directory hands down.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

impl FileSystem {
    pub(super) fn lookup(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let place = (header.nodeid, input.file_name()?.to_bytes());
        let attr = self.at([place], |[path]| self.tree.attr(self.caller(header), path))?;
        self.enter(place, &attr, out)
    }

    /// Counts a lookup, and replies with the entry.
    fn enter(&self, place: Place<'_>, attr: &Attr, out: &mut Vec<u8>) -> Result<(), Errno> {
        let node = self.nodes.enter(place, attr)?;
        out.extend_from_slice(self.entry_out(&node, attr).as_bytes());
        Ok(())
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

    pub(super) fn mknod(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: MknodIn = input.record().ok_or(Errno::INVAL)?;
        self.make_node(header, input, (arg.mode, arg.umask), arg.rdev, out)
    }

    pub(super) fn mkdir(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: MkdirIn = input.record().ok_or(Errno::INVAL)?;
        let mode = libc::S_IFDIR | (arg.mode & 0o7777);
        self.make_node(header, input, (mode, arg.umask), 0, out)
    }

    fn make_node(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        (mode, umask): (u32, u32),
        device: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let place = (header.nodeid, input.file_name()?.to_bytes());
        let caller = self.caller(header);
        let mode = self.new_mode(caller, header.nodeid, mode, umask)?;
        let attr = self.at([place], |[path]| self.tree.make_node(caller, path, mode, device))?;
        self.enter(place, &attr, out)
    }

    pub(super) fn symlink(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let place = (header.nodeid, input.file_name()?.to_bytes());
        let target = Path::new(OsStr::from_bytes(input.name().ok_or(Errno::INVAL)?.to_bytes()));
        let attr = self.at([place], |[path]| self.tree.symlink(self.caller(header), target, path))?;
        self.enter(place, &attr, out)
    }

    pub(super) fn readlink(&self, header: &InHeader, out: &mut Vec<u8>) -> Result<(), Errno> {
        let place = (header.nodeid, &b""[..]);
        out.extend(self.at([place], |[path]| self.tree.read_link(self.caller(header), path))?);
        Ok(())
    }

    pub(super) fn link(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: LinkIn = input.record().ok_or(Errno::INVAL)?;
        let place = (header.nodeid, input.file_name()?.to_bytes());
        let places = [(arg.oldnodeid, &b""[..]), place];
        let attr = self.at(places, |[path, to]| self.tree.link(self.caller(header), path, to))?;
        self.enter(place, &attr, out)
    }

    pub(super) fn unlink(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        directory: bool,
    ) -> Result<(), Errno> {
        let place = (header.nodeid, input.file_name()?.to_bytes());
        self.at([place], |[path]| self.tree.unlink(self.caller(header), path, directory))?;
        self.nodes.unlinked(place);
        Ok(())
    }

    pub(super) fn rename(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let arg = if header.opcode == op::RENAME2 {
            input.record::<Rename2In>().ok_or(Errno::INVAL)?
        } else {
            let RenameIn { newdir } = input.record().ok_or(Errno::INVAL)?;
            Rename2In { newdir, flags: 0, padding: 0 }
        };
        let from = (header.nodeid, input.file_name()?.to_bytes());
        let to = (arg.newdir, input.file_name()?.to_bytes());
        let exchange = arg.flags & libc::RENAME_EXCHANGE != 0;
        self.at([from, to], |[path, to_path]| {
            let rename = || self.tree.rename(self.caller(header), path, to_path, arg.flags).map(drop);
            self.nodes.rename(from, to, exchange, rename)
        })
    }
}
