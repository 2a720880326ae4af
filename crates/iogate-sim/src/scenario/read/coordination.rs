//! Who does its I/O when.

use iogate_core::coord::CoordConfig;
use iogate_core::coord::backoff::BackoffConfig;

use crate::scenario::Coordination;
use crate::scenario::table::Table;

pub(super) fn read(table: &Table<'_>) -> Coordination {
    let (rules, backoff) = (rules(table), backoff(&table.table_or_default("backoff")));
    let mechanism = table.choice("mechanism");
    Coordination {
        lock: mechanism.starts_with("lock").then_some(rules),
        backoff: mechanism.ends_with("backoff").then_some(backoff),
    }
}

fn rules(table: &Table<'_>) -> CoordConfig {
    let text = table.text("rules");
    CoordConfig::parse(&text).unwrap_or_else(|error| {
        table.unfit("rules", error.to_string());
        CoordConfig::default()
    })
}

fn backoff(table: &Table<'_>) -> BackoffConfig {
    BackoffConfig {
        probe_bytes: table.number("probe"),
        probes: table.small("probes"),
        pause: table.span("pause"),
        prime_bytes: table.number("prime"),
        quiet: table.optional("quiet").unwrap_or(0),
        threshold: (table.float("threshold") * 1000.0).round() as u32,
        attempts_max: table.small("attempts"),
        base: table.small("base"),
        exponent_start: table.small("exponent"),
        sleep_unit: table.span("sleep_unit"),
        sleep_fixed: table.span("sleep_fixed"),
    }
}
