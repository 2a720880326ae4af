//! What a prior is learnt from: random situations, with what became of each under each candidate.
//!
//! A situation is a mix to improve on ([`Set::Tuning`]). It begins with `fifo`; after the first completions its traits are seen, and
//! from then on a candidate is in force until the end. Nothing else is chosen. So a row says what a prior would see, and what it would
//! bring about.

mod tree;

use iogate_core::Time;
use iogate_core::auto::objective::Ln;
use iogate_core::auto::prior::{Node, Trait, Traits};
use iogate_core::auto::{Auto, Candidates, Pace, Prior};
use iogate_core::profile::Profile;

use super::evaluate::{ENDLESS_MAX, Slowdowns, chooser, starves};
use super::mix::{Mix, Set, fifo};
use super::run::{Ran, run};

pub use tree::{Grown, grow};

/// What became of a situation under one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How much faster it was than with `fifo`: the mean over applications of the logarithm of the ratio of times.
    pub gain: Ln,
    /// Whether an application was slower than may be, or would be if no application came to an end.
    pub harms: bool,
}

/// A situation: what is seen of it, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The number of its mix.
    pub number: u64,
    /// The kind of its storage.
    pub storage: String,
    /// What a prior is told.
    pub traits: Traits,
    /// By the places of candidates.
    pub outcomes: Vec<Outcome>,
}

/// A choice that goes over to one candidate once it has seen the first requests, and stays with it.
fn always(mix: &Mix, profile: &Profile, candidate: u16) -> Auto {
    let chooser = chooser(mix, profile.clone()).beginning_with(Prior::always(candidate));
    // Without a pace nothing is simulated.
    Auto::new(chooser, Pace::new(0, Time::ZERO))
}

impl Situation {
    /// Carries out the mix with this number with each candidate; none if it is over before anything is seen of it.
    pub fn carry_out(number: u64) -> Option<Situation> {
        let mix = Mix::random(Set::Tuning, number);
        let profile = mix.storage.profile();
        let base = run(&mix, &fifo(), None, u64::MAX);
        let endless = mix.endless_until(Time::from_nanos(base.ends.iter().copied().max().unwrap_or(0)));
        let with = |mix: &Mix, candidate: u16, most: u64| -> (Ran, Option<Traits>) {
            let mut auto = always(mix, &profile, candidate);
            let ran = run(mix, &fifo(), Some(&mut auto), most);
            (ran, auto.traits().copied())
        };
        let (endless_base, traits) = with(&endless, 0, ENDLESS_MAX);
        let endless_base = endless.completed(&endless_base);
        let outcome = |candidate: u16| {
            let (ran, _) = with(&mix, candidate, u64::MAX);
            if ran == base {
                // It does not suit the storage.
                return Outcome::default();
            }
            let slowdowns = Slowdowns::of(&ran, &base);
            let done = endless.completed(&with(&endless, candidate, ENDLESS_MAX).0);
            let harms = slowdowns.harmed() > 0 || starves(&done, &endless_base);
            Outcome { gain: (-slowdowns.mean() * 1e6).round() as Ln, harms }
        };
        let outcomes = (0..Candidates::every().len() as u16).map(outcome).collect();
        Some(Situation { number, storage: mix.storage.kind().into(), traits: traits?, outcomes })
    }

    /// It as a row of text: number, storage, traits, and of each candidate its gain, with `!` if it harms.
    pub fn row(&self) -> String {
        let traits = Trait::ALL.map(|of| self.traits.get(of).to_string());
        let outcomes =
            self.outcomes.iter().map(|of| format!("{}{}", of.gain, if of.harms { "!" } else { "" }));
        let first = [self.number.to_string(), self.storage.clone()];
        first.into_iter().chain(traits).chain(outcomes).collect::<Vec<_>>().join(",")
    }

    /// What a row says.
    ///
    /// # Errors
    /// It is not one: what was expected, and what came, to be said behind the line's number.
    pub fn parse(row: &str) -> Result<Situation, String> {
        let columns = 2 + Trait::ALL.len() + Candidates::every().len();
        let found = row.split(',').count();
        if found != columns {
            return Err(format!(": expected {columns} columns, found {found}"));
        }
        fn number<N: std::str::FromStr>(column: usize, field: &str) -> Result<N, String> {
            let wrong = |_| format!(", column {column}: expected a whole number, found `{}`", shown(field));
            field.parse().map_err(wrong)
        }
        let mut fields = (1..).zip(row.split(','));
        let mut next = || fields.next().unwrap_or_default();
        let (column, field) = next();
        let mix = number(column, field)?;
        let storage = next().1.to_owned();
        let mut traits = Traits::default();
        for of in Trait::ALL {
            let (column, field) = next();
            traits.set(of, number(column, field)?);
        }
        let outcome = |(column, field): (usize, &str)| {
            let (gain, harms) = field.strip_suffix('!').map_or((field, false), |gain| (gain, true));
            Ok(Outcome { gain: number(column, gain)?, harms })
        };
        let outcomes = fields.map(outcome).collect::<Result<Vec<_>, String>>()?;
        Ok(Situation { number: mix, storage, traits, outcomes })
    }

    /// The names of the columns of rows.
    pub fn header() -> String {
        let candidates = Candidates::every();
        let names = (0..candidates.len()).map(|place| candidates.name(place).replace(',', ";"));
        let first = ["mix".to_owned(), "storage".to_owned()];
        let traits = Trait::ALL.map(|of| of.name().to_owned());
        first.into_iter().chain(traits).chain(names).collect::<Vec<_>>().join(",")
    }
}

/// As much of a field as a message has room for.
fn shown(field: &str) -> String {
    field.chars().take(40).collect()
}

/// Situations as text, a line each behind the names of the columns.
pub fn write(situations: &[Situation]) -> String {
    let rows = situations.iter().map(|of| of.row() + "\n");
    std::iter::once(Situation::header() + "\n").chain(rows).collect()
}

/// The situations of a text that [`write()`] has made.
///
/// # Errors
/// One line: where it is something else, and what was expected there. The columns must be those of this program's candidates.
pub fn read(text: &str) -> Result<Vec<Situation>, String> {
    let mut lines = text.lines();
    let expected = Situation::header();
    let found = lines.next().unwrap_or_default();
    if found != expected {
        let (columns, names) = (expected.split(',').count(), found.split(',').count());
        let differs =
            (1..).zip(expected.split(',').zip(found.split(','))).find(|(_, (one, other))| one != other);
        return Err(match differs {
            Some((column, (one, other))) => {
                format!("line 1, column {column}: expected `{one}`, found `{}`", shown(other))
            }
            None => format!("line 1: expected the names of {columns} columns, found {names}"),
        });
    }
    let situations = (2..)
        .zip(lines)
        .map(|(line, row)| Situation::parse(row).map_err(|what| format!("line {line}{what}")));
    let situations = situations.collect::<Result<Vec<_>, _>>()?;
    if situations.is_empty() {
        return Err("expected situations, found none".into());
    }
    Ok(situations)
}

/// How a tree did on some situations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// What it was grown from.
    pub from: String,
    /// What it was tried on.
    pub on: String,
    /// How many these are.
    pub situations: usize,
    /// What they gained by it, the sum, and what they gain by the best candidate for each that harms nobody.
    pub gain: Ln,
    /// See `gain`.
    pub best: Ln,
    /// How many of them it harms.
    pub harmed: usize,
}

/// Trees grown from all situations and tried on them; ten times from nine tenths, tried on the rest; from all but those of one kind of
/// storage, tried on these.
pub fn folds(situations: &[Situation]) -> Vec<Fold> {
    const TENTHS: u64 = 10;
    let all: Vec<&Situation> = situations.iter().collect();
    let apart = |is_on: &dyn Fn(&Situation) -> bool| {
        let (on, from): (Vec<_>, Vec<_>) = all.iter().copied().partition(|of| is_on(of));
        tried(&grow(&from), &on)
    };
    let named = |from: &str, on: &str, fold: Fold| Fold { from: from.into(), on: on.into(), ..fold };
    let mut folds = vec![named("all", "the same", tried(&grow(&all), &all))];
    let tenths = (0..TENTHS).map(|tenth| apart(&|of: &Situation| of.number % TENTHS == tenth));
    let sum = tenths.reduce(|sum, one| Fold {
        situations: sum.situations + one.situations,
        gain: sum.gain + one.gain,
        best: sum.best + one.best,
        harmed: sum.harmed + one.harmed,
        ..sum
    });
    folds.extend(sum.map(|sum| named("nine tenths", "the other tenth", sum)));
    let mut kinds: Vec<&str> = all.iter().map(|of| &*of.storage).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        folds.push(named("other storage", kind, apart(&|of: &Situation| of.storage == kind)));
    }
    folds
}

fn tried(grown: &Grown, on: &[&Situation]) -> Fold {
    let (mut gain, mut best, mut harmed) = (0, 0, 0);
    for of in on {
        let Outcome { gain: this, harms } = of.outcomes[grown.prior.choose(&of.traits).0];
        let harmless = of.outcomes.iter().filter(|outcome| !outcome.harms).map(|outcome| outcome.gain);
        (gain, harmed) = (gain + this, harmed + usize::from(harms));
        best += harmless.max().unwrap_or(0).max(0);
    }
    Fold { from: String::new(), on: String::new(), situations: on.len(), gain, best, harmed }
}

/// The source of the table of a tree that was grown from so many situations, as it is committed.
pub fn table(grown: &Grown, situations: usize) -> String {
    let candidates = Candidates::every();
    let nodes = grown.prior.nodes();
    let mut text = format!(
        "//! The tree of [`super::Prior`], as `iogate train` has grown it from {situations} situations: not to be changed by hand.\n\n\
         use super::{{Node, Trait}};\n\n\
         /// Its nodes; of each leaf, how many situations it had, and how many of them it harms.\n\
         #[rustfmt::skip]\n\
         pub(super) static NODES: [Node; {}] = [\n",
        nodes.len()
    );
    for (place, node) in nodes.iter().enumerate() {
        let line = match node {
            Node::Split { by, below, then, or } => {
                format!("    Node::Split {{ by: Trait::{by:?}, below: {below}, then: {then}, or: {or} }},\n")
            }
            Node::Leaf { candidate, gain } => {
                let leaf = grown.leaves.iter().find(|of| of.0 == place);
                let (_, count, harmed) = leaf.copied().unwrap_or_default();
                let name = candidates.name(usize::from(*candidate));
                format!(
                    "    // {count} situations, {harmed} harmed: {name}\n    Node::Leaf {{ candidate: {candidate}, gain: {gain} }},\n"
                )
            }
        };
        text.push_str(&line);
    }
    text.push_str("];\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_a_text_is_named_with_its_column() {
        let outcomes = vec![Outcome { gain: -7, harms: true }; Candidates::every().len()];
        let situation = Situation { number: 3, storage: "disk".into(), traits: Traits::default(), outcomes };
        let text = write(std::slice::from_ref(&situation));
        assert_eq!(read(&text).unwrap(), [situation]);
        let columns = text.lines().next().unwrap().split(',').count();
        for (wrong, said) in [
            (
                text.replacen("storage", "stores", 1),
                "line 1, column 2: expected `storage`, found `stores`".into(),
            ),
            (text.replacen("mix,", "", 1), "line 1, column 1: expected `mix`, found `storage`".into()),
            (
                text.replacen('\n', ",more\n", 1),
                format!("line 1: expected the names of {columns} columns, found {}", columns + 1),
            ),
            (text.replacen("\n3,", "\nx,", 1), "line 2, column 1: expected a whole number, found `x`".into()),
            (text.replacen("-7!", "-7?", 1), "expected a whole number, found `-7?`".into()),
            (
                text.replacen("disk,", "", 1),
                format!("line 2: expected {columns} columns, found {}", columns - 1),
            ),
        ] {
            let error = read(&wrong).unwrap_err();
            assert!(error.contains(&said), "{error}\nshould contain\n{said}");
        }
    }
}
