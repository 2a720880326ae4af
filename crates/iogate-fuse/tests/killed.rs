//! A process that waits for a server that hangs can be killed, and leaves nothing behind.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Mount, can_mount};
use iogate_fuse::{CacheMode, MountOptions, Transport};
use iogate_net::Endpoint;

/// A way to a server, on which nothing gets on while it is held up.
#[derive(Clone, Default)]
struct Way {
    held_up: Arc<AtomicBool>,
    /// Something waits.
    waits: Arc<AtomicBool>,
}

impl Way {
    /// Begins to pass on to a server; returns where.
    fn to(&self, server: &Endpoint) -> Endpoint {
        let Endpoint::Tcp { host, port } = server.clone() else { panic!("a TCP endpoint") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let way = self.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((host.as_str(), port)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let way = way.clone();
                    std::thread::spawn(move || way.pass(from, to));
                }
            }
        });
        Endpoint::Tcp { host: "127.0.0.1".into(), port: own.port() }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while self.held_up.load(Ordering::SeqCst) {
                self.waits.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    }

    fn hold_up(&self) {
        self.waits.store(false, Ordering::SeqCst);
        self.held_up.store(true, Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.held_up.store(false, Ordering::SeqCst);
    }
}

fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// A mount of a server behind a way, with a few files. What is known of these is asked for again after `metadata_timeout`.
fn mount(cache: CacheMode, metadata_timeout: Duration) -> (Mount, Way) {
    let way = Way::default();
    let transport = Transport::Device;
    let options = MountOptions { cache, transport, metadata_timeout, ..MountOptions::default() };
    let mount = Mount::through(&options, |server| way.to(server));
    std::fs::create_dir(mount.at("d")).unwrap();
    for name in ["d/a", "d/b", "file"] {
        std::fs::write(mount.at(name), [b'x'; 100_000]).unwrap();
    }
    (mount, way)
}

/// Starts a shell's script, which says that it has begun and waits for a line; what it does then, the server does not answer. Kills it.
fn is_killed(mount: &Mount, way: &Way, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(&mount.path);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n", "{script}");
    way.hold_up();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let waits = happens(|| way.waits.load(Ordering::SeqCst));
    child.kill().unwrap();
    let mut ended = None;
    happens(|| {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    // If it has not ended: else the mount could not be taken off.
    way.go_on();
    assert!(waits, "`{script}` asks the server for something");
    assert_eq!(ended.and_then(|status| status.signal()), Some(libc::SIGKILL), "`{script}` has been killed");
}

/// What was opened for those who are gone is closed.
fn is_closed(mount: &Mount) {
    let open_files = || {
        let status = mount.server.as_ref().unwrap().status();
        status.connections.iter().map(|connection| connection.open_files).sum::<usize>()
    };
    assert!(happens(|| open_files() == 0), "{} files are open", open_files());
}

#[test]
fn a_process_that_waits_for_a_server_that_hangs_can_be_killed() {
    if !can_mount() {
        return;
    }
    for cache in [CacheMode::Direct, CacheMode::Page] {
        let (mount, way) = mount(cache, Duration::ZERO);
        for script in [
            "echo begun; read; exec stat file",
            "echo begun; read; exec ls -l d",
            "exec 3< file; echo begun; read; exec cat <&3",
        ] {
            is_killed(&mount, &way, script);
        }
        assert_eq!(std::fs::read(mount.at("file")).unwrap(), [b'x'; 100_000]);
        is_closed(&mount);
    }
}

#[test]
fn what_is_opened_for_a_killed_process_is_closed() {
    if !can_mount() {
        return;
    }
    let (mount, way) = mount(CacheMode::Direct, Duration::from_secs(600));
    // Everything is known but the open file.
    is_killed(&mount, &way, "stat file >&2; echo begun; read; exec cat file");
    assert_eq!(std::fs::read(mount.at("file")).unwrap(), [b'x'; 100_000]);
    is_closed(&mount);
}

#[test]
fn a_mount_whose_server_hangs_says_how_it_is() {
    if !can_mount() {
        return;
    }
    for transport in [Transport::Device, Transport::Auto] {
        let way = Way::default();
        let options = MountOptions { transport, metadata_timeout: Duration::ZERO, ..MountOptions::default() };
        let mount = Mount::through(&options, |server| way.to(server));
        std::fs::write(mount.at("file"), "x").unwrap();
        way.hold_up();
        let mut waits = Command::new("cat").arg(mount.at("file")).stdout(Stdio::null()).spawn().unwrap();
        assert!(happens(|| way.waits.load(Ordering::SeqCst)), "the file is asked for");
        let (path, (tell, told)) = (mount.path.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let refused = iogate_fuse::set(&path, "nonsense").unwrap_err().to_string();
            iogate_fuse::set(&path, "scheduler=sjf").unwrap();
            let _ = tell.send((iogate_fuse::status(&path).unwrap(), refused));
        });
        let told = told.recv_timeout(Duration::from_secs(20));
        way.go_on();
        let (status, refused) = told.expect("the mount answers while its server hangs");
        assert_eq!(status, b"told 1");
        assert_eq!(refused, "expected key=value, got nonsense");
        assert!(waits.wait().unwrap().success());
    }
}
