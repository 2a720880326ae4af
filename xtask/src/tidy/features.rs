//! Features of crates from outside.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// Checks that tests ask no crate for a feature that nothing else of the workspace asks it for: with it, that crate, and all that uses it,
/// is compiled once more for tests, and the libraries of C, whose files have one name, are replaced while others use them.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = || tree.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    let asked = manifests().flat_map(|(_, text)| features(text)).filter(|of| !of.section.contains("dev-"));
    let asked: BTreeSet<(&str, &str)> = asked.map(|of| (of.name, of.feature)).collect();
    let mut findings = Vec::new();
    for (path, text) in manifests() {
        for Asked { section, name, feature, line } in features(text) {
            if section.contains("dev-") && !name.starts_with("iogate") && !asked.contains(&(name, feature)) {
                let what = format!(
                    "only tests ask {name} for {feature}: expected in [dependencies], or all that uses {name} is compiled twice"
                );
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

struct Asked<'a> {
    section: &'a str,
    name: &'a str,
    feature: &'a str,
    line: usize,
}

/// What a manifest asks crates for.
fn features(text: &str) -> impl Iterator<Item = Asked<'_>> {
    let mut section = "";
    text.lines().enumerate().flat_map(move |(line, text)| {
        section = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(section);
        let asked = section.ends_with("dependencies").then(|| text.split_once(" = {")).flatten();
        let (name, of) = asked.unwrap_or_default();
        let list = of.split_once("features = [").and_then(|(_, list)| list.split_once(']'));
        let list =
            list.map_or("", |(list, _)| list).split(',').map(|feature| feature.trim().trim_matches('"'));
        let list: Vec<&str> = list.filter(|feature| !feature.is_empty()).collect();
        let section = section;
        list.into_iter().map(move |feature| Asked { section, name, feature, line: line + 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_ask_for_is_found() {
        let one = "[dependencies]\nrustix = { workspace = true, features = [\"fs\"] }\n";
        let tests = "[dev-dependencies]\nrustix = { workspace = true, features = [\"fs\", \"pty\"] }\n";
        let tree = Tree::from([("a/Cargo.toml", one), ("b/Cargo.toml", tests)]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("b/Cargo.toml:2: only tests ask rustix for pty"), "{found:?}");
    }
}
