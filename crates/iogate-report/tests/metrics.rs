//! The text of a scrape is as OpenMetrics demands, and the page of series is the table's.

use std::collections::BTreeMap;

use iogate_core::SchedulerConfig;
use iogate_core::sched::SchedulerKind;
use iogate_core::stats::Stats;
use iogate_core::stats::counters::{App, Counters};
use iogate_core::stats::summary::{AppNow, Counted, Numbers, Summary};
use iogate_core::stats::top::{AppCounts, TopApps};
use iogate_report::metrics::{self, Exposed, Form, Kind, SERIES, Server, Unit, text};

fn gate(name: &str, app: &str) -> Summary {
    let mut stats = Stats::default();
    for ns in [0, 1_023, 1_024, 5_000_000, u64::MAX] {
        stats.ops[0].waiting_ns.record(ns);
    }
    stats.ops[1].request_bytes.record(4_096);
    let counts = AppCounts { requests: 1, bytes: 4_096, dispatches: 1, waiting_ns: 1_500_000_000 };
    let counters = Counters {
        gate: name.into(),
        is_connected: Some(false),
        has_lease: Some(true),
        apps: vec![App { app: 7, name: app.into(), counts }],
        ..Counters::of(&stats, &mut TopApps::default())
    };
    let scheduler = SchedulerConfig::new(SchedulerKind::Aioli);
    let mut summary = Summary::new(&stats, &scheduler, 16, &Numbers, 8);
    summary.waits = vec![Counted { name: "shift".into(), count: 2, total_ns: 12_000_000 }];
    summary.counters = Some(counters);
    summary.now = classes();
    summary
}

/// A group with a floor and a cap, a user of it with a cap in requests, and one who is in none.
fn classes() -> Vec<AppNow> {
    let class = |app: u32, name: &str| AppNow {
        app,
        name: name.into(),
        weight: Some(1),
        queued: Some(3),
        deferred: 2,
        served_requests: 10,
        served_bytes: 40_960,
        capped_ns: 1_250_000_000,
        ..AppNow::default()
    };
    let (min, max, weight) = (Some(1 << 20), Some(2 << 20), Some(4));
    let group = AppNow {
        is_branch: true,
        min,
        min_requests: Some(5),
        max,
        max_requests: Some(6),
        weight,
        ..class(90, "physics")
    };
    let user = AppNow { within: Some(90), max_requests: Some(500), ..class(8, "alice") };
    let other = AppNow { queued: None, min, min_requests: Some(7), max, ..class(9, "bob") };
    vec![group, user, other]
}

fn exposed() -> Exposed {
    Exposed {
        gates: vec![gate("/mnt/a", "a \"quoted\\name\"\nof two lines"), gate("/mnt/b", "é")],
        server: Some(Server { up_ms: 1_500, ..Server::default() }),
    }
}

#[test]
fn the_table_keeps_the_rules_of_names() {
    let mut names = BTreeMap::new();
    for series in SERIES {
        let fine = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(series.name.starts_with("iogate_") && series.name.chars().all(fine), "{}", series.name);
        assert!(
            series.labels.iter().all(|label| label.chars().all(fine) && *label != "le"),
            "{}",
            series.name
        );
        assert!(series.name.ends_with(series.unit.name()), "{}: its unit is its end", series.name);
        let says_unit = |unit: Unit| series.name.ends_with(&format!("_{}", unit.name()));
        assert_eq!(series.unit == Unit::Bytes, says_unit(Unit::Bytes), "{}", series.name);
        assert_eq!(series.unit == Unit::Seconds, says_unit(Unit::Seconds), "{}", series.name);
        assert!(series.help.ends_with('.') && !series.help.contains(['\n', '\\', '"']), "{}", series.name);
        for ending in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
            assert!(!series.name.ends_with(ending), "{} ends with what kinds add", series.name);
        }
        assert!(names.insert(series.name, series.kind).is_none(), "{} is there twice", series.name);
    }
}

/// The name, the labels as they are written, and the value of a sample's line.
fn sample(line: &str) -> (&str, &str, &str) {
    let (rest, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = rest.split_once('{').map_or((rest, ""), |(name, labels)| (name, labels));
    (name, labels.strip_suffix('}').unwrap_or(labels), value)
}

#[test]
fn families_stand_together_and_the_end_is_said() {
    let text = text(&exposed(), Form::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let (mut family, mut kind, mut seen) = (String::new(), "", Vec::new());
    let mut samples = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        assert!(!line.is_empty() && !line.ends_with(' '), "{line:?}");
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert!(!seen.contains(&name), "{name} is there twice");
            seen.push(name);
            (family, kind) = (name.into(), of);
        } else if let Some(rest) = line.strip_prefix("# ") {
            assert_eq!(rest.split(' ').nth(1), Some(&*family), "{line}");
        } else {
            let (name, labels, value) = sample(line);
            let ending = name.strip_prefix(&*family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let expected: &[&str] = match kind {
                "counter" => &["_total"],
                "info" => &["_info"],
                "gauge" => &[""],
                _ => &["_bucket", "_sum", "_count"],
            };
            assert!(expected.contains(&ending), "{line}");
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            assert!(!samples.contains(&(name, labels)), "{line} is there twice");
            samples.push((name, labels));
        }
    }
    assert_eq!(seen.len(), SERIES.len() - 2, "all but those of held requests, of which there were none");
    let mut flat = gate("/mnt/a", "app");
    flat.now.iter_mut().for_each(|now| now.weight = None);
    let text = metrics::text(&Exposed { gates: vec![flat], server: None }, Form::OpenMetrics);
    assert!(!text.contains("iogate_class") && !text.contains("iogate_group"), "there is no policy:\n{text}");
}

#[test]
fn values_are_exact_and_names_escaped() {
    let text = text(&exposed(), Form::OpenMetrics);
    for line in [
        r#"iogate_app_info{gate="/mnt/a",app="7",name="a \"quoted\\name\"\nof two lines"} 1"#,
        r#"iogate_app_info{gate="/mnt/b",app="7",name="é"} 1"#,
        r#"iogate_app_request_bytes_total{gate="/mnt/a",app="7"} 4096"#,
        r#"iogate_app_request_bytes_total{gate="/mnt/a",app="other"} 0"#,
        r#"iogate_app_waiting_seconds_total{gate="/mnt/a",app="7"} 1.5"#,
        r#"iogate_waits_total{gate="/mnt/a",reason="shift"} 2"#,
        r#"iogate_wait_seconds_total{gate="/mnt/a",reason="shift"} 0.012"#,
        r#"iogate_requests_total{gate="/mnt/b",op="write"} 1"#,
        r#"iogate_waiting_seconds_bucket{gate="/mnt/a",op="read",le="0.000001023"} 2"#,
        r#"iogate_waiting_seconds_bucket{gate="/mnt/a",op="read",le="0.000004095"} 3"#,
        r#"iogate_waiting_seconds_bucket{gate="/mnt/a",op="read",le="17.179869183"} 4"#,
        r#"iogate_waiting_seconds_bucket{gate="/mnt/a",op="read",le="+Inf"} 5"#,
        r#"iogate_waiting_seconds_count{gate="/mnt/a",op="read"} 5"#,
        r#"iogate_class_info{gate="/mnt/a",class="8",name="alice",group="90"} 1"#,
        r#"iogate_class_info{gate="/mnt/a",class="9",name="bob",group=""} 1"#,
        r#"iogate_class_cap_requests_per_second{gate="/mnt/a",class="8"} 500"#,
        r#"iogate_class_request_bytes_total{gate="/mnt/b",class="9"} 40960"#,
        r#"iogate_class_queued_requests{gate="/mnt/a",class="8"} 3"#,
        r#"iogate_class_capped_seconds_total{gate="/mnt/a",class="8"} 1.25"#,
        r#"iogate_group_info{gate="/mnt/a",group="90",name="physics"} 1"#,
        r#"iogate_group_weight{gate="/mnt/a",group="90"} 4"#,
        r#"iogate_group_floor_bytes_per_second{gate="/mnt/a",group="90"} 1048576"#,
        r#"iogate_group_cap_bytes_per_second{gate="/mnt/a",group="90"} 2097152"#,
        r#"iogate_group_requests_total{gate="/mnt/a",group="90"} 10"#,
        r#"iogate_group_deferred_requests{gate="/mnt/a",group="90"} 2"#,
        "iogate_server_up_seconds 1.5",
        "# TYPE iogate_app_waiting_seconds counter",
        "# UNIT iogate_app_waiting_seconds seconds",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    // What somebody does not have, or what is not known, is not 0.
    for line in [
        "queued_requests{gate=\"/mnt/a\",class=\"9\"}",
        "floor_bytes_per_second{gate=\"/mnt/a\",class=\"8\"}",
    ] {
        assert!(!text.contains(line), "{line} is in\n{text}");
    }
}

#[test]
fn the_older_text_has_the_same_samples() {
    let samples = |form| -> Vec<String> {
        text(&exposed(), form).lines().filter(|line| !line.starts_with('#')).map(Into::into).collect()
    };
    assert_eq!(samples(Form::OpenMetrics), samples(Form::Prometheus));
    let older = text(&exposed(), Form::Prometheus);
    assert!(!older.contains("# EOF") && !older.contains("# UNIT") && !older.contains(" info\n"));
    assert!(older.contains("# TYPE iogate_requests_total counter\n"));
    assert!(older.contains("# TYPE iogate_app_info gauge\n"));
}

/// Words of a text that name a series, with what stands before each.
fn named(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    words.filter(|word| word.starts_with("iogate_")).map(Into::into).collect()
}

/// The names in `by (...)`, `on (...)` and `group_left (...)`, and those that are compared with a value.
fn labels(text: &str) -> Vec<String> {
    let grouped = ["by (", "on (", "group_left ("].into_iter().flat_map(|word| {
        text.split(word).skip(1).flat_map(|rest| rest.split(')').next().unwrap_or_default().split(", "))
    });
    let mut found: Vec<String> = grouped.map(Into::into).collect();
    for compares in ["=~\"", "=\""] {
        let mut before: Vec<&str> = text.split(compares).collect();
        before.pop();
        let word = |before: &str| before.rsplit(|c: char| !c.is_ascii_lowercase()).next().map(Into::into);
        found.extend(before.into_iter().filter_map(word));
    }
    found
}

#[test]
fn dashboard_and_alerts_name_what_there_is() {
    let mut known = Vec::new();
    for series in SERIES {
        let endings: &[&str] = match series.kind {
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            kind => &[kind.suffix()],
        };
        known.extend(endings.iter().map(|ending| format!("{}{ending}", series.name)));
    }
    let of_prometheus = ["instance", "job", "le", "alertname", "alertstate"];
    let known_label = |label: &str| {
        of_prometheus.contains(&label) || SERIES.iter().any(|series| series.labels.contains(&label))
    };
    let read = |name: &str| {
        std::fs::read_to_string(format!("{}/../../packaging/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/iogate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut texts: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m")).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    texts.extend(variables.filter_map(|variable| variable["definition"].as_str()).map(Into::into));
    assert!(texts.len() > 20, "the dashboard has {} expressions", texts.len());
    let shows_groups =
        texts.iter().any(|text| named(text).contains(&"iogate_group_request_bytes_total".into()));
    assert!(shows_groups, "the dashboard does not show groups");
    texts.extend([read("prometheus/alerts.yml"), read("prometheus/alerts.test.yml")]);
    for text in &texts {
        let names = named(text);
        assert!(!names.is_empty(), "{text} names no series");
        names.iter().for_each(|name| assert!(known.contains(name), "there is no series {name}: {text}"));
        labels(text)
            .iter()
            .for_each(|label| assert!(known_label(label), "there is no label {label}: {text}"));
    }
    assert_eq!(named("rate(iogate_nothing_total{a=\"b\"}[5m])"), ["iogate_nothing_total"]);
    assert_eq!(labels("sum by (x, y) (iogate_z{v=~\"$v\", w=\"1\"})"), ["x", "y", "v", "w"]);
}

/// `UPDATE_GOLDEN=1 cargo test -p iogate-report --test metrics` writes the page's table anew.
#[test]
fn the_page_has_the_table() {
    let mut table = String::from("| series | type | labels | meaning |\n|---|---|---|---|\n");
    for series in SERIES {
        let labels: Vec<_> = series.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (format!("{}{}", series.name, series.kind.suffix()), series.kind.name());
        table.push_str(&format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), series.help));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- series: generated -->\n", "<!-- series: end -->\n");
    let (before, rest) = page.split_once(begin).expect("where the table begins");
    let (found, after) = rest.split_once(end).expect("where the table ends");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "docs/metrics.md is not what the table says; UPDATE_GOLDEN=1 writes it");
}
