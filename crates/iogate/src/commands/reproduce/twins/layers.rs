//! Sizes of requests and distances of offsets on the way from the clients to the servers.

use iogate_report::Table;
use iogate_report::reproduction::Section;
use iogate_sim::metrics::SERVERS;

use super::{
    CONTIGUOUS, FIFO, FORWARDERS, GATE, HBRR, JOINED, OP, PATTERN, REQUEST, SERVER_WINDOW, STRIDED, TWINS,
    TWINS_8MS, name,
};
use crate::commands::reproduce::Experiment;

/// The thesis's columns.
const COLUMNS: [(&str, &str); 4] =
    [(STRIDED, "read"), (STRIDED, "write"), (CONTIGUOUS, "read"), (CONTIGUOUS, "write")];

/// Scheduler, the thesis's name, KB that leave the forwarders, and KB that arrive at the servers.
const SIZES: [(&str, &str, [&str; 4], [&str; 4]); 9] = [
    (JOINED, "FIFO", ["57.75", "57.72", "57.72", "57.79"], ["49.87", "49.23", "43.52", "43.66"]),
    (HBRR, "HBRR", ["57.77", "57.68", "57.77", "57.69"], ["49.80", "49.36", "42.75", "43.65"]),
    (JOINED, "TO", ["75.09", "65.70", "77.07", "66.34"], ["53.69", "51.41", "53.37", "50.98"]),
    (FIFO, "-", ["-"; 4], ["-"; 4]),
    ("sjf", "SJF", ["74.79", "65.71", "76.81", "65.91"], ["53.63", "51.33", "53.31", "50.94"]),
    ("mlf", "MLF", ["79.59", "66.39", "76.53", "66.82"], ["51.17", "48.31", "50.44", "49.22"]),
    (SERVER_WINDOW, "SW (1 s)", ["73.08", "64.93", "72.64", "64.11"], ["50.08", "48.38", "50.16", "48.17"]),
    (TWINS, "TWINS (1 ms)", ["119.29", "87.83", "106.17", "78.08"], ["57.79", "51.41", "53.15", "48.07"]),
    (TWINS_8MS, "TWINS (8 ms)", ["149.99", "95.75", "162.60", "85.66"], ["68.08", "49.25", "61.38", "46.71"]),
];

/// MB between requests that leave the forwarders.
const DISTANCES: [(&str, &str, [&str; 4]); 8] = [
    (JOINED, "FIFO", ["42.94", "47.83", "1358.18", "1353.51"]),
    (HBRR, "HBRR", ["42.05", "47.57", "1357.22", "1353.79"]),
    (FIFO, "-", ["-"; 4]),
    ("sjf", "SJF", ["-"; 4]),
    ("mlf", "MLF", ["-"; 4]),
    (SERVER_WINDOW, "SW (1 s)", ["-"; 4]),
    (TWINS, "TWINS (1 ms)", ["-"; 4]),
    (TWINS_8MS, "TWINS (8 ms)", ["-"; 4]),
];

pub(super) fn sections(results: &Experiment) -> [Section; 2] {
    let head = |first: &str| {
        let columns = COLUMNS.map(|(pattern, op)| [format!("{pattern}, {op}: thesis"), "ours".into()]);
        Table::new(std::iter::once(first.to_owned()).chain(columns.into_iter().flatten()))
    };
    let row = |gate: &str, called: &str, thesis: [&str; 4], layer: &str, metric: &str| {
        let called = if called == "-" { name(gate).to_owned() } else { format!("{called} ({})", name(gate)) };
        let cells = COLUMNS.iter().zip(thesis).flat_map(|((pattern, op), thesis)| {
            let at = [(OP, *op), (REQUEST, "32KiB"), (PATTERN, *pattern), (GATE, gate)];
            [thesis.to_owned(), results.layer(&at, layer, metric)]
        });
        std::iter::once(called).chain(cells).collect::<Vec<_>>()
    };
    let mut arriving = head("arriving at the forwarders");
    arriving.row(row(JOINED, "all", ["32"; 4], FORWARDERS, "request_bytes"));
    let (mut leaving, mut servers) = (head("leaving the forwarders"), head("arriving at the servers"));
    for (gate, called, left, arrived) in SIZES {
        leaving.row(row(gate, called, left, FORWARDERS, "dispatch_bytes"));
        servers.row(row(gate, called, arrived, SERVERS, "request_bytes"));
    }
    let mut distances = head("leaving the forwarders");
    for (gate, called, thesis) in DISTANCES {
        distances.row(row(gate, called, thesis, FORWARDERS, "offset_distance"));
    }
    [
        Section {
            title: "Tables 3.1, 3.3, 4.1 and 5.1: sizes of requests on their way".into(),
            scenarios: vec!["twins-schedulers".into()],
            paper: "The thesis: requests of 32 KB to a shared file, mean sizes in KB (powers of 1024). Requests leave the clients as \
                    they arrive at the forwarders. AGIOS's schedulers join more than FIFO and HBRR, and TWINS joins most; reads are \
                    joined more than writes with TWINS."
                .into(),
            tables: vec![
                ("Arriving at the forwarders".into(), arriving),
                ("Leaving the forwarders".into(), leaving),
                ("Arriving at the servers".into(), servers),
            ],
            pictures: Vec::new(),
            verdict: "Agrees: what FIFO and HBRR join of strided requests (48 to 51 KiB leave, 42 to 45 KiB arrive; the thesis has \
                      58 and 49 KB) follows from the pattern and from 16 dispatches on their way; requests of more than a stripe are \
                      cut again on their way to the servers; SJF and MLF join a little more. Differs: contiguous processes' requests \
                      are never adjacent, so ours leave as they came, while IOFSL also joins what is not adjacent (list I/O). For \
                      the same reason TWINS, which joins nothing in ours, has up to 163 KB in the thesis. AGIOS's schedulers owe \
                      some of their size in the thesis to a delay of the library, which ours do not have."
            .into(),
        },
        Section {
            title: "Table 3.2: distances of offsets".into(),
            scenarios: vec!["twins-schedulers".into()],
            paper: "The thesis: from each request that leaves a forwarder to the next, in MB, mean. HBRR does not bring requests \
                    nearer to each other than FIFO."
                .into(),
            tables: vec![("Leaving the forwarders, requests of 32 KB to a shared file".into(), distances)],
            pictures: Vec::new(),
            verdict: "Agrees for contiguous processes and FIFO: about a third of the file, which is the mean distance of two random \
                      places in it. Differs for strided ones: in ours processes drift further apart where requests are joined, and \
                      hardly at all where they are not. HBRR brings requests nearer, as it takes what is queued in offset order; the \
                      thesis's had next to nothing queued."
            .into(),
        },
    ]
}
