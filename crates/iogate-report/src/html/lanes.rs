//! Timelines: a lane for each application.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::{LEFT, picture, shortened};
use crate::run::{Report, Run};
use crate::timeline::Lane;
use crate::units::{bytes, time};

const LANE: f64 = 30.0;
const PITCH: f64 = LANE + 6.0;
const TITLE: f64 = 26.0;
const AXIS: f64 = 34.0;

/// All runs over their whole length, on one time scale.
pub(super) fn overview(report: &Report) -> Markup {
    let end_ns = report.runs.iter().map(|run| run.makespan_ns).max().unwrap_or(1);
    let axis = Axis::new(end_ns);
    let colours = Colours::new(report);
    html! {
        @for run in &report.runs {
            @let bottom = TITLE + run.timeline.lanes.len() as f64 * PITCH;
            @let title = format!("Who was served when: {} ({})", run.label, run.gate.scheduler);
            @let content = html! {
                text.strong x="0" y="14" { (run.label) }
                text.soft x=(LEFT) y="14" { (run.gate.scheduler) ", done after " (time(run.makespan_ns as f64)) }
                (axis.grid(TITLE, bottom))
                @for (index, lane) in run.timeline.lanes.iter().enumerate() {
                    @let top = TITLE + index as f64 * PITCH + 3.0;
                    (lane_frame(lane, top, &axis))
                    @let path = shares(lane, run.timeline.slot_ns, &axis, top);
                    path.(colours.class(&lane.name)) d=(path) {}
                }
                @let x = format!("{:.1}", axis.x(run.makespan_ns));
                line.end x1=(x) x2=(x) y1=(TITLE - 4.0) y2=(bottom) {}
            };
            (picture(bottom + AXIS, &title, &said(run), &content))
        }
    }
}

/// The beginning of each run, dispatch by dispatch, on one time scale.
pub(super) fn opening(report: &Report) -> Markup {
    // Enough for the pattern to be seen, few enough for each dispatch to be a block that can be pointed at.
    const SHOWN: usize = 48;
    let shown_ns =
        |run: &Run| run.timeline.opening.iter().take(SHOWN).map(|served| served.end_ns).max().unwrap_or(1);
    let end_ns = report.runs.iter().map(shown_ns).max().unwrap_or(1);
    let axis = Axis::new(end_ns);
    let colours = Colours::new(report);
    html! {
        @for run in &report.runs {
            @let bottom = TITLE + run.timeline.lanes.len() as f64 * PITCH;
            @let served: Vec<_> = run.timeline.opening.iter().filter(|served| served.start_ns < end_ns).collect();
            @let moved: u64 = served.iter().map(|served| served.bytes).sum();
            @let said = format!("{} dispatches, {}, in the first {}", served.len(), bytes(moved as f64), time(end_ns as f64));
            @let title = format!("The beginning, dispatch by dispatch: {}", run.label);
            @let content = html! {
                text.strong x="0" y="14" { (run.label) }
                text.soft x=(LEFT) y="14" { (said) }
                (axis.grid(TITLE, bottom))
                @for (index, lane) in run.timeline.lanes.iter().enumerate() {
                    (lane_frame(lane, TITLE + index as f64 * PITCH + 3.0, &axis))
                }
                @for served in served {
                    @let top = TITLE + served.lane as f64 * PITCH + 3.0;
                    @let (x, right) = (axis.x(served.start_ns), axis.x(served.end_ns).min(axis.right()));
                    // A hair's breadth between neighbours, so that they can be told apart.
                    @let width = (right - x - 0.8).max(0.8);
                    @let lane = &run.timeline.lanes[served.lane];
                    @let verb = if served.op == 'r' { "reads" } else { "writes" };
                    @let tip = format!(
                        "{} {verb} {} of {} at {} in {} request{}\n{}, from {}",
                        lane.name, bytes(served.bytes as f64), served.file, bytes(served.offset as f64),
                        served.requests, if served.requests == 1 { "" } else { "s" },
                        time((served.end_ns - served.start_ns) as f64), time(served.start_ns as f64)
                    );
                    rect.(colours.class(&lane.name)) x=(format!("{x:.2}")) y=(top + 3.0) width=(format!("{width:.2}"))
                        height=(LANE - 6.0) rx="1" data-tip=(tip) { title { (tip) } }
                }
            };
            (picture(bottom + AXIS, &title, &said, &content))
        }
    }
}

fn lane_frame(lane: &Lane, top: f64, axis: &Axis) -> Markup {
    html! {
        rect.lane x=(LEFT) y=(top) width=(axis.right() - LEFT) height=(LANE) rx="2" {}
        text x=(LEFT - 12.0) y=(top + LANE / 2.0 + 4.5) text-anchor="end" { (shortened(&lane.name)) }
    }
}

/// The outline of a lane's shares: a step a slot, from the lane's bottom up.
fn shares(lane: &Lane, slot_ns: u64, axis: &Axis, top: f64) -> String {
    let bottom = top + LANE;
    let mut path = String::new();
    let mut open = false;
    for (slot, &busy) in lane.busy_ns.iter().enumerate() {
        let x = |slot: usize| axis.x((slot as u64).saturating_mul(slot_ns)).min(axis.right());
        if busy == 0 {
            if open {
                write!(path, "V{bottom:.1}Z").expect("text grows");
            }
            open = false;
            continue;
        }
        if !open {
            write!(path, "M{:.1} {bottom:.1}", x(slot)).expect("text grows");
            open = true;
        }
        let y = bottom - LANE * (busy as f64 / slot_ns as f64).min(1.0);
        write!(path, "V{y:.1}H{:.1}", x(slot + 1)).expect("text grows");
    }
    if open {
        write!(path, "V{bottom:.1}Z").expect("text grows");
    }
    path
}

fn said(run: &Run) -> String {
    // Several that are served side by side have more time together than a `u64` holds.
    let served = |lane: &Lane| lane.busy_ns.iter().map(|ns| u128::from(*ns)).sum::<u128>();
    let total: u128 = run.timeline.lanes.iter().map(served).sum();
    let lanes: Vec<String> = (run.timeline.lanes.iter())
        .map(|lane| {
            let last = lane.busy_ns.iter().rposition(|busy| *busy > 0).map_or(0, |slot| slot + 1);
            let share = 100 * served(lane) / total.max(1);
            let end = time((last as u64).saturating_mul(run.timeline.slot_ns).min(run.makespan_ns) as f64);
            format!("{} had {share} % of the time served and was last served at {end}", lane.name)
        })
        .collect();
    format!("{}.", lanes.join("; "))
}

/// A colour for each name, the same in all runs.
struct Colours<'a> {
    names: Vec<&'a str>,
}

impl<'a> Colours<'a> {
    fn new(report: &'a Report) -> Colours<'a> {
        let mut names: Vec<&str> =
            report.runs.iter().flat_map(|run| &run.timeline.lanes).map(|lane| lane.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        Colours { names }
    }

    fn class(&self, name: &str) -> String {
        format!("c{}", self.names.binary_search(&name).unwrap_or(0) % 8)
    }
}
