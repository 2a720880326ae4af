//! The example file server under load: every byte that clients wrote is there, through any connection, and aggregated on its way.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{compile, root};

const READ: u32 = 0;
const WRITE: u32 = 1;
const CELL: usize = 1024;
const CELLS: u64 = 64;
const CLIENTS: u64 = 8;

struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Client {
        let began = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Client(stream),
                Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn call(&mut self, op: u32, file: u32, offset: u64, bytes: u32, payload: &[u8]) -> i64 {
        let mut message = Vec::new();
        message.extend(op.to_ne_bytes());
        message.extend(file.to_ne_bytes());
        message.extend(offset.to_ne_bytes());
        message.extend(bytes.to_ne_bytes());
        message.extend(7u32.to_ne_bytes());
        message.extend(payload);
        self.0.write_all(&message).unwrap();
        let mut result = [0; 8];
        self.0.read_exact(&mut result).unwrap();
        i64::from_ne_bytes(result)
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> i64 {
        self.call(WRITE, file, offset, bytes.len() as u32, bytes)
    }

    fn read(&mut self, file: u32, offset: u64, bytes: u32) -> Vec<u8> {
        let count = self.call(READ, file, offset, bytes, &[]);
        let mut memory = vec![0; usize::try_from(count).expect("the read works")];
        self.0.read_exact(&mut memory).unwrap();
        memory
    }
}

/// Ends the server with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a client writes into its cell.
fn cell(client: u64, index: u64) -> Vec<u8> {
    vec![(client * 31 + index * 7 + 1) as u8; CELL]
}

fn load(scheduler: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("file_server");
    compile(&root().join("examples/file_server.c"), &program, &[]);
    let (files, socket) = (folder.path().join("files"), folder.path().join("socket"));
    std::fs::create_dir(&files).unwrap();
    let mut command = Command::new(&program);
    command.arg(&files).arg(&socket).arg(scheduler).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let socket = &socket;
            scope.spawn(move || {
                let mut connection = Client::connect(socket);
                // All clients' cells lie one behind another in each of four files.
                for index in 0..CELLS {
                    let (file, at) = ((index % 4) as u32, (index / 4 * CLIENTS + client) * CELL as u64);
                    assert_eq!(connection.write(file, at, &cell(client, index)), CELL as i64);
                    assert_eq!(connection.read(file, at, CELL as u32), cell(client, index));
                }
            });
        }
    });
    let mut connection = Client::connect(&socket);
    for index in 0..CELLS {
        let round = connection.read(
            (index % 4) as u32,
            index / 4 * CLIENTS * CELL as u64,
            (CLIENTS as u32) * CELL as u32,
        );
        for client in 0..CLIENTS {
            assert_eq!(&round[client as usize * CELL..][..CELL], cell(client, index));
        }
    }
    let end = CELLS / 4 * CLIENTS * CELL as u64;
    assert_eq!(connection.read(0, end - 10, 100).len(), 10, "the end of the file");
    assert_eq!(connection.call(READ, 99, 0, 1, &[]), -i64::from(libc::ENOENT));
    assert_eq!(connection.call(READ, 0, 0, 0, &[]), -i64::from(libc::EINVAL));
    // SAFETY: our own child.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) };
    let mut said = String::new();
    server.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(server.0.wait().unwrap().success());
    let stats: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(stats["write"]["requests"], CLIENTS * CELLS, "{said}");
    assert_eq!(stats["read"]["requests"], CLIENTS * CELLS + CELLS + 1, "{said}");
}

#[test]
fn a_file_server_under_load() {
    load("to-agg");
}

#[test]
fn a_file_server_that_waits_for_better_runs() {
    load("aioli:contiguous_wait=100us,wait_max=100us");
}
