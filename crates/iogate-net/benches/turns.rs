//! What a turn costs at a coordinator: a free one, over a Unix socket and over TCP, and as many as it can give to 64 connections.
//!
//! The coordinator runs here, with its journal in a temporary directory; the clients are made by hand and do nothing else. Beside each,
//! the same bytes go through sockets of the same kind to a thread that only reads what is ready and answers. `cpu_us` is the CPU time of a
//! turn, of both ends.
//! `--turns N` (20000) bounds a round, `--rounds N` (5) how many there are; `--quick` is one round of 200; `--json` prints one
//! object a line.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use iogate_core::wire::{
    Claim, Goodbye, Granted, Hello, MAGIC, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, Release,
    ReplyHeader, Request, RequestHeader, VERSION, auth,
};
use iogate_net::coordinator::{Coordinator, CoordinatorConfig, EXPORT, Local};
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener};
use iogate_vfs::Caller;
use rustix::event::epoll;

/// Connections that take turns together, and threads that drive them.
const CONNECTIONS: usize = 64;
const THREADS: usize = 2;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut json, mut rounds, mut turns) = (false, 5, 20_000_usize);
    while let Some(argument) = arguments.next() {
        let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
        match argument.as_str() {
            "--json" => json = true,
            "--rounds" => rounds = number(5),
            "--turns" => turns = number(20_000),
            "--quick" => (rounds, turns) = (1, 200),
            // What `cargo bench` passes.
            _ => {}
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let journal = Local::open(&dir.path().join("state")).expect("a journal");
    let anybody = Policy::None { user: Caller::new(7, 8), on_any_network: false };
    let tcp = Listener::bind(&"127.0.0.1:0".parse().expect("an address"), anybody).expect("a port");
    let socket = Endpoint::Unix(dir.path().join("socket"));
    let unix = Listener::bind(&socket, Policy::Peer).expect("a socket");
    let coordinator = Coordinator::start(CoordinatorConfig::default(), vec![tcp, unix], Box::new(journal))
        .expect("a start");
    let (tcp, unix) = (&coordinator.endpoints()[0], &coordinator.endpoints()[1]);
    for round in 0..rounds {
        for (name, endpoint) in [("unix", unix), ("tcp", tcp)] {
            let median = free_turn(endpoint, turns.div_ceil(10));
            report(json, round, &format!("free turn, {name}"), "median_ns", median);
        }
        for (name, endpoint) in [("unix", unix), ("tcp", tcp)] {
            let cases: [(&str, &dyn Fn() -> f64); 2] =
                [("", &|| together(endpoint, turns)), ("raw ", &|| raw_together(endpoint, turns))];
            for (kind, run) in cases {
                let before = cpu_us();
                let rate = run();
                let cpu = (cpu_us() - before) / turns as f64;
                let name = format!("{kind}{CONNECTIONS} connections, {name}");
                report(json, round, &name, "turns_per_s", rate);
                report(json, round, &name, "cpu_us", cpu);
            }
        }
    }
}

fn report(json: bool, round: usize, name: &str, unit: &str, value: f64) {
    if json {
        println!("{{\"name\":\"{name}\",\"round\":{round},\"{unit}\":{value:.2}}}");
    } else {
        println!("{name:<28} {value:>12.2} {unit}");
    }
}

/// The median time from sending a claim that is in nobody's way until it is granted, in nanoseconds.
fn free_turn(endpoint: &Endpoint, turns: usize) -> f64 {
    let mut client = Client::connect(endpoint, 0);
    let mut times: Vec<_> = (0..turns)
        .map(|_| {
            let begin = Instant::now();
            client.send(None);
            let token = client.granted();
            let time = begin.elapsed();
            client.release(token);
            time.as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Turns in a second, each connection on a place of its own: it sends a release and its next claim together.
fn together(endpoint: &Endpoint, turns: usize) -> f64 {
    let each = turns.div_ceil(CONNECTIONS).max(2);
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|number| Client::connect(endpoint, number)).collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for clients in clients.chunks_mut(CONNECTIONS / THREADS) {
            scope.spawn(move || {
                let mut tokens = vec![None; clients.len()];
                for _ in 0..each {
                    clients.iter_mut().zip(&tokens).for_each(|(client, &token)| client.send(token));
                    for (client, token) in clients.iter_mut().zip(&mut tokens) {
                        *token = Some(client.granted());
                    }
                }
            });
        }
    });
    let rate = (each * CONNECTIONS) as f64 / begin.elapsed().as_secs_f64();
    // The places are free for whoever comes next.
    clients.iter_mut().for_each(Client::part);
    rate
}

/// CPU time of this process so far.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// About as many bytes as a release and a claim have, and what answers them.
const ASKED_BYTES: usize = 2 * REQUEST_HEADER_BYTES + 16 + 45;
const TOLD_BYTES: usize = 2 * REPLY_HEADER_BYTES + 29;

/// As [`together`], by sockets alone: one thread waits for all, reads from each that is ready, and then answers each.
fn raw_together(endpoint: &Endpoint, turns: usize) -> f64 {
    let each = turns.div_ceil(CONNECTIONS).max(2);
    let pair = || -> (Box<dyn Stream>, OwnedFd) {
        match endpoint {
            Endpoint::Tcp { .. } => {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                let near =
                    TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
                let (far, _) = listener.accept().expect("a connection");
                [&near, &far].into_iter().for_each(|stream| stream.set_nodelay(true).expect("a socket"));
                (Box::new(near), far.into())
            }
            Endpoint::Unix(_) => {
                let (near, far) = UnixStream::pair().expect("two sockets");
                (Box::new(near), far.into())
            }
        }
    };
    let (mut near, far): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
    let server = std::thread::spawn(move || answer_all(&far));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for streams in near.chunks_mut(CONNECTIONS / THREADS) {
            scope.spawn(move || {
                let mut told = [0; TOLD_BYTES];
                for _ in 0..each {
                    let asked = [1; ASKED_BYTES];
                    streams.iter_mut().for_each(|stream| stream.write_all(&asked).expect("it is read"));
                    for stream in streams.iter_mut() {
                        stream.read_exact(&mut told).expect("it is answered");
                    }
                }
            });
        }
    });
    let rate = (each * CONNECTIONS) as f64 / begin.elapsed().as_secs_f64();
    drop(near);
    server.join().expect("it only reads and answers");
    rate
}

/// Answers until all other ends are gone. What is asked comes as a whole: it is sent in one call.
fn answer_all(sockets: &[OwnedFd]) {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a poller");
    for (index, socket) in sockets.iter().enumerate() {
        let index = epoll::EventData::new_u64(index as u64);
        epoll::add(&poller, socket.as_fd(), index, epoll::EventFlags::IN).expect("a socket");
    }
    let mut events = Vec::with_capacity(CONNECTIONS);
    let (mut left, mut asked) = (sockets.len(), [0; 4096]);
    while left > 0 {
        events.clear();
        epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None).expect("sockets");
        events.retain(|event: &epoll::Event| {
            let socket = &sockets[event.data.u64() as usize];
            let is_there = rustix::io::read(socket, &mut asked).is_ok_and(|count| count > 0);
            if !is_there {
                epoll::delete(&poller, socket).expect("it was there");
                left -= 1;
            }
            is_there
        });
        for event in &events {
            rustix::io::write(&sockets[event.data.u64() as usize], &[1; TOLD_BYTES]).expect("it is read");
        }
    }
}

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

struct Client {
    stream: Box<dyn Stream>,
    next: u64,
    place: String,
    incoming: Vec<u8>,
    out: Vec<u8>,
}

impl Client {
    fn connect(endpoint: &Endpoint, number: usize) -> Client {
        let (stream, auth): (Box<dyn Stream>, u8) = match endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).expect("a connection");
                stream.set_nodelay(true).expect("no delay");
                (Box::new(stream), auth::NONE)
            }
            Endpoint::Unix(path) => {
                (Box::new(UnixStream::connect(path).expect("a connection")), auth::SOCKET)
            }
        };
        let place = format!("place-{number}");
        let mut client = Client { stream, next: 0, place, incoming: Vec::new(), out: Vec::new() };
        client.queue(&Request::Hello(Hello {
            magic: MAGIC,
            version: VERSION,
            auth,
            session: [0; 16],
            node: 0,
            nodes: 0,
            instance: 0,
            client: [7; 16],
            flags: 0,
            export: EXPORT.as_bytes(),
            name: b"bench",
        }));
        client.flush();
        client.reply();
        client
    }

    fn queue(&mut self, request: &Request<'_>) -> u64 {
        let (id, start) = (self.next, self.out.len());
        self.next += 1;
        self.out.extend_from_slice(&RequestHeader::default().to_bytes());
        let fields = self.out.len();
        request.encode(&mut self.out);
        let header = RequestHeader {
            fields: (self.out.len() - fields) as u16,
            kind: request.kind(),
            id,
            acked: id,
            ..RequestHeader::default()
        };
        self.out[start..fields].copy_from_slice(&header.to_bytes());
        id
    }

    fn flush(&mut self) {
        self.stream.write_all(&self.out).expect("it takes requests");
        self.out.clear();
    }

    /// Sends a claim, behind the release of a turn if there is one.
    fn send(&mut self, token: Option<u64>) {
        if let Some(token) = token {
            self.queue(&Request::Release(Release { token, bytes: 1 << 20 }));
        }
        let place = std::mem::take(&mut self.place);
        self.queue(&Request::Claim(Claim {
            bytes: 1 << 20,
            weight: 1,
            period: 0,
            place: place.as_bytes(),
            members: b"",
            party: b"",
            label: b"job",
        }));
        self.place = place;
        self.flush();
    }

    fn release(&mut self, token: u64) {
        self.queue(&Request::Release(Release { token, bytes: 0 }));
        self.flush();
        self.reply();
    }

    fn part(&mut self) {
        self.queue(&Request::Goodbye(Goodbye {}));
        self.flush();
        self.reply();
    }

    /// The token of the next grant that comes.
    fn granted(&mut self) -> u64 {
        loop {
            let fields = self.reply();
            if !fields.is_empty() {
                return Granted::decode(&fields).expect("a grant").token;
            }
        }
    }

    fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(header) = self.incoming.first_chunk::<REPLY_HEADER_BYTES>() {
                let header = ReplyHeader::from_bytes(header).expect("a reply");
                assert_eq!(header.errno, 0, "it is not refused");
                let end = REPLY_HEADER_BYTES + usize::from(header.fields);
                if self.incoming.len() >= end {
                    let fields = self.incoming[REPLY_HEADER_BYTES..end].to_vec();
                    self.incoming.drain(..end);
                    return fields;
                }
            }
            let mut room = [0; 4096];
            let count = self.stream.read(&mut room).expect("it answers");
            assert!(count > 0, "it ends the connection");
            self.incoming.extend_from_slice(&room[..count]);
        }
    }
}
