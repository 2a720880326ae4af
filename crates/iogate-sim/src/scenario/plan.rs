//! What is run: a scenario with its sweep written out, one point for each combination of values.

use std::collections::BTreeSet;

use super::document::{self, Data, Value};
use super::path::{self, Concrete};
use super::problem::{PROBLEMS_MAX, Place, Problem, ProblemKind, ScenarioError};
use super::read::{self, Files};
use super::schema::{Schema, Takes};
use super::{Scenario, table::Problems};

/// The most points of a plan.
pub const POINTS_MAX: usize = 100_000;

/// The most applications of all points together: what keeps a plan's memory in bounds.
const APPS_MAX: usize = 1_000_000;

/// The axis of cases, and what comes before the name of a further one.
const CASE: &str = "case";
const CASES: &str = "cases.";

/// Who sets how often each point is run, as `--seeds` and `[quick]` do, means all points: also the cases that have more seeds than others.
const REPETITIONS: &str = "repetitions";

/// What a plan is made from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// What messages call the text: its path or name.
    pub name: &'a str,
    /// The scenario, in TOML.
    pub text: &'a str,
    /// Settings from outside, each `key=value`; they replace what the text says, and a list makes a sweep.
    pub settings: &'a [String],
    /// Whether the scenario's `[quick]` applies.
    pub quick: bool,
    /// Gives the content of a file that the scenario names, relative to it, or says why it cannot.
    pub open: &'a dyn Fn(&str) -> Result<String, String>,
}

/// The points of a scenario, all of them checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What varies; none where there is no sweep.
    pub axes: Vec<Axis>,
    /// At least one; the last axis varies fastest.
    pub points: Vec<Point>,
}

/// A key that varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The key, or `case` for several that vary together.
    pub key: String,
    /// Its values, as texts; a case is its label, or else its keys and values.
    pub values: Vec<String>,
}

/// One combination of values.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of each axis: key and value.
    pub settings: Vec<(String, String)>,
    /// The scenario with these.
    pub scenario: Scenario,
}

impl Plan {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    /// Up to [`PROBLEMS_MAX`] problems, each with its line, what was expected and what to do.
    pub fn read(source: &Source<'_>) -> Result<Plan, ScenarioError> {
        let read = plan(source, usize::MAX).and_then(|plan| check_quick(source).map(|()| plan));
        read.map_err(|mut problems| {
            problems.truncate(PROBLEMS_MAX);
            problems.sort_by_key(|problem| problem.place.line());
            ScenarioError { source: source.name.into(), problems }
        })
    }

    /// The names of the schedulers of the caller's own that its gates are to have.
    pub fn own(&self) -> BTreeSet<&str> {
        let gates = self.points.iter().flat_map(|point| point.scenario.cluster.gates().flatten());
        gates.filter_map(|gate| gate.own.as_deref()).collect()
    }

    /// How many runs it takes, those of single applications not counted.
    pub fn runs(&self) -> u64 {
        self.points.iter().map(|point| u64::from(point.scenario.repetitions)).sum()
    }
}

impl Point {
    /// Its settings in one line: `key = value, ...`; empty where nothing varies.
    pub fn label(&self) -> String {
        let settings = self.settings.iter().map(|(key, value)| format!("{key} = {value}"));
        settings.collect::<Vec<_>>().join(", ")
    }
}

/// An axis being put together: for each of its values, what to set.
struct Sweep {
    key: String,
    place: Place,
    targets: Vec<Concrete>,
    values: Vec<Choice>,
    /// Whether its values are cases, of several keys each.
    are_cases: bool,
}

impl Sweep {
    /// Leaves these places, and what lies within them, to others.
    fn leave(&mut self, to: &[Concrete]) {
        let is_left = |target: &Concrete| to.iter().any(|left| target.starts_with(left));
        self.targets.retain(|target| !is_left(target));
        for set in self.values.iter_mut().flat_map(|choice| &mut choice.sets) {
            set.targets.retain(|target| !is_left(target));
        }
    }
}

/// One value of an axis.
struct Choice {
    text: String,
    sets: Vec<Set>,
}

/// A value and all the places that it is put in.
struct Set {
    targets: Vec<Concrete>,
    value: Value,
}

impl Set {
    fn put(&self, root: &mut Value) {
        for target in &self.targets {
            path::put(root, target, &self.value);
        }
    }
}

/// Checks a quick form that is not asked for, by its first point and without the settings, which may not be meant for it. A text that
/// needs settings to be one is left alone.
fn check_quick(source: &Source<'_>) -> Result<(), Vec<Problem>> {
    let has_quick = || document::parse(source.text).is_ok_and(|root| root.get("quick").is_some());
    if source.quick || !has_quick() {
        return Ok(());
    }
    let bare = Source { settings: &[], ..*source };
    if !source.settings.is_empty() && plan(&bare, 1).is_err() {
        return Ok(());
    }
    plan(&Source { quick: true, ..bare }, 1).map(drop)
}

/// The plan of a source, with at most so many of its points.
fn plan(source: &Source<'_>, points_max: usize) -> Result<Plan, Vec<Problem>> {
    let mut root = document::parse(source.text)?;
    let (sweep, quick) = (root.take("sweep"), root.take("quick"));
    let problems = Problems::default();
    let mut overrides = Vec::new();
    if let Some(quick) = &quick {
        settings_table("quick", quick, &problems);
        if source.quick {
            overrides.extend(path::leaves(quick));
        }
    }
    for text in source.settings {
        let place = Place::Setting(format!("--set {text}").into());
        match text.split_once('=') {
            Some((key, value)) => {
                if let Some(missing) = document::missing_bracket(value.trim()) {
                    problems
                        .unfit(&place, format!("a list without its '{missing}': expected one as in [1, 2]"));
                    continue;
                }
                overrides.extend([(key.trim().to_owned(), document::parse_value(value.trim(), &place))]);
            }
            None => problems.unfit(&place, "expected key=value, as in servers.nodes=4".into()),
        }
    }
    let mut sweeps = Vec::new();
    if let Some(sweep) = &sweep {
        settings_table("sweep", sweep, &problems);
        axes(&root, sweep, &problems, &mut sweeps);
    }
    for (key, value) in &overrides {
        apply(&mut root, key, value, &mut sweeps, &problems);
    }
    check_overlaps(&sweeps, &problems);
    check_names(&sweeps, &problems);
    let count = sweeps.iter().try_fold(1usize, |count, sweep| count.checked_mul(sweep.values.len()));
    let count = count.filter(|count| *count <= POINTS_MAX).unwrap_or_else(|| {
        let place = sweeps.first().map_or(Place::Line(1), |sweep| sweep.place.clone());
        problems.unfit(&place, format!("more than {POINTS_MAX} points: give the sweep fewer values"));
        0
    });
    if !problems.is_empty() {
        return Err(problems.into_inner());
    }
    let files = Files::new(source.open);
    let (mut points, mut apps) = (Vec::new(), 0);
    for index in 0..count.min(points_max) {
        let point = point(&root, &sweeps, index, &files)?;
        apps += point.scenario.apps.len();
        if apps > APPS_MAX {
            let text =
                format!("more than {APPS_MAX} applications in all points: give the sweep fewer values");
            return Err(vec![Problem { place: Place::Line(1), kind: ProblemKind::Unfit(text) }]);
        }
        points.push(point);
    }
    let axes = sweeps.into_iter().map(|sweep| Axis {
        key: sweep.key,
        values: sweep.values.into_iter().map(|choice| choice.text).collect(),
    });
    Ok(Plan { axes: axes.collect(), points })
}

fn settings_table(name: &str, value: &Value, problems: &Problems) {
    if !matches!(value.data, Data::Table(_)) {
        let (found, expected) = (value.shown(), Takes::Settings.to_string());
        problems.push(&value.place, ProblemKind::Wrong { key: name.into(), found, expected });
    }
}

/// The point with this index among all combinations.
fn point(root: &Value, sweeps: &[Sweep], index: usize, files: &Files<'_>) -> Result<Point, Vec<Problem>> {
    let mut rest = index;
    let mut chosen = Vec::new();
    for sweep in sweeps.iter().rev() {
        chosen.push((sweep, &sweep.values[rest % sweep.values.len()]));
        rest /= sweep.values.len();
    }
    chosen.reverse();
    let mut root = root.clone();
    for set in chosen.iter().flat_map(|(_, choice)| &choice.sets) {
        set.put(&mut root);
    }
    let settings: Vec<_> =
        chosen.iter().map(|(sweep, choice)| (sweep.key.clone(), choice.text.clone())).collect();
    match read::scenario(&root, files) {
        Ok(scenario) => Ok(Point { settings, scenario }),
        Err(mut problems) => {
            let at: Vec<_> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            if let (Some(first), false) = (problems.first(), at.is_empty()) {
                let text = format!("{}; this is in the point {}", first.kind, at.join(", "));
                problems[0] = Problem { place: first.place.clone(), kind: ProblemKind::Unfit(text) };
            }
            Err(problems)
        }
    }
}

/// The axes of a sweep, in the order of the text.
fn axes(root: &Value, sweep: &Value, problems: &Problems, found: &mut Vec<Sweep>) {
    for (key, value) in path::leaves(sweep) {
        if key == CASE || key.starts_with(CASES) {
            found.extend(cases(root, &key, &value, problems));
        } else if let Some(axis) = axis(root, &key, &value, problems) {
            found.push(axis);
        }
    }
}

/// One key with its values.
fn axis(root: &Value, key: &str, value: &Value, problems: &Problems) -> Option<Sweep> {
    let Data::List(items) = &value.data else {
        expected_list(&format!("sweep.{key}"), value, problems);
        return None;
    };
    if items.is_empty() {
        expected_list(&format!("sweep.{key}"), value, problems);
    }
    let targets = resolve(root, key, &value.place, problems)?;
    let mut values = Vec::new();
    for item in items {
        values.push(Choice { text: axis_value(item), sets: sets(root, key, item, problems) });
    }
    Some(Sweep { key: key.into(), place: value.place.clone(), targets, values, are_cases: false })
}

/// A value as the axis has it: a gate by its scheduler, as in `app-window(window=1s)`.
fn axis_value(value: &Value) -> String {
    let Data::Table(entries) = &value.data else { return value.to_string() };
    let (scheduler, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.key == "scheduler");
    let [scheduler] = scheduler[..] else { return value.to_string() };
    let others: Vec<_> = others.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    match others.is_empty() {
        true => scheduler.value.to_string(),
        false => format!("{}({})", scheduler.value, others.join(",")),
    }
}

fn expected_list(key: &str, value: &Value, problems: &Problems) {
    let expected = "a list of values, each of which is run".to_owned();
    problems.push(&value.place, ProblemKind::Wrong { key: key.into(), found: value.shown(), expected });
}

/// Several keys that vary together: a list of tables, each with a label or without.
fn cases(root: &Value, key: &str, value: &Value, problems: &Problems) -> Option<Sweep> {
    let name = format!("sweep.{key}");
    let Data::List(items) = &value.data else {
        expected_list(&name, value, problems);
        return None;
    };
    if items.is_empty() {
        expected_list(&name, value, problems);
    }
    let key = key.strip_prefix(CASES).unwrap_or(key).to_owned();
    let mut axis =
        Sweep { key, place: value.place.clone(), targets: Vec::new(), values: Vec::new(), are_cases: true };
    for item in items {
        settings_table(&name, item, problems);
        let mut item = item.clone();
        let label = item.take("label").map(|label| label.to_string());
        let sets = sets(root, "", &item, problems);
        let text =
            || path::leaves(&item).iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
        axis.targets.extend(sets.iter().flat_map(|set| set.targets.clone()));
        axis.values.push(Choice { text: label.unwrap_or_else(|| text().join(", ")), sets });
    }
    Some(axis)
}

/// What setting `key` to `value` sets: a table stands for the keys in it.
fn sets(root: &Value, key: &str, value: &Value, problems: &Problems) -> Vec<Set> {
    let leaves = path::leaves_at(key, value);
    let set = |(key, value): (String, Value)| {
        Some(Set { targets: resolve(root, &key, &value.place, problems)?, value })
    };
    leaves.into_iter().filter_map(set).collect()
}

fn resolve(root: &Value, key: &str, place: &Place, problems: &Problems) -> Option<Vec<Concrete>> {
    let error = match path::resolve(root, key) {
        Ok(targets) if targets.is_empty() => format!("{key}: there is none of these"),
        Ok(targets) => return Some(targets),
        Err(error) => error,
    };
    problems.unfit(place, error);
    None
}

/// Sets a key before the sweep; it replaces an axis of the same key.
fn apply(root: &mut Value, key: &str, value: &Value, sweeps: &mut Vec<Sweep>, problems: &Problems) {
    if key == CASE || key.starts_with(CASES) {
        return choose(root, key, value, sweeps, problems);
    }
    let Some(targets) = resolve(root, key, &value.place, problems) else { return };
    let axis_before = sweeps.iter().position(|sweep| !sweep.are_cases && sweep.targets == targets);
    let many = match &value.data {
        Data::List(items) => {
            !Schema::find(key.split('.')).is_some_and(|key| key.takes.is_list())
                || items.iter().any(|item| matches!(item.data, Data::List(_)))
        }
        _ => false,
    };
    if many {
        if let Some(axis) = axis(root, key, value, problems) {
            match axis_before {
                Some(index) => sweeps[index] = axis,
                None => sweeps.push(axis),
            }
        }
        return;
    }
    if let Some(index) = axis_before {
        sweeps.remove(index);
    }
    if key == REPETITIONS {
        sweeps.iter_mut().filter(|sweep| sweep.are_cases).for_each(|sweep| sweep.leave(&targets));
    }
    if let Some(sweep) = sweeps.iter().find(|sweep| path::overlap(&sweep.targets, &targets)) {
        problems.unfit(
            &value.place,
            format!("{key} = {value}: the sweep over {} sets it again; set that instead", sweep.key),
        );
        return;
    }
    for set in sets(root, key, value, problems) {
        set.put(root);
    }
}

/// Leaves only the cases with these labels. What a single one sets is set at once, so that later settings can change it.
fn choose(root: &mut Value, key: &str, value: &Value, sweeps: &mut [Sweep], problems: &Problems) {
    let name = key.strip_prefix(CASES).unwrap_or(key);
    let Some(index) = sweeps.iter().position(|sweep| sweep.are_cases && sweep.key == name) else {
        return problems.unfit(&value.place, format!("{key}: the scenario has no such cases"));
    };
    let (before, rest) = sweeps.split_at_mut(index);
    let Some(sweep) = rest.first_mut() else { return };
    let asked = match &value.data {
        Data::List(items) => &items[..],
        _ => std::slice::from_ref(value),
    };
    if asked.is_empty() {
        expected_list(key, value, problems);
    }
    let labels: Vec<String> = asked.iter().map(Value::to_string).collect();
    let known: Vec<&str> = sweep.values.iter().map(|choice| choice.text.as_str()).collect();
    if let Some(unknown) = labels.iter().find(|label| !known.contains(&label.as_str())) {
        let text = format!("{key} = {unknown}: expected one of: {}", known.join(", "));
        return problems.unfit(&value.place, text);
    }
    sweep.values.retain(|choice| labels.contains(&choice.text));
    if let [only] = &mut sweep.values[..] {
        // Set before the sweep, it would be undone by the cases before it, over which it has the last word.
        for earlier in before.iter_mut().filter(|earlier| earlier.are_cases) {
            only.sets.iter().for_each(|set| earlier.leave(&set.targets));
        }
        only.sets.drain(..).for_each(|set| set.put(root));
        sweep.targets.clear();
    }
}

/// Refuses what results could not tell apart: they know points by the names of axes and their values.
fn check_names(sweeps: &[Sweep], problems: &Problems) {
    for (index, Sweep { key, place, values, are_cases, .. }) in sweeps.iter().enumerate() {
        if sweeps[..index].iter().any(|other| other.key == *key) {
            problems.unfit(place, format!("two axes are called {key}: give one of them another name"));
        }
        let mut before = BTreeSet::new();
        if let Some(Choice { text, .. }) = values.iter().find(|choice| !before.insert(&choice.text)) {
            let text = match are_cases {
                true => format!("two cases of {key} are called '{text}': give each a label of its own"),
                false => format!("the sweep over {key} has {text} twice: leave one out"),
            };
            problems.unfit(place, text);
        }
        if let Some(Choice { text, .. }) = values.iter().find(|choice| choice.text.contains(char::is_control))
        {
            problems.unfit(place, format!("{key} = {text:?}: {}", super::read::ONE_LINE));
        }
    }
}

/// Refuses axes of which one would undo the other.
fn check_overlaps(sweeps: &[Sweep], problems: &Problems) {
    for (index, sweep) in sweeps.iter().enumerate() {
        if let Some(other) = sweeps[..index].iter().find(|other| {
            // Of cases, the later ones have the last word.
            let both_cases = other.are_cases && sweep.are_cases;
            !both_cases && path::overlap(&other.targets, &sweep.targets)
        }) {
            let (are_cases, key, other) = (other.are_cases, &sweep.key, &other.key);
            let text = if are_cases {
                format!(
                    "the scenario's cases ({other}) set what {key} sets: vary it there, or take it out of them"
                )
            } else {
                format!("the sweep over {key} sets what that over {other} sets: put both into [[sweep.case]]")
            };
            problems.unfit(&sweep.place, text);
        }
    }
}
