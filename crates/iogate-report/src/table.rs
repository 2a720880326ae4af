//! Aligned text: the first column to the left, the others to the right.

use std::fmt;

use crate::html::inline;

/// A table for a terminal.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this header.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Table {
        Table { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row; cells past the header's last are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).take(self.rows[0].len()).collect());
    }

    /// The same as a table of Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = (0..self.rows[0].len()).map(|column| row.get(column).map_or("", String::as_str));
            let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
            out += &format!("| {} |\n", cells.join(" | "));
            if index == 0 {
                out += &format!("|---|{}\n", "---:|".repeat(row.len() - 1));
            }
        }
        out
    }

    /// The same as a table of HTML; names stand in backticks.
    pub fn html(&self) -> maud::Markup {
        let (header, rows) = (&self.rows[0], &self.rows[1..]);
        maud::html! {
            div.scroll {
                table {
                    thead { tr { @for cell in header { th scope="col" { (inline(cell)) } } } }
                    tbody {
                        @for row in rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    @if index == 0 { th scope="row" { (inline(cell)) } } @else { td { (inline(cell)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether it has no rows but its header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column].saturating_sub(width(cell)));
                if column == 0 {
                    line += &format!("{cell}{pad}");
                } else {
                    line += &format!("  {pad}{cell}");
                }
            }
            writeln!(f, "{}", line.trim_end())?;
            if index == 0 {
                let total = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
                writeln!(f, "{}", "-".repeat(total))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let mut table = super::Table::new(["name", "size"]);
        table.row(["a", "1 KiB"]);
        table.row(["\u{e4}bcdef", "12 B"]);
        assert_eq!(table.to_string(), "name     size\n-------------\na       1 KiB\näbcdef   12 B\n");
    }

    #[test]
    fn markdown_keeps_its_columns() {
        let mut table = super::Table::new(["name", "size"]);
        table.row(["a|b", "1\nKiB"]);
        table.row(["c"]);
        assert_eq!(table.markdown(), "| name | size |\n|---|---:|\n| a\\|b | 1 KiB |\n| c |  |\n");
    }
}
