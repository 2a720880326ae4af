//! The text of a scrape.

use std::fmt::Write;

use super::{Exposed, Kind, SERIES, Series, Unit, Value};
use iogate_core::stats::counters::{TIME_BOUNDS_NS, Times};

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own, 0.0.4: for what does not read the other one, as node_exporter's textfile collector.
    Prometheus,
}

impl Form {
    /// What HTTP calls it.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All series of what there is, as text.
pub fn text(exposed: &Exposed, form: Form) -> String {
    let mut out = String::new();
    for series in SERIES {
        let samples = (series.read)(exposed);
        if !samples.is_empty() {
            head(&mut out, series, form);
        }
        for sample in samples {
            let labels: Vec<(&str, &str)> =
                series.labels.iter().copied().zip(sample.labels.iter().map(String::as_str)).collect();
            let name = format!("{}{}", series.name, series.kind.suffix());
            match sample.value {
                Value::Number(number) => line(&mut out, &name, &labels, &number.to_string()),
                Value::Nanoseconds(ns) => line(&mut out, &name, &labels, &seconds(ns)),
                Value::Times(times) => histogram(&mut out, series.name, &labels, &times),
            }
        }
    }
    if form == Form::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// What a series is. The older text knows no info and no units, and calls a counter by the name of its samples.
fn head(out: &mut String, series: &Series, form: Form) {
    let Series { name, kind, unit, help, .. } = series;
    let mut say =
        |what: &str, name: &str, text: &str| writeln!(out, "# {what} {name} {text}").expect("text grows");
    match form {
        Form::OpenMetrics => {
            say("TYPE", name, kind.name());
            if *unit != Unit::None {
                say("UNIT", name, unit.name());
            }
            say("HELP", name, help);
        }
        Form::Prometheus => {
            let name = format!("{name}{}", kind.suffix());
            say("HELP", &name, help);
            say("TYPE", &name, if *kind == Kind::Info { Kind::Gauge.name() } else { kind.name() });
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: &[(&str, &str)], times: &Times) {
    let bucket = format!("{name}_bucket");
    let mut class = |bound: &str, count: u64| {
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
        line(out, &bucket, &labels, &count.to_string());
    };
    for (bound, count) in TIME_BOUNDS_NS.iter().zip(&times.up_to) {
        class(&seconds(*bound), *count);
    }
    class("+Inf", times.count);
    line(out, &format!("{name}_sum"), labels, &seconds(times.sum_ns));
    line(out, &format!("{name}_count"), labels, &times.count.to_string());
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: &str) {
    out.push_str(name);
    for (index, (label, value)) in labels.iter().enumerate() {
        write!(out, "{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(value))
            .expect("text grows");
    }
    writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" }).expect("text grows");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

/// Nanoseconds as seconds, with all digits and no more.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

impl Kind {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }

    /// What it adds to the name of its samples.
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }
}

impl Unit {
    /// Its name in the text; empty if there is none.
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }
}
