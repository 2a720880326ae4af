//! Every figure and table of the papers, with what came of it: from what the pages have kept, so that it cannot part from them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_report::Table;
use iogate_report::claims::{Claim, Verdict};

use super::figure::{Record, SectionRecord};
use super::headlines;
use crate::failure::Failure;

/// The page of all papers.
pub(super) const PAGE: &str = "README.md";
/// The pages whose records it is made from.
pub(super) const PAGES: [&str; 8] =
    ["aioli", "agios", "coordination", "twins", "checkpoint", "mechanisms", "sensitivity", "sets"];

/// A figure or table of a paper, or something else that it says.
struct Published {
    /// The page that has it beside ours.
    page: &'static str,
    /// As the page's claims name it.
    figure: &'static str,
    about: &'static str,
    /// Why it is not attempted, if it is not; or why nothing of it is compared.
    absent: &'static str,
}

const fn shown(page: &'static str, figure: &'static str, about: &'static str) -> Published {
    Published { page, figure, about, absent: "" }
}

const fn absent(
    page: &'static str,
    figure: &'static str,
    about: &'static str,
    why: &'static str,
) -> Published {
    Published { page, figure, about, absent: why }
}

const DRAWING: &str = "not a result: a drawing, or a description";

/// All of them, paper by paper. What is ours and not a paper's stands below its paper's figures.
const ALL: &[Published] = &[
    shown("aioli", "abstract", "gains of two applications, plain and collective calls"),
    absent(
        "aioli",
        "figure 1",
        "low-level schedulers below a server of 8 to 512 threads",
        "not attempted: needs an elevator below the server",
    ),
    absent("aioli", "figures 2 and 3", "architecture, algorithm", DRAWING),
    absent("aioli", "figure 4", "b_eff_io of 2 to 96 processes", "not attempted"),
    shown("aioli", "figure 5", "one IOR"),
    shown("aioli", "figure 6, left", "cat beside an IOR"),
    absent("aioli", "figure 6, right", "cat beside a collective IOR", "not attempted"),
    shown("aioli", "figure 7", "two IORs"),
    shown("aioli", "figure 7, threads of the server", "control: how much the scheduler sees"),
    shown("aioli", "figure 7, few slots of a mount", "control: how much of a call is at the server at once"),
    shown("aioli", "figure 5, one transfer at a time", "control: a reference that is synchronous"),
    shown("aioli", "figure 5, page cache below", "control: what the server's memory does"),
    shown("aioli", "figure 7, page cache below", "the same"),
    shown("aioli", "table 2, page cache below", "the same"),
    shown("aioli", "table 1, blocks", "Bonnie++, block reads and writes"),
    absent("aioli", "table 1, characters and rewriting", "Bonnie++", "not attempted"),
    shown("aioli", "table 2, POSIX", "ten applications, plain calls"),
    absent("aioli", "table 2, MPI-IO", "ten applications, collective calls", "not attempted"),
    absent("agios", "figures 1 and 2", "interference, spatiality", DRAWING),
    absent("agios", "table I", "ratios of the devices", "not on a page: docs/devices.md"),
    absent("agios", "table II", "amounts of data", "not a result: conditions"),
    shown("agios", "figure 3", "one application, a shared file, Graphene"),
    shown("agios", "figure 4", "one application, a file each, Pastel"),
    shown("agios", "figures 3 and 4, page caches below", "control: what the servers' memory does"),
    shown("agios", "table III", "the best algorithm for each situation"),
    shown("agios", "table III, calls of the kernel", "control: what joining saves on flash"),
    shown("agios", "section 4", "decision trees"),
    shown("agios", "table IV", "correct selections"),
    shown(
        "agios",
        "table IV, page caches below",
        "control: what the servers' memory and calls of the kernel do",
    ),
    shown("agios", "table V", "trees of other numbers of processes"),
    shown("agios", "table VI", "sizes of files at the servers"),
    shown("agios", "figure 5 and table VII", "what selections gain and lose"),
    shown("agios", "figure 5 and table VII, page caches below", "the same"),
    absent("coordination", "figures 1, 2 and 4", "scenarios, orders, the scheme", DRAWING),
    shown("coordination", "formulas (1) to (3)", "expected completion times"),
    shown("coordination", "figures 3 and 5", "when each server finishes"),
    shown("coordination", "figure 6", "more applications"),
    shown("coordination", "figure 7", "more servers"),
    shown("coordination", "controls", "one server, other orders, windows apart"),
    shown("coordination", "figure 6, several calls at once", "control: servers that have more to do"),
    shown("coordination", "figure 8, longer runs", "control: runs of several windows"),
    shown("coordination", "figure 8, less noise", "control: messages that are hardly late"),
    shown("coordination", "figure 7, elevator and cache below", "control: CFQ and a page cache"),
    shown("coordination", "figure 8", "widths of windows"),
    shown("coordination", "figure 8, elevator and cache below", "control: CFQ and a page cache"),
    absent(
        "twins",
        "chapter 2, figures 3.1 to 3.3, table 4.2",
        "background, architecture, complexity",
        DRAWING,
    ),
    shown("twins", "abstract", "gains of TWINS"),
    shown("twins", "figures 3.4 and 3.5", "forwarding against none"),
    shown("twins", "figures 3.6 and 3.7", "AGIOS's schedulers"),
    shown("twins", "figures 4.1 and 4.2", "server windows"),
    shown("twins", "figures 5.1 and 5.2", "TWINS against the others"),
    shown("twins", "tables 3.1, 3.3, 4.1 and 5.1", "sizes of requests on their way"),
    shown("twins", "table 3.2", "distances of offsets"),
    shown("twins", "figures 4.3 and 4.4", "widths of server windows"),
    shown("twins", "figures 5.3 and 5.4", "widths of TWINS's windows"),
    shown("twins", "figure 5.5", "congestion"),
    shown("twins", "figure 5.6", "collective calls"),
    shown("twins", "figures 5.7 to 5.9", "numbers of forwarders"),
    shown("twins", "figures 5.10 and 5.11", "two applications"),
    shown("twins", "section 4.2.4", "why schedulers do not differ"),
    absent("twins", "sections 3.4 and 4.2", "spacing of arrivals, cost of opening files", "not attempted"),
    shown("twins", "conditions", "control: noise, order below, devices"),
    shown("twins", "section 4.2.4, reads", "control: forwarders that pass on everything"),
    shown("twins", "section 4.2.4, writes", "the same"),
    shown("twins", "tables 3.1, 3.3, 4.1 and 5.1, lists", "control: joining what is not adjacent"),
    shown("twins", "figures 5.10 and 5.11, lists", "the same"),
    shown("twins", "abstract, servers' processors", "control: servers that are slower for more clients"),
    shown("twins", "figure 5.6, conditions", "control: noise, order below, devices"),
    absent("checkpoint", "table 1.1, figures 2.1 and 3.1 to 3.7", "background, mechanisms", DRAWING),
    shown("checkpoint", "figures 4.1 to 4.3", "two identical jobs"),
    shown("checkpoint", "figures 4.1 to 4.3, devices", "control: other devices and calls"),
    shown("checkpoint", "table 4.1 and figures 4.4 to 4.6", "four different jobs"),
    shown("checkpoint", "figures 4.1 to 4.6, what lies below", "control: caches, allocation, CFQ"),
    shown(
        "checkpoint",
        "figures 4.1 to 4.6, two rates",
        "control: a server that loses by overlap what the thesis's does",
    ),
    shown("checkpoint", "figure 4.8, two rates", "the same"),
    shown("checkpoint", "figure 4.7, two rates", "the same"),
    shown("checkpoint", "figure 4.8, what lies below", "the same"),
    shown("checkpoint", "figure 4.7, what lies below", "the same"),
    shown("checkpoint", "figure 4.9, what lies below", "the same"),
    shown("checkpoint", "figure 4.7", "makespans of generated jobs"),
    shown("checkpoint", "figure 4.7, the other reading", "larger checkpoints"),
    shown("checkpoint", "figure 4.8", "I/O times of generated jobs"),
    shown("checkpoint", "figure 4.8, the other reading", "larger checkpoints"),
    shown("checkpoint", "figure 4.9", "how checkpoint times vary"),
    shown("checkpoint", "figure 4.9, the other reading", "larger checkpoints"),
    shown("checkpoint", "figure 4.9, from the start of the writes on", "control: without the waits"),
    shown("checkpoint", "figure 4.9, longer sleeps", "control: parameters of backing off"),
    absent("checkpoint", "section 4.2", "overhead", "shown, not compared: both are set in the scenario"),
    shown("checkpoint", "how to back off", "control: parameters of backing off"),
    shown("checkpoint", "all mechanisms", "what adds up"),
    shown("mechanisms", "disk", "beyond the papers: every mechanism, eight loads, disks"),
    shown("mechanisms", "array", "the same on arrays"),
    shown("mechanisms", "NVMe", "the same on NVMe drives"),
    shown("mechanisms", "by the clock", "load that does not wait: lookups beside streams"),
    shown("sensitivity", "aIOLi", "the abstract, over the ranges of what is not known"),
    shown("sensitivity", "coordination", "figure 5, the same"),
    shown("sensitivity", "TWINS", "the abstract, the same"),
    shown("sensitivity", "checkpoint", "figures 4.1 to 4.3, the same"),
    shown("sets", "FTIO, abstract", "Set-10 with periods that are learnt"),
    shown("sets", "IO-Sets, abstract", "Set-10, three magnitudes of periods"),
    shown("sets", "control: shares", "control: the same, held to its shares"),
];

/// The name of a page's record.
pub(super) fn record_name(page: &str) -> String {
    format!("{page}.json")
}

const HEAD: &str = "# The papers' headlines, figures and tables\n\n\
     Made by `iogate reproduce coverage` from what the pages have kept beside them; a test compares both. A statement agrees if the \
     whole interval of ours is within its tolerance, which each page states; a change that has only the paper's direction is in \
     sign; undecided is what the interval is too wide for. Several together are in sign if all have \
     the paper's direction; otherwise partly is where some agree, and where none does, one that differs is enough for not, and one that \
     is undecided for undecided. Controls and what is beyond a paper stand in its table, too.\n";

/// The page of all papers, from the records in a folder. Those of the quick form have not all that the headlines need.
pub(super) fn page(folder: &Path, quick: bool) -> Result<String, Failure> {
    let mut records = Vec::new();
    for name in PAGES {
        let path = folder.join(record_name(name));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(Failure::usage(anyhow::Error::new(error).context(path.display().to_string())));
            }
        };
        let record = serde_json::from_str(&text).with_context(|| {
            format!("{} is no record of a page; `iogate reproduce {name}` writes it", path.display())
        })?;
        records.push((name, record));
    }
    let headlines = match quick {
        true => {
            "\nThe quick form leaves out points that the headlines are about, and has no table of them.\n"
                .into()
        }
        false => headlines::section(&records)?,
    };
    Ok(format!("{HEAD}{headlines}{}", figures(&records)?))
}

/// What was found of one figure.
#[derive(Default)]
struct Found<'a> {
    claims: Vec<&'a Claim>,
    command: &'a str,
    seeds: Option<(usize, usize)>,
    commits: BTreeSet<&'a str>,
}

impl<'a> Found<'a> {
    fn add(&mut self, command: &'a str, section: &'a SectionRecord, claims: impl Iterator<Item = &'a Claim>) {
        self.claims.extend(claims);
        self.command = command;
        let (least, most) = self.seeds.unwrap_or(section.seeds);
        self.seeds = Some((least.min(section.seeds.0), most.max(section.seeds.1)));
        self.commits.extend(section.commits.iter().map(String::as_str));
    }
}

/// What comes of several claims together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// None was measured.
    Nothing,
    /// All agree.
    Reproduced,
    /// All have the paper's direction, not all its size.
    InSign,
    /// None agrees, none differs, and not of all the interval is narrow enough.
    Undecided,
    /// None agrees, and some differ.
    Not,
    /// Some of them do.
    Partly,
}

impl Outcome {
    pub(super) fn of(claims: &[&Claim]) -> Outcome {
        match WORDS.map(|(verdict, _)| count(claims, verdict)) {
            [0, 0, 0, 0] => Outcome::Nothing,
            [_, 0, 0, 0] => Outcome::Reproduced,
            [_, _, 0, 0] => Outcome::InSign,
            [0, _, _, 0] => Outcome::Undecided,
            [0, _, _, _] => Outcome::Not,
            _ => Outcome::Partly,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Outcome::Nothing => "no results",
            Outcome::Reproduced => "reproduced",
            Outcome::InSign => "in sign",
            Outcome::Undecided => "undecided",
            Outcome::Not => "not",
            Outcome::Partly => "partly",
        }
    }
}

const WORDS: [(Verdict, &str); 4] = [
    (Verdict::Agrees, "agree"),
    (Verdict::InSign, "in sign only"),
    (Verdict::Undecided, "undecided"),
    (Verdict::Differs, "do not agree"),
];

fn count(claims: &[&Claim], verdict: Verdict) -> usize {
    claims.iter().filter(|claim| claim.verdict == verdict).count()
}

/// One word, and how many claims have which verdict.
pub(super) fn verdict(claims: &[&Claim]) -> String {
    let outcome = Outcome::of(claims);
    match outcome {
        Outcome::Nothing => outcome.word().into(),
        Outcome::Reproduced => {
            let all = count(claims, Verdict::Agrees);
            format!("{} ({all} of {all})", outcome.word())
        }
        _ => {
            let parts = WORDS.map(|(verdict, word)| (count(claims, verdict), word));
            let parts: Vec<String> = parts
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, word)| format!("{count} {word}"))
                .collect();
            format!("{}: {}", outcome.word(), parts.join(", "))
        }
    }
}

/// The tables of all pages.
fn figures(records: &[(&str, Record)]) -> Result<String, Failure> {
    let head = ["figure or table", "about", "verdict", "command", "seeds", "commit"];
    let mut out = String::new();
    for name in PAGES {
        let record = records.iter().find(|(page, _)| *page == name).map(|(_, record)| record);
        let mut table = Table::new(head);
        for published in ALL.iter().filter(|published| published.page == name) {
            table.row(row(published, record));
        }
        out += &format!("\n## [{name}]({name}.md)\n\n{}", table.markdown());
        let Some(record) = record else {
            out += "\nThis page has no record: it is of an earlier program, and what it says was not computed.\n";
            continue;
        };
        for claim in record.sections.iter().flat_map(|section| &section.claims.all) {
            let known = |published: &&Published| published.page == name && published.figure == claim.figure;
            let listed = ALL.iter().find(known).is_some_and(|published| published.absent.is_empty());
            if !listed {
                let error = anyhow!(
                    "{name}: the claim '{}' is of '{}', which is not listed",
                    claim.what,
                    claim.figure
                );
                return Err(Failure::failed(error)
                    .hint("add it to the list of figures and tables, or name another one"));
            }
        }
    }
    Ok(out)
}

fn row(published: &Published, record: Option<&Record>) -> [String; 6] {
    let mut found = Found::default();
    for section in record.iter().flat_map(|record| &record.sections) {
        let of = || section.claims.all.iter().filter(|claim| claim.figure == published.figure);
        if of().next().is_some() {
            found.add(record.map_or("", |record| &record.command), section, of());
        }
    }
    let none = || "-".to_owned();
    let first = [published.figure, published.about].map(str::to_owned);
    let rest = if !published.absent.is_empty() {
        [published.absent.to_owned(), none(), none(), none()]
    } else {
        let command = if found.command.is_empty() { none() } else { format!("`{}`", found.command) };
        let seeds = match found.seeds {
            None | Some((_, 0)) => none(),
            Some((least, most)) if least == most => most.to_string(),
            Some((least, most)) => format!("{least} to {most}"),
        };
        let commits: Vec<&str> = found.commits.iter().copied().collect();
        let commits = if commits.is_empty() { none() } else { commits.join(", ") };
        [verdict(&found.claims), command, seeds, commits]
    };
    let [figure, about] = first;
    let [verdict, command, seeds, commit] = rest;
    [figure, about, verdict, command, seeds, commit]
}

#[cfg(test)]
mod tests {
    use iogate_report::claims::{Claims, Statement};

    use super::*;

    fn pages() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction")
    }

    /// None of a page that an earlier program made.
    fn record(name: &str) -> Option<Record> {
        let text = fs::read_to_string(pages().join(record_name(name))).ok()?;
        Some(serde_json::from_str(&text).expect("a record"))
    }

    #[test]
    fn the_table_of_all_papers_is_that_of_the_records() {
        let kept = fs::read_to_string(pages().join(PAGE)).unwrap();
        let found = page(&pages(), false).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(kept == found, "`iogate reproduce coverage` writes docs/reproduction/{PAGE} again");
    }

    #[test]
    fn no_page_parts_from_its_record_and_no_verdict_from_its_figures() {
        let mut compared = 0;
        for (name, record) in PAGES.iter().filter_map(|name| Some((name, record(name)?))) {
            compared += 1;
            let text = fs::read_to_string(pages().join(format!("{name}.md"))).unwrap();
            let mut rest = text.as_str();
            for section in &record.sections {
                let (_, after) = rest.split_once(&format!("## {}\n", section.title)).expect(&section.title);
                rest = after;
                let this = after.split_once("\n## ").map_or(after, |(this, _)| this);
                for claim in &section.claims.all {
                    assert_eq!(claim.verdict, claim.statement.verdict(), "{name}: {}", claim.what);
                }
                if !section.claims.all.is_empty() {
                    let table = section.claims.table().markdown();
                    assert!(this.contains(&table), "{name}: {}: another table", section.title);
                    let verdict = format!("\n**{}", section.claims.verdict());
                    assert!(this.contains(&verdict), "{name}: {}: another verdict", section.title);
                }
            }
        }
        assert!(compared > 0, "no page has a record");
    }

    #[test]
    fn what_has_nothing_that_agrees_is_not_partly_so() {
        use Verdict::{Agrees, Differs, InSign, Missing, Undecided};
        let of = |verdicts: &[Verdict]| {
            let claim = |verdict: &Verdict| {
                let statement = Statement::Fact { published: true, ours: None };
                Claim { figure: "f".into(), what: "w".into(), statement, verdict: *verdict }
            };
            let claims: Vec<Claim> = verdicts.iter().map(claim).collect();
            Outcome::of(&claims.iter().collect::<Vec<_>>())
        };
        assert_eq!(of(&[Undecided, Differs]), Outcome::Not);
        assert_eq!(of(&[InSign, Differs, Undecided]), Outcome::Not);
        assert_eq!(of(&[InSign, Undecided]), Outcome::Undecided);
        assert_eq!(of(&[InSign, InSign]), Outcome::InSign);
        assert_eq!(of(&[Agrees, InSign]), Outcome::InSign);
        assert_eq!(of(&[Agrees, Undecided]), Outcome::Partly);
        assert_eq!(of(&[Agrees, Differs]), Outcome::Partly);
        assert_eq!(of(&[Agrees, Missing]), Outcome::Reproduced);
        assert_eq!(of(&[Missing]), Outcome::Nothing);
    }

    #[test]
    fn a_figure_that_is_not_listed_is_an_error_and_what_was_not_run_is_said() {
        let mut claims = Claims::default();
        claims.add("figure 7", "x", Statement::Fact { published: true, ours: Some(true) });
        let section =
            |claims| SectionRecord { title: "t".into(), seeds: (8, 16), commits: vec!["abc".into()], claims };
        let record =
            |claims| Record { command: "iogate reproduce aioli".into(), sections: vec![section(claims)] };
        let text = figures(&[("aioli", record(claims.clone()))]).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(
            text.contains(
                "| figure 7 | two IORs | reproduced (1 of 1) | `iogate reproduce aioli` | 8 to 16 | abc |"
            ),
            "{text}"
        );
        assert!(text.contains("| figure 5 | one IOR | no results | - | - | - |"), "{text}");
        assert!(
            text.contains("| figure 4 | b_eff_io of 2 to 96 processes | not attempted | - | - | - |"),
            "{text}"
        );
        claims.add("figure 77", "y", Statement::Fact { published: true, ours: Some(false) });
        let error = figures(&[("aioli", record(claims))]).expect_err("there is no such figure");
        let error = format!("{error:?}");
        assert!(error.contains("aioli: the claim 'y' is of 'figure 77', which is not listed"), "{error}");
    }
}
