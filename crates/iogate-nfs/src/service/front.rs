//! What a server answers to: its exports, and which of them a call is for. A file's handle says that, and MOUNT goes by paths.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iogate_core::Span;
use iogate_vfs::DirectoryTree;
use iogate_vfs::held::HeldTree;

use super::mounts::Mounts;
use super::{Answer, Asked, Asking, Callbacks, Export, Lasting, Respond, Service, Spawn, finish, plain};
use crate::handle;
use crate::rpc::{Accepted, Call, CallError, put_accepted, put_auth_error, put_rpc_mismatch};
use crate::wire::{
    Export as Listed, FileHandle, LOCK_PROGRAM, LOCK_VERSION, LockRequest, MOUNT_PROGRAM, MountReply,
    MountRequest, NFS_PROGRAM, STATUS_PROGRAM, STATUS_VERSION, Status, StatusRequest, VERSION, procedure,
};
use crate::xdr::{Reader, Xdr};

/// Most exports: a handle has a byte for them.
const EXPORTS_MAX: usize = 256;
/// The flavour of credentials that are of use: users of the client's machine.
const AUTH_SYS: u32 = 1;

/// The exports of a server.
pub struct Front<T: HeldTree = DirectoryTree> {
    services: Vec<Arc<Service<T>>>,
    mounts: Mounts,
}

impl<T: HeldTree> Front<T> {
    /// Of at least one export.
    pub fn new(exports: Vec<Export<T>>, spawn: &Spawn) -> io::Result<Front<T>> {
        let count = exports.len();
        if count == 0 || count > EXPORTS_MAX {
            let error = format!("expected 1 to {EXPORTS_MAX} exports, found {count}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let service = |(number, export): (usize, Export<T>)| {
            Service::new(export, number as u8, count, Arc::clone(spawn)).map(Arc::new)
        };
        let services = exports.into_iter().enumerate().map(service).collect::<io::Result<_>>()?;
        Ok(Front { services, mounts: Mounts::default() })
    }

    /// For how long handles of all exports stay good.
    pub fn lasting(&self) -> Lasting {
        self.services.iter().map(|service| service.lasting()).min().unwrap_or(Lasting::UntilEnd)
    }

    /// Reads the head of a record.
    pub fn ask(&self, record: &[u8]) -> Asked {
        let mut from = Reader::new(record);
        let call = match Call::take(&mut from) {
            Ok(call) => call,
            Err(error) => {
                tracing::debug!(%error, ?error, "a call is refused");
                let mut head = vec![0; 4];
                match error {
                    CallError::NotACall(_) => return Asked::Nonsense(error),
                    CallError::RpcMismatch { xid } => put_rpc_mismatch(&mut head, xid),
                    CallError::Auth { xid, status } => put_auth_error(&mut head, xid, status),
                }
                return Asked::Answered(finish(head));
            }
        };
        let version = match call.program {
            NFS_PROGRAM | MOUNT_PROGRAM => Some(VERSION),
            LOCK_PROGRAM => Some(LOCK_VERSION),
            STATUS_PROGRAM => Some(STATUS_VERSION),
            _ => None,
        };
        let refused = match version {
            Some(version) if version == call.version => None,
            Some(version) => Some(Accepted::Versions { low: version, high: version }),
            None => Some(Accepted::NoProgram),
        };
        if let Some(accepted) = refused {
            return Asked::Answered(plain(call.xid, accepted));
        }
        let asking = Asking { call, arguments: record.len() - from.rest().len() };
        match (call.program, call.procedure) {
            (NFS_PROGRAM, procedure::READ | procedure::WRITE) => Asked::Data(asking),
            // Clients ask so whether the server is there, and must not wait for anything.
            (_, procedure::NULL) => Asked::Answered(plain(call.xid, Accepted::Success)),
            _ => Asked::Other(asking),
        }
    }

    /// The export that a call of NFS is for. Each begins with a handle; what this server has not made is refused there.
    pub fn service(&self, asking: &Asking, record: &[u8]) -> &Arc<Service<T>> {
        let number =
            FileHandle::take(&mut asking.arguments(record)).ok().as_ref().and_then(handle::export_of);
        let service = number.and_then(|number| self.services.get(usize::from(number)));
        service.unwrap_or(&self.services[0])
    }

    /// Carries out what [`Front::ask`] has called [`Asked::Other`]. A repetition is answered when its first call is.
    pub fn carry_out(&self, client: IpAddr, asking: &Asking, record: &[u8], respond: Respond) {
        let call = &asking.call;
        match call.program {
            MOUNT_PROGRAM => {}
            LOCK_PROGRAM => return respond(self.lock(client, asking, record)),
            STATUS_PROGRAM => return respond(self.status(client, asking, record)),
            _ => return self.service(asking, record).carry_out(client, asking, record, respond),
        }
        respond(match MountRequest::take(call.procedure, &mut asking.arguments(record)) {
            Ok(Some(request)) => {
                let mut head = vec![0; 4];
                put_accepted(&mut head, call.xid, Accepted::Success);
                self.mount(client, call, &request).put(&mut head);
                finish(head)
            }
            Ok(None) => plain(call.xid, Accepted::NoProcedure),
            Err(_) => plain(call.xid, Accepted::GarbageArgs),
        });
    }

    /// A call of NLM.
    fn lock(&self, client: IpAddr, asking: &Asking, record: &[u8]) -> Answer {
        let call = &asking.call;
        match LockRequest::take(call.procedure, &mut asking.arguments(record)) {
            // A client is told that it has a lock; a server is not.
            Ok(None | Some(LockRequest::Granted { .. })) => plain(call.xid, Accepted::NoProcedure),
            Err(_) => plain(call.xid, Accepted::GarbageArgs),
            Ok(Some(request)) => {
                let mut head = vec![0; 4];
                put_accepted(&mut head, call.xid, Accepted::Success);
                if let LockRequest::FreeAll { host, .. } = request {
                    self.services.iter().for_each(|service| service.free_all(client, host));
                } else {
                    let number = request.file().and_then(handle::export_of).map_or(0, usize::from);
                    let service = self.services.get(number).unwrap_or(&self.services[0]);
                    service.lock_call(client, call, record, &request, &mut head);
                }
                finish(head)
            }
        }
    }

    /// Carries out a call of NSM. Does not block for long: what it frees is in memory, and on this machine.
    pub fn status(&self, client: IpAddr, asking: &Asking, record: &[u8]) -> Answer {
        let call = &asking.call;
        match StatusRequest::take(call.procedure, &mut asking.arguments(record)) {
            Ok(None) => plain(call.xid, Accepted::NoProcedure),
            Err(_) => plain(call.xid, Accepted::GarbageArgs),
            Ok(Some(request)) => {
                let mut head = vec![0; 4];
                put_accepted(&mut head, call.xid, Accepted::Success);
                match request {
                    StatusRequest::Null => {}
                    // It is not watched: nobody can have this server do so.
                    StatusRequest::Stat(_) => [1u32, 0].iter().for_each(|number| number.put(&mut head)),
                    StatusRequest::Notify { host, .. } => {
                        self.services.iter().for_each(|service| service.machine_restarted(client, host.0));
                    }
                }
                finish(head)
            }
        }
    }

    /// How clients are told of locks.
    pub fn set_callbacks(&self, callbacks: &Arc<dyn Callbacks>) {
        for service in &self.services {
            let _ = service.callbacks.set(Arc::clone(callbacks));
        }
    }

    /// Looks after locks: who waits for somebody who is no client, who is to be told something, who has gone. Returns how soon to look
    /// again.
    pub fn look_at_locks(&self) -> Span {
        self.services.iter().map(|service| service.look_at_locks()).min().unwrap_or(Span::MAX)
    }

    fn mount(&self, client: IpAddr, call: &Call, request: &MountRequest<'_>) -> MountReply {
        match request {
            MountRequest::Null => MountReply::Nothing,
            MountRequest::Mount(path) => MountReply::Mount(match self.mounted(call, path) {
                Ok(handle) => {
                    self.mounts.add(client, path);
                    Ok((handle, vec![AUTH_SYS]))
                }
                Err(status) => Err(status as u32),
            }),
            MountRequest::Dump => MountReply::Mounts(self.mounts.list()),
            MountRequest::Unmount(path) => {
                self.mounts.remove(client, Some(path));
                MountReply::Nothing
            }
            MountRequest::UnmountAll => {
                self.mounts.remove(client, None);
                MountReply::Nothing
            }
            MountRequest::Exports => {
                let listed = |service: &Arc<Service<T>>| Listed {
                    path: service.export.path.clone(),
                    clients: Vec::new(),
                };
                MountReply::Exports(self.services.iter().map(listed).collect())
            }
        }
    }

    /// The handle of a path: below the export with the longest path that it begins with. `/` is an export that is alone.
    fn mounted(&self, call: &Call, path: &[u8]) -> Result<FileHandle, Status> {
        let found = self.services.iter().filter_map(|service| Some((service, service.below(path)?)));
        match found.min_by_key(|(_, below)| below.len()) {
            Some((service, below)) => service.mounted(service.caller(call), below),
            None if path == b"/" && self.services.len() == 1 => {
                self.services[0].mounted(self.services[0].caller(call), b"")
            }
            None => Err(Status::NoEnt),
        }
    }

    /// Closes what nobody has used for a while.
    pub fn sweep(&self) {
        self.services.iter().for_each(|service| service.sweep());
    }
}
