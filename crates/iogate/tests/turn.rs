//! `iogate turn` and `iogate probe`, as people and scripts call them, with a coordinator of `iogate coord serve`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
use iogate_net::coordinator::Status;
use iogate_net::turns::CoordinatorOptions;
use iogate_turn::{Place, Settings, Turns, Wish};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn iogate(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if name.starts_with("IOGATE_") || name.starts_with("SLURM_") {
            command.env_remove(name);
        }
    }
    command.env("IOGATE_COORD", format!("unix:{}/socket", folder.display()));
    command.env("IOGATE_CALIBRATION", folder.join("calibration"));
    command
}

/// A coordinator, and a client that asks how it is.
struct Coordinator {
    child: Child,
    endpoint: Endpoint,
    client: iogate_net::turns::Coordinator,
}

fn start(folder: &Path) -> Coordinator {
    let endpoint = Endpoint::Unix(folder.join("socket"));
    let address = endpoint.to_string();
    let args = ["coord", "serve", "--listen", &address, "--state", "state"];
    let mut child = iogate(folder, &args).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "ready"), "it does not start");
    let options = CoordinatorOptions::default();
    let client = iogate_net::turns::Coordinator::new(vec![endpoint.clone()], options);
    Coordinator { child, endpoint, client }
}

impl Coordinator {
    fn status(&self) -> Status {
        serde_json::from_slice(&self.client.status().unwrap()).unwrap()
    }

    fn waiting(&self) -> usize {
        self.status().waiting
    }

    fn entries(&self) -> usize {
        let status = self.status();
        status.holders.len() + status.waiting
    }

    /// Takes the one turn that is held away.
    fn evict(&self) {
        self.client.evict(self.status().holders[0].token).unwrap();
    }

    #[track_caller]
    fn wait_until(&self, holds: impl Fn(&Coordinator) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            assert!(since.elapsed() < Duration::from_secs(60), "it does not come to that");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn said(output: &Output, status: i32, parts: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    for part in parts {
        assert!(error.contains(part), "{error}\nshould contain\n{part}");
    }
}

#[test]
fn a_command_has_a_turn_and_its_own_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = start(folder.path());
    let run =
        |args: &[&str]| iogate(folder.path(), &[&["turn", "scratch", "--"], args].concat()).output().unwrap();
    let output = run(&["sh", "-c", "echo $IOGATE_POLICY; exit 7"]);
    said(&output, 7, &[]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("none\n", ""));
    said(&run(&["sh", "-c", "kill -TERM $$"]), 128 + 15, &[]);
    // Flags behind the command's name are its own, with `--` before it and without.
    let short =
        iogate(folder.path(), &["turn", "scratch", "--timeout", "60s", "sh", "-c", "exit 5", "--strict"]);
    said(&{ short }.output().unwrap(), 5, &[]);
    said(&run(&["./nowhere"]), 127, &["error: ./nowhere cannot be run"]);
    said(&run(&["/"]), 126, &["cannot be run"]);
    assert_eq!(coordinator.entries(), 0, "no turn is left");
}

#[test]
fn a_command_waits_for_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = start(folder.path());
    let endpoint = coordinator.endpoint.clone();
    let settings = Settings::read(&|name| match name {
        "IOGATE_COORD" => Some(endpoint.to_string()),
        _ => None,
    });
    let turn =
        Turns::new(settings.unwrap()).unwrap().take(&Place::named("scratch"), &Wish::default()).unwrap();
    let late = ["turn", "scratch", "--timeout", "20ms", "--", "true"];
    said(&iogate(folder.path(), &late).output().unwrap(), 1, &["error: no turn within"]);
    let command = ["turn", "scratch", "--", "sh", "-c", "echo its turn"];
    let waiting = iogate(folder.path(), &command).stdout(Stdio::piped()).spawn().unwrap();
    coordinator.wait_until(|coordinator| coordinator.waiting() == 1);
    turn.release().unwrap();
    let output = waiting.wait_with_output().unwrap();
    said(&output, 0, &[]);
    assert_eq!(text(&output.stdout), "its turn\n");
}

#[test]
fn signals_reach_the_command_and_a_lost_turn_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = start(folder.path());
    for strict in [false, true] {
        let script = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done";
        let flags = if strict { &["--strict"][..] } else { &[] };
        let args = [&["turn", "scratch"], flags, &["--", "sh", "-c", script]].concat();
        let mut child =
            iogate(folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        coordinator.evict();
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        said(&child.wait_with_output().unwrap(), strict.into(), &["was lost before its end"]);
    }
}

#[test]
fn without_a_coordinator_it_says_so_and_goes_on_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = iogate(folder.path(), args);
        command.env("IOGATE_PATIENCE", "20ms").output().unwrap()
    };
    let lenient = run(&["turn", "scratch", "--", "true"]);
    said(&lenient, 0, &["iogate: no coordinator can be reached", "going on without taking turns"]);
    assert_eq!(text(&lenient.stderr).lines().count(), 1);
    said(&run(&["turn", "scratch", "--strict", "--", "true"]), 1, &["error: no coordinator"]);
    // A list of coordinators is separated by commas.
    let listed = folder.path().join("a,b");
    std::fs::create_dir(&listed).unwrap();
    let mut run = iogate(&listed, &["run", "--coord", "unix:socket", "--files", "*.x", "--", "true"]);
    said(&run.output().unwrap(), 2, &["has a comma"]);
    let mut wrong = iogate(folder.path(), &["turn", "scratch", "--policy", "lock", "--", "true"]);
    said(&wrong.env_remove("IOGATE_COORD").output().unwrap(), 2, &["IOGATE_COORD", "expected"]);
}

#[test]
fn a_command_never_runs_without_a_turn_and_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &[&str], variables: &[(&str, &str)]| {
        let args = [&["turn", "scratch"], flags, &["--", "echo", "it runs"]].concat();
        let mut command = iogate(folder.path(), &args);
        command.env_remove("IOGATE_COORD").envs(variables.iter().copied()).output().unwrap()
    };
    for variables in [&[][..], &[("IOGATE_COORD", "")], &[("IOGATE_POLICY", "")]] {
        let output = run(&[], variables);
        said(&output, 0, &["iogate: the command runs without a turn", "IOGATE_COORD"]);
        assert_eq!(text(&output.stderr).lines().count(), 1);
        assert_eq!(text(&output.stdout), "it runs\n");
    }
    for output in [run(&["--strict"], &[]), run(&[], &[("IOGATE_STRICT", "1")])] {
        said(&output, 2, &["error: there is no coordinator", "hint: ", "--policy none"]);
        assert_eq!(text(&output.stdout), "");
    }
    // Where it is asked for, as by a turn around it, nobody is told what he has said himself.
    for output in [run(&["--policy", "none"], &[]), run(&["--strict"], &[("IOGATE_POLICY", "none")])] {
        assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("it runs\n", ""));
    }
}

#[test]
fn who_holds_a_turn_is_called_as_its_application() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = start(folder.path());
    let mut command = iogate(folder.path(), &["turn", "scratch", "--", "true"]);
    said(&command.env("IOGATE_APP", "solver").output().unwrap(), 0, &[]);
    assert_eq!(coordinator.status().finished[0].label, "solver");
}

#[test]
fn a_file_system_is_calibrated_and_probed() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| iogate(folder.path(), &[&["probe"], args].concat()).output().unwrap();
    said(&run(&["."]), 1, &["is not calibrated", "iogate probe --calibrate"]);
    let output = run(&["--calibrate", ".", "--rounds", "3", "--bytes", "64KiB", "--json"]);
    said(&output, 0, &[]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["calibration"]["rounds"], &value["calibration"]["probe_bytes"]),
        (&3.into(), &65536.into())
    );
    let output = run(&[".", "--threshold", "1", "--json"]);
    said(&output, 0, &[]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((value["is_quiet"].as_bool(), value["attempts"].as_u64()), (Some(true), Some(1)));
    assert_eq!(value["probes"].as_array().unwrap().len(), 3);
    let table = text(&run(&[".", "--threshold", "1"]).stdout);
    assert!(table.contains("throughput") && table.contains(": quiet after"), "{table}");
    said(&run(&["missing"]), 1, &["missing cannot be probed"]);
    said(
        &run(&["--calibrate", ".", "--bytes", "99999TiB"]),
        1,
        &["cannot be probed", "bytes are free there", "--bytes"],
    );
    let left = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["calibration"]);
    // Of several directories each counts.
    std::fs::create_dir(folder.path().join("other")).unwrap();
    said(&run(&[".", "other", "--threshold", "1"]), 0, &[]);
    said(&run(&[".", "/proc"]), 2, &["two places"]);
}

#[test]
fn what_cannot_be_written_to_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["probe", "--calibrate", "/proc", "--rounds", "1"];
    said(&iogate(folder.path(), &args).output().unwrap(), 1, &["/proc cannot be probed", "hint: "]);
    std::fs::write(folder.path().join("calibration"), "").unwrap();
    let args = ["probe", "--calibrate", ".", "--rounds", "1", "--bytes", "4KiB"];
    said(&iogate(folder.path(), &args).output().unwrap(), 1, &["calibration", "IOGATE_CALIBRATION"]);
}

#[test]
fn a_signal_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = start(folder.path());
    let holder = ["turn", "scratch", "--", "sleep", "1000"];
    let mut holding = iogate(folder.path(), &holder).spawn().unwrap();
    coordinator.wait_until(|coordinator| coordinator.entries() == 1);
    let mut waiting = iogate(folder.path(), &["turn", "scratch", "--", "true"]).spawn().unwrap();
    coordinator.wait_until(|coordinator| coordinator.waiting() == 1);
    kill_process(Pid::from_child(&waiting), Signal::TERM).unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(128 + 15));
    coordinator.wait_until(|coordinator| coordinator.entries() == 1);
    kill_process(Pid::from_child(&holding), Signal::TERM).unwrap();
    assert_eq!(holding.wait().unwrap().code(), Some(128 + 15), "the command's");
    assert_eq!(coordinator.entries(), 0);
}

/// What passes for the library that takes turns, without which nothing is run: its header is that of this very program.
fn make_library(path: &Path) {
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_iogate")).unwrap();
    bytes.truncate(20);
    bytes[16..18].copy_from_slice(&3_u16.to_ne_bytes());
    bytes.extend(b"iogate_is_bulk");
    std::fs::write(path, bytes).unwrap();
}

/// A terminal: what is typed there, and what programs have.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let typed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&typed).unwrap();
    unlockpt(&typed).unwrap();
    let name = ptsname(&typed, Vec::new()).unwrap();
    // Nobody's controlling terminal: whoever wants it as that asks for it.
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let there = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    (typed.into(), there.into())
}

/// What starts a program for its end.
fn starters() -> [&'static [&'static str]; 2] {
    [
        &["run", "--policy", "backoff", "--files", "*.x", "--library", "library.so", "--"],
        &["turn", "scratch", "--policy", "none", "--"],
    ]
}

#[test]
fn an_interrupt_that_a_process_sends_ends_the_program_also_where_there_is_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    make_library(&folder.path().join("library.so"));
    for (starter, at_terminal) in
        starters().into_iter().flat_map(|starter| [(starter, false), (starter, true)])
    {
        for (signal, number) in [(Signal::INT, 2), (Signal::QUIT, 3), (Signal::ALARM, 14)] {
            let args = [starter, &["sh", "-c", "echo ready; exec sleep 1000"]].concat();
            let mut command = iogate(folder.path(), &args);
            let (_typed, there) = terminal();
            if at_terminal {
                command.stdin(there);
            }
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let mut ended = None;
            let since = Instant::now();
            while ended.is_none() && since.elapsed() < Duration::from_secs(10) {
                ended = child.try_wait().unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            if ended.is_none() {
                kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            }
            child.wait().unwrap();
            let code = ended.map(|ended| ended.code());
            assert_eq!(
                code,
                Some(Some(128 + number)),
                "{} {signal:?}, a terminal: {at_terminal}",
                starter[0]
            );
        }
    }
}

#[test]
fn a_key_at_the_terminal_reaches_the_program_once() {
    let folder = tempfile::tempdir().unwrap();
    make_library(&folder.path().join("library.so"));
    // A shell that waits says at once what it gets, so that the next one is another one.
    let script = "sleep 1000 & trap 'echo got' INT; trap 'kill $!; echo end; exit 5' TERM; echo ready; while :; do wait; done";
    for starter in starters() {
        let (mut typed, there) = terminal();
        let mut command = Command::new("setsid");
        // Whatever its standard input is.
        command.args(["--ctty", "--wait", "sh", "-c", "exec \"$@\" </dev/null", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_iogate")).args(starter);
        command.args(["sh", "-c", script]).current_dir(folder.path()).env_remove("IOGATE_COORD");
        command.stdin(there).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        typed.write_all(b"\x03").unwrap();
        assert_eq!(lines.next().as_deref(), Some("got"), "{}", starter[0]);
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(lines.next().as_deref(), Some("end"), "{}: another one", starter[0]);
        assert_eq!(child.wait().unwrap().code(), Some(5));
    }
}
