//! One version, wherever it is written.

use super::{Finding, Tree};

/// Checks that what repeats the workspace's version is right: the Python package, what the lock files say of the workspace's crates,
/// and the newest numbered section of the changelog, which has a date, too.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(version) = tree.get("Cargo.toml").and_then(|text| text.lines().find_map(quoted)) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let wrong = |path: &str, line: usize, found: &str| {
        let what =
            format!("expected version {version} as in Cargo.toml, found {found}: change both, or neither");
        (found != version).then(|| Finding::new(path, line + 1, what))
    };
    for (path, text) in tree.iter() {
        if path.ends_with("Cargo.lock") {
            let mut name = "";
            for (line, text) in text.lines().enumerate() {
                name = text.strip_prefix("name = ").unwrap_or(name).trim_matches('"');
                // Fuzz targets are no part of the workspace, and have no version.
                if let Some(found) = quoted(text)
                    && (name == "iogate" || name.starts_with("iogate-") && name != "iogate-fuzz")
                {
                    findings.extend(wrong(path, line, found));
                }
            }
        } else if path == "python/pyproject.toml" {
            let found = text.lines().enumerate().find_map(|(line, text)| Some((line, quoted(text)?)));
            findings.extend(found.and_then(|(line, found)| wrong(path, line, found)));
        } else if path == "CHANGELOG.md" {
            let sections = text.lines().enumerate();
            let mut sections = sections.filter_map(|(line, text)| Some((line, text.strip_prefix("## [")?)));
            if let Some((line, section)) = sections.find(|(_, section)| !section.starts_with("Unreleased]")) {
                let (found, date) = section.split_once(']').unwrap_or((section, ""));
                findings.extend(wrong(path, line, found));
                if !is_date(date) {
                    findings.push(Finding::new(
                        path,
                        line + 1,
                        "expected ` - YYYY-MM-DD` behind the version",
                    ));
                }
            }
        }
    }
    findings
}

/// The text of a line `version = "TEXT"`.
fn quoted(line: &str) -> Option<&str> {
    line.strip_prefix("version = \"")?.strip_suffix('"')
}

/// Whether a heading's end is ` - YYYY-MM-DD`.
fn is_date(text: &str) -> bool {
    let digits = text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter });
    digits.collect::<String>() == " - 0000-00-00"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a tree whose version is 0.2.0.
    fn found(path: &str, text: &str) -> Vec<String> {
        let cargo = "[workspace.package]\nversion = \"0.2.0\"\n[workspace.dependencies]\nserde = \"1\"\n";
        check(&Tree::from([("Cargo.toml", cargo), (path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn another_version_is_found_and_others_versions_are_not() {
        let lock =
            |of: &str, version: &str| format!("[[package]]\nname = \"{of}\"\nversion = \"{version}\"\n");
        for (path, text) in [
            ("Cargo.lock", lock("serde", "0.1.0") + &lock("iogate", "0.2.0") + &lock("xtask", "0.1.0")),
            ("fuzz/Cargo.lock", lock("iogate-fuzz", "0.0.0") + &lock("iogate-core", "0.2.0")),
            ("python/pyproject.toml", "[project]\nversion = \"0.2.0\"\n".into()),
            ("CHANGELOG.md", "## [Unreleased]\n## [0.2.0] - 2026-11-25\n## [0.1.0] - 2026-01-01\n".into()),
            ("CHANGELOG.md", "## [Unreleased]\n".into()),
        ] {
            assert_eq!(found(path, &text), [""; 0], "{path}");
        }
        for (path, line, text) in [
            ("Cargo.lock", 6, lock("serde", "0.1.0") + &lock("iogate", "0.1.0")),
            ("fuzz/Cargo.lock", 3, lock("iogate-core", "0.1.0")),
            ("python/pyproject.toml", 2, "[project]\nversion = \"0.1.0\"\n".into()),
            ("CHANGELOG.md", 2, "## [Unreleased]\n## [0.1.0] - 2026-11-25\n".into()),
            ("CHANGELOG.md", 1, "## [0.2.0]\n".into()),
            ("CHANGELOG.md", 1, "## [0.2.0] - soon\n".into()),
        ] {
            let found = found(path, &text);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}:{line}: expected ")), "{found:?}");
        }
    }
}
