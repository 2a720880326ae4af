//! Telling the kernel that what it has cached of a file is no longer so.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};

/// Sends notifications over a connection.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Notifier {
        Notifier { device }
    }

    /// Drops the attributes and access lists of a node.
    pub(crate) fn drop_attributes(&self, node: u64) {
        self.inval_inode(node, -1, 0);
    }

    /// Drops the cached pages of a range too, and waits for that: for reads of them to be answered, and for changed ones to be
    /// written back.
    pub(crate) fn drop_pages(&self, node: u64, range: &Range<u64>) {
        let bytes = range.end - range.start;
        // Without a length it is all from the offset on.
        self.inval_inode(node, range.start as i64, i64::try_from(bytes).unwrap_or(0));
    }

    fn inval_inode(&self, node: u64, off: i64, len: i64) {
        let body = NotifyInvalInodeOut { ino: node, off, len };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>()) as u32,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        match rustix::io::write(&*self.device, &[header.as_bytes(), body.as_bytes()].concat()) {
            // ENOENT: the kernel has forgotten the node. The others: the file system is unmounted.
            Ok(_) | Err(Errno::NOENT | Errno::NOTCONN | Errno::NODEV | Errno::PERM) => {}
            Err(errno) => tracing::error!(%errno, node, "the kernel did not drop what it has cached"),
        }
    }
}
