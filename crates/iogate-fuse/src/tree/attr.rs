//! Attributes: reading and changing them, through an open file where there is one.

use std::io;

use iogate_core::wire::{self, Change, Timestamp, open, set};
use iogate_vfs::Caller;
use rustix::io::Errno;

use super::FileSystem;
use super::node::{Node, Number};
use crate::abi::{Attr, AttrOut, EntryOut, GETATTR_FH, GetattrIn, InHeader, SetattrIn, StatfsOut, fattr};
use crate::file_system::errno_of;
use crate::operations::Attributes;
use crate::options::CacheMode;

/// A file's attributes as the kernel wants them.
fn attr_of(attr: &wire::Attr, cache: CacheMode) -> Attr {
    Attr {
        ino: attr.inode,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.seconds as u64,
        mtime: attr.mtime.seconds as u64,
        ctime: attr.ctime.seconds as u64,
        atimensec: attr.atime.nanoseconds,
        mtimensec: attr.mtime.nanoseconds,
        ctimensec: attr.ctime.nanoseconds,
        mode: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: match cache {
            CacheMode::Direct => attr.buffer_bytes(),
            CacheMode::Page => attr.block_bytes,
        },
        flags: 0,
    }
}

/// The attributes that a request sets.
fn change_of(arg: &SetattrIn) -> Change {
    const PAIRS: [(u32, u32); 8] = [
        (fattr::MODE, set::MODE),
        (fattr::UID, set::UID),
        (fattr::GID, set::GID),
        (fattr::SIZE, set::SIZE),
        (fattr::ATIME, set::ATIME),
        (fattr::MTIME, set::MTIME),
        (fattr::ATIME_NOW, set::ATIME_NOW),
        (fattr::MTIME_NOW, set::MTIME_NOW),
    ];
    let which = PAIRS.iter().filter(|pair| arg.valid & pair.0 != 0).fold(0, |which, pair| which | pair.1);
    Change {
        which,
        mode: arg.mode & 0o7777,
        uid: arg.uid,
        gid: arg.gid,
        size: arg.size,
        atime: Timestamp { seconds: arg.atime as i64, nanoseconds: arg.atimensec },
        mtime: Timestamp { seconds: arg.mtime as i64, nanoseconds: arg.mtimensec },
    }
}

impl FileSystem {
    pub(super) fn entry_out(&self, node: &Node, attr: &wire::Attr) -> EntryOut {
        EntryOut {
            nodeid: node.id,
            generation: 0,
            entry_valid: self.timeout.as_secs(),
            attr_valid: self.timeout.as_secs(),
            entry_valid_nsec: self.timeout.subsec_nanos(),
            attr_valid_nsec: self.timeout.subsec_nanos(),
            attr: attr_of(attr, self.cache),
        }
    }

    fn attr_out(&self, attr: &wire::Attr) -> AttrOut {
        AttrOut {
            attr_valid: self.timeout.as_secs(),
            attr_valid_nsec: self.timeout.subsec_nanos(),
            dummy: 0,
            attr: attr_of(attr, self.cache),
        }
    }

    pub(super) fn attr_by_path(&self, caller: Caller, node: &Node) -> Result<wire::Attr, Errno> {
        self.at([(node.id, b"")], |[path]| {
            let attr = self.tree.attr(caller, path)?;
            if Number::of(&attr) != node.number || !node.is_of_kind(attr.mode) {
                // The name is another file's by now.
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            Ok(attr)
        })
    }
}

impl Attributes for FileSystem {
    fn getattr(&self, header: &InHeader, arg: GetattrIn) -> Result<AttrOut, Errno> {
        let node = self.nodes.get(header.nodeid)?;
        let file = (arg.flags & GETATTR_FH != 0).then(|| self.files.get(arg.fh).ok()).flatten();
        let file = file.map(|file| file.file.clone()).or_else(|| node.open_for(0));
        let attr = match file.map(|file| file.attr().map_err(|error| errno_of(&error))) {
            // Not open, or no longer: whoever keeps the tree has lost the file.
            None | Some(Err(Errno::STALE)) => self.attr_by_path(self.caller(header), &node)?,
            Some(attr) => attr?,
        };
        node.saw(&attr);
        Ok(self.attr_out(&attr))
    }

    fn setattr(&self, header: &InHeader, arg: SetattrIn) -> Result<AttrOut, Errno> {
        let node = self.nodes.get(header.nodeid)?;
        let change = change_of(&arg);
        let caller = self.caller(header);
        let set = |file: &dyn iogate_vfs::TreeFile| {
            file.set_attr(caller, &change).map_err(|error| errno_of(&error))
        };
        let attr = if arg.valid & fattr::FH != 0 {
            set(&*self.files.get(arg.fh)?.file)?
        } else {
            // A name may be another file's by now: only an open file is sure to be this one.
            let access = if change.which & set::SIZE != 0 { open::WRITE } else { 0 };
            match node.open_for(access).map(|file| set(&*file)) {
                // Not open, or no longer: whoever keeps the tree has lost the file.
                None | Some(Err(Errno::STALE)) => self.at([(node.id, b"")], |[path]| {
                    self.tree.set_attr(caller, path, node.identity(), &change)
                })?,
                Some(attr) => attr?,
            }
        };
        node.saw(&attr);
        Ok(self.attr_out(&attr))
    }

    fn statfs(&self, _: &InHeader) -> Result<StatfsOut, Errno> {
        let space = self.tree.space().map_err(|error| errno_of(&error))?;
        Ok(StatfsOut {
            blocks: space.blocks,
            bfree: space.blocks_free,
            bavail: space.blocks_available,
            files: space.files,
            ffree: space.files_free,
            bsize: space.block_bytes as u32,
            namelen: space.name_bytes_max,
            frsize: space.block_bytes as u32,
            padding: 0,
            spare: [0; 6],
        })
    }
}
