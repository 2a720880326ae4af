//! The library as scripts/install puts it into its place.

mod common;
#[path = "common/installed.rs"]
mod installed;

use std::process::Command;

use common::{compile, root, succeeded};

const VERSION: &str = "IOGATE_GATE_0.1";

#[test]
fn the_library_has_a_name_and_versions_and_nothing_else_is_seen_of_it() {
    let folder = tempfile::tempdir().unwrap();
    installed::link(root(), "gate", VERSION, folder.path());
    let (program, place) = (folder.path().join("program"), folder.path().display().to_string());
    compile(
        &root().join("tests/programs/by_hand.c"),
        &program,
        &["-L", &place, &format!("-Wl,-rpath,{place}")],
    );
    installed::asks_for(&program, "libiogate_gate", VERSION);
    succeeded(&Command::new(&program).arg("protocol").output().unwrap());
    succeeded(&Command::new(&program).arg("threads").output().unwrap());
}

#[test]
fn the_manual_has_all_that_the_header_says() {
    installed::manual(root(), "gate", "iogate_gate.h");
}
