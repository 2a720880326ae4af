//! Processes of a test: coordinators, and etcd.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed when this is dropped, and that can be started again.
pub(crate) struct Daemon {
    command: Command,
    child: Child,
    /// What it prints when it is there.
    ready: Option<&'static str>,
}

impl Daemon {
    fn start(mut command: Command, ready: Option<&'static str>) -> Daemon {
        let child = spawn(&mut command, ready);
        Daemon { command, child, ready }
    }

    /// A coordinator with these arguments behind `coord serve`.
    pub(crate) fn coordinator(args: &[&str]) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
        command.args(["coord", "serve", "--with-parent"]).args(args).stderr(Stdio::null());
        Daemon::start(command, Some("ready"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Kills it, as nothing else does.
    pub(crate) fn kill(&mut self) {
        // It may be stopped: that is no obstacle.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Has it end by itself; returns whether it ended well.
    pub(crate) fn end(&mut self) -> bool {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().success()
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most bytes of memory that it has had.
    pub(crate) fn most_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn again(&mut self) {
        self.child = spawn(&mut self.command, self.ready);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(command: &mut Command, ready: Option<&'static str>) -> Child {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it can be started");
    let out = BufReader::new(child.stdout.take().unwrap());
    if let Some(ready) = ready {
        assert!(out.lines().any(|line| line.unwrap() == ready), "{command:?} does not start");
    }
    child
}

/// etcd with its data in a directory. Needs Debian's package `etcd-server`, which `scripts/setup` installs.
pub(crate) struct Etcd {
    pub(crate) daemon: Daemon,
    pub(crate) url: String,
    port: u16,
}

impl Etcd {
    pub(crate) fn start(dir: &Path) -> Etcd {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port, peers) = (free(), free());
        let (url, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(dir);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]).stderr(Stdio::null());
        let etcd = Etcd { daemon: Daemon::start(command, None), url, port };
        etcd.wait();
        etcd
    }

    /// Waits until it listens.
    pub(crate) fn wait(&self) {
        let begin = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "etcd does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn unix(dir: &Path, name: &str) -> Endpoint {
    Endpoint::Unix(dir.join(name))
}
