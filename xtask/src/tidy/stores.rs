//! A store around another one says of it what that one says of itself.

use super::{Finding, Tree};

/// What the trait answers by itself where a store does not, and wrongly for a store around another one.
const PASSED_ON: [&str; 5] = ["adopt_appending", "blocks", "asks_afar", "size", "peek"];

/// Checks each `impl Store` that calls an `inner` store.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    sources.flat_map(|(path, text)| of_file(path, text)).collect()
}

fn of_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if !(line.starts_with("impl Store for ") && line.ends_with('{')) {
            continue;
        }
        let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "}").collect();
        if !body.iter().any(|line| line.contains("self.inner.open(")) {
            continue;
        }
        for name in PASSED_ON {
            if !body.iter().any(|line| line.contains(&format!("fn {name}("))) {
                let what = format!("a store around another one passes on `{name}`, which this one does not");
                findings.push(Finding::new(path, at + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_passed_on_is_found() {
        let all: String = PASSED_ON.iter().map(|name| format!("    fn {name}(&self) {{}}\n")).collect();
        let open = "    fn open(&self) {\n        self.inner.open(path, mode)\n    }\n";
        let of = |name: &str, body: &str| format!("impl Store for {name} {{\n{body}}}\n");
        let (by_itself, whole) = (of("Memory", ""), of("Whole", &format!("{open}{all}")));
        let lacking = of("Lacking", &format!("{open}{}", all.replace("fn peek(", "fn look(")));
        let text = format!("//! Stores.\n{by_itself}{whole}{lacking}");
        let found = check(&Tree::from([("crates/a/src/store.rs", &text[..])]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("`peek`"), "{found:?}");
    }
}
