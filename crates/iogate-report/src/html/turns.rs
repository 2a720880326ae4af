//! Turns: a lane for each application with what it computes, what it waits for its turn, and its I/O.

use maud::{Markup, html};

use super::axis::Axis;
use super::{LEFT, key, picture, series_class, shortened, swatch};
use crate::experiment::{AppTimeline, PointTimeline};
use crate::units::{rate, time};

const LANE: f64 = 26.0;
/// With room for throughputs above it.
const PITCH: f64 = LANE + 22.0;
const AXIS: f64 = 34.0;
/// A label of a throughput fits into this.
const LABEL: f64 = 58.0;

/// Draws a run on a scale that ends at `end_ns`, so that several can be compared: computing in grey, I/O in the application's colour with
/// its throughput above, and in between, without colour, waiting for a turn or for quiet storage, with a stroke where each
/// attempt to find it quiet began.
pub fn turns(title: &str, timeline: &PointTimeline, end_ns: u64) -> Markup {
    let axis = Axis::new(end_ns);
    let bottom = timeline.apps.len() as f64 * PITCH;
    let said: Vec<String> = timeline.apps.iter().map(said).collect();
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, app) in timeline.apps.iter().enumerate() {
            @let top = index as f64 * PITCH + PITCH - LANE - 3.0;
            text x=(LEFT - 12.0) y=(top + LANE / 2.0 + 4.5) text-anchor="end" { (shortened(&app.name)) }
            (lane(app, &series_class(index), &axis, top))
        }
    };
    html! {
        (key([("first".to_owned(), swatch(), "computing"), ("waiting".to_owned(), swatch(), "waiting or backing off")]
            .into_iter()
            .chain(timeline.apps.iter().enumerate().map(|(index, app)| (series_class(index), swatch(), app.name.as_str())))))
        (picture(bottom + AXIS, title, &said.join("; "), &content))
    }
}

fn lane(app: &AppTimeline, class: &str, axis: &Axis, top: f64) -> Markup {
    let mut computes_from = app.start_ns;
    let mut free_from = 0.0;
    html! {
        @for phase in &app.phases {
            @let asked_ns = phase.asked_ns.unwrap_or(phase.start_ns);
            @if computes_from < asked_ns { (block("first", computes_from, asked_ns, axis, top)) }
            @if asked_ns < phase.start_ns { (block("waiting", asked_ns, phase.start_ns, axis, top)) }
            (block(class, phase.start_ns, phase.end_ns, axis, top))
            @let () = computes_from = phase.end_ns;
            @let middle = (axis.x(phase.start_ns) + axis.x(phase.end_ns)) / 2.0;
            @if middle - LABEL / 2.0 >= free_from {
                @let () = free_from = middle + LABEL / 2.0;
                text.soft x=(format!("{middle:.1}")) y=(format!("{:.1}", top - 4.0)) text-anchor="middle" font-size="11" {
                    (rate(phase.bytes, phase.end_ns.saturating_sub(phase.start_ns)))
                }
            }
        }
        @if computes_from < app.end_ns { (block("first", computes_from, app.end_ns, axis, top)) }
        @for at in &app.attempts_ns {
            @let x = format!("{:.1}", axis.x(*at));
            line.attempt x1=(x) x2=(x) y1=(top) y2=(top + LANE) {}
        }
    }
}

fn block(class: &str, start_ns: u64, end_ns: u64, axis: &Axis, top: f64) -> Markup {
    let x = axis.x(start_ns);
    let tip = format!("{} from {}", time(end_ns.saturating_sub(start_ns) as f64), time(start_ns as f64));
    html! {
        rect.(class) x=(format!("{x:.1}")) y=(format!("{top:.1}")) height=(LANE)
            width=(format!("{:.1}", (axis.x(end_ns) - x).max(0.5))) data-tip=(tip) { title { (tip) } }
    }
}

fn said(app: &AppTimeline) -> String {
    let waits = app.phases.iter().filter_map(|phase| Some(phase.start_ns.saturating_sub(phase.asked_ns?)));
    let waited: u64 = waits.sum();
    let io: u64 = app.phases.iter().map(|phase| phase.end_ns.saturating_sub(phase.start_ns)).sum();
    format!(
        "{}: {} I/O phases of {} together, after waiting for {}",
        app.name,
        app.phases.len(),
        time(io as f64),
        time(waited as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::IoPhase;

    #[test]
    fn computing_waiting_and_io_follow_each_other() {
        let phase = |asked_ns, start_ns, end_ns| IoPhase {
            asked_ns: Some(asked_ns),
            start_ns,
            end_ns,
            bytes: 64 << 20,
        };
        let app = AppTimeline {
            id: 1,
            name: "job <1>".into(),
            submitted_ns: 0,
            start_ns: 0,
            end_ns: 9_000_000_000,
            phases: vec![
                phase(1_000_000_000, 3_000_000_000, 4_000_000_000),
                phase(5_000_000_000, 5_000_000_000, 7_000_000_000),
            ],
            attempts_ns: vec![1_000_000_000, 2_500_000_000],
        };
        let timeline = PointTimeline {
            seed: 1,
            origin_ns: 0,
            end_ns: 9_000_000_000,
            apps: vec![app],
            recording: None,
            choices: Vec::new(),
        };
        let drawn = turns("A run", &timeline, 9_000_000_000).0;
        let count = |what: &str| drawn.matches(what).count();
        // In the key each colour is there once more, as the class of a group.
        assert_eq!(count("rect class=\"first\""), 3, "{drawn}");
        assert_eq!(count("rect class=\"waiting\""), 1, "{drawn}");
        assert_eq!(count("rect class=\"c0\""), 2, "{drawn}");
        assert_eq!(count("class=\"attempt\""), 2, "{drawn}");
        assert!(drawn.contains("64 MiB/s") && drawn.contains("job &lt;1&gt;"), "{drawn}");
    }
}
