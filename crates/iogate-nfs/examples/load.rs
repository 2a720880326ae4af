//! A client of NFS version 3 that measures a server, any: jobs with a connection, an address and a file each.
//!
//! `load NFS_PORT MOUNT_PORT PATH JOBS[xDEPTH] FILE_MIB SECONDS [KIND:BYTES...]` with KIND of `randread`, `randwrite`, `read`, `write` and
//! `null` prints a line for each, with calls and MiB a second; `null` calls do nothing, and show what calls cost in any case. Each job has
//! DEPTH calls underway (1), and is a client of its own: it comes from an address of its own in 127.0.0.0/8, to 127.0.0.1. Writes are
//! UNSTABLE, with a COMMIT at the end, which counts. It takes root, as servers want clients from ports below 1024. bench/compare-nfs
//! runs it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use iogate_nfs::client::Connection;
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// From a port that takes root, as servers want it.
fn connect(from: Ipv4Addr, port: u16) -> Result<Connection, Failure> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connected = Connection::open(from, (600..1024).rev(), to, (0, 0));
    Ok(connected.map_err(|error| {
        format!("no connection to {to} from a port below 1024, which takes root: {error}")
    })?)
}

/// A file of this size; one that is there already is as good.
fn prepare(
    connection: &mut Connection,
    root: FileHandle,
    name: &str,
    bytes: u64,
) -> Result<FileHandle, Failure> {
    let attr = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let place = Place { dir: root, name: name.as_bytes() };
    let made = connection.call(&Request::Create { place, how: CreateHow::Unchecked(attr) })?;
    let Reply::Made { result: Ok((Some(file), attr)), .. } = made else {
        return Err(format!("{name} cannot be made: {made:?}").into());
    };
    if attr.is_some_and(|attr| attr.size >= bytes) {
        return Ok(file);
    }
    let data = vec![7; 1 << 20];
    for offset in (0..bytes).step_by(1 << 20) {
        send(connection, Kind::Write, file, offset, &data)?;
        check(connection, Kind::Write, data.len())?;
    }
    connection.commit(file)?;
    Ok(file)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Null,
    Read,
    Write,
}

/// Sends a call; `data` is what to write, or as long as what to read.
fn send(
    connection: &mut Connection,
    kind: Kind,
    file: FileHandle,
    offset: u64,
    data: &[u8],
) -> Result<(), Failure> {
    let count = data.len() as u32;
    let request = match kind {
        Kind::Null => Request::Null,
        Kind::Read => Request::Read { file, offset, count },
        Kind::Write => Request::Write { file, offset, count, stable: Stable::Unstable, data },
    };
    Ok(connection.send(&request)?)
}

/// Takes the answer to some call of that kind.
fn check(connection: &mut Connection, kind: Kind, bytes: usize) -> Result<(), Failure> {
    let found = connection.receive()?;
    let is_good = match kind {
        Kind::Null => found.is_empty(),
        Kind::Read => found.first_chunk() == Some(&[0; 4]) && found.len() > bytes,
        Kind::Write => match Reply::take(procedure::WRITE, &mut Reader::new(found))? {
            Some(Reply::Write { result: Ok(ok), .. }) => ok.count as usize == bytes,
            _ => false,
        },
    };
    if is_good { Ok(()) } else { Err("a read or write failed, or was short".into()) }
}

/// What jobs do.
#[derive(Clone, Copy)]
struct Load {
    kind: Kind,
    is_random: bool,
    bytes: u32,
    file_bytes: u64,
    depth: usize,
    time: Duration,
}

/// Calls of one job until the time is over.
fn job(connection: &mut Connection, file: FileHandle, load: Load) -> Result<u64, Failure> {
    let (began, mut sent, mut state) = (Instant::now(), 0u64, 0x9e37_79b9_7f4a_7c15u64);
    let (places, data) = (load.file_bytes / u64::from(load.bytes), vec![9; load.bytes as usize]);
    let mut calls = 0;
    loop {
        let goes_on = began.elapsed() < load.time;
        while goes_on && (sent - calls) < load.depth as u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = if load.is_random { (state >> 33) % places } else { sent % places };
            send(connection, load.kind, file, place * u64::from(load.bytes), &data)?;
            sent += 1;
        }
        if sent == calls {
            break;
        }
        check(connection, load.kind, data.len())?;
        calls += 1;
    }
    if load.kind == Kind::Write {
        connection.commit(file)?;
    }
    Ok(calls)
}

fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [port, mount_port, path, jobs, file_mib, seconds, wanted @ ..] = &given[..] else {
        return Err("expected NFS_PORT MOUNT_PORT PATH JOBS[xDEPTH] FILE_MIB SECONDS [KIND:BYTES...]".into());
    };
    let port: u16 = port.parse()?;
    let (jobs, depth) = jobs.split_once('x').unwrap_or((jobs, "1"));
    let (jobs, depth): (usize, usize) = (jobs.parse()?, depth.parse()?);
    let (file_bytes, time) =
        (file_mib.parse::<u32>().map(u64::from)? << 20, Duration::from_secs_f64(seconds.parse()?));
    let root = connect(Ipv4Addr::LOCALHOST, mount_port.parse()?)?.mount(path.as_bytes())?;
    let mut files = Vec::new();
    for index in 0..jobs {
        let from = Ipv4Addr::new(127, 1, (index / 200) as u8, (index % 200 + 1) as u8);
        let mut connection = connect(from, port)?;
        let file = prepare(&mut connection, root, &format!("load-{index}"), file_bytes)?;
        files.push((connection, file));
    }
    for one in wanted {
        let (kind, bytes) = one.split_once(':').ok_or("expected KIND:BYTES")?;
        let load = Load {
            kind: match kind {
                "null" => Kind::Null,
                "read" | "randread" => Kind::Read,
                "write" | "randwrite" => Kind::Write,
                _ => {
                    return Err(
                        format!("expected randread, randwrite, read, write or null, found `{kind}`").into()
                    );
                }
            },
            is_random: kind.starts_with("rand"),
            bytes: bytes.parse()?,
            file_bytes,
            depth,
            time,
        };
        let (barrier, began) = (Barrier::new(jobs), Instant::now());
        let calls: u64 = std::thread::scope(|scope| {
            let barrier = &barrier;
            let mut started = Vec::new();
            for (connection, file) in &mut files {
                let file = *file;
                started.push(scope.spawn(move || {
                    barrier.wait();
                    job(connection, file, load)
                }));
            }
            started
                .into_iter()
                .map(|job| job.join().map_err(|_| "a job ended".into()).flatten())
                .sum::<Result<u64, Failure>>()
        })?;
        let took = began.elapsed().as_secs_f64();
        let mib = calls as f64 * f64::from(load.bytes) / f64::from(1 << 20) / took;
        println!("{kind} {bytes} jobs={jobs}x{depth} calls/s={:.0} MiB/s={mib:.1}", calls as f64 / took);
    }
    Ok(())
}
