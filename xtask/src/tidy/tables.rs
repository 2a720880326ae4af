//! What tables of modules name is there, and all modules are named.

use super::{Finding, Tree};

/// Checks the tables at the heads of `lib.rs`, `main.rs` and `mod.rs`.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(file, "lib.rs" | "main.rs" | "mod.rs") {
            findings.extend(tables(tree, (path, folder), text));
        }
    }
    findings
}

fn tables(tree: &Tree, (path, folder): (&str, &str), text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut named: Vec<&str> = Vec::new();
    // Where the table of modules is, and whether the table at hand is one.
    let (mut head, mut is_of_modules, mut is_in_table) = (None, false, false);
    for (line, text) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        let Some(row) = text.strip_prefix("//! |") else {
            is_in_table = false;
            continue;
        };
        let cell = row.split('|').next().unwrap_or_default().trim();
        if !is_in_table {
            (is_in_table, is_of_modules) = (true, matches!(cell, "file" | "module"));
            head = head.or(is_of_modules.then_some(line));
            continue;
        }
        for name in cell.split('`').skip(1).step_by(2) {
            let is_path = name.ends_with(".rs") || name.ends_with('/');
            if is_path && !tree.has(&format!("{folder}/{name}")) {
                findings.push(Finding::new(path, line, format!("there is no `{name}` beside this file")));
            }
            if is_of_modules {
                let name = name.trim_start_matches("mod@");
                named.push(name.trim_end_matches(".rs").trim_end_matches('/'));
            }
        }
    }
    let Some(head) = head else { return findings };
    for module in modules(text).filter(|module| *module != "tests" && !named.contains(module)) {
        findings.push(Finding::new(path, head, format!("this table does not name the module `{module}`")));
    }
    findings
}

/// The modules that have files of their own: `x` of each `mod x;`.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.strip_suffix(';')?;
        let line =
            line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or(rest, |(_, rest)| rest));
        line.strip_prefix("mod ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::from(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_table_names_is_beside_the_file() {
        let text = "//! A.\n//!\n//! | part | what |\n//! |---|---|\n\
                    //! | `b.rs`, `c.rs` | x, not `d.rs` |\n//! | `e/` | x |\n//! | `f/` | x |\n//! | [`Gone`] | x |\n";
        assert_eq!(
            found([("a/src/lib.rs", text), ("a/src/b.rs", ""), ("a/src/e/mod.rs", ""), ("c.rs", "")]),
            [
                "a/src/lib.rs:5: there is no `c.rs` beside this file",
                "a/src/lib.rs:7: there is no `f/` beside this file"
            ]
        );
    }

    #[test]
    fn a_table_of_modules_names_all_of_them() {
        let text = "//! A.\n//!\n//! | module | what |\n//! |---|---|\n\
                    //! | [`mod@b`], `c.rs` | x |\n//! | `d/` | not `e` |\n\n\
                    pub mod b;\nmod c;\npub(crate) mod d;\nmod e;\npub(super) mod f;\n#[cfg(test)]\nmod tests;\nmod inside {}\n";
        let files = [("a/mod.rs", text), ("a/c.rs", ""), ("a/d/mod.rs", "")];
        assert_eq!(
            found(files),
            [
                "a/mod.rs:3: this table does not name the module `e`",
                "a/mod.rs:3: this table does not name the module `f`"
            ]
        );
    }

    #[test]
    fn tables_of_something_else_need_not_name_modules() {
        let text = "//! A.\n//!\n//! | type | what |\n//! |---|---|\n//! | [`B`] | x |\nmod c;\n";
        assert_eq!(found([("a/mod.rs", text), ("a/other.rs", text), ("a/none/mod.rs", "mod d;\n")]), [""; 0]);
    }
}
