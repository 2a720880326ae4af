//! `cargo xtask tidy`: layers, crates from outside, file sizes, documented paths, the handbook, quoted figures, features of crates,
//! versions, words, headers, comments, shell scripts, stores, tables of modules, writers.
//!
//! Each check is a function from the text of the tree to what it found, so that it can be tested without files.

mod book;
mod comments;
mod crates;
mod features;
mod headers;
mod layers;
mod paths;
mod quotes;
mod shell;
mod sizes;
mod stores;
mod tables;
mod versions;
mod words;
mod writers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What the checks are, for `--help`.
pub(crate) const HELP: &str = "\
  layers    A crate depends only on crates above it in this list, reading from the top:
            iogate-core, iogate-engine, iogate-gate, iogate-agios, iogate-vfs, iogate-fuse, iogate-nfs, iogate-net, iogate-turn,
            iogate-preload, iogate-sim, iogate-report, iogate-python, iogate, iogate-lab. iogate-sim depends on iogate-core only; iogate-testkit is a dev-dependency only;
            only iogate-net uses rustls and ureq; only in its tests does iogate-fuse use iogate-net.
            iogate-core is `#![no_std]`, forbids unsafe code, and uses few crates.
            In iogate-net, client, coordinator, server and turns use transport, and never each other.
  crates    Crates from outside come from the default registry, under licences that xtask/src/tidy/crates.rs allows; no package of
            ours asks for one without a version.
  sizes     No .rs file is longer than 600 lines, unless xtask/file-sizes.txt names it with its ceiling. A ceiling
            only goes down: when the file got shorter, `--fix` lowers it (or drops the line at 600 and below).
  paths     In README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/*.md each path exists. A path is
            - the target of a link, unless it has a scheme (`https:`) or is only a `#fragment`;
            - a word in backticks, outside code blocks, of letters, digits, `.`, `_`, `-` and `/` alone, that has a
              slash inside or ends in .rs, .md or .toml.
            It is looked for from the root of the repository, then from the folder of the document. Not looked for:
            what starts with `/`, `~` or `.` (this system's, not ours) and what is under target/ (built).
            In docs/request-path.md, each row of a table with the columns `file` and `function` names a file that
            exists and a function whose name occurs in that file.
  book      docs/SUMMARY.md lists each page below docs/ once. Each link of a page, and of README.md, leads from the page's folder
            to a file of the repository, and to a heading of it if it names one.
  quotes    A link of a page whose title is `TABLE | ROW | COLUMN` has as its text what that cell of the page that it leads to begins with. TABLE
            is the line before the table, or the heading of its section. `--fix` puts in what the cell has now.
  versions  python/pyproject.toml, the lock files and the newest numbered section of CHANGELOG.md have the version of Cargo.toml.
  features  Tests ask no crate from outside for a feature that nothing else of the workspace asks it for.
  words     No host name of a package registry, and no absolute path of a developer's machine.
  headers   Each .rs file of a crate starts with a `//!` line that says its purpose.
  comments  No line of a comment is wider than 140 columns, but rows of tables and addresses.
  shell     No line of a shell script is a bare `! command`, which never fails under `set -e`.
  stores    A store that is around another one passes on what the trait would answer by itself.
  tables    In the tables at the heads of lib.rs, main.rs and mod.rs, what the first column names with `.rs` or `/` at its end is beside
            the file. One whose head is `file` or `module` names each `mod x;` of the file, but `tests`.
  writers   A private field of a struct is assigned in at most two files (through `self`; calls on it are not looked at).
";

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// The files of the repository: path from the root, with `/`, to text. What is not text has no content here.
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            for entry in path.read_dir().with_context(|| format!("cannot list {}", path.display()))? {
                let entry = entry?;
                let name = entry.file_name().into_string().map_err(|name| {
                    anyhow::anyhow!("in {}: the file name {name:?} is not UTF-8", path.display())
                })?;
                let relative = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                // Built, fetched or generated: not ours to check.
                if matches!(&name[..], ".git" | "target" | "node_modules" | "corpus" | "artifacts") {
                    continue;
                }
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(relative);
                } else if kind.is_file() {
                    let bytes = std::fs::read(entry.path())
                        .with_context(|| format!("cannot read {}", entry.path().display()))?;
                    files.insert(relative, String::from_utf8(bytes).unwrap_or_default());
                }
            }
        }
        Ok(Self(files))
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(path, _)| path.ends_with(".rs"))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether there is a file, or a folder with something in it, of this path.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.0.contains_key(path)
            || self.0.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder))
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        Self(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }
}

/// Runs all checks on the repository at `root`, prints what they find, and says whether all is well.
pub(crate) fn run(root: &Path, fix: bool) -> Result<bool> {
    let tree = Tree::read(root)?;
    let mut findings = layers::check(&metadata(root, &["--no-deps", "--offline"])?, &tree)?;
    // All that may be compiled for these; what this machine has not fetched yet is fetched.
    let [x86, arm] =
        ["x86_64", "aarch64"].map(|machine| format!("--filter-platform={machine}-unknown-linux-gnu"));
    findings.extend(crates::check(&metadata(root, &["--locked", "--all-features", &x86, &arm])?)?);
    let (too_long, ceilings) = sizes::check(&tree)?;
    let listed = tree.get(sizes::LIST).unwrap_or_default();
    if fix && ceilings != listed {
        std::fs::write(root.join(sizes::LIST), &ceilings)
            .with_context(|| format!("cannot write {}", sizes::LIST))?;
        println!("tidy: {} is up to date now", sizes::LIST);
        findings.extend(too_long.into_iter().filter(|finding| finding.path != sizes::LIST));
    } else {
        findings.extend(too_long);
    }
    let (quoted, mended) = quotes::check(&tree);
    if fix && !mended.is_empty() {
        for (page, text) in &mended {
            std::fs::write(root.join(page), text).with_context(|| format!("cannot write {page}"))?;
            println!("tidy: figures that {page} quotes are up to date now");
        }
        findings.extend(quotes::check(&Tree::read(root)?).0);
    } else {
        findings.extend(quoted);
    }
    findings.extend(paths::check(&tree));
    findings.extend(book::check(&tree));
    findings.extend(features::check(&tree));
    findings.extend(versions::check(&tree));
    findings.extend(words::check(&tree));
    findings.extend(headers::check(&tree));
    findings.extend(comments::check(&tree));
    findings.extend(shell::check(&tree));
    findings.extend(stores::check(&tree));
    findings.extend(tables::check(&tree));
    findings.extend(writers::check(&tree));

    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: {} files, nothing found", tree.0.len()),
        found => println!("tidy: {found} found"),
    }
    Ok(findings.is_empty())
}

fn metadata(root: &Path, options: &[&str]) -> Result<serde_json::Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1"])
        .args(options)
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata did not print JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_files_and_their_folders() {
        let tree = Tree::from([("a/b/c.rs", ""), ("a/bc", "")]);
        for path in ["a", "a/", "a/b", "a/b/", "a/b/c.rs", "a/bc"] {
            assert!(tree.has(path), "{path}");
        }
        for path in ["b", "a/b/c", "a/b/c.r", "a/bcd", "c.rs"] {
            assert!(!tree.has(path), "{path}");
        }
    }

    #[test]
    fn this_repository_is_read_without_what_is_built() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = Tree::read(root).unwrap();
        assert!(tree.has("xtask/src/main.rs") && tree.has(".cargo/config.toml"));
        assert!(!tree.has("target") && !tree.has(".git"));
    }
}
