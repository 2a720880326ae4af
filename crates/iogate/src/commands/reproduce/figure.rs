//! A figure or table of a paper beside ours: a section of a page, and its claims for the table of all papers.

use iogate_report::Table;
use iogate_report::claims::Claims;
use iogate_report::reproduction::{Page, Pictures, Section};
use serde::{Deserialize, Serialize};

use super::Experiment;
use super::claims::Sheet;
use crate::commands::sim::PROGRAM;

/// One section of a page.
#[derive(Default)]
pub(super) struct Figure<'a> {
    /// Which figure, and what it is about.
    pub(super) title: String,
    /// What ours comes from.
    pub(super) results: Vec<&'a Experiment>,
    /// What the paper did; what it says are claims.
    pub(super) setup: String,
    /// What it says, and ours.
    pub(super) sheet: Sheet,

    /// Ours in full.
    pub(super) tables: Vec<(String, Table)>,
    pub(super) pictures: Pictures,
    /// What explains it: no figures, which would be nobody's to keep true.
    pub(super) remarks: String,
}

/// What is kept of a page beside it, for the table of all papers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What makes the page.
    pub(super) command: String,
    pub(super) sections: Vec<SectionRecord>,
}

/// What is kept of a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SectionRecord {
    pub(super) title: String,
    /// The fewest seeds of any point, and the most.
    pub(super) seeds: (usize, usize),
    /// The commits that the results were made with.
    pub(super) commits: Vec<String>,
    pub(super) claims: Claims,
}

/// A page and its record.
pub(super) struct Reproduced {
    pub(super) page: Page,
    /// None of a page that is about no paper.
    pub(super) record: Option<Record>,
}

impl Reproduced {
    /// A page that is about no paper's figures.
    pub(super) fn beyond(page: Page) -> Reproduced {
        Reproduced { page, record: None }
    }

    pub(super) fn new(
        command: &str,
        title: &str,
        notes: Vec<String>,
        figures: Vec<Figure<'_>>,
    ) -> Reproduced {
        let (sections, records) = figures.into_iter().map(Figure::finish).unzip();
        Reproduced {
            page: Page { title: title.into(), notes, sections, program: PROGRAM.into() },
            record: Some(Record { command: command.into(), sections: records }),
        }
    }
}

impl Figure<'_> {
    fn finish(self) -> (Section, SectionRecord) {
        let points = || self.results.iter().flat_map(|results| &results.report.points);
        let seeds = || points().map(|point| point.seeds.len());
        let seeds = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
        let mut commits: Vec<String> =
            self.results.iter().filter_map(|results| results.report.commit.clone()).collect();
        commits.sort();
        commits.dedup();
        let record = SectionRecord { title: self.title.clone(), seeds, commits, claims: self.sheet.claims };
        let mut tables = self.tables;
        let mut verdict = self.remarks;
        if !record.claims.all.is_empty() {
            let caption = match record.claims.expected {
                true => "What one might expect, and what was found",
                false => "What the paper says, and ours",
            };
            tables.insert(0, (caption.into(), record.claims.table()));
            verdict = format!("{} {verdict}", record.claims.verdict()).trim_end().into();
        }
        let mut scenarios: Vec<String> = self.results.iter().map(|results| results.name.clone()).collect();
        scenarios.dedup();
        let section = Section {
            title: self.title,
            scenarios,
            paper: format!("{} {}", self.setup, record.origin()).trim().into(),
            tables,
            pictures: self.pictures,
            verdict,
        };
        (section, record)
    }
}

impl SectionRecord {
    /// How often each point was run, and with which program.
    fn origin(&self) -> String {
        let seeds = match self.seeds {
            (_, 0) => return String::new(),
            (fewest, most) if fewest == most => most.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        };
        match self.commits.is_empty() {
            true => format!("Ours: {seeds} seeds of each point."),
            false => format!("Ours: {seeds} seeds of each point, at commit {}.", self.commits.join(", ")),
        }
    }
}
