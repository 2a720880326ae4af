//! Which commit a program says it is of: that of the folder that it was built in, wherever it runs.

use std::fs;
use std::path::Path;
use std::process::Command;

#[expect(dead_code, reason = "what cargo runs is not run here")]
#[path = "../../../build.rs"]
mod script;

/// Of a new repository with one commit, in which a change is seen.
fn repository(folder: &Path, package: &Path) {
    fs::create_dir_all(package).unwrap();
    for name in ["Cargo.toml", "Cargo.lock", "crates/a", "scenarios"] {
        fs::write(folder.join(name), "one").unwrap();
    }
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"];
    git(folder, &[&who[..], &["commit", "--quiet", "--message", "one"]].concat());
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").args(arguments).current_dir(folder).status().unwrap();
    assert!(status.success(), "git {arguments:?}");
}

#[test]
fn a_program_is_of_the_commit_that_it_was_built_from() {
    if Command::new("git").arg("--version").output().is_err() {
        return eprintln!("skipped: no git is installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (folder, package) = (folder.path(), folder.path().join("crates/iogate"));
    let copy = folder.join("target/package/iogate");
    fs::create_dir_all(&copy).unwrap();
    assert_eq!(script::commit(&copy, "crates/iogate"), None, "nobody looks after it");
    repository(folder, &package);
    let commit = script::commit(&package, "crates/iogate").unwrap();
    assert!(commit.len() >= 10 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    fs::write(folder.join("notes"), "two").unwrap();
    assert_eq!(script::commit(&package, "crates/iogate").as_ref(), Some(&commit), "no part of the program");
    fs::write(folder.join("crates/a"), "two").unwrap();
    assert_eq!(script::commit(&package, "crates/iogate"), Some(commit + "+"));
    assert_eq!(script::commit(&copy, "crates/iogate"), None, "another's repository");
}

#[test]
fn an_unoptimised_program_is_of_no_commit_even_in_a_folder_that_has_one() {
    assert!(!cfg!(debug_assertions) || super::commit().is_none());
}
