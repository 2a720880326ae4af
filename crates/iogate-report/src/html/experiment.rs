//! The page of an experiment.

use maud::{Markup, html};

use super::heat::{Cell, Heat, heat};
use super::sizes::{Classes, Columns, Distribution, sizes, sizes_key};
use super::sweep::Sweep;
use super::whiskers::{Bars, Groups, groups_called};
use super::{figure, phases, shell, shortened};
use crate::claims::Interval;
use crate::experiment::{ClassPoint, Definition, ExperimentReport, Measured, Of, Point, Situations};
use crate::units::{bytes, count, number, time};

/// The metric by which situations are judged.
const JUDGED: &str = "completion_mean";
/// Metrics whose sweeps are shown at once; those of all others are a click away.
const SWEPT: [&str; 2] = [JUDGED, "bandwidth"];

/// Points whose bars stand beside each other: more have no colours of their own.
const BARS_MAX: usize = 16;
const BAR_APPS_MAX: usize = 16;
const DISTRIBUTIONS_MAX: usize = 4;
const ROWS_MAX: usize = 150;
const SITUATION_ROWS_MAX: usize = 60;
const PART_ROWS_MAX: usize = 60;
const SCENARIO_MAX: usize = 100_000;

/// The page, at most about 2 MB whatever the number of points: of what is too much, it shows the first and says so.
pub fn page(report: &ExperimentReport) -> String {
    let situations = report.best(JUDGED);
    let content = html! {
        (figures(report, situations.as_ref()))
        @if let Some(situations) = &situations { (best(situations)) }
        (completion(report))
        (sweeps(report))
        (phases::timelines(report))
        (distributions(report))
        h2 { "The figures" }
        (table(report))
        (parts(report))
        (meanings(report))
        @if !report.scenario.is_empty() { (scenario(report)) }
    };
    shell(&report.title, &report.notes, &report.program, &content)
}

fn figures(report: &ExperimentReport, situations: Option<&Situations>) -> Markup {
    let runs: usize = report.points.iter().map(|point| point.seeds.len()).sum();
    let cut_off: u64 = report.points.iter().map(|point| point.cut_off).sum();
    let cells = || situations.into_iter().flat_map(|all| &all.rows).flat_map(|(_, cells)| cells).flatten();
    let most = cells().filter(|best| best.clear && best.gain > 0.0).max_by(|a, b| a.gain.total_cmp(&b.gain));
    html! {
        div.figures {
            (figure(&count(report.points.len() as u64), if report.points.len() == 1 { "point" } else { "points" }))
            (figure(&count(runs as u64), if runs == 1 { "run" } else { "runs, over all points and seeds" }))
            (figure(&format!("{} %", number(100.0 * report.confidence)), "confidence of all intervals (Student's t)"))
            @if let (Some(most), Some(situations)) = (most, situations) {
                (figure(
                    &format!("\u{2212}{:.0} %", 100.0 * most.gain),
                    &format!("completion time at best: {} instead of {}", most.scheduler, situations.baseline),
                ))
            }
            @if cut_off > 0 { (figure(&count(cut_off), if cut_off == 1 { "run ended by the time limit" } else { "runs ended by the time limit" })) }
        }
    }
}

/// "The first 8 of 27 points are shown."; nothing if all are.
fn first_of(shown: usize, all: usize, what: &str) -> Markup {
    html! { @if shown < all { p.soft { "The first " (shown) " of " (all) " " (what) " are shown." } } }
}

fn completion(report: &ExperimentReport) -> Markup {
    let shown = &report.points[..report.points.len().min(BARS_MAX)];
    let mut names: Vec<&str> = Vec::new();
    for app in shown.iter().flat_map(|point| &point.apps) {
        if !names.contains(&app.name.as_str()) {
            names.push(&app.name);
        }
    }
    let apps = names.len();
    names.truncate(BAR_APPS_MAX);
    let value = |measured: Option<&Measured>| measured.map(possible);
    let series = shown.iter().map(|point| {
        let of = |name: &&str| value(point.app(name)?.metric("completion"));
        Bars {
            name: report.label(point),
            values: names.iter().map(of).chain([value(point.metric("makespan"))]).collect(),
        }
    });
    let Some(definition) = report.definition("makespan") else { return html! {} };
    html! {
        @if !shown.is_empty() {
            h2 { "When each application was done" }
            p.soft { "From its start to its end; whiskers are the interval of the mean. \u{201c}all\u{201d} is the makespan." }
            (first_of(shown.len(), report.points.len(), "points"))
            (first_of(names.len(), apps, "applications"))
            (groups_called(&Groups {
                title: "Completion time of each application".into(),
                unit: definition.unit,
                groups: names.iter().copied().chain(["all"]).map(String::from).collect(),
                series: series.collect(),
            }, shortened))
        }
    }
}

/// The interval of a metric as far as it is possible: what was never negative has no interval below 0.
pub(super) fn possible(measured: &Measured) -> Interval {
    let interval = Interval::from(measured.estimate);
    let was_negative = interval.mean < 0.0 || measured.values.iter().any(|value| *value < 0.0);
    if was_negative { interval } else { interval.within(0.0, f64::INFINITY) }
}

fn sweeps(report: &ExperimentReport) -> Markup {
    let Some(sweep) = Sweep::of(report) else { return html! {} };
    let pictures = |metric: &Definition| {
        let pictures = sweep.pictures(report, metric);
        html! { @if !pictures.0.is_empty() { h3 { (metric.name) span.soft { ": " (metric.meaning) } } (pictures) } }
    };
    let of_runs = || report.metrics.iter().filter(|metric| metric.of == Of::Run);
    // Before the others, which only have the room that these leave.
    let first: Vec<Markup> = SWEPT.iter().filter_map(|name| report.definition(name)).map(pictures).collect();
    let others: Vec<Markup> = (of_runs())
        .filter(|metric| !SWEPT.contains(&metric.name.as_str()) && varies(report, &metric.name))
        .map(pictures)
        .filter(|pictures| !pictures.0.is_empty())
        .collect();
    html! {
        h2 { "Over " (sweep.over.short()) }
        p.soft { "Bands and whiskers are the intervals of the means." }
        @for pictures in &first { (pictures) }
        @if !others.is_empty() {
            details {
                summary { (others.len()) " more metrics" }
                @for pictures in &others { (pictures) }
            }
        }
    }
}

/// Whether points differ in a metric.
fn varies(report: &ExperimentReport, metric: &str) -> bool {
    let mut means = report.points.iter().filter_map(|point| Some(point.metric(metric)?.estimate.mean));
    let first = means.next();
    means.any(|mean| Some(mean) != first)
}

fn best(situations: &Situations) -> Markup {
    let rows = situations.rows.iter().take(SITUATION_ROWS_MAX).map(|(name, cells)| {
        let cells = cells.iter().map(|best| {
            let best = best.as_ref()?;
            let all = best.all.iter().map(|(name, value)| format!("{name}: {value}"));
            let (text, small) = match best.clear {
                true if best.scheduler == situations.baseline => {
                    (best.scheduler.clone(), "is best".to_owned())
                }
                true => (best.scheduler.clone(), format!("{} better", percent(best.gain))),
                false if best.gain < 0.005 => ("no difference".to_owned(), String::new()),
                false => {
                    ("no difference".to_owned(), format!("{} by {}", best.scheduler, percent(best.gain)))
                }
            };
            let good = match best.clear {
                true if best.scheduler == situations.baseline => 0.0,
                // Half the time is as good as a colour can say.
                true => (best.gain / 0.5).clamp(0.08, 1.0),
                false => 0.0,
            };
            Some(Cell { text, small, good, tip: all.collect::<Vec<_>>().join("\n") })
        });
        (name.clone(), cells.collect())
    });
    html! {
        h2 { "The best scheduler in each situation" }
        p.soft {
            "By " (situations.metric) ", and how much better it is than " (situations.baseline) ". \u{201c}No difference\u{201d}: "
            "the two intervals have values in common. Point at a cell for all schedulers."
        }
        (first_of(SITUATION_ROWS_MAX.min(situations.rows.len()), situations.rows.len(), "rows"))
        (heat(&Heat { corner: situations.column_axes.join(", "), columns: if situations.column_axes.is_empty() { vec!["best".into()] } else { situations.columns.clone() }, rows: rows.collect() }))
    }
}

fn percent(share: f64) -> String {
    if share < 0.005 { "<1 %".into() } else { format!("{:.0} %", 100.0 * share) }
}

fn distributions(report: &ExperimentReport) -> Markup {
    let shown = &report.points[..report.points.len().min(DISTRIBUTIONS_MAX)];
    let sized = |classes: &[iogate_core::stats::summary::SizeClass]| -> Classes {
        classes.iter().map(|class| (class.from_bytes, class.count)).collect()
    };
    let layers: Vec<(String, [Classes; 3])> = (shown.iter())
        .flat_map(|point| point.layers.iter().map(move |layer| (point, layer)))
        .filter(|(_, layer)| !layer.request_sizes.is_empty())
        .map(|(point, layer)| {
            let waiting = layer.waiting_times.iter().map(|class| (class.from_ns, class.count)).collect();
            let classes = [sized(&layer.request_sizes), sized(&layer.dispatch_sizes), waiting];
            (format!("{}: {}", layer.name, report.label(point)), classes)
        })
        .collect();
    if layers.is_empty() {
        return html! {};
    }
    let columns =
        Columns::of(layers.iter().flat_map(|(_, [requests, dispatches, _])| [requests, dispatches]), bytes);
    let times = Columns::of(layers.iter().map(|(_, [.., waiting])| waiting), time);
    html! {
        h2 { "Sizes of requests and dispatches, and waiting times" }
        p.soft { "What arrived at the first gate of each layer, what left it, and how long requests waited there; all runs together." }
        (first_of(shown.len(), report.points.len(), "points"))
        (sizes_key())
        @for (label, [requests, dispatches, _]) in &layers {
            (columns.picture(label, "Sizes of requests and dispatches", &sizes(requests, dispatches)))
        }
        h3 { "From arrival to dispatch" }
        @for (label, [.., waiting]) in &layers {
            (times.picture(label, "Waiting times", &[Distribution { class: "others", noun: "requests", classes: waiting }]))
        }
    }
}

fn table(report: &ExperimentReport) -> Markup {
    let names: Vec<&Definition> = (report.metrics.iter())
        .filter(|metric| metric.of == Of::Run)
        .filter(|metric| report.points.iter().any(|point| point.metric(&metric.name).is_some()))
        .collect();
    let shown = &report.points[..report.points.len().min(ROWS_MAX)];
    let value =
        |point: &Point, metric: &Definition| point.metric(&metric.name).map_or("-".into(), Measured::shown);
    html! {
        (first_of(shown.len(), report.points.len(), "points"))
        div.scroll {
            table {
                // What there is less of goes to the right.
                @if shown.len() <= 6 {
                    thead { tr { th scope="col" {} @for point in shown { th scope="col" { (report.label(point)) } } } }
                    tbody {
                        @for metric in &names {
                            tr { th scope="row" title=(metric.meaning) { (metric.name) } @for point in shown { td { (value(point, metric)) } } }
                        }
                    }
                } @else {
                    thead { tr { th scope="col" {} @for metric in &names { th scope="col" title=(metric.meaning) { (metric.name) } } } }
                    tbody {
                        @for point in shown {
                            tr { th scope="row" { (report.label(point)) } @for metric in &names { td { (value(point, metric)) } } }
                        }
                    }
                }
            }
        }
    }
}

/// A row for each application, each group and each layer of each point.
fn parts(report: &ExperimentReport) -> Markup {
    let apps = report.points.iter().flat_map(|point| {
        point
            .apps
            .iter()
            .map(|app| (format!("{}: {}", app.name, report.label(point)), None, &app.metrics[..]))
    });
    let classes = report.points.iter().flat_map(|point| {
        let class = |class: &ClassPoint| match (class.is_group, &class.group) {
            (true, _) => format!("group {}", class.name),
            (false, Some(group)) => format!("{group}/{}", class.name),
            (false, None) => class.name.clone(),
        };
        point
            .classes
            .iter()
            .map(move |one| (format!("{}: {}", class(one), report.label(point)), None, &one.metrics[..]))
    });
    let layers = report.points.iter().flat_map(|point| {
        let name = |name: &str| format!("{name}: {}", report.label(point));
        point
            .layers
            .iter()
            .map(move |layer| (name(&layer.name), Some(&layer.scheduler[..]), &layer.metrics[..]))
    });
    html! {
        (part_table("Applications", &apps.collect::<Vec<_>>()))
        (part_table("Groups and what is in them", &classes.collect::<Vec<_>>()))
        (part_table("Layers of gates", &layers.collect::<Vec<_>>()))
    }
}

/// Rows of a name, a scheduler and metrics.
fn part_table(title: &str, rows: &[(String, Option<&str>, &[Measured])]) -> Markup {
    let shown = &rows[..rows.len().min(PART_ROWS_MAX)];
    let mut names: Vec<&str> = Vec::new();
    for metric in shown.iter().flat_map(|(.., metrics)| *metrics) {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    let schedulers = shown.iter().any(|(_, scheduler, _)| scheduler.is_some());
    let value = |metrics: &[Measured], name: &str| {
        metrics.iter().find(|metric| metric.name == name).map_or("-".into(), Measured::shown)
    };
    html! {
        @if !names.is_empty() {
            h3 { (title) }
            (first_of(shown.len(), rows.len(), "rows"))
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" {}
                            @if schedulers { th scope="col" { "scheduler" } }
                            @for name in &names { th scope="col" { (name) } }
                        }
                    }
                    tbody {
                        @for (name, scheduler, metrics) in shown {
                            tr {
                                th scope="row" { (name) }
                                @if let Some(scheduler) = scheduler { td { code { (scheduler) } } }
                                @for name in &names { td { (value(metrics, name)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn meanings(report: &ExperimentReport) -> Markup {
    html! {
        details {
            summary { "What the metrics mean" }
            @for (of, title) in [(Of::Run, "Of a run"), (Of::App, "Of an application"), (Of::Class, "Of a group, or of an application where there are groups"), (Of::Layer, "Of a layer of gates")] {
                h3 { (title) }
                dl { @for metric in report.metrics.iter().filter(|metric| metric.of == of) { dt { (metric.name) } dd { (metric.meaning) } } }
            }
        }
    }
}

fn scenario(report: &ExperimentReport) -> Markup {
    let end = (0..=SCENARIO_MAX.min(report.scenario.len()))
        .rev()
        .find(|end| report.scenario.is_char_boundary(*end));
    let shown = &report.scenario[..end.unwrap_or(0)];
    html! {
        details {
            summary { "Settings and scenario" }
            dl {
                @for axis in &report.axes {
                    dt { (axis.key) }
                    dd { code { (axis.values.iter().take(ROWS_MAX).cloned().collect::<Vec<_>>().join(", ")) } }
                }
            }
            (first_of(shown.len(), report.scenario.len(), "bytes"))
            pre { (shown) }
        }
    }
}
