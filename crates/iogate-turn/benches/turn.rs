//! What taking turns costs: a free turn, taken and released, over a Unix socket and over TCP on loopback, by the library and by a client
//! that is made by hand and does nothing else; and a probe of a quiet directory.
//!
//! The coordinator runs here too, with its journal in a temporary directory. Cases run in interleaved rounds, so that a
//! noisy neighbour hits all of them; each reports the median of its rounds' medians. `--rounds N` (9) and `--turns N` (2000) bound the
//! run; `--quick` is one round of 200; `--json` prints one object a line.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use iogate_core::wire::{
    Claim, Granted, Hello, MAGIC, REPLY_HEADER_BYTES, Record, Release, ReplyHeader, Request, RequestHeader,
    VERSION, auth,
};
use iogate_net::coordinator::{Coordinator, CoordinatorConfig, EXPORT, Local};
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener};
use iogate_turn::{Place, Settings, Turns, Wish, probe};
use iogate_vfs::Caller;

struct Case {
    name: &'static str,
    /// Once; a round repeats it.
    run: Box<dyn FnMut()>,
    /// It gets one where a case of cost 1 gets so many.
    cost: usize,
    /// Median microseconds of each round.
    rounds_us: Vec<f64>,
    /// All of the last round, sorted.
    last_us: Vec<f64>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut json, mut rounds, mut turns) = (false, 9, 2000);
    while let Some(argument) = arguments.next() {
        let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
        match argument.as_str() {
            "--json" => json = true,
            "--rounds" => rounds = number(rounds),
            "--turns" => turns = number(turns),
            "--quick" => (rounds, turns) = (1, 200),
            // Cargo's.
            _ => {}
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Local::open(&folder.path().join("journal")).expect("a journal");
    let endpoints =
        [Endpoint::Unix(folder.path().join("socket")), "127.0.0.1:0".parse().expect("an endpoint")];
    let listen = |endpoint: &Endpoint| {
        Listener::bind(endpoint, Policy::None { user: Caller::NOBODY, on_any_network: false })
            .expect("a listener")
    };
    let listeners = endpoints.iter().map(listen).collect();
    let coordinator = Coordinator::start(CoordinatorConfig::default(), listeners, Box::new(journal));
    let coordinator = coordinator.expect("a coordinator");
    let [unix, tcp] = coordinator.endpoints() else { unreachable!("it listens at two") };
    let directory = folder.path().to_owned();
    let case = |name, cost, run| Case { name, run, cost, rounds_us: Vec::new(), last_us: Vec::new() };
    let mut cases = [
        case("free turn, unix", 1, free_turn(unix)),
        case("by hand, unix", 1, by_hand(unix)),
        case("free turn, tcp", 1, free_turn(tcp)),
        case("by hand, tcp", 1, by_hand(tcp)),
        case(
            "probe of 3 MiB",
            200,
            Box::new(move || {
                probe::measure(&directory, 256 << 10, 3 << 20).expect("it can be written to");
            }),
        ),
    ];
    for _ in 0..rounds {
        for Case { run, cost, rounds_us, last_us, .. } in &mut cases {
            last_us.clear();
            for _ in 0..(turns / *cost).max(1) {
                let since = Instant::now();
                run();
                last_us.push(since.elapsed().as_nanos() as f64 / 1e3);
            }
            last_us.sort_by(f64::total_cmp);
            rounds_us.push(last_us[last_us.len() / 2]);
        }
    }
    if !json {
        println!("{:<20} {:>10} {:>10} {:>10} {:>10}", "case", "us median", "min", "max", "us p99");
    }
    for Case { name, rounds_us, last_us, .. } in &mut cases {
        rounds_us.sort_by(f64::total_cmp);
        let (median, min, max) =
            (rounds_us[rounds_us.len() / 2], rounds_us[0], rounds_us[rounds_us.len() - 1]);
        let p99 = last_us[(last_us.len() * 99 / 100).min(last_us.len() - 1)];
        if json {
            println!(
                r#"{{"case":"{name}","us_median":{median:.2},"us_min":{min:.2},"us_max":{max:.2},"us_p99":{p99:.2}}}"#
            );
        } else {
            println!("{name:<20} {median:>10.2} {min:>10.2} {max:>10.2} {p99:>10.2}");
        }
    }
}

fn free_turn(endpoint: &Endpoint) -> Box<dyn FnMut()> {
    let settings = Settings::read(&|name| match name {
        "IOGATE_COORD" => Some(endpoint.to_string()),
        "IOGATE_COORD_AUTH" => Some("none".into()),
        _ => None,
    });
    let turns = Turns::new(settings.expect("they are right")).expect("no files are named");
    let place = Place::named("scratch");
    Box::new(move || {
        let turn = turns.take(&place, &Wish::default()).expect("nobody else wants it");
        turn.release().expect("it is held");
    })
}

/// The same by a client that only sends requests and reads answers, in a thread that waits for them: what can be had at best.
fn by_hand(endpoint: &Endpoint) -> Box<dyn FnMut()> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            turns_over(stream)
        }
        Endpoint::Unix(path) => turns_over(UnixStream::connect(path).expect("a connection")),
    }
}

fn turns_over(mut stream: impl Read + Write + 'static) -> Box<dyn FnMut()> {
    let hello = Request::Hello(Hello {
        magic: MAGIC,
        version: VERSION,
        auth: auth::NONE,
        session: [0; 16],
        node: 0,
        nodes: 0,
        instance: 0,
        client: [7; 16],
        flags: 0,
        export: EXPORT.as_bytes(),
        name: b"bench",
    });
    ask(&mut stream, 0, &hello);
    let mut next = 1;
    Box::new(move || {
        let claim = Request::Claim(Claim {
            bytes: 0,
            weight: 1,
            period: 0,
            place: b"scratch",
            members: b"",
            party: b"",
            label: b"",
        });
        let granted = Granted::decode(&ask(&mut stream, next, &claim)).expect("a grant");
        ask(&mut stream, next + 1, &Request::Release(Release { token: granted.token, bytes: 0 }));
        next += 2;
    })
}

/// Sends a request, and returns the fields of its answer.
fn ask(stream: &mut (impl Read + Write), id: u64, request: &Request<'_>) -> Vec<u8> {
    let mut out = RequestHeader::default().to_bytes().to_vec();
    let start = out.len();
    request.encode(&mut out);
    let fields = (out.len() - start) as u16;
    let header = RequestHeader { fields, kind: request.kind(), id, acked: id, ..RequestHeader::default() };
    out[..start].copy_from_slice(&header.to_bytes());
    stream.write_all(&out).expect("it takes requests");
    let mut room = [0; 512];
    let mut count = 0;
    loop {
        count += stream.read(&mut room[count..]).expect("it answers");
        if let Some(header) = room[..count].first_chunk::<REPLY_HEADER_BYTES>() {
            let header = ReplyHeader::from_bytes(header).expect("a reply");
            assert_eq!(header.errno, 0, "it is not refused");
            let end = REPLY_HEADER_BYTES + usize::from(header.fields);
            if count >= end {
                return room[REPLY_HEADER_BYTES..end].to_vec();
            }
        }
    }
}
