//! What the results depend on.

use iogate_report::Table;

use super::{
    CONTIGUOUS, FIFO, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, Results, SERVER_WINDOW, STRIDED,
    TWINS, TWINS_8MS, name, time,
};
use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

/// From where on a difference is one.
const DIFFERENT: f64 = 1.1;
const POINTS: f64 = 10.0;

pub(super) fn figures(results: &Results) -> Result<Vec<Figure<'_>>, Failure> {
    Ok(vec![depth(results)?, below(results)?])
}

/// The scheduler with so many dispatches on their way.
fn with_depth(gate: &str, depth: u32) -> String {
    match gate.strip_suffix(')') {
        Some(open) => format!("{open},depth={depth})"),
        None => format!("{gate}(depth={depth})"),
    }
}

fn depth(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { schedulers: usual, depth: results, .. } = results;
    let mut tables = Vec::new();
    let mut sheet = Sheet::of("section 4.2.4");
    for pattern in [PER_PROCESS, STRIDED, CONTIGUOUS] {
        let mut table = Table::new(["", "4 dispatches", "16 (as above)", "32"]);
        let gates = [FIFO, JOINED, HBRR, SERVER_WINDOW, TWINS, TWINS_8MS];
        for gate in gates {
            let other = |depth| time(results, &[(PATTERN, pattern), (GATE, &with_depth(gate, depth))]);
            let at = [(OP, "read"), (REQUEST, "32KiB"), (PATTERN, pattern), (GATE, gate)];
            table.row([name(gate).to_owned(), other(4), time(usual, &at), other(32)]);
        }
        let cell =
            |gate: &str| results.cell(&[(PATTERN, pattern), (GATE, &with_depth(gate, 32))], "makespan");
        let fifo = cell(FIFO)?;
        let alike = [JOINED, HBRR, SERVER_WINDOW].map(|gate| {
            let ratio = cell(gate)?.by(&fifo);
            Ok(ratio.map(|ratio| within(ratio, 1.0 / DIFFERENT, DIFFERENT)))
        });
        let alike: Result<Vec<_>, Failure> = alike.into_iter().collect();
        let what = format!(
            "{pattern}: with as many dispatches as calls, FIFO, HBRR and SW take as long, within {POINTS} %"
        );
        sheet.everywhere(what, alike?);
        tables.push((format!("{pattern}, reads of 32 KiB"), table));
    }
    Ok(Figure {
        title: "Chapters 3 and 4: why schedulers do not differ".into(),
        results: vec![results, usual],
        setup: "The thesis: FIFO, HBRR, TO, SJF, MLF and SW hardly differ; traces show that requests do not stay in the scheduler's queue long \
                enough to be sorted (section 4.2.4), as the forwarder's dispatch queue takes them at once. In ours a gate takes no more than \
                so many dispatches at once; each forwarder serves 32 processes with one call each."
            .into(),
        sheet,
        tables,
        remarks: "TWINS holds requests back even where everything is passed on at once.".into(),
        ..Figure::default()
    })
}

/// What is varied, and what it is called.
pub(super) const CASES: [(&str, &str); 11] = [
    ("strided: arrival order", "strided, as above"),
    ("strided: adjacent joined", "strided, servers join adjacent requests (`to-agg`)"),
    ("strided: offset order", "strided, servers serve the lowest offset first"),
    ("strided: slower disks", "strided, slower disks (`graphene`)"),
    ("strided: the thesis's disks", "strided, such disks as the thesis's (`sas-10k-600g`)"),
    ("strided: no noise", "strided, no computing before calls"),
    ("strided: noise of 100 us", "strided, 100 us of computing on average"),
    ("strided: noise of 1 ms", "strided, 1 ms of computing on average"),
    ("strided: a barrier after each call", "strided, a barrier after each call"),
    ("file per process: files apart", "file per process, as above: files 256 MiB apart"),
    ("file per process: files adjoin", "file per process, files adjoin"),
];

fn below(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { below: results, below_direct: direct, .. } = results;
    let gates = [FIFO, JOINED, HBRR, TWINS, TWINS_8MS];
    let head = ["", "no forwarders"].into_iter().chain(gates.map(name));
    let mut table = Table::new(head);
    let mut sheet = Sheet::of("conditions");
    for (case, called) in CASES {
        let cells = gates.iter().map(|gate| time(results, &[(PATTERN, case), (GATE, gate)]));
        let first = [called.to_owned(), time(direct, &[(PATTERN, case)])];
        table.row(first.into_iter().chain(cells));
        let cell = |gate| results.cell(&[(PATTERN, case), (GATE, gate)], "makespan");
        let (narrow, joined, none) =
            (cell(TWINS)?, cell(JOINED)?, direct.cell(&[(PATTERN, case)], "makespan")?);
        if case.starts_with("strided") {
            sheet.change(
                format!("{called}: TWINS (1 ms) faster than FIFO (to-agg) by"),
                24.03,
                narrow.lower(&joined),
            );
            sheet.change(
                format!("{called}: FIFO (to-agg) faster than no forwarders by"),
                31.70,
                joined.lower(&none),
            );
        } else {
            sheet.change(
                format!("{called}: FIFO (to-agg) faster than no forwarders by"),
                35.80,
                joined.lower(&none),
            );
        }
    }
    Ok(Figure {
        title: "What the results depend on".into(),
        results: vec![results, direct],
        setup: "Not in the thesis. Reads of 32 KiB under other conditions that the thesis does not tell, against its figures.".into(),
        sheet,
        tables: vec![("Makespan".into(), table)],
        remarks: "Where processes wait for each other after each call nobody can go ahead; where servers serve the lowest offset first, those \
                  that are behind go first. Without any computing before calls they keep in step by themselves: each has its turn in the \
                  same order, and the disks stream."
            .into(),
        ..Figure::default()
    })
}
