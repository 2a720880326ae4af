//! Sizes of requests and distances of offsets on the way from the clients to the servers.

use iogate_report::Table;
use iogate_report::claims::Verdict;
use iogate_sim::metrics::SERVERS;

use super::{
    CONTIGUOUS, FIFO, FORWARDERS, GATE, HBRR, JOINED, OP, PATTERN, REQUEST, SERVER_WINDOW, STRIDED, TWINS,
    TWINS_8MS, name,
};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{NEAR, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

/// What the thesis has for each of its columns.
pub(super) type Columns = [Option<f64>; 4];

pub(super) const NONE: Columns = [None; 4];

/// The thesis's columns.
pub(super) const COLUMNS: [(&str, &str); 4] =
    [(STRIDED, "read"), (STRIDED, "write"), (CONTIGUOUS, "read"), (CONTIGUOUS, "write")];

/// Scheduler, the thesis's name, KB that leave the forwarders, and KB that arrive at the servers.
pub(super) const SIZES: [(&str, &str, Columns, Columns); 9] = [
    (
        JOINED,
        "FIFO",
        [Some(57.75), Some(57.72), Some(57.72), Some(57.79)],
        [Some(49.87), Some(49.23), Some(43.52), Some(43.66)],
    ),
    (
        HBRR,
        "HBRR",
        [Some(57.77), Some(57.68), Some(57.77), Some(57.69)],
        [Some(49.80), Some(49.36), Some(42.75), Some(43.65)],
    ),
    (
        JOINED,
        "TO",
        [Some(75.09), Some(65.70), Some(77.07), Some(66.34)],
        [Some(53.69), Some(51.41), Some(53.37), Some(50.98)],
    ),
    (FIFO, "-", NONE, NONE),
    (
        "sjf",
        "SJF",
        [Some(74.79), Some(65.71), Some(76.81), Some(65.91)],
        [Some(53.63), Some(51.33), Some(53.31), Some(50.94)],
    ),
    (
        "mlf",
        "MLF",
        [Some(79.59), Some(66.39), Some(76.53), Some(66.82)],
        [Some(51.17), Some(48.31), Some(50.44), Some(49.22)],
    ),
    (
        SERVER_WINDOW,
        "SW (1 s)",
        [Some(73.08), Some(64.93), Some(72.64), Some(64.11)],
        [Some(50.08), Some(48.38), Some(50.16), Some(48.17)],
    ),
    (
        TWINS,
        "TWINS (1 ms)",
        [Some(119.29), Some(87.83), Some(106.17), Some(78.08)],
        [Some(57.79), Some(51.41), Some(53.15), Some(48.07)],
    ),
    (
        TWINS_8MS,
        "TWINS (8 ms)",
        [Some(149.99), Some(95.75), Some(162.60), Some(85.66)],
        [Some(68.08), Some(49.25), Some(61.38), Some(46.71)],
    ),
];

/// MB between requests that leave the forwarders.
const DISTANCES: [(&str, &str, Columns); 8] = [
    (JOINED, "FIFO", [Some(42.94), Some(47.83), Some(1358.18), Some(1353.51)]),
    (HBRR, "HBRR", [Some(42.05), Some(47.57), Some(1357.22), Some(1353.79)]),
    (FIFO, "-", NONE),
    ("sjf", "SJF", NONE),
    ("mlf", "MLF", NONE),
    (SERVER_WINDOW, "SW (1 s)", NONE),
    (TWINS, "TWINS (1 ms)", NONE),
    (TWINS_8MS, "TWINS (8 ms)", NONE),
];

/// How far a size may be from the thesis's.
pub(super) const NEAR_PERCENT: f64 = 20.0;

/// What the thesis has of a scheduler, ours beside it, and whether each is near.
fn row(
    results: &Experiment,
    (gate, called): (&str, &str),
    thesis: Columns,
    (layer, metric): (&str, &str),
    unit: f64,
) -> Result<(Vec<String>, Vec<Verdict>), Failure> {
    let mut cells =
        vec![if called == "-" { name(gate).to_owned() } else { format!("{called} ({})", name(gate)) }];
    let mut near = Vec::new();
    for ((pattern, op), thesis) in COLUMNS.iter().zip(thesis) {
        let at = [(OP, *op), (REQUEST, "32KiB"), (PATTERN, *pattern), (GATE, gate)];
        let ours = results.layer_cell(&at, layer, metric)?.map(|bytes| bytes / unit).interval();
        cells.push(thesis.map_or("-".into(), |thesis| format!("{thesis:.2}")));
        cells.push(results.layer(&at, layer, metric));
        let width = |thesis: f64| thesis * NEAR_PERCENT / 100.0;
        near.extend(
            ours.zip(thesis)
                .map(|(ours, thesis)| within(ours, thesis - width(thesis), thesis + width(thesis))),
        );
    }
    Ok((cells, near))
}

pub(super) fn figures(results: &Experiment) -> Result<[Figure<'_>; 2], Failure> {
    const KIB: f64 = 1024.0;
    const MIB: f64 = 1024.0 * KIB;
    let head = |first: &str| {
        let columns = COLUMNS.map(|(pattern, op)| [format!("{pattern}, {op}: thesis"), "ours".into()]);
        Table::new(std::iter::once(first.to_owned()).chain(columns.into_iter().flatten()))
    };
    let mut sheet = Sheet::of("tables 3.1, 3.3, 4.1 and 5.1");
    let (mut leaving, mut servers) = (head("leaving the forwarders"), head("arriving at the servers"));
    for (gate, called, left, arrived) in SIZES {
        let (cells, near) = row(results, (gate, called), left, (FORWARDERS, "dispatch_bytes"), KIB)?;
        leaving.row(cells);
        let what =
            format!("{called}: sizes that leave the forwarders within {NEAR_PERCENT} % of the thesis's");
        if left != NONE {
            sheet.everywhere(what, near.into_iter().map(Some));
        }
        let (cells, near) = row(results, (gate, called), arrived, (SERVERS, "request_bytes"), KIB)?;
        servers.row(cells);
        let what =
            format!("{called}: sizes that arrive at the servers within {NEAR_PERCENT} % of the thesis's");
        if arrived != NONE {
            sheet.everywhere(what, near.into_iter().map(Some));
        }
    }
    let mut distant = Sheet::of("table 3.2");
    let mut distances = head("leaving the forwarders");
    for (gate, called, thesis) in DISTANCES {
        distances.row(row(results, (gate, called), thesis, (FORWARDERS, "offset_distance"), MIB)?.0);
        for ((pattern, op), thesis) in COLUMNS.iter().zip(thesis) {
            let Some(thesis) = thesis else { continue };
            let at = [(OP, *op), (REQUEST, "32KiB"), (PATTERN, *pattern), (GATE, gate)];
            let ours = results.layer_cell(&at, FORWARDERS, "offset_distance")?.map(|bytes| bytes / MIB);
            distant.number(format!("{called}, {pattern}, {op}"), thesis, " MB", ours.interval(), NEAR);
        }
    }
    Ok([
        Figure {
            title: "Tables 3.1, 3.3, 4.1 and 5.1: sizes of requests on their way".into(),
            results: vec![results],
            setup: "The thesis: requests of 32 KB to a shared file, mean sizes in KB (powers of 1024). Requests leave the clients as they \
                    arrive at the forwarders."
                .into(),
            sheet,
            tables: vec![("Leaving the forwarders".into(), leaving), ("Arriving at the servers".into(), servers)],
            remarks: "Requests of more than a stripe are cut again on their way to the servers. Contiguous processes' requests are never \
                      adjacent, so ours leave as they came, while IOFSL also joins what is not adjacent (list I/O). For the same reason \
                      TWINS, which joins nothing in ours, has larger ones in the thesis. AGIOS's schedulers owe some of their size in the \
                      thesis to a delay of the library, which ours do not have."
                .into(),
            ..Figure::default()
        },
        Figure {
            title: "Table 3.2: distances of offsets".into(),
            results: vec![results],
            setup: "The thesis: from each request that leaves a forwarder to the next, in MB (powers of 1024), mean; requests of 32 KB to a \
                    shared file."
                .into(),
            sheet: distant,
            tables: vec![("Leaving the forwarders".into(), distances)],
            remarks: "The mean distance of two random places of a file is a third of it. HBRR takes what is queued in offset order; the \
                      thesis's had next to nothing queued."
                .into(),
            ..Figure::default()
        },
    ])
}
