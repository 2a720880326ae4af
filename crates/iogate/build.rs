//! Puts the commit that an optimised program is built from into it, for results to say what made them.
//!
//! Others are not built anew for each commit, and have none. Nor has what is built without git or its folder, as from an archive.

use std::env;
use std::path::Path;
use std::process::Command;

/// What of the repository the program is made of, from its top.
const SOURCES: [&str; 4] = ["Cargo.lock", "Cargo.toml", "crates", "scenarios"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(package) =
        env::var_os("CARGO_MANIFEST_DIR").filter(|_| env::var("PROFILE").as_deref() == Ok("release"))
    else {
        return;
    };
    let package = Path::new(&package);
    let Some(commit) = commit(package, "crates/iogate") else { return };
    println!("cargo::rustc-env=IOGATE_COMMIT={commit}");
    let branch = git(package, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        // What is not there would have this run each time.
        let file =
            git(package, &["rev-parse", "--git-path", name]).filter(|file| package.join(file).exists());
        if let Some(file) = file {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../../{source}");
    }
}

/// The commit that is checked out, with a `+` if something of the program or its scenarios is not as in it. `None` where git does not say
/// so, or `package` is not at `place` in what it looks after, as in a copy inside of another repository.
pub(crate) fn commit(package: &Path, place: &str) -> Option<String> {
    if git(package, &["rev-parse", "--show-prefix"])?.trim_end_matches('/') != place {
        return None;
    }
    let commit = git(package, &["rev-parse", "--short=10", "HEAD"])?;
    let sources = SOURCES.map(|source| format!(":/{source}"));
    let status = ["--no-optional-locks", "status", "--porcelain", "--"].into_iter();
    let changed = git(package, &status.chain(sources.iter().map(String::as_str)).collect::<Vec<_>>())?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}
