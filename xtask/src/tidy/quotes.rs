//! Figures that a page quotes from a table of another page are those of the table.

use std::collections::BTreeMap;

use super::paths::{cells, joined, prose};
use super::{Finding, Tree};

/// Checks each quote, a link whose title names a cell: `[35 %](docs/reproduction/checkpoint.md "Ten generated jobs | lock | lower than with none by")`.
/// Returns what is wrong, and the pages that need another text, with it.
pub(crate) fn check(tree: &Tree) -> (Vec<Finding>, BTreeMap<String, String>) {
    let mut findings = Vec::new();
    let mut mended = BTreeMap::new();
    for (page, text) in
        tree.iter().filter(|(path, _)| path.ends_with(".md") && !path.starts_with("CHANGELOG"))
    {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut whole = text.to_owned();
        for (line, of) in prose(text) {
            for Quote { figure, path, title } in quotes(of) {
                let from = joined(folder, path.split('#').next().unwrap_or(path));
                match tree.get(&from).ok_or(format!("there is no {from}")).and_then(|text| cell(text, title))
                {
                    Err(what) => {
                        findings.push(Finding::new(page, line, format!("the quote \"{title}\": {what}")));
                    }
                    Ok(cell) if says(cell, figure) => {}
                    Ok(cell) => {
                        let now = figure_of(cell, figure);
                        findings.push(Finding::new(
                            page,
                            line,
                            format!("expected {now} of \"{title}\", got {figure}"),
                        ));
                        let link = |figure| format!("[{figure}]({path} \"{title}\")");
                        whole = whole.replace(&link(figure), &link(now));
                    }
                }
            }
        }
        if whole != text {
            mended.insert(page.to_owned(), whole);
        }
    }
    (findings, mended)
}

struct Quote<'a> {
    figure: &'a str,
    path: &'a str,
    title: &'a str,
}

/// The links of a line whose title names a cell.
fn quotes(line: &str) -> impl Iterator<Item = Quote<'_>> {
    line.match_indices("](").filter_map(|(at, _)| {
        let figure = &line[line[..at].rfind('[')? + 1..at];
        let (path, rest) = line[at + 2..].split_once(" \"")?;
        let (title, _) = rest.split_once("\")")?;
        (!path.contains(')') && title.contains(" | ")).then_some(Quote { figure, path, title })
    })
}

/// The cell that a title names by the table, the first cell of its row and the head of its column.
fn cell<'a>(text: &'a str, title: &str) -> Result<&'a str, String> {
    let names: Vec<&str> = title.split(" | ").collect();
    let [caption, row, column] = names[..] else {
        return Err(
            "expected TABLE | ROW | COLUMN, where TABLE is the line before the table or its section".into()
        );
    };
    let lines: Vec<&str> = text.lines().collect();
    let captions = (0..lines.len()).filter(|at| lines[*at].trim_start_matches('#').trim() == caption);
    let mut what = format!("no line of it is `{caption}`");
    for table in captions.flat_map(|at| tables(&lines[at..])) {
        // What is bold says the same.
        let row_of = |line: &&'a str| cells(line).map(|cell| cell.trim_matches('*')).collect();
        let rows: Vec<Vec<&str>> = table.iter().map(row_of).collect();
        let found = rows[0].iter().position(|cell| *cell == column);
        match (found, rows.iter().find(|cells| cells[0] == row)) {
            (Some(column), Some(cells)) if column < cells.len() => return Ok(cells[column]),
            (None, _) => what = format!("its table `{caption}` has no column `{column}`"),
            _ => what = format!("its table `{caption}` has no row `{row}`"),
        }
    }
    Err(what)
}

/// The tables that the first line is about: those of its section if it is a heading, else the one right after it.
fn tables<'a, 'b>(lines: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let is_row = |line: &&str| line.starts_with('|');
    let is_heading = |line: &&str| line.starts_with('#');
    let (first, rest) = (&lines[0], &lines[1..]);
    let end = match is_heading(first) {
        true => rest.iter().position(is_heading).unwrap_or(rest.len()),
        false => rest.iter().position(|line| !line.is_empty() && !is_row(line)).unwrap_or(rest.len()),
    };
    rest[..end].split(|line| !is_row(line)).filter(|rows| !rows.is_empty()).collect()
}

/// Whether a cell begins with a figure, as a whole.
fn says(cell: &str, figure: &str) -> bool {
    cell.strip_prefix(figure).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// As many words of a cell as a quote of it has.
fn figure_of<'a>(cell: &'a str, quote: &str) -> &'a str {
    let words = quote.split(' ').count();
    cell.match_indices(' ').nth(words - 1).map_or(cell, |(at, _)| &cell[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Ten jobs\n\n| by | less |\n|---|---:|\n| other | 1 % |\n\n## Ten jobs\n\n| by | lower |\n|---|---:|\n| lock | 35 % (29 to 41) |\n";

    fn found(text: &str) -> (Vec<String>, Option<String>) {
        let (findings, mended) = check(&Tree::from([("docs/a.md", PAGE), ("README.md", text)]));
        (findings.iter().map(ToString::to_string).collect(), mended.get("README.md").cloned())
    }

    #[test]
    fn a_figure_is_that_of_its_cell() {
        assert_eq!(found("Jobs take [35 %](docs/a.md \"Ten jobs | lock | lower\") less."), (vec![], None));
        assert_eq!(found("By another [1 %](docs/a.md \"Ten jobs | other | less\")."), (vec![], None));
        assert_eq!(found("See [a page](docs/a.md \"of jobs\")."), (vec![], None));
        let (wrong, mended) = found("It is [34 %](docs/a.md#ten-jobs \"Ten jobs | lock | lower\") less.");
        assert_eq!(wrong, ["README.md:1: expected 35 % of \"Ten jobs | lock | lower\", got 34 %"]);
        assert_eq!(mended.unwrap(), "It is [35 %](docs/a.md#ten-jobs \"Ten jobs | lock | lower\") less.");
    }

    #[test]
    fn what_is_quoted_is_there() {
        for (title, what) in [
            ("Ten jobs | lock", "expected TABLE | ROW | COLUMN"),
            ("Two jobs | lock | lower", "no line of it is `Two jobs`"),
            ("Ten jobs | key | lower", "has no row `key`"),
            ("Ten jobs | lock | upper", "has no column `upper`"),
        ] {
            let (wrong, _) = found(&format!("[1 %](docs/a.md \"{title}\")"));
            assert!(wrong.len() == 1 && wrong[0].contains(what), "{wrong:?}");
        }
        assert!(found("[1 %](docs/b.md \"a | b | c\")").0[0].contains("there is no docs/b.md"));
    }
}
