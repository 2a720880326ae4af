//! `iogate scenario`, and where scenarios come from: files, and those that are built in.

use std::cell::RefCell;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_core::nearest::{did_you_mean, nearest};
use iogate_report::Table;
use iogate_sim::scenario::{self, BUILT_IN, OWN, Plan, Source};

use crate::attempt::Attempt;
use crate::cli::{ScenarioArgs, ScenarioChoice, ScenarioCommand};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &ScenarioArgs) -> Result<(), Failure> {
    match &args.command {
        ScenarioCommand::Check { scenarios } => check(scenarios),
        ScenarioCommand::List { json } => list(*json),
        ScenarioCommand::Show { name } => print(built_in(name)?),
    }
}

/// A plan, and the text that it was read from.
pub(crate) struct Chosen {
    pub(crate) plan: Plan,
    pub(crate) text: String,
    /// What the text names and was read, too: traces and profiles.
    files: Vec<PathBuf>,
}

impl Chosen {
    /// What no output may replace, beside the scenario itself.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.files.iter().map(|file| ("what the scenario reads", file.as_path()))
    }
}

/// The plan that is asked for.
pub(crate) fn plan(choice: &ScenarioChoice) -> Result<Chosen, Failure> {
    let seeds = choice.seeds.map(|seeds| format!("repetitions={seeds}"));
    let seed = choice.seed.map(|seed| format!("seed={seed}"));
    let settings: Vec<String> = choice.settings.iter().cloned().chain(seeds).chain(seed).collect();
    let name = choice.scenario.to_str().ok_or_else(|| {
        let found = choice.scenario.display();
        Failure::usage(anyhow!("the scenario {found}: expected a name in UTF-8; rename the file"))
    })?;
    read(name, &settings, choice.quick)
}

/// The names of those that are built in.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Whether one of this name is built in.
pub(crate) fn is_built_in(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Those that are built in and belong to a paper: their names begin with its.
pub(crate) fn of_paper(paper: &str) -> impl Iterator<Item = &'static str> {
    let is = move |name: &&str| {
        name.strip_prefix(paper).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    names().filter(is)
}

/// The plan of a scenario that is built in.
pub(crate) fn built_in_plan(name: &str, quick: bool) -> Result<Plan, Failure> {
    built_in_plan_of(name, &[], quick)
}

/// The same, with keys set after those of its quick form.
pub(crate) fn built_in_plan_of(name: &str, settings: &[String], quick: bool) -> Result<Plan, Failure> {
    Ok(read_built_in(name, settings, quick)?.plan)
}

/// The plan of a scenario that is built in, with keys set, which may name files of these contents.
pub(crate) fn plan_with(name: &str, settings: &[&str], files: &[(&str, String)]) -> Result<Plan, Failure> {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let open = |wanted: &str| {
        let found = files.iter().find(|(file, _)| *file == wanted);
        found.map(|(_, text)| text.clone()).ok_or_else(|| NO_FILES.to_owned())
    };
    let source = Source { name, text: built_in(name)?, settings: &settings, quick: false, open: &open };
    Ok(chosen(&source)?.plan)
}

/// Why a scenario that is built in finds no file.
const NO_FILES: &str = "a built-in scenario has no files beside it";

/// Reads a scenario: a file if it looks like one or there is one, else the one that is built in by this name.
fn read(scenario: &str, settings: &[String], quick: bool) -> Result<Chosen, Failure> {
    let path = Path::new(scenario);
    if path.is_dir() && scenario::built_in(scenario).is_none() {
        let error = anyhow!("the scenario {scenario}: expected a file, found a directory");
        return Err(Failure::usage(error)
            .hint("name a file in it; `iogate scenario list` has those that are built in"));
    }
    if !scenario.contains('/') && !scenario.ends_with(".toml") && !path.is_file() {
        return read_built_in(scenario, settings, quick);
    }
    let text = fs::read_to_string(path)
        .with_context(|| Attempt::read(format_args!("the scenario {scenario}")))
        .map_err(Failure::usage)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let files = RefCell::new(Vec::new());
    let open = |name: &str| {
        let file = folder.join(name);
        let text = fs::read_to_string(&file).map_err(|error| error.to_string());
        files.borrow_mut().push(file);
        text
    };
    let chosen = chosen(&Source { name: scenario, text: &text, settings, quick, open: &open })?;
    Ok(Chosen { files: files.into_inner(), ..chosen })
}

/// Reads the scenario that is built in by this name, whatever lies in this folder.
fn read_built_in(name: &str, settings: &[String], quick: bool) -> Result<Chosen, Failure> {
    let open = |_: &str| Err(NO_FILES.to_owned());
    chosen(&Source { name, text: built_in(name)?, settings, quick, open: &open })
}

fn chosen(source: &Source<'_>) -> Result<Chosen, Failure> {
    let scenario = source.name;
    let plan =
        Plan::read(source).map_err(|error| Failure::usage(error).hint("docs/scenarios.md has all keys"))?;
    if let Some(own) = plan.own().first() {
        return Err(Failure::usage(anyhow!(
            "{scenario}: scheduler = \"{OWN}{own}\": expected one that iogate has; only a program that brings its own can run this"
        ))
        .hint("docs/python-gate.md shows how; `iogate schedulers` lists those that there are"));
    }
    Ok(Chosen { plan, text: source.text.to_owned(), files: Vec::new() })
}

/// The text of a scenario that is built in.
pub(crate) fn built_in(name: &str) -> Result<&'static str, Failure> {
    scenario::built_in(name).ok_or_else(|| {
        let near = did_you_mean(&nearest(name, names()));
        Failure::usage(anyhow!("unknown scenario '{name}'; {near}expected a file, or one that is built in"))
            .hint("`iogate scenario list` has those that are built in; a file in a folder is given as ./FILE")
    })
}

fn list(json: bool) -> Result<(), Failure> {
    let title = |name| -> Result<_, Failure> {
        let plan = built_in_plan(name, false)?;
        Ok((name, plan.points.first().map(|point| point.scenario.title.clone()).unwrap_or_default()))
    };
    let all: Vec<(&str, String)> = names().map(title).collect::<Result<_, _>>()?;
    if json {
        let all: Vec<_> =
            all.iter().map(|(name, title)| serde_json::json!({ "name": name, "title": title })).collect();
        return print(&format!("{:#}\n", serde_json::Value::from(all)));
    }
    let width = names().map(str::len).max().unwrap_or(0);
    let mut out = String::new();
    for (name, title) in all {
        writeln!(out, "{name:width$}  {title}").expect("text grows");
    }
    print(&out)
}

fn check(scenarios: &[String]) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut out = String::new();
    for scenario in scenarios {
        match read(scenario, &[], false).and_then(|full| Ok((full.plan, read(scenario, &[], true)?.plan))) {
            Ok((plan, quick)) => out += &description(scenario, &plan, &quick),
            Err(failure) => failures.push(failure),
        }
    }
    print(&out)?;
    failures.into_iter().reduce(Failure::and).map_or(Ok(()), Err)
}

/// What a scenario is, by its first point; `quick` is its quick form.
fn description(name: &str, plan: &Plan, quick: &Plan) -> String {
    let Some(first) = plan.points.first().map(|point| &point.scenario) else { return String::new() };
    let cluster = &first.cluster;
    let mut out = format!("{name}: {}\n\n", first.title);
    let mut table = Table::new(["layer", "nodes", "gate", "depth"]);
    let mut layer = |name: &str, nodes: u32, gate: Option<&iogate_sim::scenario::GateSpec>| {
        let (scheduler, depth) =
            gate.map_or(("none".into(), String::new()), |gate| (gate.name(), gate.depth.to_string()));
        table.row([name.into(), nodes.to_string(), scheduler, depth]);
    };
    layer("clients", cluster.clients.nodes, cluster.clients.gate.as_ref());
    for forwarders in &cluster.forwarders {
        layer(&forwarders.name, forwarders.nodes, Some(&forwarders.gate));
    }
    layer(
        &format!("servers ({})", cluster.servers.device),
        cluster.servers.nodes,
        Some(&cluster.servers.gate),
    );
    let processes: u64 = first.apps.iter().map(|app| u64::from(app.processes)).sum();
    let jobs = first.jobs.as_ref().map_or(String::new(), |jobs| format!(", {} jobs", jobs.count));
    let mut fact = |what: &str, text: String| writeln!(out, "{what:<13}{text}").expect("text grows");
    fact("applications", format!("{} with {processes} processes{jobs}", first.apps.len()));
    for axis in &plan.axes {
        fact("sweep", format!("{}: {}", axis.key, axis.values.join(" | ")));
    }
    fact("points", plan.points.len().to_string());
    fact("runs", format!("{} ({} in the quick form)", plan.runs(), quick.runs()));
    format!("{out}\n{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut names: Vec<String> = (fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, super::names().collect::<Vec<_>>());
    }

    /// The words of a command line, without the quotes around some.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                letter => words.last_mut().unwrap().push(letter),
            }
        }
        words
    }

    #[test]
    fn what_the_docs_set_fits_the_scenarios_that_they_name() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut settings = 0;
        for page in ["README.md", "docs/bench.md", "docs/scenarios.md"] {
            let text = fs::read_to_string(root.join(page)).unwrap();
            let mut mine = String::new();
            for line in text.lines().map(|line| line.trim_start_matches("$ ")) {
                let words = words(line);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let (scenario, rest) = match &words[..] {
                    ["iogate", "scenario", "show", name, ">", "mine.toml"] => {
                        mine = (*name).to_owned();
                        continue;
                    }
                    ["iogate", "sim" | "bench", "mine.toml", rest @ ..] => (&*mine, rest),
                    ["iogate", "sim" | "bench", name, rest @ ..] => (*name, rest),
                    _ => continue,
                };
                let set: Vec<&str> =
                    rest.windows(2).filter(|pair| pair[0] == "--set").map(|pair| pair[1]).collect();
                settings += set.len();
                if let Err(failure) = plan_with(scenario, &set, &[]) {
                    panic!("{page}: {line}: {failure:?}");
                }
            }
        }
        assert!(settings > 2, "{settings} are found");
    }
}
