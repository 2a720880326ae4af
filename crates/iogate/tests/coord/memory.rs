//! What ten thousand clients cost that wait.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use iogate_core::wire::{Claim, Hello, MAGIC, Request, RequestHeader, Status, VERSION, auth};
use iogate_net::Endpoint;
use iogate_net::coordinator::EXPORT;
use iogate_net::turns::{Coordinator, CoordinatorOptions, Limits, Wanted};
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
    wait_for(&coordinator, |status| status["waiting"] == clients - 1);
    let bytes = daemon.memory();
    assert!(bytes < RSS_MAX, "{} MiB for {clients} clients", bytes >> 20);
    // They are there, and are answered.
    let mut header = [0; 16];
    (&streams[clients - 1]).read_exact(&mut header).unwrap();
}

#[test]
fn a_flood_of_questions_costs_neither_memory_nor_turns() {
    let dir = tempfile::tempdir().unwrap();
    let socket = unix(dir.path(), "socket");
    let Endpoint::Unix(path) = &socket else { unreachable!("it is one") };
    let (at, state) = (socket.to_string(), dir.path().join("state"));
    let daemon = Daemon::coordinator(&["--listen", &at, "--state", state.to_str().unwrap()]);
    let mut claimants: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = UnixStream::connect(path).unwrap();
            let claims = (1..=1000).flat_map(|id| claim_as(id, "party", "some job or other"));
            let bytes: Vec<u8> = hello().into_iter().chain(claims).collect();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    let coordinator = Coordinator::new(vec![socket.clone()], CoordinatorOptions::default());
    wait_for(&coordinator, |status| status["counters"]["claims"] == 5000);
    // They ask as long as anybody reads what they say, and read nothing themselves.
    let asks: Vec<u8> = (1..2000).flat_map(|id| message(id, &Request::Status(Status {}))).collect();
    let flood: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(&hello()).unwrap();
            stream.set_nonblocking(true).unwrap();
            for _ in 0..10 {
                let _ = stream.write(&asks);
            }
            stream
        })
        .collect();
    // Claims of others are answered meanwhile.
    let wanted = Wanted { place: "another".into(), ..Wanted::default() };
    for _ in 0..20 {
        let limits = Limits::patience(std::time::Duration::from_secs(30));
        coordinator.claim(&wanted, &limits).unwrap().release(0).unwrap();
    }
    let most = daemon.most_memory();
    assert!(most < RSS_MAX, "{} MiB", most >> 20);
    drop(flood);
    let mut header = [0; 16];
    claimants[0].read_exact(&mut header).unwrap();
}

/// Asks for the status until it is as it should be. On a busy machine an answer may not come in time: then again.
fn wait_for(coordinator: &Coordinator, is_so: impl Fn(&Value) -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        let status = coordinator.status();
        let found = status.as_ref().ok().map(|bytes| serde_json::from_slice(bytes).unwrap());
        if found.as_ref().is_some_and(&is_so) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
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
    claim_as(1, "", &format!("job {number}"))
}

fn claim_as(id: u64, party: &str, label: &str) -> Vec<u8> {
    message(
        id,
        &Request::Claim(Claim {
            bytes: 0,
            weight: 1,
            period: 0,
            place: b"nfs:io1:/scratch",
            members: &[0, 0, 0, 0, 1, 0, 0, 0],
            party: party.as_bytes(),
            label: label.as_bytes(),
        }),
    )
}
