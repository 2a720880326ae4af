//! Completion times as bars.

use maud::html;

use super::axis::Axis;
use super::{LEFT, picture, run_class, shortened};
use crate::run::{Report, Run};
use crate::units::time;

const BAR: f64 = 18.0;
const GAP: f64 = 16.0;

/// A group of bars for each application and one for all of them, a bar for each run.
pub(super) fn completion(report: &Report) -> maud::Markup {
    let mut names: Vec<&str> = Vec::new();
    for app in report.runs.iter().flat_map(|run| &run.apps) {
        if !names.contains(&app.name.as_str()) && names.len() < 16 {
            names.push(&app.name);
        }
    }
    let of =
        |run: &Run, name: &str| run.apps.iter().find(|app| app.name == name).map(|app| app.completion_ns);
    let mut groups: Vec<(&str, Vec<Option<u64>>)> =
        names.iter().map(|name| (*name, report.runs.iter().map(|run| of(run, name)).collect())).collect();
    groups.push(("all", report.runs.iter().map(|run| Some(run.makespan_ns)).collect()));

    let end_ns = groups.iter().flat_map(|(_, values)| values).flatten().max().copied().unwrap_or(1);
    let axis = Axis::new(end_ns);
    let group_height = (BAR + 2.0) * report.runs.len() as f64;
    let bottom = 6.0 + groups.len() as f64 * (group_height + GAP);
    let said: Vec<String> = (groups.iter())
        .map(|(name, values)| {
            let values: Vec<String> = (report.runs.iter().zip(values))
                .filter_map(|(run, value)| Some(format!("{} {}", run.label, time((*value)? as f64))))
                .collect();
            format!("{name}: {}", values.join(", "))
        })
        .collect();
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, (name, values)) in groups.iter().enumerate() {
            @let top = 8.0 + index as f64 * (group_height + GAP);
            text x=(LEFT - 12.0) y=(top + group_height / 2.0 + 4.0) text-anchor="end" .strong[*name == "all"] { (shortened(name)) }
            @for (run, value) in values.iter().enumerate() {
                @if let Some(value) = value {
                    @let (y, length) = (top + run as f64 * (BAR + 2.0), axis.length(*value));
                    rect.(run_class(run)) x=(LEFT) y=(y) width=(format!("{length:.1}")) height=(BAR) rx="2" {}
                    text x=(format!("{:.1}", LEFT + length + 8.0)) y=(y + 13.5) { (time(*value as f64)) }
                }
            }
        }
    };
    picture(bottom + 26.0, "Completion time of each application", &said.join("; "), &content)
}
