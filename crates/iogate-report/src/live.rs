//! What goes on at gates now: one reading of what mounts and servers say, for `iogate top` and for the page of `--http`.

use iogate_core::policy::DEPTH_MAX;
use iogate_core::stats::summary::{AllNow, AppNow, Summary};
use serde::Serialize;

use crate::metrics::Exposed;
use crate::table::Table;
use crate::units::{bytes, count, number, time};

/// A gate now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GateNow {
    /// The mount point, or the name of a server's export.
    pub gate: String,
    /// The scheduler in force, with its parameters.
    pub scheduler: String,
    /// Why it is, if it was chosen.
    pub why: Option<String>,
    /// The policy in force, in short.
    pub policy: Option<String>,
    /// Requests that are not dispatched.
    pub queued: u64,
    /// Dispatches in service, and how many there may be.
    pub in_service: u64,
    /// See there.
    pub depth: u32,
    /// Bytes read, bytes written and requests in the last second, of all applications, those that are not listed among them.
    pub total: [u64; 3],
    /// Applications that get or want something, most bytes a second first, then others; each group with those in it below it.
    pub apps: Vec<AppRow>,
}

/// What an application gets now, or a group of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AppRow {
    /// Its number.
    pub app: u32,
    /// What it is called, without control characters.
    pub name: String,
    /// Bytes read in the last second.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Requests served.
    pub requests: u64,
    /// Their mean time from arrival to completion, in ns.
    pub latency_ns: Option<u64>,
    /// Its requests in the gate that are not dispatched; `None`: not known.
    pub queued: Option<u32>,
    /// It is a group, and has what those in it have together.
    pub is_group: bool,
    /// The group that it is in, by its number.
    pub within: Option<u32>,
    /// How many groups it is in, one within the other.
    pub depth: usize,
    /// What a policy gives it.
    pub class: Option<ClassNow>,
}

/// What an application is entitled to, and what it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassNow {
    /// Its weight.
    pub weight: u32,
    /// Its weight's part of those of all who get or want something, in percent; `None`: it is not one of them.
    pub entitled_percent: Option<f64>,
    /// Its part of the device time that all were charged in the last second, in percent.
    pub got_percent: Option<f64>,
    /// Its requests that the policy does not let run yet.
    pub deferred: u32,
    /// Its floor, in words.
    pub min: Option<String>,
    /// Its cap, in words.
    pub max: Option<String>,
}

/// What gates say, one by one.
pub fn gates(exposed: &Exposed) -> Vec<GateNow> {
    exposed.gates.iter().map(GateNow::of).collect()
}

impl GateNow {
    /// What a summary says.
    pub fn of(summary: &Summary) -> GateNow {
        let counters = summary.counters.as_ref();
        // Gates of older releases tell of those alone that they list.
        let all = summary.all_now.unwrap_or_else(|| AllNow::of(&summary.now));
        let row = |now: &AppNow| AppRow {
            app: now.app,
            name: printable(&now.name),
            read: now.read_bytes_per_s,
            written: now.written_bytes_per_s,
            requests: now.requests_per_s,
            latency_ns: now.latency_ns,
            queued: now.queued,
            is_group: now.is_branch,
            within: now.within,
            depth: groups_around(summary, now).count(),
            class: now.weight.map(|weight| ClassNow {
                weight,
                entitled_percent: entitled_percent(summary, now),
                got_percent: now.device_ns_per_s.and_then(|used| percent(used, all.device_ns_per_s)),
                deferred: now.deferred,
                min: limit(now.min, now.min_requests),
                max: limit(now.max, now.max_requests),
            }),
        };
        GateNow {
            gate: counters.map(|counters| printable(&counters.gate)).unwrap_or_default(),
            scheduler: printable(&summary.settings()),
            why: summary.choice.as_ref().map(|choice| printable(&choice.why)),
            policy: (summary.about.iter().find(|(name, _)| name == "policy"))
                .map(|(_, policy)| printable(policy)),
            queued: counters.map_or(0, |counters| counters.queued),
            in_service: counters.map_or(0, |counters| counters.in_service),
            depth: summary.depth,
            total: [all.read_bytes_per_s, all.written_bytes_per_s, all.requests_per_s],
            apps: summary.now.iter().map(row).collect(),
        }
    }
}

impl AppRow {
    /// Bytes read and written in the last second.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// Its name, further to the right the more groups it is in.
    pub fn indented(&self) -> String {
        format!("{:indent$}{}", "", self.name, indent = 2 * self.depth)
    }

    /// What it got of the device's time, and its entitlement: `12/25 %`. A dash where there is no policy.
    pub fn share(&self) -> String {
        let of = |percent: Option<f64>| percent.map_or_else(|| "-".into(), |percent| format!("{percent:.0}"));
        match &self.class {
            Some(class) => format!("{}/{} %", of(class.got_percent), of(class.entitled_percent)),
            None => "-".into(),
        }
    }

    /// Bytes a second, as people read them.
    pub fn rate(bytes_per_s: u64) -> String {
        format!("{}/s", bytes(bytes_per_s as f64))
    }

    /// Its latency; a dash where nothing was served.
    pub fn latency(&self) -> String {
        self.latency_ns.map_or_else(|| "-".into(), |ns| time(ns as f64))
    }

    /// What is queued; a dash where that is not known.
    pub fn waiting(&self) -> String {
        match self.queued {
            Some(queued) => count(queued.into()),
            None => "-".into(),
        }
    }
}

/// One table of all gates, each with the place that it is of, and a row for each place that is `gone`.
pub fn table<'a>(
    gates: impl IntoIterator<Item = (&'a str, &'a GateNow)>,
    gone: impl IntoIterator<Item = &'a str>,
) -> Table {
    let rows: Vec<(&str, &AppRow)> =
        gates.into_iter().flat_map(|(place, gate)| gate.apps.iter().map(move |app| (place, app))).collect();
    // All as wide as the widest, so that they begin where they are to.
    let application = "application";
    let widths = rows.iter().map(|(_, app)| app.indented().chars().count());
    let widest = widths.chain([application.len(), GONE.len()]).max().unwrap_or_default();
    let wide = |name: &str| format!("{name:widest$}");
    let names = wide(application);
    let header = ["gate", &names, "read", "written", "requests/s", "latency", "queued", "got/entitled"];
    let mut table = Table::new(header);
    for (place, app) in rows {
        table.row([
            place.to_owned(),
            wide(&app.indented()),
            AppRow::rate(app.read),
            AppRow::rate(app.written),
            number(app.requests as f64),
            app.latency(),
            app.waiting(),
            app.share(),
        ]);
    }
    for place in gone {
        let nothing = ["-"; 6].map(str::to_owned);
        table.row([place.to_owned(), wide(GONE)].into_iter().chain(nothing));
    }
    table
}

/// In the place of applications, of a place that does not answer.
const GONE: &str = "(no answer)";

/// A name that users gave, without what a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The groups that a class is in, from the inside.
pub(crate) fn groups_around<'a>(summary: &'a Summary, now: &AppNow) -> impl Iterator<Item = &'a AppNow> {
    let group = |within: Option<u32>| summary.now.iter().find(|one| one.is_branch && Some(one.app) == within);
    core::iter::successors(group(now.within), move |one| group(one.within)).take(DEPTH_MAX)
}

/// The share of one that gets or wants something, beside the others that do: of each class that it is within, its part of that.
fn entitled_percent(summary: &Summary, now: &AppNow) -> Option<f64> {
    if !now.is_busy() {
        return None;
    }
    let mut classes = core::iter::once(now).chain(groups_around(summary, now));
    classes.try_fold(100.0, |share, class| {
        let listed = summary.now.iter().filter(|one| one.is_busy() && one.within == class.within);
        let weights = class.weights_beside;
        let weights = weights.unwrap_or_else(|| listed.filter_map(|one| one.weight).map(u64::from).sum());
        Some(percent(class.weight?.into(), weights)? * share / 100.0)
    })
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// A floor or a cap in words.
pub fn limit(bytes_per_s: Option<u64>, requests_per_s: Option<u64>) -> Option<String> {
    let bytes = bytes_per_s.map(AppRow::rate);
    let requests = requests_per_s.map(|rate| format!("{} requests/s", count(rate)));
    let both: Vec<String> = bytes.into_iter().chain(requests).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

#[cfg(test)]
mod tests {
    use iogate_core::SchedulerConfig;
    use iogate_core::sched::SchedulerKind;
    use iogate_core::stats::Stats;
    use iogate_core::stats::summary::Numbers;

    use super::*;

    fn summary(now: Vec<AppNow>) -> Summary {
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let mut summary = Summary::new(&Stats::default(), &scheduler, 4, &Numbers, 8);
        summary.now = now;
        summary
    }

    #[test]
    fn shares_are_of_those_who_want_something() {
        let busy = |app, weight, device_ns_per_s| AppNow {
            app,
            requests_per_s: 1,
            weight: Some(weight),
            device_ns_per_s: Some(device_ns_per_s),
            ..AppNow::default()
        };
        let waits = AppNow { requests_per_s: 0, queued: Some(3), deferred: 3, ..busy(3, 1, 0) };
        let idle = AppNow { requests_per_s: 0, ..busy(4, 12, 0) };
        let now = GateNow::of(&summary(vec![busy(1, 1, 100), busy(2, 2, 300), waits, idle]));
        let shares: Vec<String> = now.apps.iter().map(AppRow::share).collect();
        assert_eq!(shares, ["25/25 %", "75/50 %", "0/25 %", "0/- %"]);
        // Of two groups each has its part, and its users parts of that.
        let group = |app, weight, device_ns| AppNow {
            is_branch: true,
            name: "staff".into(),
            ..busy(app, weight, device_ns)
        };
        let user = |app, weight, within| AppNow {
            within: Some(within),
            name: "alice".into(),
            ..busy(app, weight, 100)
        };
        let tree = [group(10, 3, 200), user(1, 1, 10), user(2, 2, 10), group(20, 1, 100), user(3, 7, 20)];
        let tree = summary(tree.into());
        let now = GateNow::of(&tree);
        let shares: Vec<String> = now.apps.iter().map(AppRow::share).collect();
        assert_eq!(shares, ["67/75 %", "33/25 %", "33/50 %", "33/25 %", "33/25 %"]);
        assert_eq!(now.total, [0, 0, 3], "what a group has is that of those in it");
        let gone = table([("here", &now)], ["there"]).to_string();
        assert!(
            gone.lines().last().is_some_and(|row| row.starts_with("there") && row.contains(GONE)),
            "{gone}"
        );
        let text = table([("here", &now)], []).to_string();
        assert_eq!(text.matches("here  staff      ").count(), 2, "{text}");
        assert_eq!(text.matches("here    alice    ").count(), 3, "{text}");
        let text = crate::status::status(&tree);
        assert_eq!(text.matches("\n  alice ").count(), 3, "{text}");
        // Without a policy there is nothing to be entitled to.
        let now = GateNow::of(&summary(vec![AppNow { app: 1, requests_per_s: 1, ..AppNow::default() }]));
        assert_eq!(now.apps[0].share(), "-");
        assert_eq!(now.apps[0].waiting(), "-");
    }

    #[test]
    fn totals_and_shares_are_of_all_whether_there_is_room_to_list_them_or_not() {
        let leaf = |app: u32| AppNow {
            app,
            within: Some(if app <= 30 { 100 } else { 200 }),
            read_bytes_per_s: 10,
            written_bytes_per_s: 1,
            requests_per_s: 2,
            weight: Some(1),
            device_ns_per_s: Some(5),
            ..AppNow::default()
        };
        let group = |app| AppNow { is_branch: true, within: None, device_ns_per_s: Some(150), ..leaf(app) };
        let mut tree = summary(Vec::new());
        tree.set_now((1..=60).map(leaf).chain([100, 200].map(group)).collect(), &Numbers);
        let now = GateNow::of(&tree);
        assert_eq!(now.total, [600, 60, 120]);
        let shares = |is_group| {
            let rows = now.apps.iter().filter(move |app| app.is_group == is_group);
            rows.map(AppRow::share).collect::<Vec<_>>()
        };
        assert_eq!(shares(true), ["50/50 %"; 2]);
        assert_eq!(shares(false), ["2/2 %"; 22], "a sixtieth");
    }

    #[test]
    fn what_a_user_calls_himself_moves_no_cursor() {
        let name = "a\x1b[2J\r\nb\u{9b}c".to_owned();
        let now =
            GateNow::of(&summary(vec![AppNow { app: 1, name, requests_per_s: 1, ..AppNow::default() }]));
        assert_eq!(now.apps[0].name, "a\u{fffd}[2J\u{fffd}\u{fffd}b\u{fffd}c");
        assert!(!table([("here", &now)], []).to_string().chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn limits_are_said_in_words() {
        assert_eq!(limit(Some(20 << 20), Some(500)).unwrap(), "20 MiB/s, 500 requests/s");
        assert_eq!(limit(None, None), None);
    }
}
