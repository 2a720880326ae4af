//! A value over a number, as lines with interval bands.

use std::fmt::Write;

use iogate_sim::metrics::Unit;
use maud::{Markup, PreEscaped, html};

use super::axis::{range, ticks};
use super::{WIDTH, key, picture, series_class};
use crate::claims::Interval;
use crate::units::{interval, quantity};

const HEIGHT: f64 = 280.0;
const TOP: f64 = 30.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 24.0;
/// From where on values are far enough apart for a logarithmic axis: largest by smallest.
const LOG_FROM: f64 = 16.0;

/// A picture of lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// What goes to the right.
    pub x_label: String,
    /// The labelled values of x, in ascending order.
    pub x_ticks: Vec<(f64, String)>,
    /// What goes up.
    pub y_label: String,
    /// What its values count.
    pub unit: Unit,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// x, y, and half the width of the interval around y (0 for none), in ascending order of x.
    pub points: Vec<(f64, f64, f64)>,
}

/// Draws lines over a linear axis, or a logarithmic one where the values of x span much, with their key.
pub fn lines(of: &Lines) -> Markup {
    let all = || of.series.iter().flat_map(|series| &series.points);
    let xs = || all().map(|point| point.0).chain(of.x_ticks.iter().map(|tick| tick.0));
    let (Some(first), Some(last)) = (xs().reduce(f64::min), xs().reduce(f64::max)) else { return html! {} };
    let (low, end) = range(all().map(|(_, y, half)| Interval { low: y - half, mean: *y, high: y + half }));
    // A little more, for markers.
    let (low, end) = (low * 1.04, end + 0.04 * (end - low));
    let logarithmic = first > 0.0 && last / first >= LOG_FROM;
    let along = |x: f64| match (logarithmic, last > first) {
        (_, false) => 0.5,
        (true, _) => (x / first).ln() / (last / first).ln(),
        (false, _) => (x - first) / (last - first),
    };
    // Not to the edges, where markers would be cut.
    let x = |value: f64| LEFT + 14.0 + along(value) * (WIDTH - LEFT - RIGHT - 28.0);
    let y = |value: f64| TOP + HEIGHT * (1.0 - ((value - low) / (end - low)).clamp(0.0, 1.0));
    let said: Vec<String> = (of.series.iter())
        .map(|series| {
            let points = series
                .points
                .iter()
                .map(|(at, value, _)| format!("{} at {}", quantity(*value, of.unit), x_name(of, *at)));
            format!("{}: {}", series.name, points.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let bottom = TOP + HEIGHT;
    let content = html! {
        text.soft x="0" y="14" { (of.y_label) }
        @for (value, label) in ticks((low, end), of.unit, 5.0) {
            @let y = format!("{:.1}", y(value));
            line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
            text.soft x=(LEFT - 10.0) y=(y) dy="4" text-anchor="end" { (label) }
        }
        @for (value, label) in apart(&of.x_ticks, &x) {
            @let x = format!("{:.1}", x(*value));
            line.grid x1=(x) x2=(x) y1=(bottom) y2=(bottom + 5.0) {}
            text.soft x=(x) y=(bottom + 20.0) text-anchor="middle" { (label) }
        }
        text.soft x=((LEFT + WIDTH - RIGHT) / 2.0) y=(bottom + 42.0) text-anchor="middle" {
            (of.x_label) @if logarithmic { " (logarithmic)" }
        }
        @for (index, series) in of.series.iter().enumerate() {
            path.band.(series_class(index)) d=(band(&series.points, &x, &y)) {}
        }
        @for (index, series) in of.series.iter().enumerate() {
            @let corners: Vec<_> = series.points.iter().map(|(at, value, _)| format!("{:.1} {:.1}", x(*at), y(*value))).collect();
            @if corners.len() > 1 {
                path.line.(format!("s{}", index % 8)) .dashed[index >= 8] d=(format!("M{}", corners.join("L"))) {}
            }
            @for (at, value, half) in &series.points {
                @let shown = interval(*value, (*half > 0.0).then_some(*half), of.unit);
                @let tip = format!("{}, {}: {shown}", series.name, x_name(of, *at));
                g.(series_class(index)) data-tip=(tip) { title { (tip) } (marker(index, x(*at), y(*value))) }
            }
        }
    };
    html! {
        @if of.series.len() > 1 {
            (key(of.series.iter().enumerate().map(|(index, series)| (series_class(index), marker(index, 6.0, 6.0), series.name.as_str()))))
        }
        (picture(bottom + 52.0, &of.title, &said.join("; "), &content))
    }
}

fn x_name(of: &Lines, at: f64) -> String {
    let label = of.x_ticks.iter().find(|(value, _)| *value == at);
    format!("{} {}", of.x_label, label.map_or_else(|| at.to_string(), |(_, label)| label.clone()))
}

/// The ticks whose labels do not run into the one before.
fn apart<'a>(ticks: &'a [(f64, String)], x: &impl Fn(f64) -> f64) -> Vec<&'a (f64, String)> {
    let mut free_from = f64::MIN;
    (ticks.iter())
        .filter(|(value, label)| {
            let half = 4.0 * label.chars().count() as f64 + 4.0;
            let fits = x(*value) - half >= free_from;
            if fits {
                free_from = x(*value) + half;
            }
            fits
        })
        .collect()
}

/// The area of the intervals: along the upper ends, and back along the lower ones.
fn band(points: &[(f64, f64, f64)], x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    if points.iter().all(|(.., half)| *half == 0.0) {
        return path;
    }
    let upper = points.iter().map(|(at, value, half)| (x(*at), y(value + half)));
    let lower = points.iter().rev().map(|(at, value, half)| (x(*at), y(value - half)));
    for (index, (x, y)) in upper.chain(lower).enumerate() {
        write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }).expect("text grows");
    }
    path + "Z"
}

/// A shape of its own for each line, so that colour is not needed to tell them apart.
fn marker(index: usize, x: f64, y: f64) -> Markup {
    let d = match index % 4 {
        0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", x - 4.5),
        1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
        2 => format!("M{x:.1} {:.1}l5.5 9h-11z", y - 5.5),
        _ => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", y - 5.5),
    };
    html! { (PreEscaped(format!("<path d=\"{d}\"/>"))) }
}
