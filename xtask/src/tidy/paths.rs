//! What the documents name exists.

use super::{Finding, Tree};

const REQUEST_PATH: &str = "docs/request-path.md";

/// Checks the paths in all documents, and the functions in the table of a request's way.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (document, text) in tree.iter() {
        let top = matches!(document, "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md");
        let in_docs = document.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
        if !(top || in_docs && document.ends_with(".md")) {
            continue;
        }
        for (line, text) in prose(text) {
            for path in named(text) {
                if !exists(tree, document, &path) {
                    findings.push(Finding::new(document, line, format!("there is no `{path}`")));
                }
            }
        }
    }
    if let Some(text) = tree.get(REQUEST_PATH) {
        findings.extend(functions(tree, text));
    }
    findings
}

/// The lines outside code blocks, counted from 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((index + 1, line))
    })
}

/// The paths that a line names: see the rule in the help of tidy.
fn named(line: &str) -> Vec<String> {
    let spans = line.split('`').skip(1).step_by(2);
    let code = spans.filter(|word| is_path(word)).map(|word| word.to_owned());
    // Outside backticks, so that code which only looks like a link is not one.
    let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let links = outside.match_indices("](").filter_map(|(at, _)| {
        let target = outside[at + 2..].split([')', ' ']).next()?.split('#').next()?;
        (!target.is_empty() && !target.contains(':')).then(|| target.to_owned())
    });
    code.chain(links.collect::<Vec<_>>()).collect()
}

fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let path = word.contains('/') || [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end));
    let elsewhere = word.starts_with(['/', '~', '.', '-']) || word.starts_with("target/");
    plain && path && !elsewhere
}

/// Whether `path` is there, seen from the root or from the folder of `document`.
fn exists(tree: &Tree, document: &str, path: &str) -> bool {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    path.starts_with("target/") || tree.has(&joined("", path)) || tree.has(&joined(folder, path))
}

/// `path` seen from `folder`, without `.` and `..`.
pub(super) fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The cells of a table's row.
pub(super) fn cells(row: &str) -> impl Iterator<Item = &str> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    row.trim_end_matches('|').split('|').map(str::trim)
}

/// Checks each table that has the columns `file` and `function`.
fn functions(tree: &Tree, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut columns: Option<(usize, usize)> = None;
    let mut rows = 0;
    for (line, text) in prose(text) {
        if !text.trim().starts_with('|') {
            columns = None;
            continue;
        }
        let cells: Vec<&str> = cells(text).collect();
        let Some((file, function)) = columns else {
            let column = |name| cells.iter().position(|cell| cell.eq_ignore_ascii_case(name));
            columns = column("file").zip(column("function"));
            continue;
        };
        if cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c))) {
            continue;
        }
        rows += 1;
        let (Some(file), Some(function)) = (cells.get(file), cells.get(function)) else {
            findings.push(Finding::new(
                REQUEST_PATH,
                line,
                "this row has fewer cells than the head of its table",
            ));
            continue;
        };
        // `[text](target)`, or the path itself, in backticks or not.
        let path = file.rsplit_once("](").map_or(*file, |(_, target)| target.trim_end_matches(')'));
        let path = path.trim_matches('`');
        let path = if tree.get(path).is_some() { path.to_owned() } else { joined("docs", path) };
        let Some(source) = tree.get(&path) else {
            findings.push(Finding::new(
                REQUEST_PATH,
                line,
                format!("there is no file `{}`", file.trim_matches('`')),
            ));
            continue;
        };
        for function in function.split([',', ' ']).filter(|word| !word.is_empty()) {
            // `Gate::submit()` is the function `submit`.
            let name = function.trim_matches('`').trim_end_matches("()");
            let name = name.rsplit([':', '.']).next().unwrap_or(name);
            if !defines(source, name) {
                findings.push(Finding::new(REQUEST_PATH, line, format!("{path} has no function `{name}`")));
            }
        }
    }
    if rows == 0 {
        findings.push(Finding::new(
            REQUEST_PATH,
            0,
            "expected a table with the columns `file` and `function`",
        ));
    }
    findings
}

/// Whether a function of this name is defined in `source`.
fn defines(source: &str, name: &str) -> bool {
    !name.is_empty()
        && source.match_indices(&format!("fn {name}")).any(|(at, found)| {
            !source[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::from(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_rule_of_what_is_a_path() {
        for path in ["a/b", "crates/iogate-core", "docs/", "lib.rs", "README.md", "Cargo.toml"] {
            assert!(is_path(path), "{path}");
        }
        for word in
            ["a b/c", "gate.submit", "/dev/fuse", "~/x.md", "target/demo", "--x/y", "a/*.rs", "u64", "a/<b>"]
        {
            assert!(!is_path(word), "{word}");
        }
    }

    #[test]
    fn paths_in_backticks_and_links_must_exist() {
        let readme = "See `src/a.rs`, `src/b.rs`, [a](src/a.rs#x), [b](src/b.rs), [c](https://x.y/z), [d](#here).\n\
                      ```\n`src/c.rs`\n```\n`src/d.rs`\n";
        assert_eq!(
            found([("README.md", readme), ("src/a.rs", "")]),
            [
                "README.md:1: there is no `src/b.rs`",
                "README.md:1: there is no `src/b.rs`",
                "README.md:5: there is no `src/d.rs`"
            ]
        );
    }

    #[test]
    fn a_path_counts_from_the_root_or_from_the_document() {
        let text = "[up](../README.md) `other.md` `docs/other.md` [no](../other.md)\n";
        let files =
            [("docs/a.md", text), ("docs/other.md", ""), ("README.md", ""), ("notes.md", "`gone.rs`")];
        assert_eq!(found(files), ["docs/a.md:1: there is no `../other.md`"]);
    }

    #[test]
    fn the_functions_of_a_requests_way_must_be_in_their_files() {
        let table = "| hop | file | function | in |\n|---|---|---|---|\n\
                     | a | `src/a.rs` | `Gate::submit` | x |\n\
                     | b | [a](../src/a.rs) | `sub`, `next()` | x |\n\
                     | c | src/gone.rs | `run` | x |\n\
                     | d |\n";
        let found = found([(REQUEST_PATH, table), ("src/a.rs", "//! A.\nfn submit() {}\nfn next<T>() {}\n")]);
        assert_eq!(
            found,
            [
                "docs/request-path.md:4: src/a.rs has no function `sub`",
                "docs/request-path.md:5: there is no file `src/gone.rs`",
                "docs/request-path.md:6: this row has fewer cells than the head of its table"
            ]
        );
    }

    #[test]
    fn a_request_path_without_its_table_is_found() {
        let found = found([(REQUEST_PATH, "# A request's way\n\n| a | b |\n|---|---|\n| c | d |\n")]);
        assert_eq!(found, ["docs/request-path.md: expected a table with the columns `file` and `function`"]);
    }
}
