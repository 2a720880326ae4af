//! A client made by hand: bytes through the protocol's records, with all the freedom to do it wrong.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use iogate_core::wire::*;
use iogate_net::Endpoint;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) trait Stream: Read + Write + Send {
    /// How long it waits at most.
    fn be_patient(&self, time: Duration);
}

impl Stream for TcpStream {
    fn be_patient(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
        self.set_write_timeout(Some(time)).unwrap();
    }
}

impl Stream for UnixStream {
    fn be_patient(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
        self.set_write_timeout(Some(time)).unwrap();
    }
}

/// A connection and the ids of its session.
pub(crate) struct Raw {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) next: u64,
    pub(crate) acked: u64,
    pub(crate) welcome: Option<Welcome>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: u64,
    pub(crate) errno: i32,
    pub(crate) fields: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(Failure::decode(&self.fields).unwrap().text).into_owned()
    }

    pub(crate) fn ok<R: for<'a> Record<'a>>(&self) -> R {
        assert_eq!(self.errno, 0, "{}", self.text());
        R::decode(&self.fields).unwrap()
    }

    /// It was carried out; fields, if there are any, do not matter.
    pub(crate) fn done(&self) {
        assert_eq!(self.errno, 0, "{}", self.text());
        assert!(self.payload.is_empty());
    }
}

pub(crate) fn hello() -> Hello<'static> {
    Hello {
        magic: MAGIC,
        version: VERSION,
        auth: auth::SOCKET,
        session: [0; 16],
        node: 0,
        nodes: 0,
        instance: 0,
        client: [7; 16],
        flags: 0,
        export: b"",
        name: b"test",
    }
}

pub(crate) fn transfer(handle: u32, offset: u64, bytes: usize) -> Transfer {
    Transfer { handle, flags: 0, offset, bytes: bytes as u32, app: 1, client: 2, issued: 0 }
}

/// In whose name a client that is a forwarder asks.
pub(crate) const USER: u32 = 4321;
pub(crate) const RDWR: u32 = open::READ | open::WRITE | open::CREATE;

impl Raw {
    /// Connects, and says nothing.
    pub(crate) fn connect(endpoint: &Endpoint) -> Raw {
        let stream: Box<dyn Stream> = match endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
                stream.set_nodelay(true).unwrap();
                Box::new(stream)
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                Box::new(stream)
            }
        };
        stream.be_patient(PATIENCE);
        Raw { stream, next: 1, acked: 1, welcome: None }
    }

    /// Connects and says hello; over TCP without a proof.
    pub(crate) fn greet(endpoint: &Endpoint) -> Raw {
        Raw::greet_with(endpoint, hello())
    }

    /// Goes on with a session.
    pub(crate) fn resume(endpoint: &Endpoint, before: &Raw) -> Raw {
        let session = before.welcome.unwrap().session;
        let mut raw = Raw::greet_with(endpoint, Hello { session, ..hello() });
        (raw.next, raw.acked) = (before.next, before.acked);
        raw
    }

    pub(crate) fn greet_with(endpoint: &Endpoint, mut hello: Hello<'_>) -> Raw {
        if matches!(endpoint, Endpoint::Tcp { .. }) {
            hello.auth = auth::NONE;
        }
        let mut raw = Raw::connect(endpoint);
        raw.write(&Raw::bytes(0, 0, &Request::Hello(hello), &[]));
        let reply = raw.reply();
        assert_eq!(reply.id, 0);
        raw.welcome = Some(reply.ok());
        raw
    }

    pub(crate) fn bytes(id: u64, acked: u64, request: &Request<'_>, payload: &[u8]) -> Vec<u8> {
        let mut fields = Vec::new();
        request.encode(&mut fields);
        let header = RequestHeader {
            fields: fields.len() as u16,
            payload: payload.len() as u32,
            kind: request.kind(),
            id,
            acked,
            uid: USER,
            gid: 1234,
            ..RequestHeader::default()
        };
        [&header.to_bytes()[..], &fields, payload].concat()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes as much as the sockets take.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.be_patient(Duration::from_millis(20));
        let written = self.stream.write_all(bytes);
        self.stream.be_patient(PATIENCE);
        written
    }

    /// Sends a request with the next id; returns the id.
    pub(crate) fn send(&mut self, request: &Request<'_>, payload: &[u8]) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&Raw::bytes(id, self.acked, request, payload));
        id
    }

    /// Sends a request with the next id if the sockets take it; else nothing can be sent any more.
    pub(crate) fn try_send(&mut self, request: &Request<'_>) -> std::io::Result<()> {
        self.try_write(&Raw::bytes(self.next, self.acked, request, &[]))?;
        self.next += 1;
        Ok(())
    }

    pub(crate) fn try_reply(&mut self) -> std::io::Result<Reply> {
        let mut header = [0; REPLY_HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let header = ReplyHeader::from_bytes(&header).unwrap();
        let mut fields = vec![0; header.fields.into()];
        self.stream.read_exact(&mut fields)?;
        let mut payload = vec![0; header.payload as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Reply { id: header.id, errno: header.errno.into(), fields, payload })
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply().unwrap()
    }

    /// Sends a request and waits for its reply; nothing else is underway.
    pub(crate) fn ask(&mut self, request: &Request<'_>, payload: &[u8]) -> Reply {
        let id = self.send(request, payload);
        let reply = self.reply();
        assert_eq!(reply.id, id, "{reply:?}");
        self.acked = id + 1;
        reply
    }

    pub(crate) fn open(&mut self, handle: u32, path: &str, flags: u32) -> Reply {
        let identity = Identity::default();
        self.ask(&Request::Open(Open { handle, flags, mode: 0o644, identity, path: path.as_bytes() }), &[])
    }

    /// Opens in the name of somebody with these supplementary groups.
    pub(crate) fn open_of(&mut self, groups: &[u32], handle: u32, path: &str, flags: u32) -> Reply {
        let open = Open { handle, flags, mode: 0o644, identity: Identity::default(), path: path.as_bytes() };
        let mut fields: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        Request::Open(open).encode(&mut fields);
        let header = RequestHeader {
            fields: fields.len() as u16,
            kind: Request::Open(open).kind(),
            id: self.next,
            acked: self.acked,
            uid: USER,
            gid: 1234,
            groups: groups.len() as u16,
            ..RequestHeader::default()
        };
        self.next += 1;
        self.write(&[&header.to_bytes()[..], &fields].concat());
        self.reply()
    }

    pub(crate) fn read_at(&mut self, handle: u32, offset: u64, bytes: usize) -> Reply {
        self.ask(&Request::Read(transfer(handle, offset, bytes)), &[])
    }

    pub(crate) fn write_at(&mut self, handle: u32, offset: u64, bytes: &[u8]) -> Reply {
        self.ask(&Request::Write(transfer(handle, offset, bytes.len())), bytes)
    }

    /// The server has cut the connection, and has said why.
    pub(crate) fn is_cut(&mut self, errno: i32, text: &str) {
        loop {
            let reply = self.try_reply().unwrap_or_else(|error| panic!("expected `{text}`: {error}"));
            if reply.id == 0 {
                assert_eq!(reply.errno, errno, "{}", reply.text());
                assert!(reply.text().contains(text), "`{}` has no `{text}`", reply.text());
                break;
            }
        }
        self.is_over();
    }

    /// The server has closed the connection.
    pub(crate) fn is_over(&mut self) {
        let over = match self.try_reply() {
            Ok(reply) => panic!("{reply:?}"),
            Err(error) => error.kind(),
        };
        use std::io::ErrorKind;
        assert!(matches!(over, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{over}");
    }
}
