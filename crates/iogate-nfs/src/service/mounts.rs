//! MOUNT: which handle a path has, and who has asked for one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use iogate_engine::lock;
use iogate_vfs::Caller;
use iogate_vfs::held::HeldTree;

use super::Service;
use super::attr::{kind, status};
use super::objects::Object;
use crate::wire::{FileHandle, Kind, Mounted, Status};

/// Most mounts that are remembered: for people, who may ask for the list.
const MOUNTS_MAX: usize = 1024;
/// Most links that a path may lead through, as in Linux.
const LINKS_MAX: usize = 40;

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

    /// The handle of a path below the export's that the caller may reach. Links on the way are followed, as people know paths so, but to
    /// nothing that is not below the export's path.
    pub(super) fn mounted(&self, caller: Caller, below: &[u8]) -> Result<FileHandle, Status> {
        let tree = &self.export.tree;
        // From the root to where the way has come; no link is among them, so that `..` is the one before.
        let mut way: Vec<Arc<Object<T::Held>>> = Vec::new();
        let mut ahead = reversed(below);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    way.pop().ok_or(Status::NoEnt)?;
                    continue;
                }
                _ => {}
            }
            let at = way.last().unwrap_or(self.objects.root());
            let fd = tree.hold_entry(caller, &at.held, &name).map_err(|error| status(&error))?;
            let known = tree.known(&fd).map_err(|error| status(&error))?;
            if kind(known.attr.mode) != Kind::Link {
                let found = self.objects.adopt(fd, &known, at, &name).map_err(|error| status(&error))?;
                way.push(found);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Status::Inval);
            }
            let target = tree.read_held_link(caller, &fd).map_err(|error| status(&error))?;
            if target.starts_with(b"/") {
                way.clear();
                ahead.extend(reversed(self.below(&target).ok_or(Status::NoEnt)?));
            } else {
                ahead.extend(reversed(&target));
            }
        }
        Ok(self.objects.handle(way.last().unwrap_or(self.objects.root())))
    }
}

/// The names of a path, the last one first.
fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
}
