//! Port mappers (rpcbind; RFC 1833, section 2). That of this machine is told where the server's programs are, so that who mounts need not
//! say, and who locks finds them; over its own socket, by which it knows who asks: what root has set nobody else can take away.
//! Those of clients are asked where theirs are.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::rpc::records::Records;
use crate::rpc::{Accepted, Call, Credential, take_reply};
use crate::wire::{
    LOCK_PROGRAM, LOCK_VERSION, MOUNT_PROGRAM, NFS_PROGRAM, STATUS_PROGRAM, STATUS_VERSION, VERSION,
};
use crate::xdr::{Reader, Xdr, XdrError, put_opaque};

/// Where it listens.
pub const SOCKET: &str = "/run/rpcbind.sock";

const PROGRAM: u32 = 100_000;
const PROGRAM_VERSION: u32 = 3;
const SET: u32 = 1;
const UNSET: u32 = 2;
const GET_ADDRESS: u32 = 3;
/// The number of each call, as it is the only one of its connection.
const XID: u32 = 1;
/// What a server is by TCP.
const PROGRAMS: [(u32, u32); 3] =
    [(NFS_PROGRAM, VERSION), (MOUNT_PROGRAM, VERSION), (LOCK_PROGRAM, LOCK_VERSION)];
/// And by datagrams: clients' machines say so that they were started again.
const RESTARTS: (u32, u32) = (STATUS_PROGRAM, STATUS_VERSION);
/// Most bytes of an address in universal form.
const ADDRESS_BYTES_MAX: u32 = 256;
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
        /// `tcp`, `udp`, or one of them with a 6.
        network: &'static str,
    },
}

/// What the port mapper has been told of a server. Dropped, it is taken back.
#[derive(Debug)]
pub struct Registration {
    socket: PathBuf,
    told: Vec<(Program, &'static str)>,
    hears_restarts: bool,
}

/// A program, and its version.
type Program = (u32, u32);

impl Registration {
    /// Tells the port mapper at `socket` that NFS, MOUNT and NLM are at this address by TCP, and NSM by datagrams, unless something else of
    /// this machine is that already.
    ///
    /// # Errors
    /// Nothing is registered then, unless the port mapper carries out later what it has not answered.
    pub fn of(address: SocketAddr, socket: &Path) -> Result<Registration, PortMapperError> {
        let (streams, datagrams) = (universal(address, ["tcp", "tcp6"]), universal(address, ["udp", "udp6"]));
        let on = |networks: &[(&'static str, String)], program: Program| -> Vec<_> {
            networks.iter().map(|(network, at)| (program, *network, at.clone())).collect()
        };
        let mut wanted: Vec<Mapping> =
            PROGRAMS.into_iter().flat_map(|program| on(&streams, program)).collect();
        let needed = wanted.len();
        wanted.extend(on(&datagrams, RESTARTS));
        let done = ask(socket, SET, &wanted)?;
        let mut registration =
            Registration { socket: socket.to_path_buf(), told: Vec::new(), hears_restarts: true };
        let mut refused = None;
        for (index, (&(program, network, _), done)) in wanted.iter().zip(done).enumerate() {
            if done {
                registration.told.push((program, network));
            } else if index < needed {
                refused = refused.or(Some(PortMapperError::Refused { program: program.0, network }));
            } else {
                registration.hears_restarts = false;
            }
        }
        refused.map_or(Ok(registration), Err)
    }

    /// Whether machines that were started again say so to this server, and not to something else here.
    pub fn hears_restarts(&self) -> bool {
        self.hears_restarts
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let told: Vec<Mapping> =
            self.told.iter().map(|&(program, network)| (program, network, String::new())).collect();
        if let Err(error) = ask(&self.socket, UNSET, &told) {
            tracing::warn!(%error, "the port mapper still has this server");
        }
    }
}

/// Asks the port mapper of another machine, by `ask`, where a program of it is: its port, if it is known there.
///
/// # Errors
/// Those of `ask`; and if the answer has no address in it.
pub fn get_address(
    program: u32,
    version: u32,
    network: &str,
    ask: impl FnOnce(
        (u32, u32, u32),
        &[u8],
        fn(&mut Reader<'_>) -> Result<Vec<u8>, XdrError>,
    ) -> io::Result<Vec<u8>>,
) -> io::Result<Option<u16>> {
    let mut arguments = Vec::new();
    put_mapping(&mut arguments, (program, version), network, "");
    let take = |from: &mut Reader<'_>| from.opaque(ADDRESS_BYTES_MAX).map(<[u8]>::to_vec);
    let address = ask((PROGRAM, PROGRAM_VERSION, GET_ADDRESS), &arguments, take)?;
    if address.is_empty() {
        return Ok(None);
    }
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "expected an address in universal form");
    let text = std::str::from_utf8(&address).map_err(|_| malformed())?;
    let mut parts = text.rsplit('.');
    let mut byte = || parts.next().and_then(|part| part.parse::<u8>().ok()).ok_or_else(malformed);
    let (low, high) = (byte()?, byte()?);
    Ok(Some(u16::from_be_bytes([high, low])).filter(|port| *port != 0))
}

/// A program, a network, and its address there.
type Mapping = (Program, &'static str, String);

/// What it is told of an address: the networks, each with the address in universal form, whose last two numbers are the port's bytes.
fn universal(address: SocketAddr, [four, six]: [&'static str; 2]) -> Vec<(&'static str, String)> {
    let [high, low] = address.port().to_be_bytes();
    let at = |ip: &str| format!("{ip}.{high}.{low}");
    match address.ip() {
        IpAddr::V4(ip) => vec![(four, at(&ip.to_string()))],
        // Linux takes clients of both there.
        IpAddr::V6(ip) if ip.is_unspecified() => vec![(four, at("0.0.0.0")), (six, at("::"))],
        IpAddr::V6(ip) => vec![(six, at(&ip.to_string()))],
    }
}

/// Sets addresses, or takes them back; which of that was done. All of it is sent before the first answer is waited for, each over a
/// connection of its own: rpcbind forgets what else has come over one whose client has left.
fn ask(path: &Path, procedure: u32, of: &[Mapping]) -> Result<Vec<bool>, PortMapperError> {
    let began = Instant::now();
    let there = |error| PortMapperError::NotThere { path: path.to_path_buf(), error };
    let sent = |mapping: &Mapping| send(path, &message(procedure, mapping));
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
fn message(procedure: u32, (program, network, at): &Mapping) -> Vec<u8> {
    let credential = Credential::None;
    let mut record = vec![0; 4];
    Call { xid: XID, program: PROGRAM, version: PROGRAM_VERSION, procedure, credential }.put(&mut record);
    put_mapping(&mut record, *program, network, at);
    let mark = 0x8000_0000 | (record.len() - 4) as u32;
    record[..4].copy_from_slice(&mark.to_be_bytes());
    record
}

/// A program at an address. Its owner is who is at the other end of the socket, whatever is said here.
fn put_mapping(out: &mut Vec<u8>, (program, version): Program, network: &str, at: &str) {
    program.put(out);
    version.put(out);
    for text in [network, at, ""] {
        put_opaque(out, text.as_bytes());
    }
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
        let of = |address: &str| universal(address.parse().unwrap(), ["tcp", "tcp6"]);
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
        assert_eq!(message(SET, &((NFS_PROGRAM, VERSION), "tcp", "10.0.0.7.8.1".into())), expected);
    }

    #[test]
    fn the_port_is_in_the_address() {
        let port = |address: &'static str| {
            get_address(LOCK_PROGRAM, LOCK_VERSION, "tcp", |message, arguments, _| {
                assert_eq!(message, (100_000, 3, 3));
                assert_eq!(arguments[..12], [0, 1, 0x86, 0xb5, 0, 0, 0, 4, 0, 0, 0, 3]);
                Ok(address.into())
            })
        };
        assert_eq!(port("10.0.0.7.8.1").unwrap(), Some(2049));
        assert_eq!(port("::.0.111").unwrap(), Some(111));
        assert_eq!(port("").unwrap(), None);
        for address in ["10", "10.0.0.7.256.1", "a.b"] {
            assert!(port(address).is_err(), "{address}");
        }
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
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1; 8]);
        let registered = Registration::of(address, &path).unwrap();
        assert!(registered.hears_restarts());
        drop(registered);
        let all =
            |procedure| [NFS_PROGRAM, MOUNT_PROGRAM, LOCK_PROGRAM, STATUS_PROGRAM].map(|of| (procedure, of));
        assert_eq!(mapper.join().unwrap(), [all(SET), all(UNSET)].concat());

        // Something else of this machine hears of restarts.
        std::fs::remove_file(&path).unwrap();
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1, 1, 1, 0, 1, 1, 1]);
        let registered = Registration::of(address, &path).unwrap();
        assert!(!registered.hears_restarts());
        drop(registered);
        assert_eq!(mapper.join().unwrap(), [&all(SET)[..], &all(UNSET)[..3]].concat());

        // One program is another's: the other one is taken back.
        std::fs::remove_file(&path).unwrap();
        let mapper = answering(UnixListener::bind(&path).unwrap(), vec![1, 0, 1, 1, 1, 1, 1]);
        let refused = Registration::of(address, &path).map(drop).unwrap_err();
        assert!(refused.to_string().contains("refuses program 100005 for tcp"), "{refused}");
        let taken_back = [NFS_PROGRAM, LOCK_PROGRAM, STATUS_PROGRAM].map(|program| (UNSET, program));
        assert_eq!(mapper.join().unwrap(), [&all(SET)[..], &taken_back].concat());

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
