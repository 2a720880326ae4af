//! A client: one connection to a server of NFS, and what is asked over it. It is what measures servers, and what programs of a real
//! run of a scenario read and write with.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;

use crate::rpc::{Accepted, Call, Credential, GROUPS_MAX, records, take_reply};
use crate::wire::{
    FileHandle, MOUNT_PROGRAM, MountReply, MountRequest, NFS_PROGRAM, Place, RECORD_BYTES_MAX, Reply,
    Request, Stable, Status, VERSION,
};
use crate::xdr::{Reader, XdrError};

/// What is there for answers at first: enough for those without data.
const INCOMING_BYTES: usize = 16 << 10;

/// What went wrong with a call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection has failed, or the server has closed it.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// What came is no answer.
    #[error("expected an answer of NFS: {0}")]
    Malformed(#[from] XdrError),
    /// The call was not carried out.
    #[error("the server refuses calls of this kind: {0:?}")]
    Refused(Option<Accepted>),
    /// The server does not let the export be mounted, and says why: a number of MOUNT's.
    #[error(
        "expected an export that may be mounted, the server says {0} (13: not by whom asks, 2: there is no such)"
    )]
    NotMounted(u32),
    /// The server says why it cannot be done.
    #[error("the server says {0:?}")]
    Failed(Status),
    /// The answer is one to something else.
    #[error("expected the answer of {0}, found another one")]
    Unexpected(&'static str),
    /// An answer that is longer than any may be.
    #[error("expected an answer of at most {RECORD_BYTES_MAX} bytes, found one of {0}")]
    TooLong(usize),
}

/// The error of a file that is read or written so.
impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> io::Error {
        match error {
            ClientError::Connection(error) => error,
            other => io::Error::other(other),
        }
    }
}

/// A connection of one user. Calls cost little: one call of the system to send, one to receive, and no copy but of what is read or
/// written. Several may be underway; who sends them knows what the answers are to.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    credential: Credential,
    xid: u32,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// What has come and was not taken.
    held: Range<usize>,
}

impl Connection {
    /// From an address of this machine's, by the first of some ports that is free (0: any), for the user and group of these numbers.
    pub fn open(
        from: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        to: SocketAddr,
        (uid, gid): (u32, u32),
    ) -> io::Result<Connection> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
        let mut error = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for port in ports {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP))?;
            let made = bind(&socket, &SocketAddr::from((from, port))).and_then(|()| connect(&socket, &to));
            match made {
                Ok(()) => {
                    let stream = TcpStream::from(socket);
                    stream.set_nodelay(true)?;
                    return Ok(Connection {
                        stream,
                        credential: Credential::Sys { uid, gid, groups: [0; GROUPS_MAX], group_count: 0 },
                        // Not that of another connection of this machine: servers know calls by it.
                        xid: RandomState::new().hash_one(0) as u32,
                        outgoing: Vec::new(),
                        incoming: vec![0; INCOMING_BYTES],
                        held: 0..0,
                    });
                }
                Err(failed) => error = failed.into(),
            }
        }
        Err(error)
    }

    /// Sends a call, which then is underway.
    pub fn send(&mut self, request: &Request<'_>) -> io::Result<()> {
        self.send_to(NFS_PROGRAM, request.procedure(), |out| request.put(out))
    }

    fn send_to(&mut self, program: u32, procedure: u32, put: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.xid = self.xid.wrapping_add(1);
        self.outgoing.clear();
        self.outgoing.extend_from_slice(&[0; 4]);
        let (xid, credential) = (self.xid, self.credential);
        Call { xid, program, version: VERSION, procedure, credential }.put(&mut self.outgoing);
        put(&mut self.outgoing);
        let mark = records::mark(self.outgoing.len() - 4);
        self.outgoing[..4].copy_from_slice(&mark);
        self.stream.write_all(&self.outgoing)
    }

    /// The results of the next answer, to whichever call that is underway.
    pub fn receive(&mut self) -> Result<&[u8], ClientError> {
        let mut length = 0;
        loop {
            // The marks of further pieces are taken out.
            self.hold(length + 4)?;
            let at = self.held.start + length;
            let mark = self.incoming[at..].first_chunk().map_or(0, |mark| u32::from_be_bytes(*mark));
            let bytes = (mark & 0x7fff_ffff) as usize;
            if length + bytes > RECORD_BYTES_MAX {
                return Err(ClientError::TooLong(length + bytes));
            }
            self.hold(length + 4 + bytes)?;
            let at = self.held.start + length;
            if length == 0 {
                self.held.start += 4;
            } else {
                self.incoming.copy_within(at + 4..self.held.end, at);
                self.held.end -= 4;
            }
            length += bytes;
            if mark >> 31 == 1 {
                break;
            }
        }
        let record = self.held.start..self.held.start + length;
        self.held.start = record.end;
        let mut from = Reader::new(&self.incoming[record]);
        match take_reply(&mut from)? {
            (_, Some(Accepted::Success)) => Ok(from.rest()),
            (_, accepted) => Err(ClientError::Refused(accepted)),
        }
    }

    /// Has so many bytes behind the beginning of what is held.
    fn hold(&mut self, bytes: usize) -> io::Result<()> {
        if self.held.is_empty() {
            self.held = 0..0;
        }
        if self.held.start + bytes > self.incoming.len() {
            self.incoming.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
            let room = self.incoming.len().max(bytes);
            self.incoming.resize(room, 0);
        }
        while self.held.len() < bytes {
            match self.stream.read(&mut self.incoming[self.held.end..])? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server has closed the connection",
                    ));
                }
                got => self.held.end += got,
            }
        }
        Ok(())
    }

    /// Sends a call and waits for its answer; no other one may be underway.
    pub fn call(&mut self, request: &Request<'_>) -> Result<Reply, ClientError> {
        self.send(request)?;
        let reply = Reply::take(request.procedure(), &mut Reader::new(self.receive()?))?;
        reply.ok_or(ClientError::Unexpected("a procedure that there is"))
    }

    /// The root of an export.
    pub fn mount(&mut self, path: &[u8]) -> Result<FileHandle, ClientError> {
        let request = MountRequest::Mount(path);
        self.send_to(MOUNT_PROGRAM, request.procedure(), |out| request.put(out))?;
        match MountReply::take(request.procedure(), &mut Reader::new(self.receive()?))? {
            Some(MountReply::Mount(Ok((root, _)))) => Ok(root),
            Some(MountReply::Mount(Err(status))) => Err(ClientError::NotMounted(status)),
            _ => Err(ClientError::Unexpected("MNT")),
        }
    }

    /// A file, or a directory, by its name.
    pub fn look_up(&mut self, dir: FileHandle, name: &[u8]) -> Result<FileHandle, ClientError> {
        match self.call(&Request::LookUp(Place { dir, name }))? {
            Reply::LookUp { result, .. } => result.map(|(file, _)| file).map_err(ClientError::Failed),
            _ => Err(ClientError::Unexpected("LOOKUP")),
        }
    }

    /// Reads up to as much as there is room for. Returns how many bytes came: fewer only at the end of the file.
    pub fn read(&mut self, file: FileHandle, offset: u64, memory: &mut [u8]) -> Result<usize, ClientError> {
        let count = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        match self.call(&Request::Read { file, offset, count })? {
            Reply::Read { result, .. } => {
                let (data, _is_end) = result.map_err(ClientError::Failed)?;
                let count = data.len().min(memory.len());
                memory[..count].copy_from_slice(&data[..count]);
                Ok(count)
            }
            _ => Err(ClientError::Unexpected("READ")),
        }
    }

    /// Writes, not to the device ([`Connection::commit`] is for that). Returns how many bytes were taken.
    pub fn write(&mut self, file: FileHandle, offset: u64, data: &[u8]) -> Result<usize, ClientError> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.call(&Request::Write { file, offset, count, stable: Stable::Unstable, data })? {
            Reply::Write { result, .. } => result.map(|ok| ok.count as usize).map_err(ClientError::Failed),
            _ => Err(ClientError::Unexpected("WRITE")),
        }
    }

    /// What was written to a file is on the device then.
    pub fn commit(&mut self, file: FileHandle) -> Result<(), ClientError> {
        match self.call(&Request::Commit { file, offset: 0, count: 0 })? {
            Reply::Commit { result, .. } => result.map(|_| ()).map_err(ClientError::Failed),
            _ => Err(ClientError::Unexpected("COMMIT")),
        }
    }
}
