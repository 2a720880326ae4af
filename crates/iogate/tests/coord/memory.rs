//! What ten thousand clients cost that wait.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use iogate_core::wire::{Claim, Hello, MAGIC, Request, RequestHeader, VERSION, auth};
use iogate_net::Endpoint;
use iogate_net::coordinator::EXPORT;
use iogate_net::turns::{Coordinator, CoordinatorOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use super::daemon::{Daemon, unix};

const CLIENTS: usize = 10_000;
const RSS_MAX: u64 = 200 << 20;

#[test]
fn ten_thousand_that_wait_fit_into_200_mib() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let clients = match limit.maximum {
        Some(most) => CLIENTS.min(usize::try_from(most).unwrap_or(CLIENTS).saturating_sub(500)),
        None => CLIENTS,
    };
    let dir = tempfile::tempdir().unwrap();
    let socket = unix(dir.path(), "socket");
    let Endpoint::Unix(path) = &socket else { unreachable!("it is one") };
    let (at, state) = (socket.to_string(), dir.path().join("state"));
    let daemon = Daemon::coordinator(&["--listen", &at, "--state", state.to_str().unwrap()]);
    let streams: Vec<_> = (0..clients)
        .map(|number| {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(&hello()).unwrap();
            stream.write_all(&claim(number)).unwrap();
            stream
        })
        .collect();
    let coordinator = Coordinator::new(vec![socket.clone()], CoordinatorOptions::default());
    loop {
        let status: Value = serde_json::from_slice(&coordinator.status().unwrap()).unwrap();
        if status["waiting"] == clients - 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let bytes = daemon.memory();
    assert!(bytes < RSS_MAX, "{} MiB for {clients} clients", bytes >> 20);
    // They are there, and are answered.
    let mut header = [0; 16];
    (&streams[clients - 1]).read_exact(&mut header).unwrap();
}

fn message(id: u64, request: &Request<'_>) -> Vec<u8> {
    let mut fields = Vec::new();
    request.encode(&mut fields);
    let header =
        RequestHeader { fields: fields.len() as u16, kind: request.kind(), id, ..RequestHeader::default() };
    [&header.to_bytes()[..], &fields].concat()
}

fn hello() -> Vec<u8> {
    message(
        0,
        &Request::Hello(Hello {
            magic: MAGIC,
            version: VERSION,
            auth: auth::SOCKET,
            session: [0; 16],
            node: 0,
            nodes: 0,
            instance: 0,
            client: [7; 16],
            flags: 0,
            export: EXPORT.as_bytes(),
            name: b"node-0123:12345",
        }),
    )
}

fn claim(number: usize) -> Vec<u8> {
    let label = format!("job {number}");
    message(
        1,
        &Request::Claim(Claim {
            bytes: 0,
            weight: 1,
            period: 0,
            place: b"nfs:io1:/scratch",
            members: &[0, 0, 0, 0, 1, 0, 0, 0],
            party: b"",
            label: label.as_bytes(),
        }),
    )
}
