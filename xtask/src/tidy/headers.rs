//! Each source file says its purpose first.

use super::{Finding, Tree};

/// Checks the first line of every Rust file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(_, text)| {
            // A file that is run may name its interpreter first.
            let first = text.lines().find(|line| !line.starts_with("#!/")).unwrap_or_default();
            first.strip_prefix("//!").is_none_or(|purpose| purpose.trim().is_empty())
        })
        .map(|(path, _)| Finding::new(path, 1, "the first line should be `//!` and the file's purpose"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_purpose_are_found() {
        let tree = Tree::from([
            ("crates/a/src/good.rs", "//! Purpose.\n"),
            ("crates/a/src/empty.rs", ""),
            ("crates/a/src/late.rs", "\n//! Purpose.\n"),
            ("crates/a/src/none.rs", "//!\nfn main() {}\n"),
            ("README.md", "# Title\n"),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/a/src/empty.rs", "crates/a/src/late.rs", "crates/a/src/none.rs"]);
    }
}
