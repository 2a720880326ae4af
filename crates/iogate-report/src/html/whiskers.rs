//! Groups of bars with interval whiskers.

use iogate_sim::metrics::Unit;
use maud::{Markup, html};

use super::axis::{Axis, range};
use super::{LEFT, clipped, key, picture, series_class, swatch};
use crate::claims::Interval;
use crate::units::ends;

/// Room at the right for a value with its interval.
const ROOM: f64 = 200.0;

/// A picture of groups of bars.
#[derive(Clone, Debug)]
pub struct Groups {
    /// What it shows.
    pub title: String,
    /// What its values count.
    pub unit: Unit,
    /// The groups, from top to bottom.
    pub groups: Vec<String>,
    /// The bars of each group.
    pub series: Vec<Bars>,
}

/// One bar in each group.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What it is called.
    pub name: String,
    /// For each group the value and the interval around it, if it has one; `None` where there is no bar.
    pub values: Vec<Option<Interval>>,
}

/// Draws bars from the left, a group for each name, with their key.
pub fn groups(of: &Groups) -> Markup {
    groups_called(of, clipped)
}

/// The same with other names beside the groups; what is said has them as they are.
pub(super) fn groups_called(of: &Groups, called: impl Fn(&str) -> String) -> Markup {
    let all = || of.series.iter().flat_map(|bars| bars.values.iter().flatten());
    if all().next().is_none() {
        return html! {};
    }
    let axis = Axis::of(range(all().copied()), of.unit, ROOM);
    let (bar, gap) = if of.series.len() > 4 { (13.0, 12.0) } else { (18.0, 14.0) };
    let group = (bar + 2.0) * of.series.len() as f64;
    let bottom = 6.0 + of.groups.len() as f64 * (group + gap);
    let shown = |value: Interval| ends(value, of.unit);
    let said: Vec<String> = (of.groups.iter().enumerate())
        .map(|(index, name)| {
            let values = of.series.iter().filter_map(|bars| {
                let value = (*bars.values.get(index)?)?;
                Some(format!("{} {}", bars.name, shown(value)))
            });
            format!("{name}: {}", values.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let content = html! {
        (axis.grid(0.0, bottom))
        @for (index, name) in of.groups.iter().enumerate() {
            @let top = 8.0 + index as f64 * (group + gap);
            text x=(LEFT - 12.0) y=(format!("{:.1}", top + group / 2.0 + 4.0)) text-anchor="end" { (called(name)) }
            @for (row, bars) in of.series.iter().enumerate() {
                @if let Some(value) = bars.values.get(index).copied().flatten() {
                    @let y = top + row as f64 * (bar + 2.0);
                    @let tip = format!("{name}, {}: {}", bars.name, shown(value));
                    g data-tip=(tip) {
                        title { (tip) }
                        rect.(series_class(row)) x=(format!("{:.1}", axis.at(value.mean.min(0.0)))) y=(y)
                            width=(format!("{:.1}", (axis.at(value.mean) - axis.at(0.0)).abs().max(0.5)))
                            height=(bar) rx="2" {}
                        @if value.low < value.high {
                            @let (low, high, middle) = (axis.at(value.low), axis.at(value.high), y + bar / 2.0);
                            path.whisker d=(format!(
                                "M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v7M{high:.1} {:.1}v7", middle - 3.5, middle - 3.5
                            )) {}
                        }
                    }
                    text x=(format!("{:.1}", axis.at(value.high.max(0.0)) + 8.0)) y=(y + bar / 2.0 + 4.5)
                        font-size=(if bar < 18.0 { "12" } else { "13" }) { (shown(value)) }
                }
            }
        }
    };
    html! {
        @if of.series.len() > 1 {
            (key(of.series.iter().enumerate().map(|(index, bars)| (series_class(index), swatch(), bars.name.as_str()))))
        }
        (picture(bottom + 26.0, &of.title, &said.join("; "), &content))
    }
}
