//! `cargo xtask new KIND NAME`: the files that an addition takes, which compile, and a test that fails until it does what it is to do.
//!
//! Everything is made out first, and then written: if a file is not as it is expected, nothing has changed.

mod kinds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use kinds::{KINDS, Kind, Line};

pub(crate) const HELP: &str = "
new makes the files that a scheduler, a store, a device or a workload takes, with a
test that fails until it is written (CONTRIBUTING.md, \"A scheduler, from its name on\").
";

/// Makes the files, says which, and what is next.
///
/// # Errors
/// Says what was expected; nothing has changed then.
pub(crate) fn run(root: &Path, kind: &str, name: &str) -> anyhow::Result<()> {
    let Some(kind) = KINDS.iter().find(|one| one.name == kind) else {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        bail!("expected one of {}, got `{kind}`", known.join(", "));
    };
    for (path, is_new) in make(root, kind, name)? {
        println!("{} {}", if is_new { "new    " } else { "changed" }, path.display());
    }
    let words = Words::of(name);
    println!("\nIt compiles, and this fails:\n\n    cargo test {}\n", words.put(kind.test));
    println!("Next: {}.\n`TO DO` stands where something is to be said.", kind.then);
    Ok(())
}

/// Makes the files: their paths, and whether they are new.
fn make(root: &Path, kind: &Kind, name: &str) -> anyhow::Result<BTreeMap<PathBuf, bool>> {
    let changes = changes(root, kind, name)?;
    for (path, (text, _)) in &changes {
        std::fs::write(root.join(path), text).with_context(|| path.display().to_string())?;
    }
    let made = changes.into_iter().map(|(path, (_, is_new))| (path, is_new)).collect();
    if !format(root, &made, &[]) {
        eprintln!("new: rustfmt has not formatted all files: run cargo fmt");
    }
    Ok(made)
}

/// Formats those in Rust. Whether rustfmt is content.
fn format(root: &Path, files: &BTreeMap<PathBuf, bool>, flags: &[&str]) -> bool {
    let files = files.keys().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024"]).args(flags).args(files).current_dir(root);
    rustfmt.status().is_ok_and(|status| status.success())
}

/// The texts that files are to have, and whether they are new.
fn changes(root: &Path, kind: &Kind, name: &str) -> anyhow::Result<BTreeMap<PathBuf, (String, bool)>> {
    check(name)?;
    let words = Words::of(name);
    let mut changes = BTreeMap::new();
    for (path, text) in kind.files {
        let path = PathBuf::from(words.put(path));
        if root.join(&path).exists() {
            bail!("{} is there already: expected a name that no {} has", path.display(), kind.name);
        }
        changes.insert(path, (words.put(text), true));
    }
    for line in kind.lines {
        let path = match line {
            Line::Before { path, .. } | Line::Behind { path, .. } => path,
            Line::AtEnd { path, .. } | Line::Count { path, .. } => path,
        };
        let before = match changes.get(Path::new(path)) {
            Some((text, _)) => String::clone(text),
            None => std::fs::read_to_string(root.join(path)).with_context(|| (*path).to_owned())?,
        };
        let after = line.put(&before, &words).with_context(|| (*path).to_owned())?;
        changes.insert(PathBuf::from(path), (after, false));
    }
    Ok(changes)
}

/// Whether it is a name for people, and for files and types of Rust.
fn check(name: &str) -> anyhow::Result<()> {
    const TAKEN: [&str; 52] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
        "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
        "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
        "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
        "virtual", "where", "while", "yield", "default",
    ];
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_lowercase())
            && word.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit())
    };
    if !name.split('-').all(is_word) || TAKEN.contains(&name) || name.len() > 40 {
        bail!("expected a name of small letters, digits and hyphens, as in two-queues, got `{name}`");
    }
    Ok(())
}

/// A name in its three forms.
struct Words {
    name: String,
    module: String,
    type_name: String,
}

impl Words {
    fn of(name: &str) -> Words {
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
                .collect::<String>()
        };
        Words {
            name: name.into(),
            module: name.replace('-', "_"),
            type_name: name.split('-').map(capital).collect(),
        }
    }

    fn put(&self, text: &str) -> String {
        let text = text.replace("@name@", &self.name).replace("@module@", &self.module);
        text.replace("@Type@", &self.type_name)
    }
}

impl Line {
    /// A file's text with the change. Fails if what it stands beside is not there once.
    fn put(&self, file: &str, words: &Words) -> anyhow::Result<String> {
        let once = |text: &str| match file.matches(text).count() {
            1 => Ok(file.split_once(text).expect("it is there")),
            count => {
                bail!("expected `{}` once, found it {count} times: mend xtask/src/new/kinds.rs", text.trim())
            }
        };
        // A name that is there already, as another variant or another word.
        let fresh = |new: &str| match file.contains(new.trim()) {
            true => bail!("`{}` is there already: expected another name", new.trim()),
            false => Ok(new.to_owned()),
        };
        Ok(match self {
            Line::Before { text, new, .. } => {
                let (before, behind) = once(text)?;
                format!("{before}{}{text}{behind}", fresh(&words.put(new))?)
            }
            Line::Behind { text, new, .. } => {
                let (before, behind) = once(text)?;
                format!("{before}{text}{}{behind}", fresh(&words.put(new))?)
            }
            Line::AtEnd { new, .. } => format!("{file}{}", fresh(&words.put(new))?),
            Line::Count { before, behind, .. } => {
                let (head, rest) = once(before)?;
                let (number, tail) = rest.split_once(behind).context("expected the number's end")?;
                let number: u64 =
                    number.parse().with_context(|| format!("expected a number, found `{number}`"))?;
                format!("{head}{before}{}{behind}{tail}", number + 1)
            }
        })
    }
}

#[cfg(test)]
mod tests;
