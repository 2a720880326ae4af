//! TWINS for real: schedulers on four forwarders, sizes and distances on the way.

use iogate_report::reproduction::{Page, Section};
use iogate_report::{Table, units};
use iogate_sim::metrics::Unit;

use super::{How, Reduced, Results, machine};
use crate::commands::bench::runner::Runner;
use crate::commands::reproduce::Lab;
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::twins::{
    CONTIGUOUS, FIFO, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, SERVER_WINDOW, STRIDED, TWINS, TWINS_8MS,
    name,
};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;
use crate::settings;

const PATTERNS: [&str; 3] = [PER_PROCESS, STRIDED, CONTIGUOUS];
const GATES: [&str; 6] = [FIFO, JOINED, HBRR, SERVER_WINDOW, TWINS, TWINS_8MS];
const SIZE: [&str; 4] = [
    "repetitions=5",
    "app.mpi-io-test.processes=32",
    "app.mpi-io-test.bytes=512KiB",
    "app.mpi-io-test.request=32KiB",
];
const MANY: [&str; 5] = [
    "repetitions=3",
    "app.mpi-io-test.processes=128",
    "app.mpi-io-test.bytes=256KiB",
    "app.mpi-io-test.request=32KiB",
    "app.mpi-io-test.op=read",
];
const QUICK: [&str; 5] = [
    "repetitions=1",
    "app.mpi-io-test.processes=8",
    "app.mpi-io-test.bytes=128KiB",
    "app.mpi-io-test.request=32KiB",
    "app.mpi-io-test.op=[read]",
];

pub(in super::super) fn page(lab: &Lab<'_>, runner: &Runner) -> Result<Page, Failure> {
    let set = if lab.quick { &QUICK[..] } else { &SIZE };
    let run = |scenario: &str, called: &str, set: &[&str], keep: &[(&str, &[&str])]| {
        lab.real(runner, &Reduced { scenario, called, set, keep, files: &[] })
    };
    let direct = run("twins-direct", "twins-direct", set, &[])?;
    let gates: (&str, &[&str]) = (GATE, &GATES);
    let schedulers = run("twins-schedulers", "twins-schedulers", set, &[gates])?;
    let mut sections = vec![times(&direct, &schedulers), gains(&schedulers), ways(&schedulers)];
    if !lab.quick {
        let strided: (&str, &[&str]) = (PATTERN, &[STRIDED]);
        let many_direct = run("twins-direct", "twins-direct-128", &MANY, &[strided])?;
        let many = run("twins-schedulers", "twins-schedulers-128", &MANY, &[strided, gates])?;
        sections.push(crowd(&many_direct, &many));
    }
    Ok(Page {
        title: "TWINS for real: forwarders that serve one data server at a time".into(),
        notes: vec![
            format!(
                "The scenarios of [twins.md](twins.md) with real processes on {}: four data servers and \
                 four forwarders are `iogate serve` processes, each of the application's processes is one that does its I/O with the \
                 network client, over Unix sockets. The servers' files are in memory, in the time of the model `hdd`. Set in the \
                 scenarios: `{}`; so {} are read or written instead of 4 GiB.",
                machine(),
                set.join("`, `"),
                amount(set)
            ),
            "Numbers are medians over the repetitions, with the least and the most in parentheses. All points have their first \
             repetition before any has its second, so that what else runs hits all schedulers alike."
                .into(),
            format!(
                "The simulation has the network that the real run had: what a request spends outside of gates and devices ({} with \
                 forwarders, {} without) is measured, and taken in equal parts on each way between the layers.",
                schedulers.paths(),
                direct.paths()
            ),
        ],
        sections,
        program: PROGRAM.into(),
    })
}

/// How much is read or written with these settings.
fn amount(set: &[&str]) -> String {
    let value = |key: &str| set.iter().find_map(|setting| setting.strip_prefix(key));
    let processes = value("app.mpi-io-test.processes=").and_then(|text| text.parse().ok());
    let bytes = value("app.mpi-io-test.bytes=").and_then(|text| settings::bytes(text).ok());
    let total: u64 = processes.unwrap_or(0) * bytes.unwrap_or(0);
    units::bytes(total as f64)
}

/// Simulated and real, side by side.
fn both(results: &Results, settings: &[(&str, &str)], metric: &str, unit: Unit) -> [String; 2] {
    [How::Simulated, How::Real].map(|how| results.shown(settings, metric, unit, how))
}

/// Columns for each pattern, simulated and real.
fn columns(patterns: &[&str]) -> Vec<String> {
    let two = |pattern: &&str| ["simulated", "real"].map(|how| format!("{pattern}: {how}"));
    std::iter::once(String::new()).chain(patterns.iter().flat_map(two)).collect()
}

fn times(direct: &Results, schedulers: &Results) -> Section {
    let mut tables = Vec::new();
    for op in schedulers.values(OP) {
        let mut table = Table::new(columns(&PATTERNS));
        let cells = PATTERNS
            .iter()
            .flat_map(|pattern| both(direct, &[(OP, op), (PATTERN, pattern)], "makespan", Unit::Seconds));
        table.row(std::iter::once("no forwarders".to_owned()).chain(cells).collect::<Vec<_>>());
        for gate in GATES {
            let cells = PATTERNS.iter().flat_map(|pattern| {
                let at = [(OP, op), (PATTERN, pattern), (GATE, gate)];
                both(schedulers, &at, "makespan", Unit::Seconds)
            });
            table.row(std::iter::once(name(gate).to_owned()).chain(cells).collect::<Vec<_>>());
        }
        tables.push((format!("{op}s of 32 KiB, makespan"), table));
    }
    Section {
        title: "Figures 3.4 to 3.7, 4.1, 4.2, 5.1, 5.2: schedulers on four forwarders".into(),
        scenarios: ["twins-direct", "twins-schedulers"].map(String::from).into(),
        paper: "The thesis: reads are faster with forwarders than without, whatever the scheduler; TWINS reads shared files faster \
                than all others; with a file per process, and in writes, no scheduler gains anything."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: schedulers.agreement("makespan"),
    }
}

/// Pattern, scheduler, what it is compared with, and by how many percent it is faster in the thesis.
const GAINS: [(&str, &str, &str, f64); 8] = [
    (STRIDED, HBRR, JOINED, 0.0),
    (STRIDED, TWINS, JOINED, 24.03),
    (STRIDED, TWINS, HBRR, 22.30),
    (STRIDED, TWINS, SERVER_WINDOW, 18.93),
    (STRIDED, TWINS_8MS, JOINED, 28.0),
    (CONTIGUOUS, TWINS, JOINED, 19.85),
    (CONTIGUOUS, TWINS, HBRR, 20.63),
    (CONTIGUOUS, TWINS, SERVER_WINDOW, 16.92),
];

fn gains(schedulers: &Results) -> Section {
    let mut tables = Vec::new();
    let mut verdicts = Vec::new();
    for (how, called) in [(How::Simulated, "Simulated"), (How::Real, "Real")] {
        let mut sheet = Sheet::of("figures 5.1 and 5.2");
        for (pattern, gate, base, thesis) in GAINS {
            let at = |gate| [(OP, "read"), (PATTERN, pattern), (GATE, gate)];
            let what = format!("{pattern}: {} faster than {} by", name(gate), name(base));
            sheet.change(what, thesis, schedulers.lower(&at(gate), &at(base), "makespan", how));
        }
        verdicts.push(format!("{called}: {}", sheet.claims.verdict()));
        tables.push((format!("{called}, reads of 32 KiB, makespans"), sheet.claims.table()));
    }
    Section {
        title: "The numbers in the thesis's text".into(),
        scenarios: vec!["twins-schedulers".into()],
        paper: "Sections 4 and 5, reads of 32 KB by 128 processes; to-agg stands for the thesis's FIFO. A negative number is a longer \
                time; where the thesis sees no difference, it is 0."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: verdicts.join(" "),
    }
}

fn ways(schedulers: &Results) -> Section {
    let read: [(&str, &str); 2] = [(OP, "read"), (PATTERN, STRIDED)];
    let thesis = |gate| match gate {
        JOINED => ["57.75", "49.87"],
        HBRR => ["57.77", "49.80"],
        SERVER_WINDOW => ["73.08", "50.08"],
        TWINS => ["119.29", "57.79"],
        TWINS_8MS => ["149.99", "68.08"],
        _ => ["-"; 2],
    };
    let mut sizes = Table::new([
        "",
        "arriving at forwarders: simulated",
        "real",
        "leaving forwarders: thesis, KB",
        "simulated",
        "real",
        "arriving at servers: thesis, KB",
        "simulated",
        "real",
    ]);
    let mut distances = Table::new([
        "",
        "leaving forwarders: simulated",
        "real",
        "leaving servers: simulated",
        "real",
        "seeks: simulated",
        "real",
    ]);
    for gate in GATES {
        let at = [read[0], read[1], (GATE, gate)];
        let of = |metric| both(schedulers, &at, metric, Unit::Bytes);
        let [left, arrived] = thesis(gate);
        let mut row = vec![name(gate).to_owned()];
        row.extend(of("ion/request_bytes"));
        row.push(left.into());
        row.extend(of("ion/dispatch_bytes"));
        row.push(arrived.into());
        row.extend(of("servers/request_bytes"));
        sizes.row(row);
        let mut row = vec![name(gate).to_owned()];
        row.extend(of("ion/offset_distance"));
        row.extend(of("servers/offset_distance"));
        row.extend(both(schedulers, &at, "seeks", Unit::Count));
        distances.row(row);
    }
    Section {
        title: "Tables 3.1 to 3.3, 4.1 and 5.1: requests on their way".into(),
        scenarios: vec!["twins-schedulers".into()],
        paper:
            "The thesis: strided reads of 32 KB of a shared file; FIFO and HBRR join a little, TWINS most."
                .into(),
        tables: vec![
            ("Mean sizes, strided reads".into(), sizes),
            ("Mean distances of offsets, and seeks of all disks, strided reads".into(), distances),
        ],
        pictures: Vec::new(),
        verdict: format!(
            "Seeks: {} Sizes are the same by construction where nothing is joined.",
            schedulers.agreement("seeks")
        ),
    }
}

fn crowd(direct: &Results, schedulers: &Results) -> Section {
    let mut table = Table::new(["", "makespan: simulated", "real", "leaving forwarders: simulated", "real"]);
    let mut row = vec!["no forwarders".to_owned()];
    row.extend(both(direct, &[], "makespan", Unit::Seconds));
    row.extend(["-", "-"].map(String::from));
    table.row(row);
    for gate in GATES {
        let at = [(GATE, gate)];
        let mut row = vec![name(gate).to_owned()];
        row.extend(both(schedulers, &at, "makespan", Unit::Seconds));
        row.extend(both(schedulers, &at, "ion/dispatch_bytes", Unit::Bytes));
        table.row(row);
    }
    Section {
        title: "128 processes, as many as in the thesis".into(),
        scenarios: ["twins-direct", "twins-schedulers"].map(String::from).into(),
        paper: format!("As above, with `{}`.", MANY.join("`, `")),
        tables: vec![("Strided reads of 32 KiB".into(), table)],
        pictures: Vec::new(),
        verdict: schedulers.agreement("makespan"),
    }
}
