//! `iogate record`, of a real mount and of a real server.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use iogate_core::Op;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_sim::{Row, TraceReader};

fn iogate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iogate"))
}

fn can_mount() -> bool {
    let can = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("skipped: /dev/fuse is not to be had");
    }
    can
}

fn wait_until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn rows(trace: &Path) -> Vec<Row> {
    let bytes = std::fs::read(trace).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    assert!(reader.has_completions());
    std::iter::from_fn(|| reader.next_row().unwrap()).collect()
}

/// A mount that is gone when the test is over, however it ends.
struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    fn new() -> Mount {
        let mount = Mount { folder: tempfile::tempdir().unwrap() };
        let source = mount.folder.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(mount.point()).unwrap();
        assert!(iogate().arg("mount").args([source, mount.point()]).status().unwrap().success());
        mount
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace.csv")
    }

    fn record(&self, args: &[&str]) -> Recording {
        Recording::start(iogate().arg("record").arg(self.point()).arg("--out").arg(self.trace()).args(args))
    }

    fn write(&self, pieces: u64) {
        let file = std::fs::File::create(self.point().join("file")).unwrap();
        for piece in 0..pieces {
            file.write_all_at(&[7; 4096], 4096 * piece).unwrap();
        }
    }

    fn unmount(&self) -> bool {
        iogate().arg("umount").arg(self.point()).status().unwrap().success()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = iogate().args(["umount", "--lazy"]).arg(self.point()).stderr(Stdio::null()).status();
    }
}

/// `iogate record` that has begun.
struct Recording {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Recording {
    fn start(command: &mut Command) -> Recording {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("recording "), "{line}");
        Recording { child, said }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its exit status, and what else it has said.
    fn end(mut self) -> (i32, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said)
    }
}

#[test]
fn a_mount_is_recorded_until_a_signal() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    mount.write(1);
    let recording = mount.record(&[]);
    let other = mount.folder.path().join("other.csv");
    let second = Recording::start(iogate().arg("record").arg(mount.point()).arg("--out").arg(&other));
    mount.write(64);
    let read = std::fs::read(mount.point().join("file")).unwrap();
    assert_eq!(read.len(), 64 * 4096);
    recording.signal(rustix::process::Signal::INT);
    second.signal(rustix::process::Signal::TERM);
    for (recording, trace) in [(recording, mount.trace()), (second, other)] {
        let (status, said) = recording.end();
        assert_eq!(status, 0, "{said}");
        assert!(said.contains(" requests, 0 lost, 0 without their completion"), "{said}");
        let rows = rows(&trace);
        let bytes = |op| rows.iter().filter(|row| row.op == op).map(|row| u64::from(row.bytes)).sum::<u64>();
        assert_eq!(bytes(Op::Write), 64 * 4096, "only what came since it began");
        assert_eq!(rows.iter().filter(|row| row.op == Op::Write).count(), 64);
        assert!(rows.iter().all(|row| row.done.is_some_and(|done| done >= row.time) && row.lost == 0));
        let replayed = iogate().arg("replay").arg(&trace).args(["--device", "unit:10"]).output().unwrap();
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    }
}

#[test]
fn a_recording_ends_in_time_and_when_the_mount_goes() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    assert_eq!(mount.record(&["--for", "100ms"]).end().0, 0);
    let recording = mount.record(&[]);
    mount.write(10);
    wait_until("lines are written while it records", || rows(&mount.trace()).len() >= 9);
    wait_until("nobody is in the mount", || mount.unmount());
    let (status, said) = recording.end();
    assert!(status == 0 && said.contains("has ended the recording: "), "{status}: {said}");
    assert_eq!(rows(&mount.trace()).len(), 10);
}

#[test]
fn a_file_that_is_being_recorded_to_is_left_to_whoever_does() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    for rotating in [&[][..], &["--rotate", "1KiB", "--keep", "100"]] {
        let recording = mount.record(rotating);
        mount.write(40);
        // More than the header: of a rotation the last file may have few rows.
        wait_until("lines are written while it records", || {
            std::fs::metadata(mount.trace()).is_ok_and(|found| found.len() > 60)
        });
        let mut second = iogate();
        second.arg("record").arg(mount.point()).arg("--out").arg(mount.trace()).args(["--for", "10ms"]);
        let refused = second.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("trace.csv is being written by another process"), "{said}");
        assert_eq!(refused.status.code(), Some(1));
        recording.signal(rustix::process::Signal::INT);
        let (status, said) = recording.end();
        assert!(status == 0 && said.contains(": 40 requests, 0 lost"), "{status}: {said}");
        assert!(!rows(&mount.trace()).is_empty());
    }
}

#[test]
fn a_trace_that_cannot_be_written_takes_no_recording_from_others() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    // More than a gate has at once. A folder is no file, and there a trace cannot even begin.
    for out in [mount.folder.path(), Path::new("/dev/full")].repeat(4) {
        let refused = iogate().arg("record").arg(mount.point()).arg("--out").arg(out).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("cannot be written"), "{said}");
    }
    assert_eq!(mount.record(&["--for", "10ms"]).end().0, 0);
}

#[test]
fn a_recording_rotates_and_keeps_so_many() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    let recording = mount.record(&["--rotate", "1KiB", "--keep", "2"]);
    mount.write(200);
    recording.signal(rustix::process::Signal::INT);
    let (status, said) = recording.end();
    assert_eq!(status, 0, "{said}");
    assert!(said.contains(": 200 requests, 0 lost"), "{said}");
    let numbered = |number: u32| PathBuf::from(format!("{}.{number}", mount.trace().display()));
    let mut offset = 200 * 4096;
    for path in [mount.trace(), numbered(1), numbered(2)] {
        assert!(std::fs::metadata(&path).unwrap().len() < 1024 + 100, "a line over at most");
        for row in rows(&path).iter().rev() {
            offset -= 4096;
            assert_eq!(row.offset, offset, "without a gap");
        }
    }
    assert!(offset > 0 && !numbered(3).exists());
}

#[test]
fn what_was_recorded_is_readable_when_there_is_no_more_room() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new();
    // A limit on the size of files stands for a full disk.
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" record \"$1\" --out \"$2\"";
    let args = [env!("CARGO_BIN_EXE_iogate").into(), mount.point(), mount.trace()];
    let recording = Recording::start(Command::new("bash").args(["-c", script]).args(args));
    mount.write(4);
    wait_until("lines are written while it records", || rows(&mount.trace()).len() >= 3);
    mount.write(500);
    let (status, said) = recording.end();
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("trace.csv cannot be written: ") && said.contains("in whole lines"), "{said}");
    let bytes = std::fs::read(mount.trace()).unwrap();
    assert!(bytes.ends_with(b"\n") && rows(&mount.trace()).len() >= 3);
    assert!(said.contains(&format!(": {} requests", rows(&mount.trace()).len())), "{said}");
}

#[test]
fn what_is_no_mount_and_no_server_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.csv");
    let nowhere = format!("unix:{}/socket", folder.path().display());
    for place in [folder.path().to_str().unwrap(), &nowhere] {
        let output = iogate().args(["record", place, "--out"]).arg(&out).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.starts_with("error: "), "{said}");
        assert!(!out.exists(), "nothing is left behind");
    }
}

/// A server, ended when the test is over.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_recorded_until_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (data, socket, config) =
        (folder.path().join("data"), folder.path().join("socket"), folder.path().join("serve.toml"));
    std::fs::create_dir(&data).unwrap();
    let (data, at) = (data.display(), socket.display());
    let export = format!("directory = \"{data}\"\nusers = {{ squash = \"none\" }}");
    std::fs::write(&config, format!("[[listen]]\nat = \"unix:{at}\"\n[[export]]\n{export}\n")).unwrap();
    let mut child = iogate().arg("serve").arg(&config).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut server = Server(child);
    assert!(said.lines().any(|line| line.unwrap() == "ready"));

    let address = format!("unix:{at}");
    let trace = folder.path().join("trace.csv");
    let recording = Recording::start(iogate().args(["record", &address, "--out"]).arg(&trace));
    let client = ClientOptions { retry_for: Duration::from_secs(30), ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    let remote = Remote::connect(&[address.parse().unwrap()], &options).unwrap();
    let file = remote.create("f".as_ref(), 0o644).unwrap();
    for piece in 0..20 {
        file.write_at(piece * 8192, &[1; 8192]).unwrap();
    }
    wait_until("lines are written while it records", || rows(&trace).len() >= 19);
    drop(file);
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let (status, said) = recording.end();
    assert!(status == 0 && said.contains("has ended the recording: "), "{status}: {said}");
    let rows = rows(&trace);
    assert!(rows.iter().all(|row| row.op == Op::Write && row.bytes == 8192));
    // What had become of the last one, or that one itself, may not have been fetched when the server was killed.
    assert!(rows[..19].iter().all(|row| row.done.is_some()) && rows.len() <= 20);
}
