//! The private fields of a struct change in few files: who looks for why one has its value need not read a whole folder.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};

/// In so many files a private field may be written.
const FILES_MAX: usize = 2;

/// A struct: the module that it is in, and its name.
type Struct<'a> = (&'a str, &'a str);

/// A write to a field of `self`.
struct Write<'a> {
    of: &'a str,
    field: &'a str,
    path: &'a str,
    line: usize,
}

/// Finds private fields that methods in more files than [`FILES_MAX`] assign or replace. What is called on them, and what is lent
/// out by `&mut`, does not count: whether that writes, the text alone does not say.
///
/// It trusts the formatter: what stands at the beginning of a line is not inside of anything.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut structs = BTreeMap::new();
    let mut writes = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"))
    {
        read(path, text, &mut structs, &mut writes);
    }
    let mut places: BTreeMap<(Struct<'_>, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for Write { of, field, path, line } in writes {
        // A private field is seen by the module of its struct, and by those below it.
        let above = std::iter::successors(Some(module_of(path)), |module| Some(module.rsplit_once('/')?.0));
        let known = above.map(|module| (module, of)).find(|known| structs.contains_key(known));
        if let Some(known) = known.filter(|known| structs[known].contains(field)) {
            places.entry((known, field)).or_default().entry(path).or_insert(line);
        }
    }
    let too_many = places.iter().filter(|(_, files)| files.len() > FILES_MAX);
    let finding = |(((_, name), field), files): (&(Struct<'_>, &str), &BTreeMap<&str, usize>)| {
        let (first, line) = files.first_key_value()?;
        let all = files.keys().copied().collect::<Vec<_>>().join(", ");
        let what = format!("`{name}.{field}` is written in {all}: expected at most {FILES_MAX} files");
        Some(Finding::new(first, *line, what))
    };
    too_many.filter_map(finding).collect()
}

/// Notes the private fields of the structs of a file, and what its methods write.
fn read<'a>(
    path: &'a str,
    text: &'a str,
    structs: &mut BTreeMap<Struct<'a>, BTreeSet<&'a str>>,
    writes: &mut Vec<Write<'a>>,
) {
    let mut inside = Inside::Nothing;
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with("where") {
            continue;
        }
        if !line.starts_with([' ', '{', '}', ')']) {
            inside = Inside::of(line);
            if let Inside::Struct(name) = inside {
                structs.entry((module_of(path), name)).or_default();
            }
        }
        match inside {
            Inside::Struct(name) => {
                let field =
                    line.strip_prefix("    ").and_then(|line| line.split_once(':')).map(|(name, _)| name);
                if let Some(field) = field.filter(|field| is_name(field)) {
                    structs.entry((module_of(path), name)).or_default().insert(field);
                }
            }
            Inside::Impl(of) if !line.trim_start().starts_with("//") => {
                let new = written(line).map(|field| Write { of, field, path, line: index + 1 });
                writes.extend(new);
            }
            _ => {}
        }
    }
}

/// What a line belongs to.
#[derive(Clone, Copy)]
enum Inside<'a> {
    Struct(&'a str),
    Impl(&'a str),
    Nothing,
}

impl<'a> Inside<'a> {
    /// What a line that is not indented begins.
    fn of(line: &'a str) -> Inside<'a> {
        let line = line.strip_prefix("unsafe ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("impl") {
            // The type is behind `for`, if that is there; its path and its parameters do not matter.
            let rest = rest.rsplit_once(" for ").map_or_else(|| without_parameters(rest), |(_, of)| of);
            let path = rest.trim_start().split(['<', ' ', '{']).next().unwrap_or_default();
            return Inside::Impl(path.rsplit("::").next().unwrap_or_default());
        }
        let shown =
            ["pub ", "pub(crate) ", "pub(super) "].into_iter().find_map(|shown| line.strip_prefix(shown));
        match shown.unwrap_or(line).strip_prefix("struct ") {
            Some(rest) => Inside::Struct(first_name(rest)),
            None => Inside::Nothing,
        }
    }
}

/// What follows the parameters of an `impl`.
fn without_parameters(text: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if text[..at].ends_with('-') => {}
            '>' => depth -= 1,
            _ if depth == 0 => return &text[at..],
            _ => {}
        }
    }
    ""
}

/// The fields of `self` that a line assigns or replaces.
fn written(line: &str) -> impl Iterator<Item = &str> {
    const SELF: &str = "self.";
    const REPLACED: [&str; 3] = ["take(&mut ", "replace(&mut ", "swap(&mut "];
    line.match_indices(SELF).filter_map(move |(at, _)| {
        let before = &line[..at];
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let rest = &line[at + SELF.len()..];
        let field = first_name(rest);
        let rest = without_index(&rest[field.len()..]);
        let is_replaced = REPLACED.iter().any(|call| before.ends_with(call)) && rest.starts_with([',', ')']);
        ((is_replaced || is_assigned(rest)) && !field.is_empty()).then_some(field)
    })
}

/// What follows an index, if there is one.
fn without_index(rest: &str) -> &str {
    if !rest.starts_with('[') {
        return rest;
    }
    let mut depth = 0;
    let end = rest.find(|letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        depth == 0
    });
    &rest[end.map_or(rest.len(), |end| end + 1)..]
}

fn is_assigned(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix(' ') else { return false };
    let operators = ["=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<=", ">>="];
    let word = rest.split(' ').next().unwrap_or_default();
    operators.contains(&word)
}

fn first_name(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && first_name(text) == text
}

/// The module of a file, as a path: `a/b/mod.rs` and `a/b.rs` are `a/b`, the root of a crate is its `src`.
fn module_of(path: &str) -> &str {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    ["/mod", "/lib", "/main"].into_iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: [(&str, &str); 4]) -> Vec<String> {
        check(&Tree::from(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_field_that_is_written_in_three_files_is_found() {
        let write = "impl<T: Fn() -> u64> Gate<T>\nwhere\n    T: Send,\n{\n    const A: u8 = 0;\n\n    fn f(&mut self) {\n        self.queued += 1;\n    }\n}\n";
        let lend = "unsafe impl Send for Gate<u8> {\n    fn g(&mut self) {\n        take(&mut self.queued);\n    }\n}\n";
        let inner = "impl super::Gate {\n    fn h(&mut self) {\n        self.queued[x[3]] = 2;\n        let list = &mut self.list;\n        self.shown = 1;\n    }\n}\n";
        let gate =
            "pub(crate) struct Gate<T> {\n    queued: Vec<u64>,\n    list: u8,\n    pub shown: u64,\n}\n";
        let all = [
            ("crates/a/src/gate/mod.rs", gate),
            ("crates/a/src/gate/one.rs", write),
            ("crates/a/src/gate/two.rs", lend),
            ("crates/a/src/gate/three.rs", inner),
        ];
        let said = found(all);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("crates/a/src/gate/one.rs:8: `Gate.queued` is written in "), "{said:?}");
        // Another struct of the same name, elsewhere; and what only reads.
        let mut elsewhere = all;
        elsewhere[3].0 = "crates/a/src/other.rs";
        assert_eq!(found(elsewhere), Vec::<String>::new());
        let mut reads = all;
        reads[3].1 = "impl Gate {\n    fn h(&self) -> bool {\n        self.queued == []\n    }\n}\n";
        assert_eq!(found(reads), Vec::<String>::new());
    }
}
