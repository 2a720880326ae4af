//! Published figures beside ours: what agrees is computed, never written down.

use iogate_report::Table;

/// Most figures that a verdict names.
const LISTED_MAX: usize = 6;

/// How far ours may be from what is published, both being percentages or both the same kind of number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tolerance {
    /// So many percentage points.
    Points(f64),
    /// So many.
    Count(f64),
    /// So many percent of the published figure.
    Percent(f64),
    /// The same.
    Exact,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    what: String,
    /// As the paper writes it.
    published: String,
    /// None where the results do not have it, as in the quick form.
    ours: Option<String>,
    tolerance: Tolerance,
    agrees: bool,
}

/// The published figures of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims(Vec<Claim>);

impl Claims {
    /// Percentages.
    pub(super) fn percent(
        &mut self,
        what: impl Into<String>,
        published: f64,
        ours: Option<f64>,
        points: f64,
    ) {
        let agrees = ours.is_some_and(|ours| (ours - published).abs() <= points);
        let (published, ours) = (percent(published), ours.map(percent));
        self.0.push(Claim {
            what: what.into(),
            published,
            ours,
            tolerance: Tolerance::Points(points),
            agrees,
        });
    }

    /// Numbers of something.
    pub(super) fn number(
        &mut self,
        what: impl Into<String>,
        unit: &str,
        published: f64,
        ours: Option<f64>,
        tolerance: Tolerance,
    ) {
        let within = match tolerance {
            Tolerance::Points(near) | Tolerance::Count(near) => near,
            Tolerance::Percent(percent) => published.abs() * percent / 100.0,
            Tolerance::Exact => 0.0,
        };
        let agrees = ours.is_some_and(|ours| (ours - published).abs() <= within);
        let shown = |number: f64| format!("{number}{unit}");
        let (published, ours) = (shown(published), ours.map(shown));
        self.0.push(Claim { what: what.into(), published, ours, tolerance, agrees });
    }

    /// Something that is so or not.
    pub(super) fn fact(&mut self, what: impl Into<String>, published: bool, ours: Option<bool>) {
        let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        self.0.push(Claim {
            what: what.into(),
            published: word(published),
            ours: ours.map(word),
            tolerance: Tolerance::Exact,
            agrees: ours == Some(published),
        });
    }

    /// All of them, side by side.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(["", "paper", "ours", "tolerance", ""]);
        for claim in &self.0 {
            let tolerance = match claim.tolerance {
                Tolerance::Points(points) => format!("\u{b1} {points} points"),
                Tolerance::Count(count) => format!("\u{b1} {count}"),
                Tolerance::Percent(percent) => format!("\u{b1} {percent} %"),
                Tolerance::Exact => "the same".into(),
            };
            let said = match (&claim.ours, claim.agrees) {
                (None, _) => "-",
                (_, true) => "agrees",
                (_, false) => "does not agree",
            };
            let ours = claim.ours.clone().unwrap_or("-".into());
            table.row([claim.what.clone(), claim.published.clone(), ours, tolerance, said.into()]);
        }
        table
    }

    /// What does not agree first, then how much does.
    pub(super) fn verdict(&self) -> String {
        let compared: Vec<&Claim> = self.0.iter().filter(|claim| claim.ours.is_some()).collect();
        let apart: Vec<&str> =
            compared.iter().filter(|claim| !claim.agrees).map(|claim| claim.what.as_str()).collect();
        let agreed = compared.len() - apart.len();
        match (apart.len(), agreed) {
            (0, 0) => "Nothing of this can be compared with these results.".into(),
            (0, _) => format!("Agrees in all {agreed} figures, within their tolerances."),
            (_, 0) => format!("Does not agree in any of {} figures.", apart.len()),
            (count, _) => {
                let which =
                    if count > LISTED_MAX { "as marked in the table".into() } else { apart.join("; ") };
                let all = compared.len();
                format!(
                    "Does not agree in {count} of {all} figures: {which}. Agrees in the other {agreed}, within their tolerances."
                )
            }
        }
    }
}

fn percent(value: f64) -> String {
    // At most two decimals, as the papers have them; adding 0 makes 0 of -0.
    let text = format!("{:.2}", value + 0.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_agree_is_said_first() {
        let mut claims = Claims::default();
        assert_eq!(claims.verdict(), "Nothing of this can be compared with these results.");
        claims.percent("rate", 8.85, Some(13.85), 5.0);
        claims.number("leaves", "", 27.0, Some(27.0), Tolerance::Exact);
        assert_eq!(claims.verdict(), "Agrees in all 2 figures, within their tolerances.");
        claims.percent("other rate", 8.85, Some(13.86), 5.0);
        claims.number("nodes", "", 50.0, Some(56.0), Tolerance::Percent(10.0));
        claims.fact("same tree", true, Some(false));
        claims.fact("not measured", true, None);
        assert_eq!(
            claims.verdict(),
            "Does not agree in 3 of 5 figures: other rate; nodes; same tree. Agrees in the other 2, within their tolerances."
        );
        let table = claims.table().markdown();
        for row in [
            "| rate | 8.85 % | 13.85 % | \u{b1} 5 points | agrees |",
            "| nodes | 50 | 56 | \u{b1} 10 % | does not agree |",
            "| same tree | yes | no | the same | does not agree |",
            "| not measured | yes | - | the same | - |",
        ] {
            assert!(table.contains(row), "{table}");
        }
    }
}
