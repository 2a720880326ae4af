//! The port mapper of this machine (rpcbind; RFC 1833, section 2): it is told where NFS and MOUNT are, so that who mounts need not say.
//!
//! Over its own socket, by which it knows who asks: what root has set nobody else can take away.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
const PROGRAMS: [u32; 2] = [NFS_PROGRAM, MOUNT_PROGRAM];
/// How long it may take to answer.
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
    /// It has not answered, or something that is no answer.
    #[error("the port mapper at {}: {error}", path.display())]
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
    /// Nothing is registered then.
    pub fn of(address: SocketAddr, socket: &Path) -> Result<Registration, PortMapperError> {
        let mut registration = Registration { socket: socket.to_path_buf(), told: Vec::new() };
        let mut mapper = PortMapper::connect(socket)?;
        for program in PROGRAMS {
            for (network, at) in universal(address) {
                if !mapper.ask(SET, program, network, &at)? {
                    return Err(PortMapperError::Refused { program, network });
                }
                registration.told.push((program, network));
            }
        }
        Ok(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let told = std::mem::take(&mut self.told);
        if told.is_empty() {
            return;
        }
        let taken_back = PortMapper::connect(&self.socket).and_then(|mut mapper| {
            told.iter().try_for_each(|(program, network)| mapper.ask(UNSET, *program, network, "").map(drop))
        });
        if let Err(error) = taken_back {
            tracing::warn!(%error, "the port mapper still has this server");
        }
    }
}

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

/// A connection with it.
struct PortMapper {
    stream: UnixStream,
    path: PathBuf,
    xid: u32,
}

impl PortMapper {
    fn connect(path: &Path) -> Result<PortMapper, PortMapperError> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let path = path.to_path_buf();
        match connect() {
            Ok(stream) => Ok(PortMapper { stream, path, xid: 0 }),
            Err(error) => Err(PortMapperError::NotThere { path, error }),
        }
    }

    /// Sets a program's address, or takes it back; whether that was done.
    fn ask(
        &mut self,
        procedure: u32,
        program: u32,
        network: &str,
        at: &str,
    ) -> Result<bool, PortMapperError> {
        self.xid += 1;
        self.exchange(&message(self.xid, procedure, program, network, at))
            .map_err(|error| PortMapperError::NoAnswer { path: self.path.clone(), error })
    }

    fn exchange(&mut self, message: &[u8]) -> io::Result<bool> {
        self.stream.write_all(message)?;
        let mut records = Records::new(ANSWER_BYTES_MAX);
        let mut answer = None;
        let mut room = [0; 512];
        while answer.is_none() {
            let count = self.stream.read(&mut room)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            records.feed(&room[..count], |record| answer = Some(record)).map_err(invalid)?;
        }
        was_done(&answer.unwrap_or_default(), self.xid).map_err(invalid)
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A call, as one record.
fn message(xid: u32, procedure: u32, program: u32, network: &str, at: &str) -> Vec<u8> {
    let credential = Credential::None;
    let mut record = vec![0; 4];
    Call { xid, program: PROGRAM, version: PROGRAM_VERSION, procedure, credential }.put(&mut record);
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

/// What an answer says to the call of this number.
fn was_done(answer: &[u8], xid: u32) -> Result<bool, XdrError> {
    let mut from = Reader::new(answer);
    let (found, accepted) = take_reply(&mut from)?;
    if found != xid {
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
        let mut expected = words(&[0x8000_0000 | 76, 7, 0, 2, 100_000, 3, 1, 0, 0, 0, 0, 100_003, 3, 3]);
        expected.extend_from_slice(b"tcp\0");
        expected.extend(words(&[12]));
        expected.extend_from_slice(b"10.0.0.7.8.1");
        expected.extend(words(&[0]));
        assert_eq!(message(7, SET, NFS_PROGRAM, "tcp", "10.0.0.7.8.1"), expected);
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

        // The second program is another's: the first one is taken back.
        std::fs::remove_file(&path).unwrap();
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1, 0, 1]);
        let refused = Registration::of(address, &path).map(drop).unwrap_err();
        assert!(refused.to_string().contains("refuses program 100005 for tcp"), "{refused}");
        assert_eq!(mapper.join().unwrap(), [(SET, NFS_PROGRAM), (SET, MOUNT_PROGRAM), (UNSET, NFS_PROGRAM)]);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let answer = |accepted, rest: &[u32]| {
            let mut out = Vec::new();
            put_accepted(&mut out, 5, accepted);
            rest.iter().for_each(|word| word.put(&mut out));
            out
        };
        assert_eq!(was_done(&answer(Accepted::Success, &[1]), 5), Ok(true));
        assert_eq!(was_done(&answer(Accepted::NoProcedure, &[]), 5), Ok(false));
        assert!(was_done(&answer(Accepted::Success, &[1]), 6).is_err());
        assert!(was_done(&answer(Accepted::Success, &[]), 5).is_err());
        assert!(was_done(&[], 5).is_err());
    }
}
