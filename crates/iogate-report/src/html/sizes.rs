//! Sizes of requests and dispatches as columns.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{LEFT, WIDTH, picture};
use crate::run::{Report, Run};
use crate::summary::{OpSummary, SizeClass};
use crate::units::bytes;

const HEIGHT: f64 = 96.0;
const TITLE: f64 = 26.0;

/// For each run: how many requests and dispatches there were of each size.
pub(super) fn distributions(report: &Report) -> Markup {
    let requests: Vec<_> = report.runs.iter().map(|run| classes(run, |op| &op.request_sizes)).collect();
    let dispatches: Vec<_> = report.runs.iter().map(|run| classes(run, |op| &op.dispatch_sizes)).collect();
    let all = || requests.iter().chain(&dispatches).flat_map(BTreeMap::keys);
    let (Some(&smallest), Some(&largest)) = (all().min(), all().max()) else { return html! {} };
    let columns: Vec<u64> = (smallest.ilog2()..=largest.ilog2()).map(|power| 1 << power).collect();
    html! {
        ul.key {
            li { svg viewBox="0 0 12 12" aria-hidden="true" { rect.first width="12" height="12" rx="2" {} } "requests in" }
            li { svg viewBox="0 0 12 12" aria-hidden="true" { rect.others width="12" height="12" rx="2" {} } "dispatches out" }
        }
        @for (run, (requests, dispatches)) in report.runs.iter().zip(requests.iter().zip(&dispatches)) {
            (columns_of(run, &columns, requests, dispatches))
        }
    }
}

fn classes(run: &Run, of: impl Fn(&OpSummary) -> &Vec<SizeClass>) -> BTreeMap<u64, u64> {
    let mut classes = BTreeMap::new();
    for (_, op) in run.gate.ops() {
        for class in of(op) {
            *classes.entry(class.from_bytes).or_default() += class.count;
        }
    }
    classes
}

fn columns_of(
    run: &Run,
    columns: &[u64],
    requests: &BTreeMap<u64, u64>,
    dispatches: &BTreeMap<u64, u64>,
) -> Markup {
    let pitch = ((WIDTH - LEFT) / columns.len() as f64).min(150.0);
    let bar = (pitch * 0.4).min(44.0);
    let bottom = TITLE + HEIGHT + 14.0;
    let share = |of: &BTreeMap<u64, u64>, column: &u64| {
        let total: u64 = of.values().sum();
        of.get(column).map_or(0.0, |n| *n as f64 / total.max(1) as f64)
    };
    // A class holds sizes from a power of two up to the next.
    let label = |column: &u64| bytes(*column as f64);
    let said: Vec<String> = (columns.iter())
        .map(|column| {
            let percent = |of| format!("{:.0} %", 100.0 * share(of, column));
            format!(
                "from {}: {} of requests, {} of dispatches",
                label(column),
                percent(requests),
                percent(dispatches)
            )
        })
        .collect();
    let content = html! {
        text.strong x="0" y="14" { (run.label) }
        text.soft x="0" y=(TITLE + HEIGHT / 2.0) { "share of" }
        text.soft x="0" y=(TITLE + HEIGHT / 2.0 + 17.0) { "requests, dispatches" }
        line.grid x1=(LEFT) x2=(LEFT + pitch * columns.len() as f64) y1=(bottom) y2=(bottom) {}
        @for (index, column) in columns.iter().enumerate() {
            @let middle = LEFT + (index as f64 + 0.5) * pitch;
            @for (of, class, what, x) in [
                (requests, "first", "requests", middle - bar - 1.0), (dispatches, "others", "dispatches", middle + 1.0),
            ] {
                @let (height, n) = (HEIGHT * share(of, column), of.get(column).copied().unwrap_or(0));
                @if n > 0 {
                    @let height = height.max(1.5);
                    @let tip = format!("{n} {what} from {} to below {}", label(column), bytes(*column as f64 * 2.0));
                    rect.(class) x=(format!("{x:.1}")) y=(format!("{:.1}", bottom - height)) width=(format!("{bar:.1}"))
                        height=(format!("{height:.1}")) rx="1.5" data-tip=(tip) { title { (tip) } }
                    text.soft x=(format!("{:.1}", x + bar / 2.0)) y=(format!("{:.1}", bottom - height - 4.0))
                        text-anchor="middle" font-size="11" { (percent(share(of, column))) }
                }
            }
            text.soft x=(format!("{middle:.1}")) y=(bottom + 17.0) text-anchor="middle" { (label(column)) }
        }
    };
    picture(
        bottom + 28.0,
        &format!("Sizes of requests and dispatches: {}", run.label),
        &said.join("; "),
        &content,
    )
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 1.0 => "<1 %".into(),
        percent => format!("{percent:.0} %"),
    }
}
