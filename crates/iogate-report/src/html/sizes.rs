//! Sizes of requests and dispatches, and other distributions, as columns.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{LEFT, WIDTH, key, picture, swatch};
use crate::run::{Report, Run};
use crate::units::bytes;
use iogate_core::stats::summary::{OpSummary, SizeClass};

const HEIGHT: f64 = 96.0;
const TITLE: f64 = 26.0;
/// Columns whose labels have room beside each other.
const COLUMNS_MAX: u32 = 14;

/// How many values lie from a power of two up to the next.
pub(super) type Classes = BTreeMap<u64, u64>;

/// For each run: how many requests and dispatches there were of each size.
pub(super) fn distributions(report: &Report) -> Markup {
    let requests: Vec<_> = report.runs.iter().map(|run| classes(run, |op| &op.request_sizes)).collect();
    let dispatches: Vec<_> = report.runs.iter().map(|run| classes(run, |op| &op.dispatch_sizes)).collect();
    let columns = Columns::of(requests.iter().chain(&dispatches), bytes);
    html! {
        (sizes_key())
        @for (run, (requests, dispatches)) in report.runs.iter().zip(requests.iter().zip(&dispatches)) {
            (columns.picture(&run.label, "Sizes of requests and dispatches", &sizes(requests, dispatches)))
        }
    }
}

fn classes(run: &Run, of: impl Fn(&OpSummary) -> &Vec<SizeClass>) -> Classes {
    let mut classes = BTreeMap::new();
    for (_, op) in run.gate.ops() {
        for class in of(op) {
            *classes.entry(class.from_bytes).or_default() += class.count;
        }
    }
    classes
}

/// Which colour is what.
pub(super) fn sizes_key() -> Markup {
    key([("first", "requests in"), ("others", "dispatches out")]
        .map(|(class, name)| (class.to_owned(), swatch(), name)))
}

/// Requests beside dispatches.
pub(super) fn sizes<'a>(requests: &'a Classes, dispatches: &'a Classes) -> [Distribution<'a>; 2] {
    [
        Distribution { class: "first", noun: "requests", classes: requests },
        Distribution { class: "others", noun: "dispatches", classes: dispatches },
    ]
}

/// One of the distributions of a picture.
pub(super) struct Distribution<'a> {
    pub(super) class: &'static str,
    pub(super) noun: &'static str,
    pub(super) classes: &'a Classes,
}

/// The columns of one or more pictures.
pub(super) struct Columns {
    /// Where each begins.
    from: Vec<u64>,
    /// Powers of two in each.
    powers: u32,
    /// The share that is as high as a picture.
    highest: f64,
    label: fn(f64) -> String,
}

impl Columns {
    /// Columns for all of these values; several powers of two in each where there would be too many.
    pub(super) fn of<'a>(
        all: impl Iterator<Item = &'a Classes> + Clone,
        label: fn(f64) -> String,
    ) -> Columns {
        let values = || all.clone().flat_map(BTreeMap::keys).map(|from| from.max(&1).ilog2());
        let (first, last) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let powers = (last - first + 1).div_ceil(COLUMNS_MAX);
        let from = (first..=last).step_by(powers as usize).map(|power| 1 << power).collect();
        let mut columns = Columns { from, powers, highest: 0.0, label };
        for classes in all {
            let shares = columns.from.iter().map(|from| columns.share(classes, *from));
            columns.highest = shares.fold(columns.highest, f64::max);
        }
        columns
    }

    fn share(&self, classes: &Classes, column: u64) -> f64 {
        self.count(classes, column) as f64 / classes.values().sum::<u64>().max(1) as f64
    }

    fn count(&self, classes: &Classes, column: u64) -> u64 {
        let last = column.ilog2() + self.powers;
        let below = if last < 64 { 1 << last } else { u64::MAX };
        classes.range(column..below).map(|(_, n)| n).sum()
    }

    /// One picture: for each column, the share of each distribution that lies in it.
    pub(super) fn picture(&self, label: &str, title: &str, distributions: &[Distribution]) -> Markup {
        if self.highest == 0.0 {
            return html! {};
        }
        let pitch = ((WIDTH - LEFT) / self.from.len() as f64).min(150.0);
        let bar = (pitch * 0.8 / distributions.len() as f64).min(44.0);
        let bottom = TITLE + HEIGHT + 14.0;
        let share = |of: &Distribution, column: u64| self.share(of.classes, column);
        let name = |from: u64| (self.label)(from as f64);
        let said: Vec<String> = (self.from.iter())
            .map(|from| {
                let shares = distributions
                    .iter()
                    .map(|of| format!("{:.0} % of {}", 100.0 * share(of, *from), of.noun));
                format!("from {}: {}", name(*from), shares.collect::<Vec<_>>().join(", "))
            })
            .collect();
        let nouns: Vec<&str> = distributions.iter().map(|of| of.noun).collect();
        let content = html! {
            text.strong x="0" y="14" { (label) }
            text.soft x="0" y=(TITLE + HEIGHT / 2.0) { "share of" }
            text.soft x="0" y=(TITLE + HEIGHT / 2.0 + 17.0) { (nouns.join(", ")) }
            line.grid x1=(LEFT) x2=(LEFT + pitch * self.from.len() as f64) y1=(bottom) y2=(bottom) {}
            @for (index, from) in self.from.iter().enumerate() {
                @let middle = LEFT + (index as f64 + 0.5) * pitch;
                @for (row, of) in distributions.iter().enumerate() {
                    @let n = self.count(of.classes, *from);
                    @if n > 0 {
                        @let height = (HEIGHT * share(of, *from) / self.highest).max(1.5);
                        @let x = middle + (row as f64 - distributions.len() as f64 / 2.0) * (bar + 2.0) + 1.0;
                        @let to = (self.label)(*from as f64 * 2f64.powi(self.powers as i32));
                        @let tip = format!("{n} {} from {} to below {to}", of.noun, name(*from));
                        rect.(of.class) x=(format!("{x:.1}")) y=(format!("{:.1}", bottom - height)) width=(format!("{bar:.1}"))
                            height=(format!("{height:.1}")) rx="1.5" data-tip=(tip) { title { (tip) } }
                        text.soft x=(format!("{:.1}", x + bar / 2.0)) y=(format!("{:.1}", bottom - height - 4.0))
                            text-anchor="middle" font-size="11" { (percent(share(of, *from))) }
                    }
                }
                text.soft x=(format!("{middle:.1}")) y=(bottom + 17.0) text-anchor="middle" { (name(*from)) }
            }
        };
        picture(bottom + 28.0, &format!("{title}: {label}"), &said.join("; "), &content)
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 1.0 => "<1 %".into(),
        percent => format!("{percent:.0} %"),
    }
}
