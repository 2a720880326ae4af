//! The C functions, as C programs use them: compiled here, and run as they are, under valgrind, and with an address sanitizer.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use common::{compile, root, succeeded};

/// How a program is run.
#[derive(Clone, Copy)]
enum Under {
    Nothing,
    Valgrind,
    Sanitizer,
}

/// A program of `tests/programs`, compiled once.
fn program(name: &'static str, sanitized: bool) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static COMPILED: OnceLock<std::sync::Mutex<Vec<PathBuf>>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    let path = folder.path().join(format!("{name}{}", if sanitized { "-sanitized" } else { "" }));
    let mut compiled = COMPILED.get_or_init(Default::default).lock().unwrap();
    if !compiled.contains(&path) {
        let flags: &[&str] = if sanitized { &["-fsanitize=address"] } else { &[] };
        compile(&root().join(format!("tests/programs/{name}.c")), &path, flags);
        compiled.push(path.clone());
    }
    path
}

#[track_caller]
fn run(name: &'static str, mode: &str, under: Under) {
    let program = program(name, matches!(under, Under::Sanitizer));
    let mut command = match under {
        Under::Valgrind => {
            let mut command = Command::new("valgrind");
            command.args(["-q", "--error-exitcode=9", "--fair-sched=yes"]);
            // A child after fork cannot free what is its parent's.
            let leaks = if mode == "fork" { "no" } else { "full" };
            command.arg(format!("--leak-check={leaks}"));
            command
                .args(["--errors-for-leak-kinds=definite,indirect", "--show-leak-kinds=definite,indirect"]);
            command.arg(program);
            command
        }
        Under::Nothing | Under::Sanitizer => Command::new(program),
    };
    succeeded(&command.arg(mode).output().expect("valgrind is there: scripts/setup installs it"));
}

const BY_HAND: [&str; 5] = ["protocol", "errors", "cancel", "fork", "threads"];
const ENGINE: [&str; 8] = ["carries-out", "order", "starts", "cancel", "inside", "ends", "errors", "fork"];

#[test]
fn a_gate_by_hand() {
    BY_HAND.into_iter().for_each(|mode| run("by_hand", mode, Under::Nothing));
}

#[test]
fn a_gate_by_hand_under_valgrind() {
    BY_HAND.into_iter().for_each(|mode| run("by_hand", mode, Under::Valgrind));
}

#[test]
fn a_gate_by_hand_with_a_sanitizer() {
    BY_HAND.into_iter().for_each(|mode| run("by_hand", mode, Under::Sanitizer));
}

#[test]
fn an_engine() {
    ENGINE.into_iter().for_each(|mode| run("engine", mode, Under::Nothing));
}

#[test]
fn an_engine_stays_where_no_thread_can_free_it() {
    run("engine", "no-thread", Under::Nothing);
}

#[test]
fn an_engine_under_valgrind() {
    ENGINE.into_iter().for_each(|mode| run("engine", mode, Under::Valgrind));
}

#[test]
fn an_engine_with_a_sanitizer() {
    // GCC 12's sanitizer does not take its own locks at a fork: where one of the engine's threads has one, the child waits for it for ever.
    let safe = ENGINE.into_iter().filter(|mode| *mode != "fork");
    safe.for_each(|mode| run("engine", mode, Under::Sanitizer));
}
