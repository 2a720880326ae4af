//! `iogate profile`: measures what storage charges, and lists what is kept of it.

mod directory;
mod kept;

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iogate_core::Op;
use iogate_core::profile::{Class, IN_FLIGHT, Number, Profile, measure, steps};
use iogate_core::units::{KIB, MIB};
use iogate_report::{Table, units};
use serde_json::json;

use crate::cli::ProfileArgs;
use crate::devices::{self, device};
use crate::failure::Failure;
use crate::output::{OutputFile, check_inputs_stay, print};

/// Where a model's random accesses are.
const SEED: u64 = 1;
/// Sizes in the table.
const SIZES: [u64; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 4 * MIB];
const PATTERNS: [(Class, &str); 5] = [
    (Class::Next, "sequential"),
    (Class::After1, "after 1-3 others"),
    (Class::After4, "after 4-15 others"),
    (Class::After16, "after more others"),
    (Class::Jump, "random"),
];

/// A profile, and what there is to say of how it came about.
pub(crate) struct Measured {
    pub(crate) profile: Profile,
    /// What to know of how it was measured, a sentence each without its full stop.
    pub(crate) notes: Vec<String>,
}

/// Measures the storage of a directory, for about so long.
pub(crate) fn of_directory(directory: &Path, budget: Duration) -> Result<Measured, Failure> {
    directory::profile(directory, budget, &progress())
}

/// Two numbers that say most of a profile.
pub(crate) fn summary(profile: &Profile) -> String {
    let costs = profile.costs();
    let rate = |class, bytes| units::rate(bytes, costs.alone_ns(Op::Read, class, bytes));
    format!(
        "One read after the other, it gives {} in order (256 KiB each) and {} at random (4 KiB each).",
        rate(Class::Next, 256 * KIB),
        rate(Class::Jump, 4 * KIB)
    )
}

pub(crate) fn run(args: &ProfileArgs) -> Result<(), Failure> {
    if args.kept {
        return kept::run(args.directory.as_deref(), args.forget, args.json);
    }
    let file = args.device.as_deref().and_then(devices::file);
    check_inputs_stay(
        &[("--out", args.out.as_deref())],
        file.map(|file| ("the profile that is measured", file)),
    )?;
    let out = args.out.as_deref().map(OutputFile::create).transpose()?;
    if args.budget.0.is_zero() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--budget 0s: expected some time to measure in, as in 60s"
        )));
    }
    let Measured { profile, notes } = match (&args.directory, &args.device) {
        (Some(directory), _) => directory::profile(directory, args.budget.0, &progress())?,
        (None, spec) => model(spec.as_deref().unwrap_or_default())?,
    };
    let kept = out.map_or(Ok(()), |out| out.finish_with(&iogate_sim::profile::write(&profile)));
    let shown = print(&if args.json { as_json(&profile, &notes) } else { as_text(&profile, &notes) });
    Failure::of_all([kept, shown])
}

/// A model's profile, in virtual time.
fn model(spec: &str) -> Result<Measured, Failure> {
    let device = device(spec)?;
    let hand_over = device.hand_over().as_nanos();
    let mut profile = measure(device, SEED).finish(&format!("model {spec}"), false, None);
    profile.rotational = profile.ratio(Op::Read, 4 * KIB) > 10_000;
    profile.gate.inline = Number::assumed(0);
    profile.gate.handed_over = Number::assumed(hand_over);
    Ok(Measured { profile, notes: Vec::new() })
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len} steps  {elapsed}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let steps = steps().len() as u64 + 1;
    ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

fn as_text(profile: &Profile, notes: &[String]) -> String {
    let costs = profile.costs();
    let mut out =
        format!("{}, {}\n\n", profile.kind, if profile.rotational { "rotating" } else { "not rotating" });
    let sizes = SIZES.map(iogate_core::units::format_size);
    let mut table = Table::new(
        ["operation", "pattern"].map(String::from).into_iter().chain(sizes).chain(["measured".into()]),
    );
    for op in [Op::Read, Op::Write] {
        for (class, pattern) in PATTERNS {
            let times = SIZES.map(|bytes| units::time(costs.alone_ns(op, class, bytes) as f64));
            let measured = measurements(profile, op, class);
            let measured = if measured == 0 { "assumed".into() } else { measured.to_string() };
            table.row([name(op).into(), pattern.into()].into_iter().chain(times).chain([measured]));
        }
    }
    writeln!(out, "{table}").expect("text grows");
    let mut table = Table::new([
        "in flight",
        "read 4 KiB",
        "",
        "write 4 KiB",
        "",
        "read 256 KiB",
        "",
        "write 256 KiB",
        "",
    ]);
    for n in IN_FLIGHT {
        let mut row = vec![n.to_string()];
        for (bytes, op) in
            [4 * KIB, 256 * KIB].into_iter().flat_map(|bytes| [(bytes, Op::Read), (bytes, Op::Write)])
        {
            let rate = f64::from(costs.speedup(op, bytes, n as usize)) * 1e6
                / costs.alone_ns(op, Class::Jump, bytes) as f64;
            // A picture of X(n): a mark for each doubling of the rate.
            let doublings =
                f64::from(costs.speedup(op, bytes, n as usize)).max(1_000.0).log2() - 1_000f64.log2();
            row.extend([
                format!("{}/s", units::number(rate)),
                "#".repeat(1 + (2.0 * doublings).round() as usize),
            ]);
        }
        table.row(row);
    }
    writeln!(out, "{table}").expect("text grows");
    let cache = &profile.cache;
    if cache.bytes.value > 0 {
        let rate = |number: Number| units::rate(number.value, 1_000_000_000);
        let size = units::bytes(cache.bytes.value as f64);
        writeln!(
            out,
            "write cache: {size}, filled at {}, drained at {}",
            rate(cache.fill),
            rate(cache.drain)
        )
        .expect("text grows");
    }
    let [inline, handed_over] =
        [profile.gate.inline, profile.gate.handed_over].map(|ns| units::time(ns.value as f64));
    writeln!(out, "the gate: {inline} a dispatch by its own thread, {handed_over} by another")
        .expect("text grows");
    for note in notes {
        writeln!(out, "note: {note}").expect("text grows");
    }
    out
}

/// How many measurements stand behind a line of the table.
fn measurements(profile: &Profile, op: Op, class: Class) -> u32 {
    let of = match op {
        Op::Read => &profile.read,
        Op::Write => &profile.write,
    };
    match class {
        Class::Next => of.sequential.iter().map(|line| line.low.count).sum(),
        Class::Jump => of.random.iter().map(|line| line.low.count).sum(),
        Class::After1 => of.between[0].count,
        Class::After4 => of.between[1].count,
        Class::After16 => of.between[2].count,
    }
}

fn as_json(profile: &Profile, notes: &[String]) -> String {
    let number =
        |number: &Number| json!({ "value": number.value, "count": number.count, "spread": number.spread });
    let numbers = |list: &[Number]| list.iter().map(number).collect::<Vec<_>>();
    let lines = |lines: &[iogate_core::profile::Line]| {
        lines
            .iter()
            .map(|line| json!({ "low_ns": number(&line.low), "high_ns": number(&line.high) }))
            .collect::<Vec<_>>()
    };
    let op = |of: &iogate_core::profile::OpProfile| {
        json!({
            "sequential": lines(&of.sequential), "random": lines(&of.random), "between_ns": numbers(&of.between),
            "speedup_small": numbers(&of.speedup[0]), "speedup_large": numbers(&of.speedup[1]),
        })
    };
    let (cache, gate) = (&profile.cache, &profile.gate);
    format!(
        "{:#}\n",
        json!({
            "kind": profile.kind, "rotational": profile.rotational, "in_flight": IN_FLIGHT,
            "read": op(&profile.read), "write": op(&profile.write),
            "cache": { "bytes": number(&cache.bytes), "fill": number(&cache.fill), "drain": number(&cache.drain) },
            "gate": { "inline_ns": number(&gate.inline), "handed_over_ns": number(&gate.handed_over) },
            "notes": notes,
        })
    )
}
