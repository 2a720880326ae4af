//! The port mapper of this machine (rpcbind; RFC 1833, section 2): it is told where NFS and MOUNT are, so that who mounts need not say.
//!
//! Over its own socket, by which it knows who asks: what root has set nobody else can take away.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::rpc::records::Records;
use crate::rpc::{Accepted, Call, Credential, take_reply};
use crate::wire::{MOUNT_PROGRAM, NFS_PROGRAM, VERSION};
use crate::xdr::{Reader, Xdr, XdrError, put_opaque};

/// Where it listens.
pub const SOCKET: &str = "/run/rpcbind.sock";

const PROGRAM: u32 = 100_000;
const PROGRAM_VERSION: u32 = 3;
const SET: u32 = 1;
const UNSET: u32 = 2;
/// The number of each call, as it is the only one of its connection.
const XID: u32 = 1;
const PROGRAMS: [u32; 2] = [NFS_PROGRAM, MOUNT_PROGRAM];
/// How long it may take to answer everything.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Why the port mapper does not know where the server is.
#[derive(Debug, thiserror::Error)]
pub enum PortMapperError {
    /// There is none.
    #[error("expected a port mapper at {}: {error}: start rpcbind, or leave the port mapper out", path.display())]
    NotThere {
        /// Its socket.
        path: PathBuf,
        /// Why it cannot be reached.
        error: io::Error,
    },
    /// It has not answered, or something that is no answer. What it was told may be in it nevertheless.
    #[error(
        "expected an answer of the port mapper at {} within {PATIENCE:?}: {error}: see by rpcinfo -p whether it has this server, and take that \
         back by rpcinfo -d, or leave the port mapper out",
        path.display()
    )]
    NoAnswer {
        /// Its socket.
        path: PathBuf,
        /// What was wrong.
        error: io::Error,
    },
    /// It knows another server, or does not let this user register one.
    #[error(
        "the port mapper refuses program {program} for {network}: is another server of NFS registered (rpcinfo -p), or is this not root?"
    )]
    Refused {
        /// Which program.
        program: u32,
        /// `tcp` or `tcp6`.
        network: &'static str,
    },
}

/// What the port mapper has been told of a server. Dropped, it is taken back.
#[derive(Debug)]
pub struct Registration {
    socket: PathBuf,
    told: Vec<(u32, &'static str)>,
}

impl Registration {
    /// Tells the port mapper at `socket` that NFS and MOUNT, version 3, are at this address by TCP.
    ///
    /// # Errors
    /// Nothing is registered then, unless the port mapper carries out later what it has not answered.
    pub fn of(address: SocketAddr, socket: &Path) -> Result<Registration, PortMapperError> {
        let networks = universal(address);
        let of_program = |program| networks.iter().map(move |(network, at)| (program, *network, at.as_str()));
        let wanted: Vec<Mapping<'_>> = PROGRAMS.into_iter().flat_map(of_program).collect();
        let done = ask(socket, SET, &wanted)?;
        let mut registration = Registration { socket: socket.to_path_buf(), told: Vec::new() };
        let mut refused = None;
        for (&(program, network, _), done) in wanted.iter().zip(done) {
            if done {
                registration.told.push((program, network));
            } else {
                refused = refused.or(Some(PortMapperError::Refused { program, network }));
            }
        }
        refused.map_or(Ok(registration), Err)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let told: Vec<Mapping<'_>> =
            self.told.iter().map(|&(program, network)| (program, network, "")).collect();
        if let Err(error) = ask(&self.socket, UNSET, &told) {
            tracing::warn!(%error, "the port mapper still has this server");
        }
    }
}

/// A program, a network, and its address there.
type Mapping<'a> = (u32, &'static str, &'a str);

/// What it is told of an address: the networks, each with the address in universal form, whose last two numbers are the port's bytes.
fn universal(address: SocketAddr) -> Vec<(&'static str, String)> {
    let [high, low] = address.port().to_be_bytes();
    let at = |ip: &str| format!("{ip}.{high}.{low}");
    match address.ip() {
        IpAddr::V4(ip) => vec![("tcp", at(&ip.to_string()))],
        // Linux takes clients of both there.
        IpAddr::V6(ip) if ip.is_unspecified() => vec![("tcp", at("0.0.0.0")), ("tcp6", at("::"))],
        IpAddr::V6(ip) => vec![("tcp6", at(&ip.to_string()))],
    }
}

/// Sets addresses, or takes them back; which of that was done. All of it is sent before the first answer is waited for, each over a
/// connection of its own: rpcbind forgets what else has come over one whose client has left.
fn ask(path: &Path, procedure: u32, of: &[Mapping<'_>]) -> Result<Vec<bool>, PortMapperError> {
    let began = Instant::now();
    let there = |error| PortMapperError::NotThere { path: path.to_path_buf(), error };
    let sent = |mapping: &Mapping<'_>| send(path, &message(procedure, *mapping));
    let streams = of.iter().map(sent).collect::<io::Result<Vec<_>>>().map_err(there)?;
    let done = streams.into_iter().map(|stream| answer(stream, began)).collect::<io::Result<_>>();
    done.map_err(|error| PortMapperError::NoAnswer { path: path.to_path_buf(), error })
}

fn send(path: &Path, message: &[u8]) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(message)?;
    Ok(stream)
}

/// Whether what was sent there has been done.
fn answer(mut stream: UnixStream, began: Instant) -> io::Result<bool> {
    let mut records = Records::new(ANSWER_BYTES_MAX);
    let mut answer = None;
    let mut room = [0; 512];
    while answer.is_none() {
        // Zero would be for ever.
        stream
            .set_read_timeout(Some(PATIENCE.saturating_sub(began.elapsed()).max(Duration::from_millis(1))))?;
        let count = stream.read(&mut room)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        records.feed(&room[..count], |record| answer = Some(record)).map_err(invalid)?;
    }
    was_done(&answer.unwrap_or_default()).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A call, as one record.
fn message(procedure: u32, (program, network, at): Mapping<'_>) -> Vec<u8> {
    let credential = Credential::None;
    let mut record = vec![0; 4];
    Call { xid: XID, program: PROGRAM, version: PROGRAM_VERSION, procedure, credential }.put(&mut record);
    program.put(&mut record);
    VERSION.put(&mut record);
    // The owner is who is at the other end of the socket, whatever is said here.
    for text in [network, at, ""] {
        put_opaque(&mut record, text.as_bytes());
    }
    let mark = 0x8000_0000 | (record.len() - 4) as u32;
    record[..4].copy_from_slice(&mark.to_be_bytes());
    record
}

/// What an answer says to the call.
fn was_done(answer: &[u8]) -> Result<bool, XdrError> {
    let mut from = Reader::new(answer);
    let (found, accepted) = take_reply(&mut from)?;
    if found != XID {
        return Err(XdrError::NoSuchValue { expected: "the number of the call", found });
    }
    match accepted {
        Some(Accepted::Success) => bool::take(&mut from),
        // It does not carry that out: for this user, or at all.
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::rpc::put_accepted;

    #[test]
    fn addresses_are_universal_ones() {
        let of = |address: &str| universal(address.parse().unwrap());
        assert_eq!(of("10.0.0.7:2049"), [("tcp", "10.0.0.7.8.1".into())]);
        assert_eq!(of("[::]:2050"), [("tcp", "0.0.0.0.8.2".into()), ("tcp6", "::.8.2".into())]);
        assert_eq!(of("[fe80::1]:111"), [("tcp6", "fe80::1.0.111".into())]);
    }

    #[test]
    fn a_call_has_the_bytes_of_the_rfc() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let mut expected = words(&[0x8000_0000 | 76, XID, 0, 2, 100_000, 3, 1, 0, 0, 0, 0, 100_003, 3, 3]);
        expected.extend_from_slice(b"tcp\0");
        expected.extend(words(&[12]));
        expected.extend_from_slice(b"10.0.0.7.8.1");
        expected.extend(words(&[0]));
        assert_eq!(message(SET, (NFS_PROGRAM, "tcp", "10.0.0.7.8.1")), expected);
    }

    /// Answers calls with these values, and returns what was asked: procedure, program.
    fn answering(listener: UnixListener, values: Vec<u32>) -> std::thread::JoinHandle<Vec<(u32, u32)>> {
        std::thread::spawn(move || {
            let mut values = values.into_iter();
            let mut asked = Vec::new();
            while values.len() > 0 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut records = Records::new(ANSWER_BYTES_MAX);
                let mut room = [0; 512];
                while let Ok(count @ 1..) = stream.read(&mut room) {
                    let mut calls = Vec::new();
                    records.feed(&room[..count], |record| calls.push(record)).unwrap();
                    for record in calls {
                        let mut from = Reader::new(&record);
                        let call = Call::take(&mut from).unwrap();
                        asked.push((call.procedure, u32::take(&mut from).unwrap()));
                        let mut answer = vec![0x80, 0, 0, 28];
                        put_accepted(&mut answer, call.xid, Accepted::Success);
                        values.next().unwrap().put(&mut answer);
                        stream.write_all(&answer).unwrap();
                    }
                }
            }
            asked
        })
    }

    #[test]
    fn what_was_told_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = "127.0.0.1:2049".parse().unwrap();
        assert!(matches!(Registration::of(address, &path), Err(PortMapperError::NotThere { .. })));
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1, 1, 1, 1]);
        drop(Registration::of(address, &path).unwrap());
        let both = |procedure| PROGRAMS.map(|program| (procedure, program));
        assert_eq!(mapper.join().unwrap(), [both(SET), both(UNSET)].concat());

        // One program is another's: the other one is taken back.
        std::fs::remove_file(&path).unwrap();
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1, 0, 1]);
        let refused = Registration::of(address, &path).map(drop).unwrap_err();
        assert!(refused.to_string().contains("refuses program 100005 for tcp"), "{refused}");
        assert_eq!(mapper.join().unwrap(), [(SET, NFS_PROGRAM), (SET, MOUNT_PROGRAM), (UNSET, NFS_PROGRAM)]);

        // It ends in the middle of its answers.
        std::fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let mapper = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let silent = Registration::of(address, &path).map(drop).unwrap_err().to_string();
        assert!(silent.starts_with("expected an answer of the port mapper at "), "{silent}");
        assert!(silent.contains("back by rpcinfo -d"), "{silent}");
        mapper.join().unwrap();
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let answer = |xid, accepted, rest: &[u32]| {
            let mut out = Vec::new();
            put_accepted(&mut out, xid, accepted);
            rest.iter().for_each(|word| word.put(&mut out));
            out
        };
        assert_eq!(was_done(&answer(XID, Accepted::Success, &[1])), Ok(true));
        assert_eq!(was_done(&answer(XID, Accepted::NoProcedure, &[])), Ok(false));
        assert!(was_done(&answer(6, Accepted::Success, &[1])).is_err());
        assert!(was_done(&answer(XID, Accepted::Success, &[])).is_err());
        assert!(was_done(&[]).is_err());
    }
}
