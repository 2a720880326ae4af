//! The C functions, as C programs use them: processes of their own, against a coordinator here.

#[path = "common/coordinator.rs"]
#[allow(dead_code)]
mod coordinator;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use coordinator::Coordinator;
use iogate_core::Span;
use iogate_core::coord::CoordConfig;
use iogate_net::Endpoint;
use iogate_turn::{Calibration, Place, Settings, Turns, Wish};
use rustix::process::{Pid, Signal, kill_process};

/// The program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turns");
        // Beside the tests.
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&path)
            .arg(root.join("tests/programs/turns.c"))
            .arg("-I")
            .arg(root.join("include"))
            .arg("-L")
            .arg(&libraries)
            .arg("-liogate_turn")
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .status()
            .unwrap();
        assert!(compiled.success());
        (folder, path)
    });
    path
}

fn command(endpoint: &Endpoint, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_clear();
    command.env("IOGATE_COORD", endpoint.to_string()).env("IOGATE_COORD_AUTH", "none");
    command
}

fn start(endpoint: &Endpoint, arguments: &[&str]) -> Child {
    command(endpoint, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

struct Scene {
    /// Stopped before its socket goes.
    coordinator: Coordinator,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(lease_ms: u64) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let config = CoordConfig { lease: Span::from_millis(lease_ms), ..CoordConfig::default() };
        let coordinator = Coordinator::start(&Endpoint::Unix(folder.path().join("socket")), config);
        Scene { coordinator, folder }
    }

    fn turns(&self) -> Turns {
        let endpoint = self.coordinator.endpoint();
        let settings = Settings::read(&|name| match name {
            "IOGATE_COORD" => Some(endpoint.to_string()),
            "IOGATE_COORD_AUTH" => Some("none".into()),
            _ => None,
        });
        Turns::new(settings.unwrap()).unwrap()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) {
        succeeded(&command(&self.coordinator.endpoint(), arguments).output().unwrap());
    }
}

#[test]
fn processes_exclude_each_other() {
    let scene = Scene::new(10_000);
    let notes = scene.folder.path().join("notes");
    let start = || start(&scene.coordinator.endpoint(), &["hold", "50", notes.to_str().unwrap()]);
    let children: Vec<Child> = (0..3).map(|_| start()).collect();
    children.into_iter().for_each(|child| succeeded(&child.wait_with_output().unwrap()));
    let text = std::fs::read_to_string(&notes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 * 3 * 50);
    for turn in lines.chunks(2) {
        assert_eq!((&turn[0][..1], &turn[1][..1]), ("+", "-"), "{text}");
        assert_eq!(turn[0][1..], turn[1][1..], "two at a time");
    }
}

#[test]
fn what_is_wrong_has_an_errno_and_a_text() {
    Scene::new(10_000).run(&["errors"]);
    let scene = Scene::new(10_000);
    let _turn = scene.turns().take(&Place::named("scratch"), &Wish::default()).unwrap();
    scene.run(&["in-vain"]);
    let gone = Endpoint::Unix(scene.folder.path().join("gone"));
    let mut command = command(&gone, &["unreachable"]);
    succeeded(&command.env("IOGATE_STRICT", "1").env("IOGATE_PATIENCE", "10ms").output().unwrap());
}

#[test]
fn a_program_writes_although_the_coordinator_can_keep_no_claims() {
    let scene = Scene::new(10_000);
    scene.coordinator.refuse_claims(libc::ENOSPC, "the coordinator can keep no claims: no space");
    let notes = scene.folder.path().join("notes");
    let output =
        command(&scene.coordinator.endpoint(), &["hold", "3", notes.to_str().unwrap()]).output().unwrap();
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no space: going on without") && said.lines().count() == 1, "{said}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap().lines().count(), 6);
}

#[test]
fn a_child_has_turns_of_its_own() {
    Scene::new(10_000).run(&["fork"]);
}

#[test]
fn a_turn_ends_with_its_process() {
    let scene = Scene::new(600_000);
    scene.run(&["leave"]);
    // Not with its lease.
    scene.coordinator.wait_until(|coordinator| coordinator.entries() == 0);
}

#[test]
fn a_process_that_was_stopped_does_not_believe_an_old_grant() {
    let scene = Scene::new(1000);
    let turns = scene.turns();
    let first = turns.take(&Place::named("scratch"), &Wish::default()).unwrap();
    let child = start(&scene.coordinator.endpoint(), &["wait"]);
    scene.coordinator.wait_until(|coordinator| coordinator.waiting() == 1);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let token = first.token();
    first.release().unwrap();
    // It is granted, and lost, while the process sleeps.
    scene.coordinator.wait_until(|coordinator| coordinator.entries() == 0);
    kill_process(pid, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    succeeded(&output);
    let own: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert_eq!(own, token + 2, "the grant before it was the one that was lost");
}

#[test]
fn a_directory_is_probed_by_its_calibration() {
    let scene = Scene::new(10_000);
    let folder = scene.folder.path();
    let probe = |attempts: &str, more: &[(&str, &str)]| {
        let mut command =
            command(&scene.coordinator.endpoint(), &["probe", folder.to_str().unwrap(), attempts]);
        command.env("IOGATE_CALIBRATION", folder.join("calibration"));
        command.env("IOGATE_PLACES", format!("{}=scratch", folder.display()));
        command.envs(more.iter().copied());
        command.output().unwrap()
    };
    let uncalibrated = probe("0", &[]);
    succeeded(&uncalibrated);
    let said = String::from_utf8_lossy(&uncalibrated.stderr).into_owned();
    assert!(said.starts_with("iogate: scratch is not calibrated") && said.lines().count() == 1, "{said}");
    let strict = probe("-1", &[("IOGATE_STRICT", "1")]);
    succeeded(&strict);
    let calibration = Calibration {
        place: "scratch".into(),
        probe_bytes: 4096,
        prime_bytes: 0,
        // So slow that everything is quiet.
        quiet: 1,
        lowest: 1,
        highest: 1,
        rounds: 1,
        busy: 0,
        time: 0,
    };
    calibration.write(&folder.join("calibration")).unwrap();
    let quiet = probe("1", &[]);
    succeeded(&quiet);
    assert!(quiet.stderr.is_empty());
}
