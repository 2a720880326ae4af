//! Partial results: the runs of one shard of an experiment, kept as they are done, and joined to the report of them all.
//!
//! A file of them is lines of JSON, each with a tab and a checksum behind it: a [`Head`] that says what the runs are of, then a line for
//! each run, and for one that failed why. Lines are only added, each at once: what an interruption leaves is whole lines, and at most one
//! half. What storage has damaged is not taken for a result.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use iogate_sim::experiment::{Done, digest};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::Plan;
use serde::{Deserialize, Serialize};

use crate::experiment::Origin;
use crate::{ExperimentReport, Recording};

/// More than that are a mistake.
const SHARDS_MAX: u64 = 100_000;
/// The form of the files. That of 1 had no checksums.
const VERSION: u32 = 2;
/// Behind a line's JSON, which has no bytes like that: then comes the checksum.
const SEAL: u8 = b'\t';

/// One of several parts of all runs: they are dealt in turn, so that each has some of every point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Shard {
    /// Which, from 1 on.
    index: u64,
    /// How many there are.
    of: u64,
}

/// A shard as a file has it, which may be wrong.
#[derive(Deserialize)]
struct Numbers {
    index: u64,
    of: u64,
}

impl TryFrom<Numbers> for Shard {
    type Error = String;

    fn try_from(Numbers { index, of }: Numbers) -> Result<Shard, String> {
        if index >= 1 && index <= of && of <= SHARDS_MAX {
            Ok(Shard { index, of })
        } else {
            Err(format!("expected I/N with I from 1 to N, as in 2/8, and N at most {SHARDS_MAX}"))
        }
    }
}

impl Shard {
    /// The only one: all runs.
    pub const WHOLE: Shard = Shard { index: 1, of: 1 };

    /// The numbers of its runs, of so many.
    pub fn runs(self, all: u64) -> impl Iterator<Item = u64> {
        (self.index - 1..all).step_by(usize::try_from(self.of).unwrap_or(usize::MAX))
    }

    fn has(self, run: u64) -> bool {
        run % self.of == self.index - 1
    }

    /// All shards when there are as many as of this.
    fn all(self) -> impl Iterator<Item = Shard> {
        (1..=self.of).map(move |index| Shard { index, of: self.of })
    }

    /// Its file's name, for results that are called `name`.
    pub fn file_name(self, name: &str) -> String {
        match self {
            Shard::WHOLE => format!("{name}.{ENDING}"),
            Shard { index, of } => format!("{name}.{index}-of-{of}.{ENDING}"),
        }
    }
}

/// How the names of files end.
pub const ENDING: &str = "runs";

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        // What is no number is no shard.
        let (index, of) = numbers.unwrap_or_default();
        Numbers { index, of }.try_into()
    }
}

/// What the runs of a file are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    version: u32,
    /// What the results are called: the scenario's name.
    pub name: String,
    /// The program, with its version.
    pub program: String,
    /// What they are of, and what made them.
    #[serde(flatten)]
    pub origin: Origin,
    /// The commit of the project that it was made with, where that is known.
    pub commit: Option<String>,
    /// Points whose first run has a recording: the first ones.
    pub recorded: usize,
    /// Which part of the runs.
    pub shard: Shard,
    /// What the report of all runs says besides them.
    pub outline: Outline,
}

/// What a report says of its scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    title: String,
    notes: Vec<String>,
    scenario: String,
    confidence: f64,
    /// The settings of each point, and how often it is run.
    points: Vec<(Vec<(String, String)>, u32)>,
}

impl Outline {
    /// That of a plan and the text that it was read from.
    pub fn new(plan: &Plan, text: &str) -> Outline {
        let first = plan.points.first().map(|point| &point.scenario);
        Outline {
            title: first.map(|scenario| scenario.title.clone()).unwrap_or_default(),
            notes: first.map(|scenario| scenario.notes.clone()).unwrap_or_default(),
            scenario: text.into(),
            confidence: first.map_or(0.95, |scenario| scenario.confidence),
            points: (plan.points.iter())
                .map(|point| (point.settings.clone(), point.scenario.repetitions))
                .collect(),
        }
    }

    /// How many runs there are altogether.
    pub fn runs(&self) -> u64 {
        self.points.iter().map(|(_, runs)| u64::from(*runs)).sum()
    }

    /// The report of all runs, in the order of their numbers.
    pub fn report(&self, program: &str, runs: impl IntoIterator<Item = Done<Recording>>) -> ExperimentReport {
        let mut report = ExperimentReport::new(&self.title, program, self.confidence);
        report.notes.clone_from(&self.notes);
        report.scenario.clone_from(&self.scenario);
        let mut runs = runs.into_iter();
        for (settings, count) in &self.points {
            let mut recording = None;
            let results: Vec<RunResult> = (runs.by_ref().take(*count as usize))
                .map(|done| {
                    recording = recording.take().or(done.observer);
                    done.result
                })
                .collect();
            report.add(settings.clone(), &results, recording);
        }
        report
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<Run> {
    Run(Run),
    Failed(String),
}

fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain data with text keys can be written");
    format!("{json}{}{:016x}\n", char::from(SEAL), digest(json.as_bytes()))
}

/// The JSON of a line, whether its checksum is right or not.
fn json_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == SEAL).next().unwrap_or_default()
}

/// The JSON of a line that is as it was written.
fn intact(line: &[u8]) -> Option<&[u8]> {
    let json = json_of(line);
    let seal = format!("{}{:016x}\n", char::from(SEAL), digest(json));
    (line.strip_prefix(json) == Some(seal.as_bytes())).then_some(json)
}

/// The line of a run that is done.
pub fn run_line(done: &Done<Recording>) -> String {
    line(&Line::Run(done))
}

/// The line of a run that failed.
pub fn failed_line(why: &str) -> String {
    line(&Line::<()>::Failed(why.into()))
}

impl Head {
    /// That of some of the runs of an outline; the program's, the scenario's and the commit's names are for the caller to fill in.
    pub fn new(name: &str, outline: Outline, shard: Shard, recorded: usize) -> Head {
        Head {
            version: VERSION,
            name: name.into(),
            program: String::new(),
            origin: Origin::default(),
            commit: None,
            recorded,
            shard,
            outline,
        }
    }

    /// The first line of the file.
    pub fn line(&self) -> String {
        line(self)
    }

    /// In what this differs from another head, so that their runs cannot be joined.
    pub fn unlike(&self, other: &Head) -> Option<String> {
        if self.name != other.name {
            Some(format!("of the scenario {}, not {}", self.name, other.name))
        } else if (&self.origin.plan, self.recorded, &self.outline)
            != (&other.origin.plan, other.recorded, &other.outline)
        {
            Some(format!("of another form of {}: other settings, sizes or seeds", self.name))
        } else if (&self.program, &self.origin.build) != (&other.program, &other.origin.build) {
            Some(format!(
                "of another program: {} ({}), not {} ({})",
                self.program, self.origin.build, other.program, other.origin.build
            ))
        } else if self.shard.of != other.shard.of {
            Some(format!("one of {} shards, not of {}", self.shard.of, other.shard.of))
        } else {
            None
        }
    }
}

/// What a file has.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What its runs are of.
    pub head: Head,
    /// The runs that are done, by their numbers.
    pub runs: BTreeMap<u64, Done<Recording>>,
    /// Why a run failed.
    pub failed: Option<String>,
    /// How many of its bytes are whole lines.
    pub whole: usize,
    /// The line that is not whole, from 1 on; nothing behind it is taken.
    pub broken: Option<Broken>,
}

/// A line that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which, from 1 on.
    pub line: usize,
    /// It has an end, and is not what was written: no interruption leaves that.
    pub is_damaged: bool,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is {}", self.line, if self.is_damaged { "damaged" } else { "broken off" })
    }
}

impl Kept {
    /// Reads a file; none if it has not even a whole head.
    ///
    /// # Errors
    /// It is something else, or of another form.
    pub fn read(bytes: &[u8]) -> Result<Option<Kept>, String> {
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let Some(first) = lines.next().filter(|line| line.ends_with(b"\n")) else { return Ok(None) };
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        let no_head = |_| "its first line does not say what its runs are of".to_owned();
        let Form { version } = serde_json::from_slice(json_of(first)).map_err(no_head)?;
        if version != VERSION {
            return Err(format!("its form is version {version}, this program's {VERSION}"));
        }
        let json = intact(first).ok_or("its first line is damaged: its checksum is another")?;
        let head: Head = serde_json::from_slice(json).map_err(no_head)?;
        let mut kept = Kept { head, runs: BTreeMap::new(), failed: None, whole: first.len(), broken: None };
        for (number, line) in (2..).zip(lines) {
            if !kept.take(line) {
                kept.broken = Some(Broken { line: number, is_damaged: line.ends_with(b"\n") });
                break;
            }
            kept.whole += line.len();
        }
        Ok(Some(kept))
    }

    /// Takes what a line says, if it is whole.
    fn take(&mut self, line: &[u8]) -> bool {
        let Some(json) = intact(line) else { return false };
        match serde_json::from_slice::<Line<Done<Recording>>>(json) {
            Ok(Line::Run(done)) if done.run < self.head.outline.runs() && self.head.shard.has(done.run) => {
                self.runs.insert(done.run, done);
                true
            }
            Ok(Line::Failed(why)) => {
                self.failed = Some(why);
                true
            }
            _ => false,
        }
    }

    /// The numbers of the runs that are still to be done.
    pub fn missing(&self) -> Vec<u64> {
        let all = self.head.shard.runs(self.head.outline.runs());
        all.filter(|run| !self.runs.contains_key(run)).collect()
    }
}

/// Why files cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// One is of something else than the first: its path, and in what.
    Unlike(String, String),
    /// Shards without all their runs: what the results are called, which shards, and what is the matter with each.
    Lacking(String, Vec<(Shard, String)>),
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Unlike(path, what) => write!(f, "{path} is {what}"),
            MergeError::Lacking(name, shards) => {
                let each: Vec<_> = shards.iter().map(|(shard, what)| format!("{shard} {what}")).collect();
                write!(f, "{name}: shards without all their runs: {}", each.join(", "))
            }
        }
    }
}

/// Joins files of one experiment, each with its path, to the report that one run of everything gives, byte for byte.
///
/// # Errors
/// They are not of one experiment, or do not have all its runs.
pub fn merge(files: Vec<(String, Kept)>) -> Result<Option<ExperimentReport>, MergeError> {
    let Some(first) = files.first().map(|(_, kept)| &kept.head) else { return Ok(None) };
    if let Some((path, what)) = (files.iter()).find_map(|(path, kept)| Some((path, kept.head.unlike(first)?)))
    {
        return Err(MergeError::Unlike(path.clone(), what));
    }
    // Whichever is given first, the same one speaks for all.
    let heads = files.iter().map(|(_, kept)| &kept.head);
    let head = heads.min_by_key(|head| head.shard).unwrap_or(first).clone();
    let lacking = lacking(&head, &files);
    if !lacking.is_empty() {
        return Err(MergeError::Lacking(head.name, lacking));
    }
    let runs: BTreeMap<u64, Done<Recording>> = files.into_iter().flat_map(|(_, kept)| kept.runs).collect();
    let mut report = head.outline.report(&head.program, runs.into_values());
    report.commit = head.commit;
    Ok(Some(report))
}

/// The shards that do not have all their runs, and what is the matter with each.
fn lacking(head: &Head, files: &[(String, Kept)]) -> Vec<(Shard, String)> {
    let all = head.outline.runs();
    let state = |shard: Shard| {
        let (mut there, mut failed, mut begun, mut damaged) = (0, None, false, None);
        let due = shard.runs(all).count();
        for (_, kept) in files.iter().filter(|(_, kept)| kept.head.shard == shard) {
            begun = true;
            there = there.max(kept.runs.len());
            failed = failed.or(kept.failed.as_ref());
            damaged = damaged.or(kept.broken.filter(|broken| broken.is_damaged));
        }
        let what = match failed {
            _ if there == due => return None,
            Some(why) => format!("failed ({why})"),
            None => match damaged {
                Some(damaged) => format!("has {there} of {due} runs, as its {damaged}"),
                None if begun => format!("was interrupted ({there} of {due} runs)"),
                None => "is missing".into(),
            },
        };
        Some((shard, what))
    };
    head.shard.all().filter_map(state).collect()
}
