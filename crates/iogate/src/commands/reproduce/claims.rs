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

/// How far ours agrees with what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// Within the tolerance.
    Full,
    /// A change in the same direction, of another size.
    Sign,
    No,
}

impl Agreement {
    fn within(agrees: bool) -> Agreement {
        if agrees { Agreement::Full } else { Agreement::No }
    }
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
    agreement: Agreement,
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
            agreement: Agreement::within(agrees),
        });
    }

    /// A change in percent, or a range of such from the least to the most: in sign, it agrees if none of the four is on the other
    /// side of 0, or at it.
    pub(super) fn change(
        &mut self,
        what: impl Into<String>,
        published: (f64, f64),
        ours: Option<(f64, f64)>,
        points: f64,
    ) {
        let ends = |range: (f64, f64)| [range.0, range.1];
        let agreement = ours.map_or(Agreement::No, |ours| {
            let near = |(ours, published): (f64, f64)| (ours - published).abs() <= points;
            let all = || ends(ours).into_iter().chain(ends(published));
            if ends(ours).into_iter().zip(ends(published)).all(near) {
                Agreement::Full
            } else if all().all(|end| end > 0.0) || all().all(|end| end < 0.0) {
                Agreement::Sign
            } else {
                Agreement::No
            }
        });
        let shown = |(low, high): (f64, f64)| {
            if low == high {
                percent(low)
            } else {
                format!("{} to {}", percent(low).trim_end_matches(" %"), percent(high))
            }
        };
        self.0.push(Claim {
            what: what.into(),
            published: shown(published),
            ours: ours.map(|(low, high)| shown((low.round(), high.round()))),
            tolerance: Tolerance::Points(points),
            agreement,
        });
    }

    /// Something that is published to be so everywhere: in how many of our cases it is.
    pub(super) fn everywhere(&mut self, what: impl Into<String>, kept: usize, all: usize) {
        self.0.push(Claim {
            what: what.into(),
            published: "all".into(),
            ours: (all > 0).then(|| format!("{kept} of {all}")),
            tolerance: Tolerance::Exact,
            agreement: Agreement::within(kept == all),
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
        let agreement = Agreement::within(agrees);
        self.0.push(Claim { what: what.into(), published, ours, tolerance, agreement });
    }

    /// Something that is so or not.
    pub(super) fn fact(&mut self, what: impl Into<String>, published: bool, ours: Option<bool>) {
        let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        self.0.push(Claim {
            what: what.into(),
            published: word(published),
            ours: ours.map(word),
            tolerance: Tolerance::Exact,
            agreement: Agreement::within(ours == Some(published)),
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
            let said = match (&claim.ours, claim.agreement) {
                (None, _) => "-",
                (_, Agreement::Full) => "agrees",
                (_, Agreement::Sign) => "in sign only",
                (_, Agreement::No) => "does not agree",
            };
            let ours = claim.ours.clone().unwrap_or("-".into());
            table.row([claim.what.clone(), claim.published.clone(), ours, tolerance, said.into()]);
        }
        table
    }

    /// What does not agree first, then how much does.
    pub(super) fn verdict(&self) -> String {
        let compared = || self.0.iter().filter(|claim| claim.ours.is_some());
        let names = |agreement| -> Vec<&str> {
            compared().filter(|claim| claim.agreement == agreement).map(|claim| claim.what.as_str()).collect()
        };
        let (apart, in_sign) = (names(Agreement::No), names(Agreement::Sign));
        let all = compared().count();
        let agreed = all - apart.len() - in_sign.len();
        if all == 0 {
            return "Nothing of this can be compared with these results.".into();
        }
        let listed = |names: &[&str]| {
            if names.len() > LISTED_MAX { "as marked in the table".into() } else { names.join("; ") }
        };
        let mut said = Vec::new();
        if all == 1 && in_sign.is_empty() {
            let agrees = if agreed == 1 { "Agrees" } else { "Does not agree" };
            return format!("{agrees} within its tolerance.");
        }
        if apart.len() == all {
            said.push(format!("Does not agree in any of {all} figures."));
        } else if !apart.is_empty() {
            said.push(format!("Does not agree in {} of {all} figures: {}.", apart.len(), listed(&apart)));
        }
        if !in_sign.is_empty() {
            said.push(format!("Agrees in sign only in {} of {all}: {}.", in_sign.len(), listed(&in_sign)));
        }
        if agreed == all {
            said.push(format!("Agrees in all {all} figures, within their tolerances."));
        } else if agreed > 0 {
            said.push(format!("Agrees in the other {agreed}, within their tolerances."));
        }
        said.join(" ")
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
        assert_eq!(claims.verdict(), "Agrees within its tolerance.");
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

    #[test]
    fn a_change_can_agree_in_sign_only() {
        let mut claims = Claims::default();
        claims.change("near", (8.0, 42.0), Some((2.0, 51.6)), 10.0);
        claims.change("larger", (29.8, 29.8), Some((55.0, 55.0)), 10.0);
        claims.change("loses somewhere", (11.0, 43.0), Some((-1.0, 43.0)), 2.0);
        claims.change("also worse", (-1.2, -1.2), Some((-30.0, -30.0)), 2.0);
        claims.everywhere("better in each", 5, 6);
        claims.everywhere("not run", 0, 0);
        let table = claims.table().markdown();
        for row in [
            "| near | 8 to 42 % | 2 to 52 % | \u{b1} 10 points | agrees |",
            "| larger | 29.8 % | 55 % | \u{b1} 10 points | in sign only |",
            "| loses somewhere | 11 to 43 % | -1 to 43 % | \u{b1} 2 points | does not agree |",
            "| also worse | -1.2 % | -30 % | \u{b1} 2 points | in sign only |",
            "| better in each | all | 5 of 6 | the same | does not agree |",
            "| not run | all | - | the same | - |",
        ] {
            assert!(table.contains(row), "{table}");
        }
        assert_eq!(
            claims.verdict(),
            "Does not agree in 2 of 5 figures: loses somewhere; better in each. Agrees in sign only in 2 of 5: larger; also worse. \
             Agrees in the other 1, within their tolerances."
        );
    }
}
