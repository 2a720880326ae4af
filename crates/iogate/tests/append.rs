//! Appends by two forwarders over data servers, each a process, while they are killed and stopped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iogate_core::wire::open;
use iogate_net::Endpoint;
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use rustix::process::{Pid, Signal, kill_process};

const RECORD: usize = 64;
/// For what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server's process, ended when this is dropped.
struct Process {
    child: Child,
    config: PathBuf,
    socket: PathBuf,
}

impl Process {
    fn start(folder: &Path, name: &str, before: &str, rest: &str) -> Process {
        let (config, socket) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.socket")));
        let text = format!("{before}\n[[listen]]\nat = \"unix:{}\"\n{rest}\n", socket.display());
        std::fs::write(&config, text).unwrap();
        Process { child: run(&config), config, socket }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = run(&self.config);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn remote(&self) -> Remote {
        let options = RemoteOptions { client: ClientOptions::default(), ..RemoteOptions::default() };
        Remote::connect(&[Endpoint::Unix(self.socket.clone())], &options).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
    let mut child =
        command.args(["serve".as_ref(), config.as_os_str()]).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "ready"), "{} does not start", config.display());
    child
}

fn append_to(remote: &Remote) -> RemoteFile {
    let flags = open::READ | open::WRITE | open::CREATE | open::APPEND;
    remote.open_with(Path::new("log"), flags, 0o644).unwrap()
}

fn record(writer: u32, index: u32) -> [u8; RECORD] {
    let mut record = [b'.'; RECORD];
    let text = format!("writer {writer} record {index}");
    record[..text.len()].copy_from_slice(text.as_bytes());
    record
}

/// The numbers of each writer's records. Places of records that nobody has written are zeros.
fn records(file: &RemoteFile) -> BTreeMap<u32, Vec<u32>> {
    let mut bytes = vec![0; file.attr().unwrap().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for chunk in bytes.chunks(RECORD).filter(|chunk| chunk.iter().any(|&byte| byte != 0)) {
        let text = String::from_utf8_lossy(chunk);
        let mut numbers = text.trim_end_matches('.').split(' ').filter_map(|word| word.parse().ok());
        let (Some(writer), Some(index)) = (numbers.next(), numbers.next()) else { panic!("torn: {text:?}") };
        assert_eq!(chunk, record(writer, index));
        found.entry(writer).or_default().push(index);
    }
    found
}

#[test]
fn acknowledged_records_are_there_once_whatever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let uid = rustix::process::geteuid().as_raw();
    let mut servers: Vec<Process> = (0..2)
        .map(|index| {
            let exports: String = ["names", "objects"]
                .iter()
                .map(|part| {
                    let directory = folder.join(format!("{part}{index}"));
                    std::fs::create_dir(&directory).unwrap();
                    format!(
                        "[[export]]\nname = \"{part}\"\ndirectory = \"{}\"\nforwarders = [{uid}]\nusers = {{ squash = \"none\" }}\n",
                        directory.display()
                    )
                })
                .collect();
            Process::start(folder, &format!("server{index}"), "", &exports)
        })
        .collect();
    let list: Vec<_> = servers.iter().map(|server| format!("\"unix:{}\"", server.socket.display())).collect();
    let export = format!(
        "[[export]]\nservers = [{}]\nstripe = \"4KiB\"\nusers = {{ squash = \"none\" }}\n",
        list.join(", ")
    );
    let mut forwarders: Vec<_> = (0..2)
        .map(|index| {
            let nodes = format!("node = {index}\nnodes = 2");
            Process::start(folder, &format!("forwarder{index}"), &nodes, &export)
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4u32)
        .map(|writer| {
            let (remote, is_over) = (forwarders[writer as usize % 2].remote(), is_over.clone());
            std::thread::spawn(move || {
                let file = append_to(&remote);
                let mut acknowledged = Vec::new();
                for index in 0.. {
                    // One that fails may be there or not.
                    if file.append(&record(writer, index)).is_ok() {
                        acknowledged.push(index);
                    }
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
                acknowledged
            })
        })
        .collect();
    let (watching, other) = (forwarders[0].remote(), forwarders[1].remote());
    let (watched, other) = (append_to(&watching), append_to(&other));
    let grown = |watched: &RemoteFile, by: u64| {
        let from = watched.attr().unwrap().size;
        let since = Instant::now();
        while watched.attr().unwrap().size < from + by * RECORD as u64 {
            assert!(since.elapsed() < PATIENCE, "nothing is appended");
            std::thread::sleep(Duration::from_millis(1));
        }
        since.elapsed()
    };
    grown(&watched, 50);
    // The server of names.
    servers[0].kill();
    servers[0].restart();
    grown(&watched, 50);
    // A forwarder.
    forwarders[1].kill();
    forwarders[1].restart();
    grown(&other, 50);
    // A forwarder that stops delays others, and no more.
    forwarders[1].signal(Signal::STOP);
    grown(&watched, 50);
    forwarders[1].signal(Signal::CONT);
    grown(&other, 50);
    is_over.store(true, Ordering::SeqCst);
    let acknowledged: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert!(acknowledged.iter().map(Vec::len).sum::<usize>() > 100, "most of what was seen to grow");
    let found = records(&watched);
    for (writer, acknowledged) in acknowledged.iter().enumerate() {
        let found = &found[&(writer as u32)];
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "once, and in order: {found:?}");
        assert!(acknowledged.iter().all(|index| found.binary_search(index).is_ok()), "all");
        assert!(!acknowledged.is_empty());
    }
}
