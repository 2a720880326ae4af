//! No forwarders, all schedulers, and collective calls.

use iogate_report::Table;
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_report::reproduction::Section;
use iogate_sim::metrics::Unit;

use super::{
    CONTIGUOUS, FIFO, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, SERVER_WINDOW, STRIDED, TWINS,
    TWINS_8MS, faster, name, spaced, time,
};
use crate::commands::reproduce::{Experiment, Lab};
use crate::failure::Failure;

const PATTERNS: [&str; 3] = [PER_PROCESS, STRIDED, CONTIGUOUS];

pub(super) fn sections(
    lab: &Lab<'_>,
    direct: &Experiment,
    schedulers: &Experiment,
) -> Result<Vec<Section>, Failure> {
    Ok(vec![all(direct, schedulers), known(direct, schedulers), collective(lab, direct, schedulers)?])
}

fn all(direct: &Experiment, schedulers: &Experiment) -> Section {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    for op in schedulers.values(OP) {
        for request in schedulers.values(REQUEST) {
            let at = |pattern| [(OP, op.as_str()), (REQUEST, request.as_str()), (PATTERN, pattern)];
            let mut table = Table::new(std::iter::once("").chain(PATTERNS));
            let cells = PATTERNS.map(|pattern| time(direct, &at(pattern)));
            table.row(std::iter::once("no forwarders".to_owned()).chain(cells));
            for gate in schedulers.values(GATE) {
                let cells = PATTERNS.map(|pattern| {
                    let [op, request, pattern] = at(pattern);
                    time(schedulers, &[op, request, pattern, (GATE, gate)])
                });
                table.row(std::iter::once(name(gate).to_owned()).chain(cells));
            }
            tables.push((format!("{op}s of {}", spaced(request)), table));
            if request == "32KiB" {
                let title = format!("Makespan, {op}s of {}", spaced(request));
                pictures.push((title.clone(), groups(&bars(direct, schedulers, title, op, request))));
            }
        }
    }
    Section {
        title: "Figures 3.4 to 3.7, 4.1, 4.2, 5.1, 5.2: schedulers on four forwarders".into(),
        scenarios: ["twins-direct", "twins-schedulers"].map(String::from).into(),
        paper: "The thesis: reads are faster with forwarders than without, whatever the scheduler; FIFO, HBRR, TO, SJF, MLF and SW \
                differ little from each other; TWINS reads shared files faster than all of them. With a file per process, and in \
                writes, no scheduler gains anything, and writes are slower with forwarders."
            .into(),
        tables,
        pictures,
        verdict: "Agrees: TWINS reads strided small requests faster than FIFO as IOFSL has it (`to-agg`), with 8 ms more than with 1 \
                  ms; with a file per process and for contiguous processes no scheduler gains more than about 5 % in small reads; \
                  large writes hardly depend on the scheduler, but for TWINS of 8 ms. Differs: small reads are no faster with \
                  forwarders (large ones of a file per process are, by 23 %); contiguous reads gain next to nothing by TWINS; \
                  strided small writes differ as much as reads. What decides in ours is whether the processes keep in step. Strided \
                  ones do without forwarders and with plain `fifo`: each has its turn in the same order, the disks stream (20 \
                  seeks), and nothing is left to gain. Joining breaks that: requests that leave together are answered together, \
                  their processes go ahead of the others, and each disk goes to and fro between the fronts (70,000 seeks). With \
                  TWINS a disk hears one forwarder at a time for a window, and seeks a third (1 ms) or a fifth (8 ms) of that. With \
                  contiguous processes and a file for each, almost every small request seeks whatever the order."
            .into(),
    }
}

fn bars(direct: &Experiment, schedulers: &Experiment, title: String, op: &str, request: &str) -> Groups {
    let at = |pattern| [(OP, op), (REQUEST, request), (PATTERN, pattern)];
    let value = |results: &Experiment, settings: &[(&str, &str)]| {
        let estimate = results.measured(settings, "makespan")?.estimate;
        Some((estimate.mean, estimate.half_width.unwrap_or(0.0)))
    };
    let mut series = vec![Bars {
        name: "no forwarders".into(),
        values: PATTERNS.map(|pattern| value(direct, &at(pattern))).into(),
    }];
    for gate in [JOINED, HBRR, TWINS, TWINS_8MS] {
        let values = PATTERNS.map(|pattern| {
            let [op, request, pattern] = at(pattern);
            value(schedulers, &[op, request, pattern, (GATE, gate)])
        });
        series.push(Bars { name: name(gate).into(), values: values.into() });
    }
    Groups { title, unit: Unit::Seconds, groups: PATTERNS.map(String::from).into(), series }
}

fn known(direct: &Experiment, schedulers: &Experiment) -> Section {
    let against = |op, request, pattern, gate, base: Option<&str>| {
        let at = [(OP, op), (REQUEST, request), (PATTERN, pattern)];
        let [op, request, pattern] = at;
        let ours = [op, request, pattern, (GATE, gate)];
        match base {
            None => faster((schedulers, &ours), (direct, &at)),
            Some(base) => faster((schedulers, &ours), (schedulers, &[op, request, pattern, (GATE, base)])),
        }
    };
    let mut table = Table::new(["", "thesis: faster by", "ours"]);
    let mut row = |what: &str, thesis: &str, ours: String| {
        table.row([what.to_owned(), thesis.to_owned(), ours]);
    };
    let small = "32KiB";
    for (pattern, thesis) in [(PER_PROCESS, "35.80 %"), (STRIDED, "31.70 %"), (CONTIGUOUS, "23.73 %")] {
        row(
            &format!("read 32 KiB, {pattern}: FIFO (to-agg) than no forwarders"),
            thesis,
            against("read", small, pattern, JOINED, None),
        );
    }
    for (request, pattern, thesis) in [
        (small, STRIDED, "-8.05 %"),
        (small, CONTIGUOUS, "-17.33 %"),
        ("256KiB", PER_PROCESS, "-165.23 %"),
        ("256KiB", STRIDED, "no difference"),
        ("256KiB", CONTIGUOUS, "no difference"),
    ] {
        row(
            &format!("write {}, {pattern}: FIFO (to-agg) than no forwarders", spaced(request)),
            thesis,
            against("write", request, pattern, JOINED, None),
        );
    }
    row(
        "read 32 KiB, shared, strided: HBRR than FIFO (to-agg)",
        "no difference",
        against("read", small, STRIDED, HBRR, Some(JOINED)),
    );
    row(
        "read 32 KiB, shared, strided: MLF than FIFO (to-agg)",
        "14.17 %",
        against("read", small, STRIDED, "mlf", Some(JOINED)),
    );
    for (request, pattern, figures) in [
        (small, STRIDED, ["46.93 %", "24.03 %", "22.30 %", "18.93 %"]),
        (small, CONTIGUOUS, ["43.68 %", "19.85 %", "20.63 %", "16.92 %"]),
        ("256KiB", STRIDED, ["24.68 %", "-", "21.06 %", "-"]),
        ("256KiB", CONTIGUOUS, ["20.58 %", "-", "17.79 %", "-"]),
    ] {
        let bases = [
            (None, "no forwarders"),
            (Some(JOINED), "FIFO (to-agg)"),
            (Some(HBRR), "HBRR"),
            (Some(SERVER_WINDOW), "SW"),
        ];
        for ((base, called), thesis) in bases.into_iter().zip(figures) {
            let what = format!("read {}, {pattern}: TWINS (1 ms) than {called}", spaced(request));
            row(&what, thesis, against("read", request, pattern, TWINS, base));
        }
    }
    row(
        "read 32 KiB, shared, strided: TWINS (8 ms) than FIFO (to-agg)",
        "up to 28 %",
        against("read", small, STRIDED, TWINS_8MS, Some(JOINED)),
    );
    row(
        "read 32 KiB, shared, strided: TWINS (8 ms) than no forwarders",
        "up to 50 %",
        against("read", small, STRIDED, TWINS_8MS, None),
    );
    row(
        "read 32 KiB, shared, strided: TWINS (8 ms) than fifo without joining",
        "-",
        against("read", small, STRIDED, TWINS_8MS, Some(FIFO)),
    );
    Section {
        title: "The numbers in the thesis's text".into(),
        scenarios: ["twins-direct", "twins-schedulers"].map(String::from).into(),
        paper: "Sections 3.4.3, 3.4.4, 5 and 5.2. A negative number is a longer time.".into(),
        tables: vec![(String::new(), table)],
        pictures: Vec::new(),
        verdict: "Agrees: the gain of TWINS over FIFO for strided reads of 32 KiB, with 8 ms beyond the thesis's; large writes \
                  suffer little from forwarders on shared files. Differs: nearly all else. The thesis explains the gain of \
                  forwarding by concurrency at the servers, which it reduces from 128 clients to four. In ours a server is not \
                  slower for having more clients, and the network loses nothing (see figure 5.5), so that forwarders only add a way \
                  and a queue. HBRR, MLF and SW are no worse than TWINS of 1 ms on average, but their intervals are wide: in some \
                  seeds the processes keep in step for longer than in others."
            .into(),
    }
}

fn collective(lab: &Lab<'_>, direct: &Experiment, schedulers: &Experiment) -> Result<Section, Failure> {
    let results = lab.experiment("twins-collective")?;
    let mut table = Table::new([
        "",
        "no forwarders",
        "to-agg",
        "twins, 1 ms",
        "twins, 8 ms",
        "collective, to-agg",
        "collective, twins, 1 ms",
    ]);
    for op in results.values(OP) {
        for (request, case) in [("32KiB", "32 KiB"), ("256KiB", "256 KiB")] {
            let (op_is, request_is, strided) = ((OP, op.as_str()), (REQUEST, request), (PATTERN, STRIDED));
            let plain = |gate| time(schedulers, &[op_is, request_is, strided, (GATE, gate)]);
            let together = |gate| time(&results, &[op_is, (PATTERN, case), (GATE, gate)]);
            table.row([
                format!("{op} {case}"),
                time(direct, &[op_is, request_is, strided]),
                plain(JOINED),
                plain(TWINS),
                plain(TWINS_8MS),
                together(JOINED),
                together(TWINS),
            ]);
        }
    }
    Ok(Section {
        title: "Figure 5.6: collective calls".into(),
        scenarios: ["twins-collective", "twins-direct", "twins-schedulers"].map(String::from).into(),
        paper: "The thesis: for strided reads of 32 KiB TWINS is as fast as collective calls.".into(),
        tables: vec![(
            "Makespan of strided accesses; 32 processes do the I/O of a collective call".into(),
            table,
        )],
        pictures: Vec::new(),
        verdict: "Differs: collective calls are as fast as the disks, since a call of all processes is a piece of the file that is \
                  read from end to end, and the processes wait for each other, so that nobody can go ahead; TWINS without them takes \
                  ten to eighteen times as long with 32 KiB, and twice as long with 256 KiB. Where the processes keep in step by \
                  themselves collective calls gain nothing."
            .into(),
    })
}
