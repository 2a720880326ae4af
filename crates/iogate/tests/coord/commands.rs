//! `iogate coord`: what it says and what it refuses.

use std::path::Path;
use std::process::{Command, Output};

use iogate_net::turns::{Coordinator, CoordinatorOptions, Limits, Wanted};
use serde_json::Value;

use super::daemon::{Daemon, unix};

fn iogate(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
    command.env_remove("IOGATE_COORD").arg("coord").args(args).current_dir(folder);
    command.output().unwrap()
}

#[track_caller]
fn refused(folder: &Path, args: &[&str], status: i32, said: &str) {
    let output = iogate(folder, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.starts_with("error: ") && !error.contains("panicked"), "{error}");
    assert!(error.contains(said), "{error}\nshould contain\n{said}");
}

#[track_caller]
fn printed(folder: &Path, args: &[&str]) -> String {
    let output = iogate(folder, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_coordinator_says_who_holds_and_a_turn_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let socket = unix(dir.path(), "socket");
    let at = socket.to_string();
    let state = dir.path().join("state");
    let mut daemon = Daemon::coordinator(&[
        "--listen",
        &at,
        "--state",
        state.to_str().unwrap(),
        "--set",
        "slots=2,lease=20s",
    ]);
    let coordinator = Coordinator::new(vec![socket], CoordinatorOptions::default());
    let wanted = Wanted { place: "nfs:io:/scratch".into(), label: "checkpoint".into(), ..Wanted::default() };
    let held = coordinator.claim(&wanted, &Limits::patience(std::time::Duration::from_secs(10))).unwrap();
    let shown = printed(dir.path(), &["status", &at]);
    for part in ["2 at a time", "nfs:io:/scratch", "checkpoint", "in turn", "1 hold, 0 wait"] {
        assert!(shown.contains(part), "{shown}\nshould contain\n{part}");
    }
    let json: Value = serde_json::from_str(&printed(dir.path(), &["status", &at, "--json"])).unwrap();
    assert_eq!(json["holders"][0]["token"], held.token());
    let token = held.token().to_string();
    refused(dir.path(), &["release", "12345", "--coord", &at], 1, "nobody holds a turn with token 12345");
    assert_eq!(printed(dir.path(), &["release", &token, "--coord", &at]), "");
    assert!(held.release(0).is_err());
    assert!(printed(dir.path(), &["status", &at]).contains("evicted"));
    // What it knows is there after it has ended.
    let held = coordinator.claim(&wanted, &Limits::patience(std::time::Duration::from_secs(10))).unwrap();
    assert!(daemon.end());
    refused(dir.path(), &["status", &at], 1, "no coordinator answers");
    daemon.again();
    let json: Value = serde_json::from_str(&printed(dir.path(), &["status", &at, "--json"])).unwrap();
    assert_eq!(json["holders"][0]["token"], held.token());
    let nowhere = format!("unix:{}/nowhere,{at}", dir.path().display());
    assert!(printed(dir.path(), &["status", &nowhere]).contains("checkpoint"), "any of several");
    held.release(0).unwrap();
}

/// Nothing tells the clients of one whom the other has granted a turn.
#[test]
fn two_that_lead_without_knowing_of_each_other_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let (at, state) = (unix(dir.path(), name).to_string(), dir.path().join(format!("{name}-state")));
        (Daemon::coordinator(&["--listen", &at, "--state", state.to_str().unwrap()]), at)
    };
    let ((_one, first), (mut other, second)) = (start("a"), start("b"));
    let warned = || {
        let output = iogate(dir.path(), &["status", &format!("{first},{second}")]);
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    // So are those who take turns by both.
    let list = format!("{first},{second}");
    let taken = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iogate"));
        command.args(args).args(["--", "true"]).current_dir(dir.path()).env("IOGATE_COORD", &list);
        let output = command.env_remove("IOGATE_POLICY").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let turn = &["turn", "scratch"][..];
    let all_lead = format!("{first} and {second} all lead");
    for said in [warned(), taken(turn)] {
        assert_eq!(said.matches(&all_lead).count(), 1, "{said}");
    }
    // Who takes none asks nobody.
    assert_eq!(taken(&["turn", "scratch", "--policy", "none"]), "");
    assert!(other.end());
    for said in [warned(), taken(turn)] {
        assert_eq!(said, "");
    }
}

#[test]
fn that_a_server_does_not_answer_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("silent");
    // The kernel takes connections there, and nobody reads them.
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let at = format!("unix:{}", path.display());
    for args in [&["status", &at][..], &["coord", "status", &at]] {
        let output = Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error.matches("does not answer").count(), 1, "{error}");
    }
}

#[test]
fn a_socket_whose_owner_is_busy_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("busy");
    let busy = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::listen(&busy, 0).unwrap();
    // One connection fits, and nobody accepts it.
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let at = format!("unix:{}", path.display());
    refused(dir.path(), &["serve", "--listen", &at, "--state", "state"], 1, "takes no connections just now");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let at = unix(dir.path(), "socket").to_string();
    let refused = |args: &[&str], status, said| refused(dir.path(), args, status, said);
    let serve = |more: &[&str], status, said| {
        refused(&[&["serve", "--listen", &at, "--state", "state"], more].concat(), status, said);
    };
    serve(&["--set", "order=last"], 2, "order");
    serve(&["--set", "slot=2"], 2, "slots");
    serve(&["--set", "lease=1ms"], 2, "lease");
    serve(&["--place", "=4"], 2, "NAME=TARGETS");
    serve(&["--place", "scratch=-4"], 2, "NAME=TARGETS");
    serve(&["--place", "scratch=99999999999"], 2, "NAME=TARGETS");
    serve(&["--turn-max", "scratch"], 2, "expected NAME=TIME");
    serve(&["--weight", "1000=0"], 2, "expected UID=WEIGHT");
    serve(&["--auth", "tls"], 2, "--tls-certificate");
    serve(&["--etcd", "http://localhost:1"], 2, "cannot be used with");
    refused(&["serve", "--listen", &at], 2, "--state");
    refused(&["serve", "--listen", "127.0.0.1:0", "--state", "state"], 2, "auth is missing");
    refused(
        &["serve", "--listen", "0.0.0.0:0", "--auth", "none", "--state", "state"],
        1,
        "not a loopback address",
    );
    refused(&["serve", "--listen", "127.0.0.1:0", "--auth", "peer", "--state", "state"], 1, "Unix socket");
    refused(&["serve", "--listen", "nowhere", "--state", "state"], 2, "port is missing");
    refused(&["serve", "--listen", &at, "--etcd", "https://localhost:1"], 2, "expected http://");
    refused(
        &["serve", "--listen", &at, "--etcd", "http://localhost:1", "--name", "a/b"],
        2,
        "without a slash",
    );
    std::fs::write(dir.path().join("file"), "").unwrap();
    refused(&["serve", "--listen", &at, "--state", "file"], 1, "cannot make the directory file");
    refused(&["status"], 2, "COORD");
    refused(&["release", "x", "--coord", &at], 2, "invalid value 'x'");

    let state = dir.path().join("shared");
    let state = state.to_str().unwrap();
    let _daemon = Daemon::coordinator(&["--listen", &at, "--state", state]);
    let other = unix(dir.path(), "other").to_string();
    refused(&["serve", "--listen", &other, "--state", state], 1, "stop it first");
    refused(&["serve", "--listen", &at, "--state", "state"], 1, "a server listens there");
}
