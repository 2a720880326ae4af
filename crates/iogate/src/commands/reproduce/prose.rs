//! Keeps figures out of the text of the pages: what was measured, and what a paper says of it, stand in claims and tables only.
//!
//! Text may say what was set up (`setup:`, the notes of a page) in numbers, and name cells by sizes and windows. What explains results
//! (`remarks:`) has no number at all, and no other sentence a percentage, a factor, a rate, seconds or decimals.

use std::fs;
use std::path::{Path, PathBuf};

/// From so many words on a text is a sentence, not a name.
const SENTENCE: usize = 6;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !["tests.rs", "prose.rs", "auto.rs"].contains(&name) {
            found.push(path);
        }
    }
}

/// The text literals of a source file up to its tests, each with what stands before it.
fn literals(source: &str) -> Vec<(&str, String)> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or("");
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = source[at..].find(['"', '\'', '/']).map(|next| at + next) {
        let rest = &source[begin..];
        if rest.starts_with("//") {
            at = begin + rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\'") || rest.starts_with("'/'") {
            at = begin + rest[1..].find('\'').map_or(rest.len(), |end| end + 2);
        } else if let Some(inside) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = inside.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = begin + 1 + end.expect("a text ends");
            let words = source[begin + 1..end].replace("\\\n", " ");
            found.push((&source[..begin], words.split_whitespace().collect::<Vec<_>>().join(" ")));
            at = end + 1;
        } else {
            at = begin + 1;
        }
    }
    found
}

/// The field that a literal is the value of, or `notes` within the notes of a page.
fn place(before: &str) -> &str {
    let last = |what: &str| before.rfind(what);
    let notes =
        ["const NOTES", "let notes = vec![", "notes: vec!["].iter().filter_map(|begin| last(begin)).max();
    if notes.is_some_and(|notes| {
        !before[notes..].contains("];") && !before[notes..].contains("],\n        sections")
    }) {
        return "notes";
    }
    let before = before.trim_end().trim_end_matches("format!(").trim_end();
    ["setup:", "paper:", "remarks:", "title:"].into_iter().find(|field| before.ends_with(field)).unwrap_or("")
}

/// The numbers of a text that are figures, by where it stands.
fn figures(place: &str, text: &str) -> Vec<String> {
    if ["notes", "setup:", "paper:", "title:"].contains(&place) || text.split(' ').count() < SENTENCE {
        return Vec::new();
    }
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" name ");
    let words: Vec<&str> = plain.split(' ').collect();
    let mut named = false;
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| ",.;:()".contains(c));
        let lower = bare.to_lowercase();
        if ["figure", "figures", "table", "tables", "section", "sections", "chapter", "chapters"]
            .contains(&lower.as_str())
        {
            named = true;
            continue;
        }
        if !bare.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            || !bare.contains(|c: char| c.is_ascii_digit())
        {
            named = named && ["and", "to"].contains(&bare);
            continue;
        }
        let next = words.get(index + 1).map_or("", |next| next.trim_matches(|c: char| ",.;:()".contains(c)));
        let result = ["%", "s", "MB/s", "MiB/s", "points", "times"].contains(&next)
            || bare.ends_with(['x', '%'])
            || bare.contains('.');
        if !named && (place == "remarks:" || result) {
            found.push(format!("{bare} {next}"));
        }
    }
    found
}

#[test]
fn no_figure_stands_in_a_text_of_the_program() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/reproduce"), &mut files);
    assert!(files.len() > 15, "{files:?}");
    let mut found = Vec::new();
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        for (before, text) in literals(&source) {
            let line = before.lines().count();
            let name = path.file_name().unwrap().to_str().unwrap();
            found.extend(
                figures(place(before), &text).iter().map(|figure| format!("{name}:{line}: {figure}: {text}")),
            );
        }
    }
    assert!(found.is_empty(), "make claims or tables of these:\n{}", found.join("\n"));
}

#[test]
fn figures_are_found_where_they_may_not_stand() {
    let source = r#"Section { setup: "They read 4 MB from each of 10 servers, in 3 s.".into(), title: "Figure 5.3: what is seen of it there".into(),
        remarks: "Turns save 34 % at ten jobs, as in figure 5.3 above.".into(), }
        // "nor is 99 % of a comment"
        let what = "the time is 2.5x as long as without it"; let name = "read 32 KiB, shared, strided: better than all others";
        let c = '"'; let short = "28 %";"#;
    let found: Vec<Vec<String>> =
        literals(source).iter().map(|(before, text)| figures(place(before), text)).collect();
    let none = Vec::<String>::new();
    let expected =
        [none.clone(), none.clone(), vec!["34 %".to_owned()], vec!["2.5x as".to_owned()], none.clone(), none];
    assert_eq!(found, expected);
}
