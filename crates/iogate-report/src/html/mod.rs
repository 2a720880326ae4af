//! One self-contained page: inline styles, inline pictures, no network.
//!
//! Colours are distinguishable with all common kinds of colour blindness (after Okabe and Ito), lanes and bars
//! are named where they are drawn, each picture has a title and a description, and the table below them has the
//! same numbers.
//!
//! [`lines`], [`whiskers`], [`heat`] and [`turns`] draw plain data, for pages of other make; [`why`] is a page of its own. [`shell`] is
//! what all pages share.

mod axis;
mod bars;
mod experiment;
pub mod heat;
mod lanes;
pub mod lines;
mod phases;
mod sizes;
mod sweep;
pub mod turns;
pub mod whiskers;
pub mod why;

pub use experiment::page as experiment;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::comparison;
use crate::run::{Report, Run};
use crate::units::{bytes, count, time};

/// Width of a picture, in its own units.
const WIDTH: f64 = 992.0;
/// Room at the left for names.
const LEFT: f64 = 150.0;

/// A page with this content: its title, its notes, and who made it around it.
pub fn shell(title: &str, notes: &[String], program: &str, content: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    h1 { (title) }
                    @for note in notes { p.soft { (inline(note)) } }
                    (content)
                    footer { "Made by " (program) "." }
                }
                div id="tip" hidden {}
                script { (PreEscaped(include_str!("tooltip.js"))) }
            }
        }
    }
    .into_string()
}

/// Text as Markdown has it: names in backticks, and words between asterisks, which are stressed.
pub fn inline(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (stressed(part)) }
        }
    }
}

fn stressed(text: &str) -> Markup {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(char::is_alphanumeric);
    let parts: Vec<&str> = text.split('*').collect();
    // A single asterisk, as in a glob, stands for itself.
    let is_stressed = |index: usize| index % 2 == 1 && index + 1 < parts.len() && is_word(parts[index]);
    if !(1..parts.len()).step_by(2).all(is_stressed) {
        return html! { (text) };
    }
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index % 2 == 1 { em { (part) } } @else { (part) }
        }
    }
}

/// The page of a replay or a demo.
pub fn page(report: &Report) -> String {
    let comparison = comparison::compared(report);
    let several = report.runs.len() > 1;
    let content = html! {
        (figures(report))
        @if report.runs.iter().any(|run| !run.apps.is_empty()) {
            h2 { "When each application was done" }
            @if several { (run_key(report)) }
            (bars::completion(report))
        }
        @if report.runs.iter().any(|run| !run.timeline.lanes.is_empty()) {
            h2 { "Who was served when" }
            p.soft {
                "One lane an application; the height of the colour is its share of the device's time. "
                @if several { "All runs have the same time scale; the dashed line is the end of the run." }
            }
            (lanes::overview(report))
            h2 { "A closer look" }
            p.soft {
                "The beginning, dispatch by dispatch: each block is one transfer of the device, as wide as it "
                "took. Point at a block for its size and its requests."
            }
            (lanes::opening(report))
        }
        h2 { "Sizes of requests and dispatches" }
        p.soft {
            "What arrived at the gate, and what left it: contiguous requests of a file leave as one dispatch."
        }
        (sizes::distributions(report))
        h2 { "The figures" }
        (table(report, &comparison))
        h2 { "Settings" }
        (settings(report))
    };
    shell(&report.title, &report.notes, &report.program, &content)
}

/// The few numbers that one would tell somebody.
fn figures(report: &Report) -> Markup {
    let (Some(first), Some(last)) = (report.runs.first(), report.runs.last()) else { return html! {} };
    if report.runs.len() == 1 {
        return html! {
            div.figures {
                (figure(&time(first.makespan_ns as f64), "until all was done"))
                (figure(&crate::units::rate(first.gate.bytes(), first.makespan_ns), "throughput"))
                (figure(&count(first.gate.dispatches()), &format!("dispatches for {} requests", count(first.gate.requests()))))
                (figure(&count(first.repositions), "device repositions (seeks)"))
            }
        };
    }
    // Breaks, if it must, before the arrow's target only.
    let whole = |value: String| value.replace(' ', "\u{a0}");
    let from_to = |value: &dyn Fn(&Run) -> String| {
        format!("{}\u{a0}\u{2192} {}", whole(value(first)), whole(value(last)))
    };
    let ratio = first.makespan_ns as f64 / last.makespan_ns.max(1) as f64;
    let mean = |run: &Run| bytes(run.gate.bytes() as f64 / run.gate.dispatches().max(1) as f64);
    html! {
        div.figures {
            (figure(&format!("{ratio:.1}\u{d7}"), &format!("faster altogether ({} \u{2192} {})", first.label, last.label)))
            (figure(&from_to(&|run| time(run.makespan_ns as f64)), "until all was done"))
            (figure(&from_to(&|run| count(run.repositions)), "device repositions (seeks)"))
            (figure(&from_to(&mean), "mean dispatch size"))
        }
    }
}

fn figure(value: &str, what: &str) -> Markup {
    html! { div.figure { b { (value) } span { (what) } } }
}

/// Which colour is which run.
fn run_key(report: &Report) -> Markup {
    let names: Vec<String> =
        report.runs.iter().map(|run| format!("{} ({})", run.label, run.gate.scheduler)).collect();
    key(names.iter().enumerate().map(|(index, name)| (run_class(index).to_owned(), swatch(), name.as_str())))
}

/// Which colour and shape is what: a class, a shape of 12 by 12, and a name.
fn key<'a>(entries: impl IntoIterator<Item = (String, Markup, &'a str)>) -> Markup {
    html! {
        ul.key {
            @for (class, shape, name) in entries {
                li { svg viewBox="0 0 12 12" aria-hidden="true" { g.(class) { (shape) } } (name) }
            }
        }
    }
}

/// A square, for keys of areas.
fn swatch() -> Markup {
    html! { rect width="12" height="12" rx="2" {} }
}

/// The colour of one of several series; there are eight, and then eight paler ones.
fn series_class(index: usize) -> String {
    format!("c{}{}", index % 8, if index < 8 { "" } else { " pale" })
}

/// A name, as much as has room beside a picture.
fn clipped(name: &str) -> String {
    const NAME_CHARS: usize = 18;
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
        None => name.to_owned(),
    }
}

/// The same with both ends, where names have their difference at the end, as those of many like applications have.
fn shortened(name: &str) -> String {
    const HEAD_CHARS: usize = 9;
    const TAIL_CHARS: usize = 8;
    let count = name.chars().count();
    if count <= HEAD_CHARS + TAIL_CHARS + 1 {
        return name.to_owned();
    }
    let (head, tail) = (name.chars().take(HEAD_CHARS), name.chars().skip(count - TAIL_CHARS));
    head.chain(['\u{2026}']).chain(tail).collect()
}

fn run_class(index: usize) -> &'static str {
    if index == 0 { "first" } else { "others" }
}

fn table(report: &Report, rows: &[comparison::Compared]) -> Markup {
    let several = report.runs.len() > 1;
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "" }
                        @for run in &report.runs { th scope="col" { (run.label) } }
                        @if several { th scope="col" { "better by" } }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row.name) }
                            @for value in &row.shown { td { (value) } }
                            @if several {
                                td { @if let Some(factor) = row.better_by { (format!("{factor:.2}\u{d7}")) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn settings(report: &Report) -> Markup {
    html! {
        dl {
            @for run in &report.runs {
                dt { (run.label) }
                dd { code { (run.gate.settings()) } ", " code { "depth=" (run.gate.depth) } ", device " code { (run.device) } }
            }
        }
    }
}

/// A picture with its title and description for those who cannot see it.
fn picture(height: f64, title: &str, description: &str, content: &Markup) -> Markup {
    html! {
        figure.scroll {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(format!("{title}. {description}")) {
                title { (title) }
                desc { (description) }
                (content)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::inline;

    #[test]
    fn names_and_stressed_words_are_marked_and_globs_are_not() {
        let shown = |text| inline(text).into_string();
        assert_eq!(shown("`fifo` is *the* base"), "<code>fifo</code> is <em>the</em> base");
        assert_eq!(shown("app.*.processes"), "app.*.processes");
        assert_eq!(shown("a * b * c"), "a * b * c");
        assert_eq!(shown("`app.*` and 2*3"), "<code>app.*</code> and 2*3");
        assert_eq!(shown("1 < 2"), "1 &lt; 2");
    }
}
