//! The papers' headlines, which is what their abstracts and conclusions say, each with what came of it; and of those that differ, what the
//! controls of their supposed causes say. Verdicts and figures are those of the claims that the pages have kept.

mod list;
mod short;

use anyhow::anyhow;
use iogate_core::glob::name_fits;
use iogate_report::Table;
use iogate_report::claims::{Claim, Statement, Verdict};

use super::coverage::{Outcome, PAGES, record_name, verdict};
use super::figure::{Record, SectionRecord};
use crate::failure::Failure;

/// What a paper's abstract or conclusion says.
struct Headline {
    /// The page that has its figures.
    page: &'static str,
    /// Where in the paper it stands.
    place: &'static str,
    /// In a few words, without its figures.
    says: &'static str,
    claims: &'static [Named],
    /// Why ours may differ.
    causes: &'static [Cause],
}

/// A claim of a headline.
struct Named {
    /// What tells it from the headline's others; empty of a single one.
    called: &'static str,
    figure: &'static str,
    /// Its name, or a pattern of it ([`name_fits`]).
    what: &'static str,
}

/// Why a headline may differ, and what tests that. Without controls it is a supposition.
struct Cause {
    supposed: &'static str,
    /// What it was tried on, if not on the headline's own figure.
    tried: &'static str,
    shows: Shows,
    controls: &'static [Control],
    /// The same without the cause. It has to show less; where nothing is named, that is the headline itself.
    without: &'static [Control],
}

/// What the claims of a control have to show for its cause to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// With the cause, they agree.
    Agreement,
    /// With the cause, they have the paper's direction: where ours has the other one.
    Sign,
    /// The claim is so in one case at least of those that it is about.
    OneCase,
}

/// Claims of a control: all whose names a pattern stands for.
struct Control {
    page: &'static str,
    figure: &'static str,
    what: &'static str,
}

/// What controls say of a cause, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Untested,
    No,
    Undecided,
    InPart,
    Yes,
}

/// A claim, with what has kept it.
#[derive(Clone, Copy)]
struct Kept<'a> {
    page: &'static str,
    section: &'a SectionRecord,
    claim: &'a Claim,
}

type Records = [(&'static str, Record)];

const RULES: &str = "What the abstracts and conclusions say. A headline is reproduced if all statements that carry it agree, in sign and \
     within the tolerance that is shown. Of one that is not, supposed causes follow, and what their controls say. A cause holds if with \
     it all statements of its control agree, and in part if some do, and more than without it; where it is to explain the direction alone, \
     if they have the paper's. One of values that were varied one at a time holds if the statement is so with any of them. What was tried \
     on another figure says nothing certain of this one.";

/// The table of headlines, and how many came out which way.
pub(super) fn section(records: &Records) -> Result<String, Failure> {
    table(records, list::ALL.into_iter().flatten())
}

fn table<'a>(
    records: &Records,
    headlines: impl IntoIterator<Item = &'a Headline>,
) -> Result<String, Failure> {
    let rows = headlines.into_iter().map(|headline| row(records, headline)).collect::<Result<Vec<_>, _>>()?;
    let counted = counts(&rows);
    let head =
        ["paper", "headline", "the paper's figure", "ours", "verdict", "supposed causes, and their controls"];
    let mut table = Table::new(head);
    rows.into_iter().for_each(|row| table.row(row.cells));
    Ok(format!("\n## Headlines\n\n{counted}\n\n{RULES}\n\n{}", table.markdown()))
}

/// A headline with what came of it.
struct Row {
    outcome: Outcome,
    /// Nothing differs, but intervals are too wide.
    wide: bool,
    /// On its own figure.
    held: Held,
    /// On another one only.
    elsewhere: bool,
    cells: [String; 6],
}

fn row(records: &Records, headline: &Headline) -> Result<Row, Failure> {
    let mut carried = Vec::new();
    for named in headline.claims {
        let found = find(records, headline, headline.page, named.figure, named.what)?;
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|kept| kept.claim.what.as_str()).collect();
            let error =
                anyhow!("the headline '{}': '{}' names {}", headline.says, named.what, names.join("; "));
            return Err(Failure::failed(error).hint("name one claim of the page, or several one by one"));
        }
        carried.extend(found.into_iter().map(|kept| (named.called, kept)));
    }
    if headline.claims.is_empty() {
        let error = anyhow!("the headline '{}' of {} has no claim", headline.says, headline.page);
        return Err(Failure::failed(error).hint("name the claims of the page that it is about"));
    }
    let claims: Vec<&Claim> = carried.iter().map(|(_, kept)| kept.claim).collect();
    let outcome = Outcome::of(&claims);
    let paper = carried.first().map_or_else(|| headline.page.into(), |(_, kept)| kept.link(headline.page));
    let [published, ours] = [true, false].map(|published| {
        let cells = carried.iter().map(|(called, kept)| kept.cell(called, published, carried.len() > 1));
        cells.collect::<Vec<_>>().join("; ")
    });
    let said = if claims.len() == 1 { outcome.word().to_owned() } else { verdict(&claims) };
    let differs = |claim: &&Claim| matches!(claim.verdict, Verdict::Differs | Verdict::InSign);
    let own: Vec<Kept<'_>> = carried.iter().map(|(_, kept)| *kept).collect();
    let mut tested = Vec::new();
    for cause in headline.causes {
        tested.push(cause.tested(records, headline, &own)?);
    }
    let most = |elsewhere: bool| {
        let these =
            headline.causes.iter().zip(&tested).filter(|(cause, _)| cause.tried.is_empty() != elsewhere);
        these.map(|(_, (held, _))| *held).max().unwrap_or(Held::Untested)
    };
    let held = most(false);
    let elsewhere = held == Held::Untested && most(true) != Held::Untested;
    let wide = !claims.iter().any(differs) && held == Held::Untested && !elsewhere;
    let causes = match outcome {
        Outcome::Reproduced | Outcome::Nothing => "-".to_owned(),
        _ if tested.is_empty() && wide => "intervals are too wide".to_owned(),
        _ if tested.is_empty() => "not tested".to_owned(),
        _ => tested.into_iter().map(|(_, said)| said).collect::<Vec<_>>().join("; "),
    };
    let cells = [format!("{paper}, {}", headline.place), headline.says.into(), published, ours, said, causes];
    Ok(Row { outcome, wide, held, elsewhere, cells })
}

impl Kept<'_> {
    /// A link to the section that shows it.
    fn link(&self, text: &str) -> String {
        let place = self.section.title.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        format!("[{text}]({}.md#{})", self.page, place.collect::<String>())
    }

    /// The paper's figure with its tolerance, or ours; of one among several with its verdict.
    fn cell(&self, called: &str, published: bool, several: bool) -> String {
        let [paper, ours, tolerance] = self.claim.statement.shown();
        let mut text = if published { paper } else { ours };
        if published && tolerance != "-" {
            text += &format!(" ({tolerance})");
        }
        if !published && several {
            text += &format!(", {}", self.claim.verdict.word());
        }
        if called.is_empty() { text } else { format!("{called}: {text}") }
    }
}

/// Of so many claims, or cases of claims, so many are as they should be, and so many are undecided.
#[derive(Clone, Copy, Default)]
struct Tally {
    shown: usize,
    open: usize,
    all: usize,
}

impl Cause {
    /// What its controls say, and whether it holds for a headline with claims of its `own`.
    fn tested(
        &self,
        records: &Records,
        headline: &Headline,
        own: &[Kept<'_>],
    ) -> Result<(Held, String), Failure> {
        let supposed = match self.tried {
            "" => self.supposed.to_owned(),
            tried => format!("{}, tried on {tried}", self.supposed),
        };
        if self.controls.is_empty() {
            return Ok((Held::Untested, format!("{supposed}: not tested")));
        }
        let all = |controls: &[Control]| -> Result<Vec<Kept<'_>>, Failure> {
            let found = controls
                .iter()
                .map(|control| find(records, headline, control.page, control.figure, control.what));
            Ok(found.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let found = all(self.controls)?;
        let mut links: Vec<String> = found.iter().map(|kept| kept.link("control")).collect();
        links.dedup();
        let (with, without) = (self.tally(&found), self.tally(&all(self.without)?));
        if with.all == 0 {
            return Ok((Held::Untested, format!("{supposed}: no results")));
        }
        // Cases of one claim are no measure for claims, nor is a headline for what was tried on another figure.
        let is_own = self.without.is_empty() && self.tried.is_empty() && self.shows != Shows::OneCase;
        let less = if is_own { self.tally(own) } else { without };
        let no_more = less.all > 0 && with.shown * less.all <= less.shown * with.all;
        let (held, word) = match (with.shown, with.open) {
            (0, 0) => (Held::No, "does not hold"),
            (0, _) => (Held::Undecided, "undecided"),
            _ if no_more => (Held::No, "does not hold"),
            (shown, _) if shown < with.all && self.shows != Shows::OneCase => (Held::InPart, "holds in part"),
            _ if self.shows == Shows::Sign => (Held::InPart, "holds for the direction"),
            _ => (Held::Yes, "holds"),
        };
        let mut counted = match self.shows {
            Shows::Agreement => format!("{} of {} agree", with.shown, with.all),
            Shows::Sign => format!("{} of {} have the paper's direction", with.shown, with.all),
            Shows::OneCase => format!("so in {} of {} cases", with.shown, with.all),
        };
        if with.open > 0 {
            counted += &format!(", {} undecided", with.open);
        }
        if without.all > 0 {
            counted += &format!(", without it {} of {}", without.shown, without.all);
        }
        let there = if self.tried.is_empty() { "" } else { " there" };
        Ok((held, format!("{supposed} ({}): {counted}, {word}{there}", links.join(", "))))
    }

    fn tally(&self, found: &[Kept<'_>]) -> Tally {
        let mut tally = Tally::default();
        for Kept { claim, .. } in found {
            match (&claim.statement, claim.verdict) {
                (_, Verdict::Missing) => {}
                (Statement::Everywhere { kept, open, all }, _) if self.shows == Shows::OneCase => {
                    tally.shown += kept;
                    tally.open += open;
                    tally.all += all;
                }
                (_, verdict) => {
                    let sign = self.shows == Shows::Sign && verdict == Verdict::InSign;
                    tally.shown += usize::from(verdict == Verdict::Agrees || sign);
                    tally.open += usize::from(verdict == Verdict::Undecided);
                    tally.all += 1;
                }
            }
        }
        tally
    }
}

/// The claims that a name stands for; none only of a page without a record.
fn find<'a>(
    records: &'a Records,
    headline: &Headline,
    page: &'static str,
    figure: &str,
    what: &str,
) -> Result<Vec<Kept<'a>>, Failure> {
    let name = format!("the headline '{}': '{what}' of '{figure}'", headline.says);
    if !PAGES.contains(&page) {
        let error = anyhow!("{name} is on the page {page}; expected one of {}", PAGES.join(", "));
        return Err(Failure::failed(error).hint("name a page that has a record"));
    }
    let Some((_, record)) = records.iter().find(|(known, _)| *known == page) else { return Ok(Vec::new()) };
    let all = record
        .sections
        .iter()
        .flat_map(|section| section.claims.all.iter().map(move |claim| Kept { page, section, claim }));
    let is = |kept: &Kept<'_>| {
        kept.claim.figure == figure && name_fits(what.as_bytes(), kept.claim.what.as_bytes())
    };
    let found: Vec<_> = all.filter(is).collect();
    if found.is_empty() {
        let error = anyhow!("{name} is not among the claims of {}", record_name(page));
        let hint = format!("name a claim that the page makes; `{}` writes it again", record.command);
        return Err(Failure::failed(error).hint(hint));
    }
    Ok(found)
}

/// How many headlines came out which way, and what was found of the causes of the others.
fn counts(rows: &[Row]) -> String {
    let list = |counts: Vec<(usize, &str)>| {
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, word)| word.replacen('#', &count.to_string(), 1)).collect::<Vec<_>>().join(", ")
    };
    let came = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let outcomes = list(vec![
        (came(Outcome::Reproduced), "# reproduced in sign and within the tolerance"),
        (came(Outcome::InSign), "# in sign only"),
        (came(Outcome::Partly), "# partly"),
        (came(Outcome::Undecided), "# undecided"),
        (came(Outcome::Not), "# not"),
        (came(Outcome::Nothing), "# without results"),
    ]);
    let others: Vec<&Row> =
        rows.iter().filter(|row| !matches!(row.outcome, Outcome::Reproduced | Outcome::Nothing)).collect();
    let said = format!("Of {} headlines: {outcomes}.", rows.len());
    if others.is_empty() {
        return said;
    }
    let came = |is: &dyn Fn(&Row) -> bool| others.iter().filter(|row| is(row)).count();
    let held = |held| came(&|row| row.held == held && !row.elsewhere && !row.wide);
    let causes = list(vec![
        (held(Held::Yes), "for # a supposed cause holds"),
        (held(Held::InPart), "for # one holds in part or for the direction"),
        (held(Held::Undecided), "for # it is undecided whether one holds"),
        (held(Held::No), "for # none that was tested on it holds"),
        (came(&|row| row.elsewhere), "for # one was tested on another figure only"),
        (held(Held::Untested), "for # none was tested"),
        (came(&|row| row.wide), "for # intervals are too wide"),
    ]);
    format!("{said} Of the {} that are not reproduced: {causes}.", others.len())
}

#[cfg(test)]
mod tests;
