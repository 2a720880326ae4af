//! The handbook is whole: `docs/SUMMARY.md` lists every page once, and every link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{joined, prose};
use super::{Finding, Tree};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the list of pages, and the links of all pages of the handbook and of the README.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pages: Vec<(&str, &str)> = tree
        .iter()
        .filter(|(path, _)| path.starts_with("docs/") && path.ends_with(".md") || *path == "README.md")
        .collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (*path, anchors(text))).collect();
    let mut findings = Vec::new();
    for (page, text) in &pages {
        for (line, text) in prose(text) {
            for target in targets(text) {
                if let Err(what) = resolve(tree, &anchors, page, &target) {
                    findings.push(Finding::new(page, line, what));
                }
            }
        }
    }
    let Some(summary) = tree.get(SUMMARY) else {
        findings.push(Finding::new(SUMMARY, 0, "there is none: it lists the pages of the handbook"));
        return findings;
    };
    let mut listed = BTreeSet::new();
    for (line, text) in prose(summary) {
        for target in targets(text) {
            if !listed.insert(joined("docs", &target)) {
                findings.push(Finding::new(SUMMARY, line, format!("`{target}` is listed twice")));
            }
        }
    }
    for (page, _) in pages {
        if page.starts_with("docs/") && page != SUMMARY && !listed.contains(page) {
            findings.push(Finding::new(page, 0, format!("{SUMMARY} does not list it")));
        }
    }
    findings
}

/// What the links and pictures of a line lead to, without those that have a scheme (`https:`).
fn targets(line: &str) -> Vec<String> {
    // Outside backticks, so that code which only looks like a link is not one.
    let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let links = outside.match_indices("](").filter_map(|(at, _)| {
        let target = outside[at + 2..].split([')', ' ']).next()?;
        (!target.is_empty() && !target.contains(':')).then(|| target.to_owned())
    });
    links.collect()
}

/// Whether a link of `page` leads to a file, and to a heading of it if it names one. It counts from the page's folder: mdBook and the web
/// know no other way.
fn resolve(
    tree: &Tree,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    page: &str,
    target: &str,
) -> Result<(), String> {
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at)));
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if path.is_empty() { page.to_owned() } else { joined(folder, path) };
    if !tree.has(&path) {
        return Err(format!("the link to `{target}` leads to `{path}`, which is not there"));
    }
    match (fragment, anchors.get(&path[..])) {
        (Some(fragment), Some(known)) if !known.contains(fragment) => {
            Err(format!("`{path}` has no heading for `#{fragment}`"))
        }
        _ => Ok(()),
    }
}

/// The fragments of a page's headings, by the rule of mdBook (and of most web views of repositories).
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let id: String = shown(title.trim())
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        let count = times.entry(id.clone()).or_default();
        found.insert(if *count == 0 { id } else { format!("{id}-{count}") });
        *count += 1;
    }
    found
}

/// The text of a title, without the targets of its links.
fn shown(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::from(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_summary_lists_each_page_once() {
        let files = [
            (SUMMARY, "- [A](a.md)\n- [A](a.md)\n- [C](how-to/c.md)\n- [D](d.md)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/how-to/c.md", ""),
        ];
        assert_eq!(
            found(files),
            [
                "docs/SUMMARY.md:4: the link to `d.md` leads to `docs/d.md`, which is not there",
                "docs/SUMMARY.md:2: `a.md` is listed twice",
                "docs/b.md: docs/SUMMARY.md does not list it"
            ]
        );
        assert_eq!(found([]), ["docs/SUMMARY.md: there is none: it lists the pages of the handbook"]);
    }

    #[test]
    fn links_count_from_their_page_and_lead_to_headings() {
        let page = "# Title\n[ok](#in-use) [ok](b.md#a-b--c) [root](docs/b.md) [gone](b.md#gone)\n\
                    ![picture](images/x.svg) `[code](x)` [web](https://x.y)\n## In use\n";
        let files = [
            (SUMMARY, "[A](a.md) [B](b.md)"),
            ("docs/a.md", page),
            ("docs/b.md", "## A [b](x.md) & `C`\n```\n# gone\n```\n## Twice\n## Twice\n"),
            ("docs/x.md", "[t](b.md#twice-1)"),
        ];
        assert_eq!(
            found(files),
            [
                "docs/a.md:2: the link to `docs/b.md` leads to `docs/docs/b.md`, which is not there",
                "docs/a.md:2: `docs/b.md` has no heading for `#gone`",
                "docs/a.md:3: the link to `images/x.svg` leads to `docs/images/x.svg`, which is not there",
                "docs/x.md: docs/SUMMARY.md does not list it"
            ]
        );
    }
}
