//! Words that do not belong in the repository: they tie it to one machine or one mirror.

use super::{Finding, Tree};

/// Host names of package registries: which one is used is the machine's setting. And folders of one machine.
/// This file is the only one that may hold them.
const UNWANTED: [&str; 11] = [
    "crates.io",
    "deb.debian.org",
    "ftp.debian.org",
    "security.debian.org",
    "files.pythonhosted.org",
    "pypi.org",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "proxy.golang.org",
    "artifactory",
    "/work/",
];

/// Checks every line of every file that is written by hand.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter() {
        if path.ends_with("Cargo.lock") || path == "xtask/src/tidy/words.rs" {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            for word in UNWANTED {
                // The default registry has no other name than its host's, where sources are allowed.
                let named = path == "xtask/src/tidy/crates.rs" && word == "crates.io";
                if !named && contains(line, word) {
                    findings.push(Finding::new(path, index + 1, format!("`{word}` does not belong here")));
                }
            }
        }
    }
    findings
}

/// Whether `word` stands in `line` by itself: a subdomain of a host counts, `target/work/` is no `/work/`.
fn contains(line: &str, word: &str) -> bool {
    let joins = if word.starts_with('/') { "._-}/" } else { "_-" };
    line.match_indices(word).any(|(at, _)| {
        line[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && !joins.contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwanted_words_are_found_with_their_lines() {
        let tree = Tree::from([
            ("README.md", "see\nhttps://static.crates.io/x\n"),
            ("bench/run", "cd /work/tree\n"),
            ("xtask/src/tidy/crates.rs", "// crates.io only\n"),
            ("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["README.md:2: `crates.io` does not belong here", "bench/run:1: `/work/` does not belong here"]
        );
    }

    #[test]
    fn paths_that_only_end_like_an_unwanted_one_are_fine() {
        for line in ["target/work/a", "$dir/work/a", "${dir}/work/a", "/tmp/work/a", "mycrates.io"] {
            assert!(UNWANTED.iter().all(|word| !contains(line, word)), "{line}");
        }
        for line in ["/work/a", "\"/work/a", "pypi.org", "https://pypi.org/p"] {
            assert!(UNWANTED.iter().any(|word| contains(line, word)), "{line}");
        }
    }
}
