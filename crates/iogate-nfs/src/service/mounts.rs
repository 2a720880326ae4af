//! MOUNT: which handle a path has, and who has asked for one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use iogate_engine::lock;
use iogate_vfs::Caller;
use iogate_vfs::held::HeldTree;

use super::Service;
use super::attr::status;
use super::objects::Object;
use crate::wire::{FileHandle, Mounted, Status};

/// Most mounts that are remembered: for people, who may ask for the list.
const MOUNTS_MAX: usize = 1024;

/// Who has mounted what, as far as they have said.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

impl Mounts {
    pub(super) fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = lock(&self.0);
        mounts.retain(|(host, at)| *host != client || at != path);
        if mounts.len() >= MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back((client, path.to_vec()));
    }

    /// A client has unmounted a path, or all.
    pub(super) fn remove(&self, client: IpAddr, path: Option<&[u8]>) {
        lock(&self.0).retain(|(host, at)| *host != client || path.is_some_and(|path| at != path));
    }

    pub(super) fn list(&self) -> Vec<Mounted> {
        let mounted =
            |(host, path): &(IpAddr, Vec<u8>)| Mounted { host: host.to_string(), path: path.clone() };
        lock(&self.0).iter().map(mounted).collect()
    }
}

impl<T: HeldTree> Service<T> {
    /// What of a path is below the export's.
    pub(super) fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let below = path.strip_prefix(&self.export.path[..])?;
        let is_below = below.is_empty() || below.starts_with(b"/") || self.export.path.ends_with(b"/");
        is_below.then_some(below)
    }

    /// The handle of a path below the export's that the caller may reach.
    pub(super) fn mounted(&self, caller: Caller, below: &[u8]) -> Result<FileHandle, Status> {
        let mut at: Arc<Object<T::Held>> = Arc::clone(self.objects.root());
        for name in below.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if matches!(name, b"." | b"..") {
                return Err(Status::NoEnt);
            }
            let found = self.export.tree.hold_entry(caller, &at.held, name).and_then(|fd| {
                let known = self.export.tree.known(&fd)?;
                self.objects.adopt(fd, &known, &at, name)
            });
            at = found.map_err(|error| status(&error))?;
        }
        Ok(self.objects.handle(&at))
    }
}
