//! What a shell script says must fail is looked at.

use super::{Finding, Tree};

/// Checks that no line of a shell script is a bare `! command`: `set -e` does not look at what `!` negates, so such a line never fails.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(_, text)| is_shell(text)) {
        for (line, text) in text.lines().enumerate() {
            let text = text.trim_start();
            if text.starts_with("! ") && !text.contains("||") && !text.contains("&&") {
                let what = "`!` alone never fails, as `set -e` does not look at it: write `if COMMAND; then fail ...; fi`";
                findings.push(Finding::new(path, line + 1, what));
            }
        }
    }
    findings
}

fn is_shell(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("#!") && first.ends_with("sh") || first.starts_with("# shellcheck shell=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negated_command_alone_is_found_and_one_with_a_consequence_is_not() {
        let script =
            "#!/usr/bin/env bash\nset -e\n    ! cat secret\n! ls || exit 1\nif ! ls; then exit 1; fi\n";
        let rust = "! not a script\n";
        let tree = Tree::from([
            ("a.sh", script),
            ("b.rs", rust),
            ("c.bash", "# shellcheck shell=bash\n! ls 2>&1\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(|finding| finding.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.sh:3: ") && found[1].starts_with("c.bash:2: "), "{found:?}");
    }
}
