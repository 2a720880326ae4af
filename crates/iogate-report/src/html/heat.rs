//! A table whose cells are coloured by how good they are.

use maud::{Markup, html};

/// How much of the colour the best cell has, in percent: text stays readable on it.
const FULL: f64 = 55.0;

/// A coloured table.
#[derive(Clone, Debug)]
pub struct Heat {
    /// What the rows and columns are.
    pub corner: String,
    /// The columns.
    pub columns: Vec<String>,
    /// The rows: a name, and a cell for each column.
    pub rows: Vec<(String, Vec<Option<Cell>>)>,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// What it says below that, smaller.
    pub small: String,
    /// How good: positive is better, negative worse, 0 has no colour; 1 and -1 have the full colour.
    pub good: f64,
    /// What it says when pointed at.
    pub tip: String,
}

/// Draws the table.
pub fn heat(of: &Heat) -> Markup {
    html! {
        div.scroll {
            table.heat {
                thead {
                    tr {
                        th scope="col" { (of.corner) }
                        @for column in &of.columns { th scope="col" { (column) } }
                    }
                }
                tbody {
                    @for (name, cells) in &of.rows {
                        tr {
                            th scope="row" { (name) }
                            @for cell in cells {
                                @match cell {
                                    Some(cell) => {
                                        @let share = FULL * cell.good.abs().min(1.0);
                                        td.good[cell.good > 0.0].bad[cell.good < 0.0] style=(format!("--share:{share:.0}%"))
                                            data-tip=(cell.tip) { (cell.text) small { (cell.small) } }
                                    }
                                    None => td { "-" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
