//! Comments are as wide as an editor shows.

use super::{Finding, Tree};

/// Most columns of a line of a comment.
pub(crate) const COLUMNS_MAX: usize = 140;

/// Checks every line that is a comment: rustfmt does not. Rows of tables and addresses cannot be broken.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.rust() {
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let columns = line.chars().count();
            let cannot_break = comment.contains('|') || comment.contains("://");
            if comment.starts_with("//") && columns > COLUMNS_MAX && !cannot_break {
                let what = format!("a comment of {columns} columns: expected at most {COLUMNS_MAX}");
                found.push(Finding::new(path, index + 1, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found() {
        let word = "word ".repeat(30);
        let text = format!(
            "//! Purpose.\n    // {word}\nlet x = \"{word}\";\n/// | {word} |\n/// {}\n",
            &word[..130]
        );
        let tree = Tree::from([("crates/a/src/lib.rs", &text[..])]);
        let lines: Vec<usize> = check(&tree).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2]);
    }
}
