//! What a program has to say can reach nobody, as when its log is on a disk that is full, or who read it has gone: it does what it is there
//! for all the same. Nothing can be written to `/dev/full`.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program, with a standard error that takes nothing.
fn iogate(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
    command.current_dir(folder).stderr(File::options().write(true).open("/dev/full").unwrap());
    command
}

/// A process that serves until it is dropped.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap() == "ready"), "it does not start");
        Server(child)
    }

    fn ends_well(&mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says what nobody understands, so that it is cut off with a warning, and as often as there may be threads that warn.
fn speak_nonsense(socket: &Path) {
    for _ in 0..20 {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It may be cut off before all is written.
        let _ = stream.write_all(&[0xff; 64]);
        let read = stream.read_to_end(&mut Vec::new());
        assert!(!read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "nobody listens any more");
    }
}

#[test]
fn a_server_serves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("data")).unwrap();
    let mut command = iogate(folder);
    command.args(["serve", "--with-parent", "--directory", "data", "--listen", "unix:s"]);
    let mut server = Server::start(command);
    speak_nonsense(&folder.join("s"));
    let status = iogate(folder).args(["status", "unix:s", "--json"]).output().unwrap();
    assert!(status.status.success(), "it does not answer any more");
    assert!(server.ends_well());
}

#[test]
fn a_coordinator_grants_turns() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut command = iogate(folder);
    command.args(["coord", "serve", "--with-parent", "--listen", "unix:s", "--state", "state"]);
    let mut coordinator = Server::start(command);
    speak_nonsense(&folder.join("s"));
    let mut turn = iogate(folder);
    turn.env("IOGATE_COORD", "unix:s").args(["turn", "--strict", "--timeout", "10s", "place", "--", "true"]);
    assert!(turn.status().unwrap().success(), "there are no turns any more");
    assert!(coordinator.ends_well());
}

#[test]
fn a_simulation_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let simulate = || {
        let args = ["sim", "two-readers", "--quick", "--seeds", "1", "--results", "kept"];
        iogate(folder.path()).args(args).output().unwrap()
    };
    assert!(simulate().status.success());
    let again = simulate();
    assert!(again.status.success(), "{}", again.status);
    assert!(!again.stdout.is_empty());
}

/// Help is a result as any other: whoever asked for it into a file learns that it is not there.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["help", "mount"],
        &["mount", "-h"],
        &["coord", "serve", "--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: standard output cannot be written: "), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 2, "{args:?}: a line and what to do: {said}");
    }
}

/// Who has seen enough of it is not told so.
#[test]
fn help_that_is_read_in_part_is_no_error() {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = Command::new(env!("CARGO_BIN_EXE_iogate")).arg("--help").stdout(write).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
