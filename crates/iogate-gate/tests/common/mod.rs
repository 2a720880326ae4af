//! Compiles C programs against the library, which is beside the tests.

use std::path::Path;
use std::process::{Command, Output};

/// The crate's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a C program.
#[track_caller]
pub(crate) fn compile(source: &Path, output: &Path, flags: &[&str]) {
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .arg("-o")
        .arg(output)
        .arg(source)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-L")
        .arg(&libraries)
        .args(["-liogate_gate", "-lpthread"])
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .output()
        .expect("cc is there: scripts/setup installs it");
    succeeded(&compiled);
}

/// Says what a program said where it failed.
#[track_caller]
pub(crate) fn succeeded(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
}
