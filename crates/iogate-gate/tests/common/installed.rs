//! What is installed of a C library, whichever: the shared library as others see it, and the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The functions that C programs may call, by the sources of a crate.
pub(crate) fn functions(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(root.join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for rest in text.split("#[unsafe(no_mangle)]").skip(1) {
            let rest = rest.split_once("extern \"C\" fn ").unwrap().1;
            names.insert(rest.split_once('(').unwrap().0.into());
        }
    }
    assert!(names.len() > 8, "{names:?}");
    names
}

/// What a program prints, which must succeed.
#[track_caller]
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: scripts/setup"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Links a library as it is installed, into `folder`, and compares what others see of it: its name, its functions with the version
/// `node`, and nothing else.
#[track_caller]
pub(crate) fn link(root: &Path, name: &str, node: &str, folder: &Path) {
    // The static library is beside the tests.
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let script = root.join("../../scripts/link-library");
    printed(Command::new(script).arg(name).args([&built, folder]));
    let file = format!("libiogate_{name}.so.1");
    let path = folder.join(&file);
    let dynamic = printed(Command::new("readelf").args(["--wide", "--dynamic"]).arg(&path));
    assert!(dynamic.contains(&format!("Library soname: [{file}]")), "{dynamic}");
    let seen = printed(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&path));
    let seen: BTreeSet<&str> = seen.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    let functions = functions(root);
    let mut wanted: BTreeSet<String> =
        functions.iter().map(|function| format!("T {function}@@{node}")).collect();
    wanted.insert(format!("A {node}"));
    assert_eq!(seen, wanted.iter().map(String::as_str).collect());
    // For linkers, as it is installed.
    std::os::unix::fs::symlink(&file, folder.join(format!("libiogate_{name}.so"))).unwrap();
}

/// What a program that was linked with a library of `folder` asks for: the library by its number, and functions by their version.
#[track_caller]
pub(crate) fn asks_for(program: &Path, library: &str, node: &str) {
    let dynamic = printed(Command::new("readelf").args(["--wide", "--dynamic"]).arg(program));
    assert!(dynamic.contains(&format!("[{library}.so.1]")), "{dynamic}");
    let asked = printed(Command::new("nm").args(["--dynamic", "--undefined-only"]).arg(program));
    let ours: Vec<&str> =
        asked.lines().filter(|line| line.contains("iogate") || line.contains("agios")).collect();
    assert!(!ours.is_empty(), "{asked}");
    assert!(ours.iter().all(|line| line.ends_with(&format!("@{node}"))), "{ours:?}");
}

/// How often each word is in a text, in small letters: headings are in capitals.
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in
        text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').filter(|word| !word.is_empty())
    {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

/// Writes the manual of a library, and compares it with what its header says: all words, all functions, all constants. Nothing about it is
/// warned of.
#[track_caller]
pub(crate) fn manual(root: &Path, name: &str, header: &str) {
    let folder = tempfile::tempdir().unwrap();
    printed(Command::new(root.join("../../scripts/library-manual")).args([name, "1.2.3"]).arg(folder.path()));
    let page = format!("iogate_{name}.3");
    let path = folder.path().join(&page);
    let shown = Command::new("groff")
        .args(["-man", "-ww", "-b", "-Tascii", "-P-cbou", "-rLL=900n"])
        .arg(&path)
        .output();
    let shown = shown.expect("groff is there: scripts/setup installs it");
    assert!(shown.status.success() && shown.stderr.is_empty(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();

    let header = std::fs::read_to_string(root.join("include").join(header)).unwrap();
    let comments: Vec<&str> =
        header.split("/*").skip(1).map(|piece| piece.split_once("*/").unwrap().0).collect();
    let (comments, there) = (comments.join(" "), words(&shown));
    for (word, count) in words(&comments) {
        assert!(there.get(&word).is_some_and(|there| *there >= count), "'{word}' is left out: {path:?}");
    }
    let constants = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    for (constant, _) in constants.filter(|(constant, _)| !constant.contains('(')) {
        assert!(there.contains_key(&constant.to_lowercase()), "{constant} is left out");
    }
    let functions = functions(root);
    for function in &functions {
        let heads = shown.lines().any(|line| {
            line.starts_with("   ") && line.trim().split(", ").any(|name| name == format!("{function}()"))
        });
        assert!(heads, "nothing is headed {function}");
        let leads = std::fs::read_to_string(folder.path().join(format!("{function}.3"))).unwrap();
        assert_eq!(leads, format!(".so man3/{page}\n"));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), functions.len() + 1);
    // The stricter one, where it is.
    if let Ok(found) = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&path).output() {
        assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    }
}
