//! MOUNT: which handle a path has, and who has asked for one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use iogate_engine::lock;
use iogate_vfs::Caller;
use iogate_vfs::held::known;

use super::Service;
use super::attr::status;
use super::objects::Object;
use crate::wire::{Export, FileHandle, MountReply, MountRequest, Mounted, Status};

/// Most mounts that are remembered: for people, who may ask for the list.
const MOUNTS_MAX: usize = 1024;
/// The flavour of credentials that are of use: users of the client's machine.
const AUTH_SYS: u32 = 1;

/// Who has mounted what, as far as they have said.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

impl Mounts {
    fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = lock(&self.0);
        mounts.retain(|(host, at)| *host != client || at != path);
        if mounts.len() >= MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back((client, path.to_vec()));
    }
}

impl Service {
    pub(super) fn mount(&self, client: IpAddr, caller: Caller, request: &MountRequest<'_>) -> MountReply {
        match request {
            MountRequest::Null => MountReply::Nothing,
            MountRequest::Mount(path) => MountReply::Mount(match self.mounted(caller, path) {
                Ok(handle) => {
                    self.mounts.add(client, path);
                    Ok((handle, vec![AUTH_SYS]))
                }
                Err(status) => Err(status as u32),
            }),
            MountRequest::Dump => {
                let mounted =
                    |(host, path): &(IpAddr, Vec<u8>)| Mounted { host: host.to_string(), path: path.clone() };
                MountReply::Mounts(lock(&self.mounts.0).iter().map(mounted).collect())
            }
            MountRequest::Unmount(path) => {
                lock(&self.mounts.0).retain(|(host, at)| *host != client || at != path);
                MountReply::Nothing
            }
            MountRequest::UnmountAll => {
                lock(&self.mounts.0).retain(|(host, _)| *host != client);
                MountReply::Nothing
            }
            MountRequest::Exports => {
                MountReply::Exports(vec![Export { path: self.export.path.clone(), clients: Vec::new() }])
            }
        }
    }

    /// The handle of a path: that of the export, `/`, or one below the export's that the caller may reach.
    fn mounted(&self, caller: Caller, path: &[u8]) -> Result<FileHandle, Status> {
        let below = match path.strip_prefix(&self.export.path[..]) {
            Some(below)
                if below.is_empty() || below.starts_with(b"/") || self.export.path.ends_with(b"/") =>
            {
                below
            }
            _ if path == b"/" => b"",
            _ => return Err(Status::NoEnt),
        };
        let mut at: Arc<Object> = Arc::clone(self.objects.root());
        for name in below.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if matches!(name, b"." | b"..") {
                return Err(Status::NoEnt);
            }
            let found = self.export.tree.hold_entry(caller, at.as_fd(), name).and_then(|fd| {
                let known = known(&fd)?;
                self.objects.adopt(fd, &known, &at, name)
            });
            at = found.map_err(|error| status(&error))?;
        }
        Ok(self.objects.handle(&at))
    }
}
