//! Files stay short: a ratchet.

use anyhow::{Context, Result};

use super::{Finding, Tree};

/// What a reader takes in.
const LINES_MAX: usize = 600;
/// The files that are longer, each with the number of lines it may have.
pub(crate) const LIST: &str = "xtask/file-sizes.txt";

/// What is too long, or listed wrongly; and the list as it should be, as far as it may change: a ceiling goes down,
/// a line goes, nothing goes up and nothing comes in.
pub(crate) fn check(tree: &Tree) -> Result<(Vec<Finding>, String)> {
    let mut findings = Vec::new();
    let mut list = String::new();
    let mut listed = Vec::new();
    for (index, line) in tree.get(LIST).unwrap_or_default().lines().enumerate() {
        let at = index + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            list += line;
            list.push('\n');
            continue;
        }
        let (path, ceiling) = line
            .split_once(' ')
            .and_then(|(path, lines)| Some((path, lines.trim().parse::<usize>().ok()?)))
            .with_context(|| format!("{LIST}:{at}: expected `PATH LINES`, got `{line}`"))?;
        listed.push(path);
        let lines = tree.get(path).map_or(0, |text| text.lines().count());
        if lines <= LINES_MAX {
            let what =
                format!("{path} has {lines} lines: drop its line here (or run `cargo xtask tidy --fix`)");
            findings.push(Finding::new(LIST, at, what));
            continue;
        }
        if lines < ceiling {
            let what =
                format!("{path} has {lines} lines: lower its {ceiling} (or run `cargo xtask tidy --fix`)");
            findings.push(Finding::new(LIST, at, what));
        } else if lines > ceiling {
            let what = format!("{lines} lines, and {LIST} allows {ceiling}, which only goes down: split it");
            findings.push(Finding::new(path, 0, what));
        }
        list += &format!("{path} {}\n", lines.min(ceiling));
    }
    for (path, text) in tree.rust() {
        let lines = text.lines().count();
        if lines > LINES_MAX && !listed.contains(&path) {
            let what = format!(
                "{lines} lines, more than {LINES_MAX}: split it, or, with a reason, add `{path} {lines}` to {LIST}"
            );
            findings.push(Finding::new(path, 0, what));
        }
    }
    Ok((findings, list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(lines: usize, list: &str) -> (Vec<String>, String) {
        let tree = Tree::from([("a.rs", &*"x\n".repeat(lines)), (LIST, list)]);
        let (findings, list) = check(&tree).unwrap();
        (findings.iter().map(ToString::to_string).collect(), list)
    }

    #[test]
    fn short_files_and_files_at_their_ceiling_are_fine() {
        assert_eq!(check_one(600, "# why\n"), (vec![], "# why\n".into()));
        assert_eq!(check_one(700, "# why\na.rs 700\n"), (vec![], "# why\na.rs 700\n".into()));
    }

    #[test]
    fn a_long_file_is_found_and_fixing_does_not_hide_it() {
        let (found, list) = check_one(601, "");
        assert!(found[0].starts_with("a.rs: 601 lines"), "{found:?}");
        assert_eq!(list, "");
        let (found, list) = check_one(701, "a.rs 700\n");
        assert!(found[0].starts_with("a.rs: 701 lines"), "{found:?}");
        assert_eq!(list, "a.rs 700\n");
    }

    #[test]
    fn a_ceiling_goes_down_and_away() {
        let (found, list) = check_one(650, "a.rs 700\n");
        assert!(found[0].starts_with("xtask/file-sizes.txt:1: "), "{found:?}");
        assert_eq!(list, "a.rs 650\n");
        let (found, list) = check_one(600, "# why\na.rs 700\nb.rs 800\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(list, "# why\n");
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        let tree = Tree::from([(LIST, "# why\na.rs many\n")]);
        let error = check(&tree).unwrap_err().to_string();
        assert_eq!(error, "xtask/file-sizes.txt:2: expected `PATH LINES`, got `a.rs many`");
    }
}
