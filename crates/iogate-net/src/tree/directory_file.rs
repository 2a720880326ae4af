//! An open file of a directory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use iogate_core::wire::{Attr, Change, Identity};
use iogate_engine::layouts::OpenLayout;
use iogate_engine::{FileHandle, Store};
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};

use super::caller::Names;
use super::verifier::Verifier;
use super::{Caller, TreeFile, stat};

/// Most bytes of an extended attribute's value, or of a list of their names, in Linux.
pub(super) const XATTR_BYTES_MAX: usize = 64 << 10;

pub(super) struct DirectoryFile {
    /// For everything but reads and writes.
    pub(super) fd: OwnedFd,
    pub(super) data: FileHandle,
    pub(super) identity: Identity,
    pub(super) store: Arc<dyn Store>,
    pub(super) names: Arc<Names>,
    pub(super) verifier: Arc<Verifier>,
    /// Held for as long as the file is open.
    pub(super) layout: Option<OpenLayout>,
}

impl TreeFile for DirectoryFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn attr(&self) -> io::Result<Attr> {
        Ok(stat::of(&self.fd)?.attr)
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        self.names.act(caller, || {
            stat::change(self.fd.as_fd(), change, |fd, size| rustix::fs::ftruncate(fd, size))
        })?;
        self.attr()
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        let synced = self.store.sync(&self.data, data_only);
        if let Err(error) = &synced
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.verifier.write_back_failed(self.identity);
        }
        synced.map(|()| self.verifier())
    }

    fn losses(&self) -> u64 {
        self.verifier.losses(self.identity)
    }

    fn verifier(&self) -> u64 {
        self.verifier.of_file(self.identity)
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::from_bits_retain(mode), offset, bytes)?;
        // As a write does. Not every file system does it itself.
        Ok(stat::clear_privileges(&self.fd)?)
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        let from = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        Ok(rustix::fs::seek(&self.fd, from)?)
    }

    fn before_write(&self, offset: u64) {
        if let Some(layout) = &self.layout {
            layout.before_write(self.fd.as_fd(), offset);
        }
    }

    fn xattr(&self, name: &[u8]) -> Option<io::Result<Vec<u8>>> {
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        let read = rustix::fs::fgetxattr(&self.fd, name, rustix::buffer::spare_capacity(&mut value));
        value.shrink_to_fit();
        Some(read.map(|_| value).map_err(io::Error::from))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Option<io::Result<()>> {
        let flags = XattrFlags::from_bits_retain(flags);
        Some(rustix::fs::fsetxattr(&self.fd, name, value, flags).map_err(io::Error::from))
    }
}
