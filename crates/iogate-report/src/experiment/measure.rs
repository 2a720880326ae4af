//! From the results of runs to means with intervals.

use std::collections::BTreeMap;

use iogate_core::stats::{Histogram, OpStats};
use iogate_core::{Time, WaitReason};
use iogate_sim::metrics::{APP, CLASS, LAYER, Metric, RUN, Unit};
use iogate_sim::result::{AppResult, Chosen, LayerResult, RunResult};
use iogate_sim::stat::Estimate;

use super::{
    AppPoint, AppTimeline, ChangedScheduler, ClassPoint, IoPhase, LayerPoint, Measured, Point, PointTimeline,
    TIMELINE_APPS_MAX, TIMELINE_CHOICES_MAX, TIMELINE_PHASES_MAX, TimeClass,
};
use crate::recording::Recording;
use iogate_core::stats::summary::SizeClass;

impl Point {
    pub(super) fn new(settings: BTreeMap<String, String>, runs: &[RunResult], confidence: f64) -> Point {
        Point {
            settings,
            seeds: runs.iter().map(|run| run.seed).collect(),
            cut_off: runs.iter().filter(|run| run.cut_off).count() as u64,
            metrics: measure(RUN, &runs.iter().collect::<Vec<_>>(), runs.len(), confidence),
            apps: by_name(runs.iter().map(|run| &run.apps), |app| &app.name)
                .into_iter()
                .map(|(name, apps)| AppPoint { name, metrics: measure(APP, &apps, runs.len(), confidence) })
                .collect(),
            classes: by_name(runs.iter().map(|run| &run.classes), |class| &class.name)
                .into_iter()
                .map(|(name, classes)| ClassPoint {
                    name,
                    group: classes.first().and_then(|class| class.group.clone()),
                    is_group: classes.first().is_some_and(|class| class.is_group),
                    metrics: measure(CLASS, &classes, runs.len(), confidence),
                })
                .collect(),
            layers: by_name(runs.iter().map(|run| &run.layers), |layer| &layer.name)
                .into_iter()
                .map(|(name, layers)| layer(name, &layers, runs.len(), confidence))
                .collect(),
            timeline: None,
        }
    }
}

/// Those of the same name together, in order of appearance; a second one of a name in the same run is one of its own.
fn by_name<'a, T>(
    runs: impl Iterator<Item = &'a Vec<T>>,
    name: fn(&T) -> &String,
) -> Vec<(String, Vec<&'a T>)> {
    let mut index = BTreeMap::new();
    let mut groups: Vec<(String, Vec<&T>)> = Vec::new();
    for run in runs {
        let mut seen: BTreeMap<&String, usize> = BTreeMap::new();
        for one in run {
            let nth = seen.entry(name(one)).or_default();
            *nth += 1;
            let at = *index.entry((name(one), *nth)).or_insert_with(|| {
                let number = if *nth > 1 { format!(" ({nth})") } else { String::new() };
                groups.push((format!("{}{number}", name(one)), Vec::new()));
                groups.len() - 1
            });
            groups[at].1.push(one);
        }
    }
    groups
}

fn measure<T>(table: &[Metric<T>], results: &[&T], runs: usize, confidence: f64) -> Vec<Measured> {
    (table.iter())
        .filter_map(|metric| {
            let values: Vec<f64> = results.iter().filter_map(|result| metric.of(result)).collect();
            let estimate = Estimate::of(&values, confidence)?;
            let values = if values.len() == runs { values } else { Vec::new() };
            Some(Measured { name: metric.name.into(), unit: metric.unit, estimate, values })
        })
        .collect()
}

fn layer(name: String, layers: &[&LayerResult], runs: usize, confidence: f64) -> LayerPoint {
    let mut metrics = measure(LAYER, layers, runs, confidence);
    let waits = layers.iter().flat_map(|layer| &layer.waits).filter(|wait| wait.1 > 0);
    let mut reasons: Vec<&str> = waits.map(|wait| wait.0.name()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let of = |layer: &LayerResult| layer.waits.iter().find(|wait| wait.0.name() == reason).copied();
        let mut add = |name: &str, unit, value: fn((WaitReason, u64, iogate_core::Span)) -> f64| {
            // A run without such a wait has none of it: that counts, too.
            let values: Vec<f64> = layers.iter().map(|layer| of(layer).map_or(0.0, value)).collect();
            metrics.extend(Estimate::of(&values, confidence).map(|estimate| Measured {
                name: format!("{name}:{reason}"),
                unit,
                estimate,
                values: Vec::new(),
            }));
        };
        add("waits", Unit::Count, |(_, count, _)| count as f64);
        add("wait_time", Unit::Seconds, |(_, _, total)| total.as_secs_f64());
    }
    let classes = |of: fn(&OpStats) -> &Histogram| -> BTreeMap<u64, u64> {
        let mut classes = BTreeMap::new();
        let ops = layers.iter().flat_map(|layer| &layer.first_gate.ops);
        for (largest, count) in ops.flat_map(|op| of(op).iter()) {
            *classes.entry(1 << largest.max(1).ilog2()).or_default() += count;
        }
        classes
    };
    let sizes = |of| {
        let classes = classes(of).into_iter();
        classes.map(|(from_bytes, count)| SizeClass { from_bytes, count }).collect()
    };
    let waiting = classes(|op| &op.waiting_ns).into_iter();
    LayerPoint {
        name,
        scheduler: layers.first().map(|layer| layer.scheduler.clone()).unwrap_or_default(),
        metrics,
        request_sizes: sizes(|op| &op.request_bytes),
        dispatch_sizes: sizes(|op| &op.dispatch_bytes),
        waiting_times: waiting.map(|(from_ns, count)| TimeClass { from_ns, count }).collect(),
    }
}

impl PointTimeline {
    pub(super) fn new(run: &RunResult, recording: Option<Recording>) -> PointTimeline {
        let first = run.apps.iter().map(|app| app.submitted).min().unwrap_or(Time::ZERO);
        let origin = recording.as_ref().map_or(first, |recording| Time::from_nanos(recording.origin_ns));
        let from = |time: Time| time.since(origin).as_nanos();
        let app = |app: &AppResult| AppTimeline {
            id: app.id,
            name: app.name.clone(),
            submitted_ns: from(app.submitted),
            start_ns: from(app.start),
            end_ns: from(app.end),
            phases: (app.phases.iter().take(TIMELINE_PHASES_MAX))
                .map(|phase| IoPhase {
                    asked_ns: (phase.asked < phase.start).then(|| from(phase.asked)),
                    start_ns: from(phase.start),
                    end_ns: from(phase.end),
                    bytes: phase.bytes,
                })
                .collect(),
            attempts_ns: (app.turns.attempts.iter().take(TIMELINE_PHASES_MAX))
                .map(|attempt| from(attempt.start))
                .collect(),
        };
        let choices =
            run.layers.iter().flat_map(|layer| layer.chosen.iter().map(|chosen| (&layer.name, chosen)));
        let choice = |(layer, chosen): (&String, &Chosen)| ChangedScheduler {
            layer: layer.clone(),
            node: chosen.node,
            at_ns: from(chosen.at),
            scheduler: chosen.scheduler.clone(),
            why: chosen.why.clone(),
        };
        PointTimeline {
            seed: run.seed,
            origin_ns: origin.as_nanos(),
            end_ns: run.apps.iter().map(|app| from(app.end)).max().unwrap_or(0),
            apps: run.apps.iter().take(TIMELINE_APPS_MAX).map(app).collect(),
            recording,
            choices: choices.take(TIMELINE_CHOICES_MAX).map(choice).collect(),
        }
    }
}
