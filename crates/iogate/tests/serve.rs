//! `iogate serve`, and asking it: what it refuses, what it completes, what it says. Over Unix sockets, so that no port is taken.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iogate_core::wire::{self, Failure, Hello, Record, ReplyHeader, Request, RequestHeader, open};
use iogate_core::{AppId, ClientId, Time};
use iogate_engine::Origin;
use iogate_net::Endpoint;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_vfs::{Caller, OpenHow, Tree};
use serde_json::Value;

fn iogate(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn refused(args: &[&str], folder: &Path, status: i32, said: &[&str]) {
    let output = iogate(args, folder);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.starts_with("error: ") && !error.contains("panicked"), "{error}");
    for part in said {
        assert!(error.contains(part), "{error}\nshould contain\n{part}");
    }
    assert_eq!(text(&output.stdout), "");
}

/// A server in a folder of its own, or in another's.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// `rest` are the export's keys; `before` is what stands before its table.
    fn start(folder: &Path, name: &str, before: &str, rest: &str) -> Server {
        let iogate = Command::new(env!("CARGO_BIN_EXE_iogate"));
        Server::start_as(iogate, folder, name, before, rest)
    }

    /// By a command that only lacks what comes after the program's name.
    fn start_as(mut iogate: Command, folder: &Path, name: &str, before: &str, rest: &str) -> Server {
        let config = configuration(folder, name, before, rest);
        iogate.args(["serve".as_ref(), config.as_os_str()]).stdout(Stdio::piped());
        let mut child = iogate.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap() == "ready"), "{name} does not start");
        Server { child, socket: folder.join(format!("{name}.socket")) }
    }

    /// Of the folder's directory `data`.
    fn of_data(folder: &Path, gate: &str) -> Server {
        std::fs::create_dir_all(folder.join("data")).unwrap();
        let users = format!("forwarders = [{}]\nusers = {{ squash = \"none\" }}", me().uid);
        let export = format!("directory = \"{}/data\"\ngate = {gate}\n{users}\n", folder.display());
        Server::start(folder, "data", "", &export)
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket.clone())
    }

    fn address(&self) -> String {
        self.endpoint().to_string()
    }

    fn remote(&self) -> Remote {
        let client = ClientOptions { retry_for: Duration::from_secs(1), ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        Remote::connect(&[self.endpoint()], &options).unwrap()
    }

    fn status(&self) -> Value {
        let output = iogate(&["status", &self.address(), "--json"], Path::new("/"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks it to end; its exit status.
    fn stop(&mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(folder: &Path, name: &str, before: &str, rest: &str) -> PathBuf {
    let path = folder.join(format!("{name}.toml"));
    let socket = folder.join(format!("{name}.socket"));
    let config = format!("{before}\n[[listen]]\nat = \"unix:{}\"\n[[export]]\n{rest}\n", socket.display());
    std::fs::write(&path, config).unwrap();
    path
}

/// Whose files those of the tests are.
fn me() -> Caller {
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[test]
fn a_wrong_configuration_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("data")).unwrap();
    let data = "directory = \"data\"";
    let check = |before: &str, rest: &str, said: &[&str]| {
        configuration(folder, "wrong", before, rest);
        refused(&["serve", "wrong.toml"], folder, 2, said);
        refused(&["serve", "--check", "wrong.toml"], folder, 2, said);
        assert!(!folder.join("wrong.socket").exists());
    };
    check("", &format!("{data}\ncolour = 1"), &["wrong.toml", "unknown field `colour`"]);
    check("node = 2\nnodes = 2", data, &["node = 2, nodes = 2", "below the number"]);
    check("", &format!("{data}\ngate = {{ scheduler = \"twins\", window = \"no\" }}"), &["window", "no"]);
    check("", &format!("{data}\ngate = {{ scheduler = \"fifo\", window = \"1ms\" }}"), &["window"]);
    check("session_grace = 5", data, &["session_grace"]);
    check("[", data, &["wrong.toml", "line 1, `[`: "]);
    refused(&["serve", "missing.toml"], folder, 2, &["missing.toml", "No such file"]);
    refused(&["serve", "data"], folder, 2, &["data", "directory"]);
    refused(&["serve"], folder, 2, &["required"]);

    let tls = "auth = \"tls\"\ntls = { certificate = \"wrong.toml\", key = \"k\", clients = \"wrong.toml\" }";
    let text_of = format!("[[listen]]\nat = \"127.0.0.1:1\"\n{tls}\n[[export]]\n{data}\n");
    std::fs::write(folder.join("tls.toml"), text_of).unwrap();
    refused(
        &["serve", "--check", "tls.toml"],
        folder,
        2,
        &["expected PEM", "hint: docs/security.md says how"],
    );

    configuration(folder, "right", "", data);
    let output = iogate(&["serve", "--check", "right.toml"], folder);
    assert!(output.status.success() && text(&output.stdout).contains("is right"));
    assert!(!folder.join("right.socket").exists());
}

#[test]
fn places_that_are_not_there_or_taken_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let serve = |said: &[&str]| {
        refused(&["serve", "s.toml"], folder, 1, said);
        refused(&["serve", "--check", "s.toml"], folder, 1, said);
    };
    configuration(folder, "s", "", "directory = \"missing\"");
    serve(&["export `default`", "missing"]);
    std::fs::write(folder.join("file"), "").unwrap();
    configuration(folder, "s", "", "directory = \"file\"");
    serve(&["file", "directory"]);
    std::fs::create_dir(folder.join("data")).unwrap();
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(folder.join("data"), PermissionsExt::from_mode(0o000)).unwrap();
        configuration(folder, "s", "", "directory = \"data\"");
        serve(&["data", "Permission denied"]);
        std::fs::set_permissions(folder.join("data"), PermissionsExt::from_mode(0o700)).unwrap();
    }

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["serve", "--directory", "data", "--listen", &address];
    refused(&args, folder, 1, &["cannot listen at", &address, "in use"]);
    let socket = folder.join("data.socket");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "a stale socket");
    let mut server = Server::of_data(folder, "{ scheduler = \"fifo\" }");
    refused(&["serve", "data.toml"], folder, 1, &["data.socket", "a server listens there"]);
    assert_eq!(server.remote().clients().len(), 1, "the first one goes on");
    assert_eq!(server.stop(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let began = Instant::now();
    // Nobody listens; nobody accepts; somebody else answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let other_address = other.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = other.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (key, address, said) in [
        ("servers", format!("unix:{}/nobody", folder.display()), "cannot be reached"),
        ("forward", closed.to_string(), "cannot be reached"),
        ("servers", silent.local_addr().unwrap().to_string(), "does not answer"),
        ("servers", other_address.to_string(), "is not an iogate server"),
    ] {
        let list = if key == "servers" { format!("[\"{address}\"]") } else { format!("\"{address}\"") };
        configuration(folder, "f", "", &format!("{key} = {list}"));
        refused(&["serve", "f.toml"], folder, 1, &["export `default`", &address, said]);
        assert!(!folder.join("f.socket").exists());
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_client_of_an_older_version_is_told_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::of_data(folder.path(), "{}");
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    let hello = Request::Hello(Hello {
        magic: wire::MAGIC,
        version: wire::VERSION - 1,
        auth: wire::auth::SOCKET,
        session: [0; 16],
        node: 0,
        nodes: 0,
        instance: 0,
        client: [7; 16],
        flags: 0,
        export: b"",
        name: b"from another time",
    });
    let mut fields = Vec::new();
    hello.encode(&mut fields);
    let header =
        RequestHeader { fields: fields.len() as u16, kind: hello.kind(), ..RequestHeader::default() };
    stream.write_all(&[&header.to_bytes()[..], &fields].concat()).unwrap();
    let mut header = [0; wire::REPLY_HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = ReplyHeader::from_bytes(&header).unwrap();
    let mut fields = vec![0; header.fields.into()];
    stream.read_exact(&mut fields).unwrap();
    let said = text(Failure::decode(&fields).unwrap().text);
    assert_eq!(i32::from(header.errno), rustix::io::Errno::PROTONOSUPPORT.raw_os_error());
    let versions = [wire::VERSION - 1, wire::VERSION].map(|version| format!("version {version}"));
    assert!(
        versions.iter().all(|version| said.contains(version)) && said.contains("the same release"),
        "{said}"
    );
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "and cut off");
}

#[test]
fn a_second_forwarder_with_the_same_index_is_refused_and_a_restarted_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = Server::of_data(folder, "{}");
    let export = format!("forward = \"{}\"\ngate = {{ scheduler = \"twins\" }}\n", server.address());
    let mut first = Server::start(folder, "first", "node = 0\nnodes = 2", &export);
    let second = Server::start(folder, "second", "node = 1\nnodes = 2", &export);
    let gate = || second.status()["exports"][0]["scheduler"].clone();
    assert_eq!(gate(), "twins(node=1)", "the windows are its own");
    for settings in ["scheduler=fifo", "scheduler=twins"] {
        assert!(iogate(&["set", &second.address(), settings], folder).status.success());
    }
    assert_eq!(gate(), "twins(node=1)");
    configuration(folder, "rival", "node = 0\nnodes = 2", &export);
    let said = ["forwarder 0 of 2 is connected already", "the server's log", "a `node` of its own"];
    refused(&["serve", "rival.toml"], folder, 1, &said);
    configuration(folder, "rival", "node = 2\nnodes = 3", &export);
    refused(&["serve", "rival.toml"], folder, 1, &["one of 3", "is one of 2", "the same `nodes`"]);
    // Whoever does not take turns is nobody's rival.
    let _lone = Server::start(folder, "lone", "", &format!("forward = \"{}\"\n", server.address()));
    first.signal(rustix::process::Signal::KILL);
    first.child.wait().unwrap();
    let _again = Server::start(folder, "first", "node = 0\nnodes = 2", &export);
}

#[test]
fn a_server_says_how_it_is_and_takes_settings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = Server::of_data(folder, "{ scheduler = \"aioli\" }");
    let remote = server.remote();
    let file = remote.create("results".as_ref(), 0o644).unwrap();
    file.write_at(0, &[1; 100_000]).unwrap();
    let address = server.address();
    let output = iogate(&["status", &address], folder);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in ["server      up for", "export default", "scheduler   aioli", "connection", "open files"] {
        assert!(said.contains(part), "{said}\nshould contain\n{part}");
    }
    let status = server.status();
    assert_eq!(status["exports"][0]["gate"]["write"]["bytes"], 100_000);
    assert_eq!(status["connections"].as_array().unwrap().len(), 2, "the file's and the asker's");
    assert!(status["connections"].as_array().unwrap().iter().any(|one| one["open_files"] == 1));

    let set = |args: &[&str]| iogate(&[&["set", &address], args].concat(), folder);
    assert!(set(&["scheduler=sjf", "age_max=1s"]).status.success());
    assert_eq!(server.status()["exports"][0]["scheduler"], "sjf(age_max=1s)");
    refused(&["set", &address, "scheduler=sjff"], folder, 2, &["did you mean 'sjf'", "nothing was changed"]);
    refused(&["set", &address, "--export", "x", "age_max=2s"], folder, 1, &["no export `x`", "default"]);
    assert!(set(&["--export", "default", "age_max=2s"]).status.success());
    assert_eq!(server.status()["exports"][0]["scheduler"], "sjf(age_max=2s)");
    file.write_at(0, b"goes on").unwrap();

    let watched = Command::new(env!("CARGO_BIN_EXE_iogate"))
        .args(["status", &address, "--json", "--watch=0.05"])
        .stdout(Stdio::piped())
        .spawn();
    let mut watched = watched.unwrap();
    let lines = BufReader::new(watched.stdout.take().unwrap()).lines().take(3);
    assert!(lines.map(Result::unwrap).all(|line| serde_json::from_str::<Value>(&line).is_ok()));
    // Its reader has gone with the lines: it ends by itself.
    assert!(watched.wait().unwrap().success());
    refused(&["status", "unix:nobody"], folder, 1, &["cannot be reached", "nobody"]);
    refused(&["status", "io0:seven"], folder, 2, &["not a number"]);
    refused(&["set", "data", "--export", "x", "age_max=1s"], folder, 2, &["for servers"]);
}

#[test]
fn what_was_accepted_is_completed_when_the_server_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::of_data(folder.path(), "{ scheduler = \"hbrr\", depth = 1 }");
    let remote = server.remote();
    let file = remote.create("f".as_ref(), 0o644).unwrap();
    const BYTES: usize = 64 << 10;
    let answered = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer: u64| {
                let file = &file;
                scope.spawn(move || {
                    let data = vec![writer as u8 + 1; BYTES];
                    (0..)
                        .take_while(|i| file.write_at((i * 8 + writer) * BYTES as u64, &data).is_ok())
                        .count()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(server.stop(), Some(0));
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let written = std::fs::read(folder.path().join("data/f")).unwrap();
    for (writer, count) in answered.into_iter().enumerate() {
        for i in 0..count {
            let piece = &written[(i * 8 + writer) * BYTES..][..BYTES];
            assert!(
                piece.iter().all(|byte| *byte == writer as u8 + 1),
                "piece {i} of writer {writer} is lost"
            );
        }
    }
}

#[test]
fn a_server_that_is_to_ignore_signals_does_and_is_told_to_end_by_sigterm() {
    use rustix::process::Signal;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT TERM; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_iogate")]);
    let export = format!("directory = \"{}/data\"", folder.path().display());
    let mut server = Server::start_as(shell, folder.path(), "data", "", &export);
    for signal in [Signal::HUP, Signal::INT] {
        server.signal(signal);
        server.status();
    }
    // Nor is it about to end.
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0b11, 0b11, "{status}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn times_of_clients_whose_clocks_differ_are_counted_and_cost_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::of_data(folder.path(), "{ scheduler = \"app-window\", window = \"1ms\" }");
    let remote = server.remote();
    let how = OpenHow { flags: open::READ | open::WRITE | open::CREATE, mode: 0o644, ..OpenHow::default() };
    let file = remote.open(me(), "f".as_ref(), how).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let hour = 3_600_000_000_000;
    for (issued, byte) in [(now - hour, b'a'), (now + hour, b'b'), (u64::MAX - 1, b'c')] {
        let origin = Origin {
            app: AppId(1),
            client: ClientId(1),
            issued: Some(Time::from_nanos(issued)),
            ..Origin::default()
        };
        file.append(me(), origin, &[byte; 10]).unwrap().unwrap();
    }
    assert_eq!(std::fs::read(folder.path().join("data/f")).unwrap(), b"aaaaaaaaaabbbbbbbbbbcccccccccc");
    assert_eq!(server.status()["exports"][0]["gate"]["skewed"], 3);
    let said = text(&iogate(&["status", &server.address()], folder.path()).stdout);
    assert!(said.contains("3 requests with an implausible issue time"), "{said}");
}

/// The owner of a server that does not let root be root hears of it, as clients get a bare "permission denied".
#[test]
fn that_root_is_not_root_is_said_with_the_first_refusal() {
    if me().uid != 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // As nobody, one has to get there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
    command.stderr(std::fs::File::create(&log).unwrap());
    let export = format!("directory = \"{}/data\"\n", folder.path().display());
    let server = Server::start_as(command, folder.path(), "squashed", "", &export);
    let remote = server.remote();
    for _ in 0..2 {
        let refused = remote.create("new".as_ref(), 0o644).err().unwrap();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ACCESS.raw_os_error()));
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("which clients' root is here").count(), 1, "{said}");
}
