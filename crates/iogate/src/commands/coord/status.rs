//! A coordinator's status for people.

use std::collections::HashMap;
use std::fmt::Write;

use iogate_core::AppId;
use iogate_net::coordinator::{ClassStatus, Finished, Holder, Status, Waiter};
use iogate_net::transport::auth::class_called;
use iogate_report::{Table, units};

/// Turns that are over, and claims that wait, which are shown.
const FINISHED_SHOWN: usize = 10;
const WAITERS_SHOWN: usize = 100;

/// As lines and tables.
pub(super) fn status(status: &Status) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").expect("text grows");
    line("coordinator", format!("up for {}, state in {}", time(status.up_ms), status.journal));
    let rules = &status.rules;
    let (slots, lease) = (rules.slots, time(rules.lease_ms));
    let most = match rules.turn_max_ms {
        0 => String::new(),
        most => format!(", turns of at most {}", time(most)),
    };
    line(
        "rules",
        format!("order {}, {}, {slots} at a time, lease {lease}{most}", rules.order, rules.passing),
    );
    let count = |n: usize| units::count(n as u64);
    line(
        "now",
        format!(
            "{} hold, {} wait; {}, {}",
            count(status.held.max(status.holders.len())),
            count(status.waiting),
            units::counted(status.connections as u64, "connection", "connections"),
            units::counted(status.sessions as u64, "session", "sessions")
        ),
    );
    let counters = &status.counters;
    line(
        "so far",
        format!(
            "{}, {} granted ({} overdue, {} joined), {} released, {} lost, {} cancelled, {} evicted",
            units::counted(counters.claims, "claim", "claims"),
            units::count(counters.granted),
            units::count(counters.overdue),
            units::count(counters.joined),
            units::count(counters.released),
            units::count(counters.lost),
            units::count(counters.cancelled),
            units::count(counters.evicted)
        ),
    );
    if let Some(error) = &status.journal_error {
        line("TROUBLE", error.clone());
    }
    if status.grace_ms > 0 {
        let text = "turns may be held that are not known";
        line("grace", format!("nothing is granted for {}: {text}", time(status.grace_ms)));
    }
    if let Some(gates) = &status.gates {
        let shared = units::counted(gates.gates as u64, "gate", "gates");
        let classes = units::counted(gates.classes as u64, "class", "classes");
        let others = match gates.others {
            0 => String::new(),
            others => {
                let others = units::counted(others as u64, "gate", "gates");
                format!("; refused: {others} with another file than the coordinator's --policy")
            }
        };
        line("policy", format!("shared by {shared}; {classes}{others}"));
    }
    let gates = status.gates.as_ref();
    let groups = gates.map_or(&[][..], |gates| &gates.groups);
    let named = gates.map_or(&[][..], |gates| &gates.named);
    for table in [
        classes("group", groups, &[]),
        classes("class", named, groups),
        holders(&status.holders),
        waiters(&status.waiters),
    ] {
        if !table.is_empty() {
            write!(out, "\n{table}").expect("text grows");
        }
    }
    let table = finished(status.finished.iter().take(FINISHED_SHOWN));
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
    out
}

fn time(ms: u64) -> String {
    units::time(ms as f64 * 1e6)
}

fn bytes(bytes: u64) -> String {
    if bytes > 0 { units::bytes(bytes as f64) } else { "-".into() }
}

fn targets(targets: &[u32]) -> String {
    match targets {
        [] => "all".into(),
        some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}

/// What classes, or groups of them, have of a policy that gates share.
fn classes(what: &str, classes: &[ClassStatus], groups: &[ClassStatus]) -> Table {
    let has_groups = classes.iter().any(|one| one.within.is_some());
    let within = if has_groups { &["group"][..] } else { &[] };
    let mut table = Table::new([&[what][..], within, &["gates", "asks for", "uses", "may use"]].concat());
    // By its name in the file, also what it is within.
    let names = groups.iter().chain(classes).filter_map(|one| Some((one.class, one.name.clone()?)));
    let names: HashMap<u32, String> = names.collect();
    let called = |class: u32| names.get(&class).cloned().unwrap_or_else(|| called(class));
    for one in classes {
        let rates = [one.demand, one.used, one.held];
        let rates = rates.map(|bytes| format!("{}/s", units::bytes(bytes as f64)));
        let group = has_groups.then(|| one.within.map_or("-".into(), called));
        table.row([called(one.class)].into_iter().chain(group).chain([one.gates.to_string()]).chain(rates));
    }
    table
}

/// A class for people that the policy does not name. What jobs, accounts and applications are called, only those who divide by them know.
fn called(class: u32) -> String {
    class_called(AppId(class)).unwrap_or_else(|| class.to_string())
}

fn holders(holders: &[Holder]) -> Table {
    let mut table = Table::new([
        "token",
        "holder",
        "client",
        "user",
        "place",
        "targets",
        "waited",
        "held for",
        "lease left",
        "how",
        "connected",
    ]);
    for one in holders {
        table.row([
            one.token.to_string(),
            one.label.clone(),
            one.client.clone(),
            one.uid.to_string(),
            one.place.clone(),
            targets(&one.targets),
            time(one.waited_ms),
            time(one.held_ms),
            time(one.lease_left_ms),
            one.admission.clone(),
            yes(one.is_connected),
        ]);
    }
    table
}

fn waiters(waiters: &[Waiter]) -> Table {
    let mut table =
        Table::new(["position", "waits", "client", "user", "place", "targets", "for", "bytes", "connected"]);
    for one in waiters.iter().take(WAITERS_SHOWN) {
        table.row([
            one.position.to_string(),
            one.label.clone(),
            one.client.clone(),
            one.uid.to_string(),
            one.place.clone(),
            targets(&one.targets),
            time(one.waited_ms),
            bytes(one.bytes),
            yes(one.is_connected),
        ]);
    }
    table
}

fn finished<'a>(finished: impl Iterator<Item = &'a Finished>) -> Table {
    let mut table = Table::new(["token", "had a turn", "place", "waited", "held", "bytes", "ended", "ago"]);
    for one in finished {
        table.row([
            one.token.to_string(),
            one.label.clone(),
            one.place.clone(),
            time(one.waited_ms),
            time(one.held_ms),
            bytes(one.bytes),
            one.ending.name().into(),
            time(one.ago_ms),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use iogate_net::coordinator::GatesStatus;

    use super::*;

    #[test]
    fn classes_are_called_as_in_the_file_and_gates_with_another_one_are_told_of() {
        let class = |class, name: Option<&str>, within| ClassStatus {
            class,
            name: name.map(str::to_owned),
            within,
            ..ClassStatus::default()
        };
        let gates = GatesStatus {
            gates: 0,
            others: 2,
            named: vec![class(4071597791, Some("backup"), Some(5)), class(12, None, None)],
            groups: vec![class(5, Some("physics"), None)],
            ..GatesStatus::default()
        };
        let said = status(&Status { gates: Some(gates), ..Status::default() });
        assert!(said.contains("shared by 0 gates; 0 classes; refused: 2 gates with another file"), "{said}");
        let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(row("backup").contains("physics") && !said.contains("4071597791"), "{said}");
        assert!(!row("12").is_empty(), "{said}");
    }
}
