//! A node's process: started, found again by its number, stopped.
//!
//! Its number is written down at once, so that it is found also if whoever starts it ends before it serves.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal};

use crate::attempt::Attempt;
use crate::commands::serve::started::{not_started, until_it_serves};
use crate::failure::Failure;

/// How long a node may take to complete what it has accepted, before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// A running process of a cluster.
pub(super) struct Process {
    pid: Pid,
    started: u64,
    /// Has said that it serves.
    serves: bool,
}

/// What is behind the number of a process that serves not yet.
const STARTING: &str = "starting";
/// What files with numbers of processes are called, behind the node's name.
const PID: &str = "pid";

pub(super) fn pid_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{PID}"))
}

/// When a process was started, in ticks since boot: tells it from a later one with its number.
fn started(pid: Pid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The command's name, in parentheses, can contain anything.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

impl Process {
    /// The process of a node, if it runs.
    pub(super) fn find(folder: &Path, name: &str) -> Option<Process> {
        let text = std::fs::read_to_string(pid_file(folder, name)).ok()?;
        let mut words = text.split_ascii_whitespace();
        let pid = Pid::from_raw(words.next()?.parse().ok()?)?;
        let start: u64 = words.next()?.parse().ok()?;
        let serves = words.next() != Some(STARTING);
        (started(pid) == Some(start)).then_some(Process { pid, started: start, serves })
    }

    /// Whether any node of a folder runs, also one that no configuration has any more.
    pub(super) fn any(folder: &Path) -> std::io::Result<bool> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name =
                path.file_stem().filter(|_| path.extension().is_some_and(|extension| extension == PID));
            if name.and_then(|name| Process::find(folder, name.to_str()?)).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes it in the node's folder.
    fn note(&self, folder: &Path, name: &str) -> anyhow::Result<()> {
        let mut text = format!("{} {}", self.pid.as_raw_nonzero(), self.started);
        if !self.serves {
            text = format!("{text} {STARTING}");
        }
        let path = pid_file(folder, name);
        std::fs::write(&path, text + "\n").with_context(|| Attempt::write(path.display()))
    }

    /// Whether it has said that it serves, to who has started it.
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Asks it to end, waits, and in the end kills it.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        for (signal, patience) in [(Signal::TERM, STOP_PATIENCE), (Signal::KILL, Duration::from_secs(2))] {
            let _ = rustix::process::kill_process(self.pid, signal);
            let deadline = Instant::now() + patience;
            while Instant::now() < deadline {
                if !self.runs() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Err(Failure::failed(anyhow!("process {} does not end", self.pid.as_raw_nonzero())))
    }
}

/// Starts a node and waits until it serves.
pub(super) fn start(folder: &Path, name: &str, namespace: Option<&str>) -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let log_path = folder.join(format!("{name}.log"));
    let log = File::options().append(true).create(true).open(&log_path);
    let log = log.with_context(|| Attempt::write(format_args!("the log {}", log_path.display())))?;
    let before = log.metadata().map_or(0, |metadata| metadata.len());
    let mut command = match namespace {
        Some(namespace) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg("serve").arg(folder.join(format!("{name}.toml")));
    // A group of its own: an interrupt at this terminal is not for it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
    let served = noted_until_it_serves(&mut child, folder, name);
    if !matches!(served, Ok(true)) {
        let _ = child.kill();
        let _ = child.wait();
        if Process::find(folder, name).is_none() {
            let _ = std::fs::remove_file(pid_file(folder, name));
        }
    }
    if !served? {
        let said = std::fs::read(&log_path).unwrap_or_default();
        let said = said.get(before as usize..).unwrap_or_default();
        return Err(not_started(name, "did not start", said));
    }
    Ok(())
}

/// Whether a node serves in the end, of which the number is noted meanwhile.
fn noted_until_it_serves(child: &mut Child, folder: &Path, name: &str) -> anyhow::Result<bool> {
    let pid = Pid::from_child(child);
    // It is not reaped yet; without this, it has ended already.
    let Some(start) = started(pid) else { return Ok(false) };
    let mut process = Process { pid, started: start, serves: false };
    process.note(folder, name)?;
    let Some(out) = child.stdout.take() else { return Ok(false) };
    // Whoever waits for a cluster sees that it takes long, and may interrupt that.
    process.serves = until_it_serves(out, Duration::MAX).is_ok();
    if process.serves {
        process.note(folder, name)?;
    }
    Ok(process.serves)
}
