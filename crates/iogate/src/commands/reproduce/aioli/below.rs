//! Figures 5 and 7 and table 2 with what lay between the paper's clients and its disk: controls.

use iogate_report::Table;
use iogate_report::claims::{Interval, Tolerance, Verdict};

use super::{ALL_TEN, CALLS, GAINS, GAP_MOST, JOINT_GAINS, OP, REQUEST, SCHEDULER, gap, seconds};
use crate::commands::reproduce::claims::{Cell, NEAR, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, factor};
use crate::failure::Failure;

const GATE: &str = "servers.gate";
const BELOW: &str = "below";
const OUTSTANDING: &str = "app.reader.outstanding";
/// How much `aioli` sees, and what that is called.
const SEEN: [(&str, &str); 2] = [
    ("aioli", "few slots, aioli sees everything"),
    ("aioli(queue=8)", "few slots, aioli sees eight requests"),
];

/// Whether a gain lies between the paper's, as near as figures have to be.
fn as_published(gain: Option<Interval>, (least, most): (f64, f64)) -> Option<Verdict> {
    let Tolerance::Percent(percent) = NEAR else { return None };
    Some(within(gain?, least * (1.0 - percent / 100.0), most * (1.0 + percent / 100.0)))
}

pub(super) fn slots<'a>(posix: &'a Experiment, results: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 7, few slots of a mount");
    let time = |request: &str, gate: &str| results.cell(&[(REQUEST, request), (GATE, gate)], "makespan");
    let as_in_range = |sheet: &mut Sheet, called: &str, request: &str, gain| {
        let what = format!("{called}, calls of {request}: the gain is one of the paper's");
        sheet.everywhere(what, [as_published(gain, GAINS)]);
    };
    for request in posix.values(REQUEST) {
        let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler)];
        let gain = posix.factor(&at("fifo"), &at("aioli"), "makespan");
        as_in_range(&mut sheet, "slots enough, aioli sees everything", request, gain);
    }
    for (gate, called) in SEEN {
        let (mut gains, mut near) = (Vec::new(), Vec::new());
        for request in results.values(REQUEST) {
            let gain = time(request, "fifo")?.by(&time(request, gate)?);
            as_in_range(&mut sheet, called, request, gain);
            gains.extend(gain);
            let between = gap(results, &[(REQUEST, request), (GATE, gate)])?.interval();
            near.push(between.map(|gap| within(gap, f64::NEG_INFINITY, GAP_MOST)));
        }
        sheet.factors(format!("{called}: gain of two IORs, plain calls"), GAINS, gains);
        sheet.everywhere(format!("{called}: between the ends of the two at most {GAP_MOST} s"), near);
    }
    let columns =
        SEEN.iter().flat_map(|(_, called)| [(*called).to_owned(), "gain".into(), "between the two".into()]);
    let mut table =
        Table::new(["granularity".to_owned(), "few slots, fifo".into()].into_iter().chain(columns));
    for request in results.values(REQUEST) {
        let mut row = vec![request.clone(), results.shown(&[(REQUEST, request), (GATE, "fifo")], "makespan")];
        for (gate, _) in SEEN {
            let at = [(REQUEST, request.as_str()), (GATE, gate)];
            row.push(results.shown(&at, "makespan"));
            row.push(factor(time(request, "fifo")?.by(&time(request, gate)?)));
            row.push(seconds(gap(results, &at)?.interval()));
        }
        table.row(row);
    }
    Ok(Figure {
        title: "Control: figure 7 through mounts with few slots".into(),
        results: vec![posix, results],
        setup: "Not in the paper, which does not tell how its clients' mounts were tuned. Figure 7 again, where a mount has no more requests \
                unanswered than Linux's NFS has slots by default. That a gain is one of the paper's means that it lies between its least and \
                its largest, within the tolerance of other figures."
            .into(),
        sheet,
        tables: vec![("Until both are done".into(), table)],
        remarks: "Of a large call only a part is at the server at once, so that the plain server goes from one process's part to the next one's, \
                  with a seek between them."
            .into(),
        ..Figure::default()
    })
}

/// The reference of figure 5 with few transfers at a time.
pub(super) fn synchronous<'a>(ior: &'a Experiment, reader: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 5, one transfer at a time");
    let one = reader.cell(&[(OUTSTANDING, "1")], "bandwidth")?;
    let mut dip = Vec::new();
    for request in ior.values(REQUEST) {
        let aioli = [(OP, "read"), (REQUEST, request.as_str()), (SCHEDULER, "aioli")];
        let aioli = ior.cell(&aioli, "bandwidth")?;
        if is_dip(request) {
            dip.push(aioli.less(&one));
        } else {
            let what = format!("one transfer at a time, reads of {request}: aioli passes one reader");
            sheet.everywhere(what, [one.less(&aioli)]);
        }
    }
    sheet.everywhere("one transfer at a time: aioli stays below one reader where the paper's does", dip);
    let mut table = Table::new(["transfers at a time", "one reader"]);
    for outstanding in reader.values(OUTSTANDING) {
        table.row([outstanding.clone(), reader.shown(&[(OUTSTANDING, outstanding.as_str())], "bandwidth")]);
    }
    Ok(Figure {
        title: "Control: figure 5 beside a reader that has one transfer at a time".into(),
        results: vec![ior, reader],
        setup: "The paper's reference is a large sequential synchronous access of one node, and stays below what its disk does at most. Ours \
                in figure 5 reads ahead. Here it waits for each transfer of NFS before it asks for the next one."
            .into(),
        sheet,
        tables: vec![("What the disk gives one reader".into(), table)],
        remarks: "With one transfer at a time the disk has gone on when the next one comes, and nothing here has read it meanwhile: a drive or a \
                  server that reads ahead would bring the reader nearer to the disk's rate (see the section on a page cache)."
            .into(),
        ..Figure::default()
    })
}

/// Where the paper's curve has a dip.
fn is_dip(request: &str) -> bool {
    ["128KiB", "512KiB"].contains(&request)
}

/// What was run on a server with a page cache.
pub(super) struct Cached {
    pub(super) ior: Experiment,
    pub(super) sequential: Experiment,
    pub(super) collective: Experiment,
    pub(super) ten: Experiment,
}

/// What was run on a bare disk.
#[derive(Clone, Copy)]
pub(super) struct Bare<'a> {
    pub(super) ior: &'a Experiment,
    pub(super) sequential: &'a Experiment,
    pub(super) collective: &'a Experiment,
}

const NOTHING: &str = "nothing below";
const CACHE: &str = "page cache";

pub(super) fn cached<'a>(bare: Bare<'a>, results: &'a Cached) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 5, page cache below");
    let mut tables = Vec::new();
    one_ior(&mut sheet, NOTHING, bare.ior, bare.sequential)?;
    for (op, table) in one_ior(&mut sheet, CACHE, &results.ior, &results.sequential)? {
        tables.push((format!("One IOR on a page cache: bandwidth, {op}s"), table));
    }
    sheet.next("figure 7, page cache below");
    let mut joint = Table::new(["below", "granularity", "fifo", "aioli", "gain"]);
    together(&mut sheet, &mut joint, NOTHING, bare.collective, &[])?;
    for below in results.collective.values(BELOW) {
        together(&mut sheet, &mut joint, below, &results.collective, &[(BELOW, below)])?;
    }
    tables.push(("Two IORs with collective calls: until both are done".into(), joint));
    sheet.next("table 2, page cache below");
    let mut all = Table::new(["below", "fifo", "aioli", "gain"]);
    let ten = &results.ten;
    for below in ten.values(BELOW) {
        let at = |scheduler| [(BELOW, below.as_str()), (SCHEDULER, scheduler)];
        let cell = |scheduler| -> Result<Cell, Failure> { ten.cell(&at(scheduler), "makespan") };
        let gain = cell("fifo")?.by(&cell("aioli")?);
        let published = (100.0 * ALL_TEN.0 / ALL_TEN.1).round() / 100.0;
        sheet.factor(format!("{below}: all of them; gain"), published, gain);
        let time = |scheduler| ten.shown(&at(scheduler), "makespan");
        all.row([below.clone(), time("fifo"), time("aioli"), factor(gain)]);
    }
    tables.push(("The ten applications of table 2: until all are done".into(), all));
    let Cached { ior, sequential, collective, .. } = results;
    Ok(Figure {
        title: "Control: a page cache below the server".into(),
        results: vec![bare.ior, bare.sequential, bare.collective, ior, sequential, collective, ten],
        setup: "The paper's server had 2 GB of memory. Figure 5, figure 7 with collective calls, and table 2 again, on a server with the page \
                cache of a Linux of the time; and the latter two with its elevator as well. Single granularities are compared, within the \
                tolerance of other figures, as not all need have one cause."
            .into(),
        sheet,
        tables,
        ..Figure::default()
    })
}

/// Figure 5 on what lies below: its claims, and a table for each operation.
fn one_ior(
    sheet: &mut Sheet,
    below: &str,
    ior: &Experiment,
    sequential: &Experiment,
) -> Result<Vec<(&'static str, Table)>, Failure> {
    let mut tables = Vec::new();
    for op in ["read", "write"] {
        let mut table = Table::new(["granularity", "fifo", "aioli", "gain", "one reader or writer"]);
        for request in ior.values(REQUEST) {
            let at = |scheduler| [(OP, op), (REQUEST, request.as_str()), (SCHEDULER, scheduler)];
            let one = [("app.reader.op", op), ("app.reader.request", request.as_str())];
            let (fifo, aioli) = (ior.cell(&at("fifo"), "bandwidth")?, ior.cell(&at("aioli"), "bandwidth")?);
            let reference = sequential.cell(&one, "bandwidth")?;
            if op == "write" {
                let what = format!("{below}, writes of {request}: aioli is as fast as one writer");
                sheet.everywhere(what, [as_published(aioli.by(&reference), (1.0, 1.0))]);
            } else if !is_dip(request) {
                let what = format!("{below}, reads of {request}: aioli passes one reader");
                sheet.everywhere(what, [reference.less(&aioli)]);
            }
            table.row([
                request.clone(),
                ior.shown(&at("fifo"), "bandwidth"),
                ior.shown(&at("aioli"), "bandwidth"),
                factor(aioli.by(&fifo)),
                sequential.shown(&one, "bandwidth"),
            ]);
        }
        tables.push((op, table));
    }
    Ok(tables)
}

/// Figure 7 with collective calls on what lies below: its claims, and rows of a table.
fn together(
    sheet: &mut Sheet,
    table: &mut Table,
    called: &str,
    results: &Experiment,
    below: &[(&str, &str)],
) -> Result<(), Failure> {
    for request in results.values(CALLS) {
        let at = |scheduler| -> Vec<(&str, &str)> {
            below.iter().copied().chain([(CALLS, request.as_str()), (SCHEDULER, scheduler)]).collect()
        };
        let (fifo, aioli) = (results.cell(&at("fifo"), "makespan")?, results.cell(&at("aioli"), "makespan")?);
        let gain = fifo.by(&aioli);
        let what = format!("{called}, collective calls of {request}: the gain is one of the paper's");
        sheet.everywhere(what, [as_published(gain, JOINT_GAINS)]);
        let time = |scheduler| results.shown(&at(scheduler), "makespan");
        table.row([called.to_owned(), request.clone(), time("fifo"), time("aioli"), factor(gain)]);
    }
    Ok(())
}
