//! `iogate schedulers` and `iogate devices`: from the one definition in the core.

use std::fmt::Write;

use iogate_core::SchedulerConfig;
use iogate_core::device::Preset;
use iogate_core::sched::{Param, ParamUnit, SchedulerKind};
use iogate_report::Table;
use serde_json::json;

use crate::cli::{DevicesArgs, ListArgs};
use crate::failure::Failure;
use crate::output::print;

/// What an unknown name is told.
fn unknown(error: impl Into<anyhow::Error>) -> Failure {
    Failure::usage(error).hint("`iogate schedulers` lists all of them")
}

pub(crate) fn schedulers(args: &ListArgs) -> Result<(), Failure> {
    let kinds = match &args.name {
        Some(name) => vec![SchedulerConfig::by_name(name).map_err(unknown)?.kind()],
        None => SchedulerKind::ALL.to_vec(),
    };
    if args.json {
        let list: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let params: Vec<_> = kind
                    .params()
                    .iter()
                    .map(|param| {
                        let (default, min, max) = shown(param);
                        json!({
                            "name": param.name, "unit": unit(param), "default": default, "min": min, "max": max,
                            "help": param.help,
                        })
                    })
                    .collect();
                json!({ "name": kind.name(), "summary": kind.summary(), "params": params })
            })
            .collect();
        return print(&format!("{:#}\n", json!(list)));
    }
    let mut out = String::new();
    for (index, kind) in kinds.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        writeln!(out, "{gap}{}: {}", kind.name(), kind.summary()).expect("text grows");
        for param in kind.params() {
            let (default, min, max) = shown(param);
            let range = match param.unit {
                ParamUnit::Flag | ParamUnit::Choice(_) => unit(param),
                _ if param.max == u64::MAX => format!("{}, {min} or more", unit(param)),
                _ => format!("{}, {min} to {max}", unit(param)),
            };
            writeln!(out, "    {}={default}  ({range})\n        {}", param.name, param.help)
                .expect("text grows");
        }
    }
    print(&out)
}

fn shown(param: &Param) -> (String, String, String) {
    (param.format(param.default), param.format(param.min), param.format(param.max))
}

fn unit(param: &Param) -> String {
    match param.unit {
        ParamUnit::Bytes => "bytes".into(),
        ParamUnit::Time => "time".into(),
        ParamUnit::Count => "number".into(),
        ParamUnit::Flag => "true or false".into(),
        ParamUnit::Choice(words) => words.join(" or "),
    }
}

pub(crate) fn devices(args: &DevicesArgs) -> Result<(), Failure> {
    const UNIT: (&str, &str) =
        ("unit:T", "the same time T for each dispatch, in microseconds or with its unit (unit:1.5ms)");
    const LINEAR: (&str, &str) =
        ("linear:T:RATE", "T for each jump, and RATE where it goes on (linear:15ms:90MB/s)");
    if args.json {
        let list: Vec<_> = [UNIT, LINEAR]
            .into_iter()
            .chain(Preset::all().iter().map(|preset| (preset.name, preset.summary)))
            .map(|(name, summary)| json!({ "name": name, "summary": summary }))
            .collect();
        return print(&format!("{:#}\n", json!(list)));
    }
    let mut out = format!("{}: {}\n{}: {}\n", UNIT.0, UNIT.1, LINEAR.0, LINEAR.1);
    let mut table = Table::new(["device", "capacity"]);
    for preset in Preset::all() {
        writeln!(out, "{}: {}", preset.name, preset.summary).expect("text grows");
        table.row([preset.name.to_string(), iogate_report::units::bytes(preset.build().capacity() as f64)]);
    }
    print(&format!("{out}\n{table}"))
}
