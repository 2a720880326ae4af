//! Who slows whom down, as bars: the time of each application by whose it is, and by cause.

use iogate_core::blame::Cause;
use maud::{Markup, html};

use super::axis::Axis;
use super::{LEFT, inline, key, picture, series_class, shell, shortened, swatch};
use crate::units::time;
use crate::why::{Part, Why};

const BAR: f64 = 22.0;
const PITCH: f64 = BAR + 10.0;
/// Bars of a picture; there is a table of all.
const BARS_MAX: usize = 24;
const NOBODY: &str = "nobody";

/// What was looked at together: a point of a scenario, a mount, an export of a server.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    /// What it is, and when.
    pub title: &'a str,
    /// Its applications.
    pub apps: &'a [Why],
}

/// The page.
pub fn page(title: &str, program: &str, all: &[Looked<'_>]) -> String {
    let note = "Each instant in which an application has requests in a gate is divided by cause and by application. \
                The causes of an application sum to its time."
        .to_owned();
    let content = html! {
        @for looked in all {
            @if !looked.title.is_empty() { h2 { (looked.title) } }
            (one(looked))
        }
    };
    shell(title, &[note], program, &content)
}

/// A piece of a bar: what it is, how long, and its colour.
struct Piece<'a> {
    name: &'a str,
    seconds: f64,
    class: String,
}

fn one(looked: &Looked<'_>) -> Markup {
    if looked.apps.is_empty() {
        return html! { p { "No application had requests in the gate." } };
    }
    let shown = &looked.apps[..looked.apps.len().min(BARS_MAX)];
    let mut names: Vec<&str> = shown.iter().map(|why| why.app.as_str()).collect();
    for part in shown.iter().flat_map(|why| &why.apps) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    let of_app = |name: &str| match names.iter().position(|of| *of == name) {
        Some(index) if name != NOBODY => series_class(index % 16),
        _ => "first".into(),
    };
    let of_cause = |name: &str| match Cause::ALL.iter().position(|cause| cause.name() == name) {
        Some(index) if index != Cause::Own as usize => series_class(index),
        _ => "first".into(),
    };
    let is_there =
        |cause: &&Cause| shown.iter().flat_map(|why| &why.causes).any(|part| part.name == cause.name());
    let causes: Vec<String> = (Cause::ALL.iter().filter(is_there))
        .map(|cause| format!("{}: {}", cause.name(), cause.meaning()))
        .collect();
    let keys = names.iter().copied().chain([NOBODY]).map(|name| (of_app(name), swatch(), name));
    let cause_keys = (Cause::ALL.iter().filter(is_there).zip(&causes))
        .map(|(cause, said)| (of_cause(cause.name()), swatch(), said.as_str()));
    html! {
        @for why in shown { @for line in why.sentences() { p { (inline(&line)) } } }
        h3 { "Whose time it is" }
        (key(keys))
        (bars(shown, "Whose time it is", |why| &why.apps, &of_app))
        h3 { "Why" }
        (key(cause_keys))
        (bars(shown, "The time of each application by cause", |why| &why.causes, &of_cause))
        @if looked.apps.len() > shown.len() {
            p.soft { "The first " (shown.len()) " of " (looked.apps.len()) " applications." }
        }
        (table(looked.apps))
    }
}

/// Parts of a time, and what is nobody's.
fn pieces<'a>(parts: &'a [Part], whole: f64, class: &dyn Fn(&str) -> String) -> Vec<Piece<'a>> {
    let piece = |name, seconds| Piece { name, seconds, class: class(name) };
    let mut pieces: Vec<_> = parts.iter().map(|part| piece(part.name.as_str(), part.seconds)).collect();
    let left = whole - parts.iter().map(|part| part.seconds).sum::<f64>();
    if left > 1e-3 * whole {
        pieces.push(piece(NOBODY, left));
    }
    pieces
}

fn ns(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

/// A bar for each application.
fn bars(shown: &[Why], title: &str, parts: fn(&Why) -> &[Part], class: &dyn Fn(&str) -> String) -> Markup {
    let longest = shown.iter().map(|why| ns(why.busy_s)).max().unwrap_or(1);
    let axis = Axis::new(longest);
    let bottom = 6.0 + shown.len() as f64 * PITCH;
    let said: Vec<String> = (shown.iter())
        .map(|why| {
            let of: Vec<String> = (pieces(parts(why), why.busy_s, class).iter())
                .map(|piece| format!("{} {}", piece.name, time(piece.seconds * 1e9)))
                .collect();
            format!("{}: {}", why.app, of.join(", "))
        })
        .collect();
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, why) in shown.iter().enumerate() {
            @let top = 6.0 + index as f64 * PITCH;
            text x=(LEFT - 12.0) y=(top + BAR / 2.0 + 4.5) text-anchor="end" { (shortened(&why.app)) }
            @let mut from = 0.0;
            @for piece in pieces(parts(why), why.busy_s, class) {
                @let (x, width) = (axis.x(ns(from)), axis.length(ns(piece.seconds)));
                @let tip = format!(
                    "{}: {}\n{}, {:.1} %", why.app, piece.name, time(piece.seconds * 1e9),
                    if why.busy_s > 0.0 { 100.0 * piece.seconds / why.busy_s } else { 0.0 }
                );
                rect.(piece.class) x=(format!("{x:.1}")) y=(top) width=(format!("{width:.1}")) height=(BAR)
                    data-tip=(tip) { title { (tip) } }
                @let () = from += piece.seconds;
            }
            text x=(format!("{:.1}", axis.x(ns(why.busy_s)) + 8.0)) y=(top + BAR / 2.0 + 4.5) { (time(why.busy_s * 1e9)) }
        }
    };
    picture(bottom + 26.0, title, &said.join("; "), &content)
}

/// The same numbers.
fn table(apps: &[Why]) -> Markup {
    let row = |why: &Why, what: &str, part: &Part| {
        html! {
            tr {
                th scope="row" { (why.app) }
                td { (what) }
                td { (part.name) }
                td { (time(part.seconds * 1e9)) }
                td { (format!("{:.1} %", part.percent)) }
            }
        }
    };
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        @for head in ["application", "", "", "time", "of its time"] { th scope="col" { (head) } }
                    }
                }
                tbody {
                    @for why in apps {
                        @for part in &why.apps { (row(why, "whose", part)) }
                        @for part in &why.causes { (row(why, "cause", part)) }
                    }
                }
            }
        }
    }
}
