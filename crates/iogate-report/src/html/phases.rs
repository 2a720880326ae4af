//! Timelines of runs: whom each server served, and what each application did meanwhile.

use std::collections::HashMap;
use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::{LEFT, key, picture, series_class, shortened, swatch};
use crate::experiment::{AppTimeline, ExperimentReport, PointTimeline};
use crate::recording::{AppLane, Recording};
use crate::units::{bytes, rate, time};

/// Points that are shown at once; the others are a click away.
const OPEN: usize = 4;
const SERVERS_MAX: usize = 8;
const APPS_MAX: usize = 12;
const PHASES_MAX: usize = 48;
/// Bytes of markup after which no further timeline is drawn.
const MARKUP_MAX: usize = 600_000;

const LANE: f64 = 26.0;
const SERVER_PITCH: f64 = LANE + 6.0;
/// With room for throughputs above it.
const APP_PITCH: f64 = LANE + 22.0;
const AXIS: f64 = 34.0;
/// A label of a throughput fits into this.
const LABEL: f64 = 66.0;

/// The timelines that there are, until the page is long enough.
pub(super) fn timelines(report: &ExperimentReport) -> Markup {
    let all: Vec<_> = (report.points.iter())
        .filter_map(|point| Some((report.label(point), point.timeline.as_ref()?)))
        .filter(|(_, timeline)| !timeline.apps.is_empty())
        .collect();
    let ends = || all.iter().map(|(_, timeline)| timeline.end_ns);
    let (Some(shortest), Some(longest)) = (ends().min(), ends().max()) else { return html! {} };
    // Runs of similar length can be compared by eye.
    let common = (longest / 4 <= shortest).then_some(longest);
    let mut drawn = Vec::new();
    let mut size = 0;
    for (label, timeline) in &all {
        let markup = one(label, timeline, common.unwrap_or(timeline.end_ns));
        size += markup.0.len();
        if size > MARKUP_MAX && !drawn.is_empty() {
            break;
        }
        drawn.push(markup);
    }
    html! {
        h2 { "Who was served when, and what the applications did" }
        p.soft {
            "The first run of each point. A lane for each server: the height of a colour is the share of the time that its "
            "device served that application. A lane for each application: I/O in its colour, computing in grey, waiting "
            "(for other processes) empty; dotted while it is queued; above, the throughput of each I/O phase. "
            @if common.is_some() && drawn.len() > 1 { "All have the same time scale. " }
            @if drawn.len() < report.points.len() {
                "The first " (drawn.len()) " of " (report.points.len()) " points are shown."
            }
        }
        @for markup in drawn.iter().take(OPEN) { (markup) }
        @if drawn.len() > OPEN {
            details {
                summary { (drawn.len() - OPEN) " more points" }
                @for markup in &drawn[OPEN..] { (markup) }
            }
        }
    }
}

/// The colour of each application of a timeline: the order of the scenario.
struct Colours(HashMap<u32, usize>);

impl Colours {
    fn class(&self, app: Option<u32>) -> String {
        app.and_then(|app| self.0.get(&app)).map_or("first".into(), |index| series_class(*index))
    }
}

fn one(label: &str, timeline: &PointTimeline, end_ns: u64) -> Markup {
    let axis = Axis::new(end_ns);
    let colours = Colours(timeline.apps.iter().enumerate().map(|(index, app)| (app.id, index)).collect());
    let names = timeline.apps.iter().enumerate().take(APPS_MAX);
    html! {
        h3 { (label) " " span.soft { "seed " (timeline.seed) ", done after " (time(timeline.end_ns as f64)) } }
        (key(names.map(|(index, app)| (series_class(index), swatch(), app.name.as_str()))))
        @if let Some(recording) = &timeline.recording {
            (servers(label, timeline, recording, &axis, &colours))
        }
        (apps(label, timeline, &axis))
    }
}

fn servers(
    label: &str,
    timeline: &PointTimeline,
    recording: &Recording,
    axis: &Axis,
    colours: &Colours,
) -> Markup {
    let shown = &recording.servers[..recording.servers.len().min(SERVERS_MAX)];
    let name = |app: Option<u32>| {
        let known = timeline.apps.iter().find(|known| Some(known.id) == app);
        known.map_or_else(|| "others".to_owned(), |known| known.name.clone())
    };
    let bottom = shown.len() as f64 * SERVER_PITCH;
    let mut said = Vec::new();
    for lane in shown {
        let last = |slots: &[u64]| slots.iter().rposition(|busy| *busy > 0).map_or(0, |slot| slot as u64 + 1);
        let ends = lane.shares.iter().map(|share| {
            format!(
                "{} until {}",
                name(share.app),
                time(last(&share.busy_ns).saturating_mul(recording.slot_ns) as f64)
            )
        });
        said.push(format!("server {}: {}", lane.server, ends.collect::<Vec<_>>().join(", ")));
    }
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, lane) in shown.iter().enumerate() {
            @let top = index as f64 * SERVER_PITCH + 3.0;
            rect.lane x=(LEFT) y=(top) width=(axis.right() - LEFT) height=(LANE) rx="2" {}
            text x=(LEFT - 12.0) y=(top + LANE / 2.0 + 4.5) text-anchor="end" { "server " (lane.server) }
            @let mut below: Vec<u64> = Vec::new();
            @for share in &lane.shares {
                @let (path, tip) = (stacked(&share.busy_ns, &mut below, recording.slot_ns, axis, top), name(share.app));
                path.(colours.class(share.app)) d=(path) data-tip=(tip) { title { (tip) } }
            }
        }
    };
    picture(bottom + AXIS, &format!("Whom each server served: {label}"), &said.join("; "), &content)
}

fn apps(label: &str, timeline: &PointTimeline, axis: &Axis) -> Markup {
    let shown = &timeline.apps[..timeline.apps.len().min(APPS_MAX)];
    let bottom = shown.len() as f64 * APP_PITCH;
    let said: Vec<String> = shown
        .iter()
        .map(|app| {
            let io: u64 = app.phases.iter().map(|phase| phase.end_ns.saturating_sub(phase.start_ns)).sum();
            format!(
                "{} ran from {} to {}, with {} I/O phases that took {}",
                app.name,
                time(app.start_ns as f64),
                time(app.end_ns as f64),
                app.phases.len(),
                time(io as f64)
            )
        })
        .collect();
    let lane = |app: &AppTimeline| {
        let recording = timeline.recording.as_ref()?;
        Some((recording.apps.iter().find(|lane| lane.app == app.id)?, recording.slot_ns))
    };
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, app) in shown.iter().enumerate() {
            @let top = index as f64 * APP_PITCH + APP_PITCH - LANE - 3.0;
            @let middle = format!("{:.1}", top + LANE / 2.0);
            text x=(LEFT - 12.0) y=(top + LANE / 2.0 + 4.5) text-anchor="end" { (shortened(&app.name)) }
            @if app.submitted_ns < app.start_ns {
                line.queued x1=(format!("{:.1}", axis.x(app.submitted_ns))) x2=(format!("{:.1}", axis.x(app.start_ns))) y1=(middle) y2=(middle) {}
            }
            rect.lane x=(format!("{:.1}", axis.x(app.start_ns))) y=(top)
                width=(format!("{:.1}", axis.length(app.end_ns.saturating_sub(app.start_ns)).max(1.0))) height=(LANE) rx="2" {}
            @match lane(app) {
                Some((lane, slot_ns)) => (shares(lane, slot_ns, &series_class(index), axis, top)),
                None => @for phase in app.phases.iter().take(PHASES_MAX) {
                    rect.(series_class(index)) x=(format!("{:.1}", axis.x(phase.start_ns))) y=(top) height=(LANE)
                        width=(format!("{:.1}", axis.length(phase.end_ns.saturating_sub(phase.start_ns)).max(0.8))) {}
                },
            }
            (phases(app, axis, top))
        }
    };
    picture(bottom + AXIS, &format!("What the applications did: {label}"), &said.join("; "), &content)
}

/// What to point at for each I/O phase, and their throughputs as far as there is room.
fn phases(app: &AppTimeline, axis: &Axis, top: f64) -> Markup {
    let mut free_from = 0.0;
    html! {
        @for phase in app.phases.iter().take(PHASES_MAX) {
            @let ns = phase.end_ns.saturating_sub(phase.start_ns);
            @let (x, width) = (axis.x(phase.start_ns), axis.length(ns));
            @let throughput = rate(phase.bytes, ns);
            @let tip = format!(
                "{}: {} in {}, {throughput}\nfrom {}", app.name, bytes(phase.bytes as f64), time(ns as f64),
                time(phase.start_ns as f64)
            );
            rect.hover x=(format!("{x:.1}")) y=(top) width=(format!("{:.1}", width.max(2.0))) height=(LANE)
                data-tip=(tip) { title { (tip) } }
            @let middle = x + width / 2.0;
            @if middle - LABEL / 2.0 >= free_from {
                @let () = free_from = middle + LABEL / 2.0;
                text.soft x=(format!("{middle:.1}")) y=(format!("{:.1}", top - 4.0)) text-anchor="middle"
                    font-size="11" { (throughput) }
            }
        }
    }
}

/// I/O, and computing above it, as shares of an application's processes.
fn shares(lane: &AppLane, slot_ns: u64, class: &str, axis: &Axis, top: f64) -> Markup {
    let processes = u64::from(lane.processes.max(1));
    let mut below = Vec::new();
    let mut path = |slots: &[u64]| {
        let mean: Vec<u64> = slots.iter().map(|ns| ns / processes).collect();
        stacked(&mean, &mut below, slot_ns, axis, top)
    };
    let (io, compute) = (path(&lane.io_ns), path(&lane.compute_ns));
    html! {
        path.(class) d=(io) {}
        path.first d=(compute) {}
    }
}

/// The area of one of several shares of a lane on top of those `below` it, which it then joins.
fn stacked(slots: &[u64], below: &mut Vec<u64>, slot_ns: u64, axis: &Axis, top: f64) -> String {
    below.resize(below.len().max(slots.len()), 0);
    let mut path = String::new();
    let y = |ns: u64| format!("{:.1}", top + LANE * (1.0 - (ns as f64 / slot_ns as f64).min(1.0)));
    let mut slot = 0;
    while slot < slots.len() {
        // Slots that look the same are one piece.
        let (low, high) = (y(below[slot]), y(below[slot].saturating_add(slots[slot])));
        let first = slot;
        while slot < slots.len() {
            let upper = below[slot].saturating_add(slots[slot]);
            if y(below[slot]) != low || y(upper) != high {
                break;
            }
            below[slot] = upper;
            slot += 1;
        }
        if low != high {
            let x = |slot: usize| axis.x((slot as u64).saturating_mul(slot_ns)).min(axis.right());
            write!(path, "M{:.1} {low}V{high}H{:.1}V{low}z", x(first), x(slot)).expect("text grows");
        }
    }
    path
}
