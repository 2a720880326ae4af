//! A node's process: started, found again by its number, stopped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal};

use crate::attempt::Attempt;
use crate::commands::serve::READY;
use crate::failure::Failure;

/// How long a node may take to complete what it has accepted, before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// Lines of a log that say why a node did not start.
const LOG_LINES: usize = 5;

/// A running process of a cluster.
pub(super) struct Process {
    pid: Pid,
    started: u64,
}

pub(super) fn pid_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.pid"))
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
        let (pid, start) = text.trim().split_once(' ')?;
        let pid = Pid::from_raw(pid.parse().ok()?)?;
        let start: u64 = start.parse().ok()?;
        (started(pid) == Some(start)).then_some(Process { pid, started: start })
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
    let pid = Pid::from_child(&child);
    let mut ready = false;
    if let Some(out) = child.stdout.take() {
        ready = BufReader::new(out).lines().map_while(Result::ok).any(|line| line == READY);
    }
    if !ready {
        let _ = child.kill();
        let _ = child.wait();
        let said = std::fs::read(&log_path).unwrap_or_default();
        let said = String::from_utf8_lossy(said.get(before as usize..).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = said.lines().rev().take(LOG_LINES).collect();
        let said: Vec<&str> = lines.into_iter().rev().collect();
        return Err(Failure::failed(anyhow!("{name} did not start; its log says:\n{}", said.join("\n"))));
    }
    let start = started(pid).ok_or_else(|| anyhow!("{name} ended as soon as it was ready"))?;
    let number = format!("{} {start}\n", pid.as_raw_nonzero());
    Ok(std::fs::write(pid_file(folder, name), number).context("the file with the process number")?)
}
