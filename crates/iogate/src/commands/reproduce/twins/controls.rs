//! Controls of what may make ours differ from the thesis's: depth for reads and writes, lists, servers' processors, other conditions of
//! collective calls.

use iogate_report::Table;
use iogate_report::claims::Interval;

use super::conditions::CASES;
use super::layers::{COLUMNS, NEAR_PERCENT, NONE, SIZES};
use super::schedulers::{no_difference, no_gain};
use super::{
    CONTIGUOUS, FIFO, FORWARDERS, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, STRIDED, TWINS,
    TWINS_8MS, name, spaced, time,
};
use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, Lab, factor};
use crate::failure::Failure;

/// From where on a difference is one, in percent.
const DIFFERENT: f64 = 10.0;
/// How many lists are in service at once.
const CALLS: &str = "forwarders.ion.batch_calls";

/// The experiments.
pub(super) struct Controls {
    reads: Experiment,
    writes: Experiment,
    lists: Experiment,
    processor: Experiment,
    processor_direct: Experiment,
    collective: Experiment,
    two: Experiment,
}

impl Controls {
    pub(super) fn run(lab: &Lab<'_>) -> Result<Controls, Failure> {
        let of = |name: &str| lab.experiment(&format!("twins-{name}"));
        Ok(Controls {
            reads: of("depth-reads")?,
            writes: of("depth-writes")?,
            lists: of("lists")?,
            processor: of("processor")?,
            processor_direct: of("processor-direct")?,
            collective: of("collective-below")?,
            two: of("two-applications-lists")?,
        })
    }

    /// All of them but that of two applications; `below` has TWINS under other conditions.
    pub(super) fn figures<'a>(&'a self, below: &'a Experiment) -> Result<[Figure<'a>; 5], Failure> {
        Ok([
            reads(&self.reads)?,
            writes(&self.writes)?,
            lists(&self.lists)?,
            processor(&self.processor, &self.processor_direct)?,
            collective(&self.collective, below)?,
        ])
    }

    /// That of two applications.
    pub(super) fn two(&self) -> &Experiment {
        &self.two
    }
}

/// HBRR, SJF and MLF against FIFO, of each size and pattern: by how many percent they are faster, and a table of each size.
type Passing = (Vec<(String, Vec<Option<Interval>>)>, Vec<(String, Table)>);

fn passing(results: &Experiment, op: &str) -> Result<Passing, Failure> {
    let (mut faster, mut tables) = (Vec::new(), Vec::new());
    for request in results.values(REQUEST) {
        let patterns = [PER_PROCESS, STRIDED, CONTIGUOUS];
        let mut table = Table::new(std::iter::once("").chain(patterns));
        for gate in results.values(GATE) {
            let cells = patterns
                .map(|pattern| time(results, &[(REQUEST, request), (PATTERN, pattern), (GATE, gate)]));
            table.row(std::iter::once(name(gate).to_owned()).chain(cells));
        }
        tables.push((format!("Makespan, {op} of {}", spaced(request)), table));
        for pattern in patterns {
            let cell =
                |gate| results.cell(&[(REQUEST, request), (PATTERN, pattern), (GATE, gate)], "makespan");
            let joined = cell(JOINED)?;
            let gains = [HBRR, "sjf", "mlf"].map(|gate| Ok(cell(gate)?.lower(&joined)));
            let gains: Result<Vec<_>, Failure> = gains.into_iter().collect();
            faster.push((format!("{op} of {}, {pattern}", spaced(request)), gains?));
        }
    }
    Ok((faster, tables))
}

fn reads(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("section 4.2.4, reads");
    let (faster, tables) = passing(results, "reads")?;
    let mut all = Vec::new();
    for (cells, faster) in faster {
        let alike: Vec<_> = faster.into_iter().map(no_difference).collect();
        all.extend(alike.iter().copied());
        let what = format!(
            "{cells}: with as many dispatches as calls, HBRR, SJF and MLF take as long as FIFO, within {DIFFERENT} %"
        );
        sheet.everywhere(what, alike);
    }
    sheet.everywhere(format!("all reads: they take as long as FIFO, within {DIFFERENT} %"), all);
    Ok(Figure {
        title: "Control: reads, where forwarders pass on everything".into(),
        results: vec![results],
        setup: "The statement of figures 3.6 and 3.7 on its own cells: the same sizes, patterns and schedulers, with as many dispatches on their \
                way as a forwarder has processes, so that no request stays in a queue to be sorted."
            .into(),
        sheet,
        tables,
        ..Figure::default()
    })
}

fn writes(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("section 4.2.4, writes");
    let (faster, tables) = passing(results, "writes")?;
    for (cells, faster) in faster {
        let what = format!(
            "{cells}: with as many dispatches as calls, none of HBRR, SJF and MLF gains {DIFFERENT} %"
        );
        sheet.everywhere(what, faster.into_iter().map(no_gain));
    }
    Ok(Figure {
        title: "Control: writes, where forwarders pass on everything".into(),
        results: vec![results],
        setup: "The thesis explains why schedulers do not differ by requests that do not stay in their queues. The section above has reads; here \
                are writes, with as many dispatches on their way as a forwarder has processes."
            .into(),
        sheet,
        tables,
        ..Figure::default()
    })
}

fn lists(results: &Experiment) -> Result<Figure<'_>, Failure> {
    const KIB: f64 = 1024.0;
    let mut sheet = Sheet::of("tables 3.1, 3.3, 4.1 and 5.1, lists");
    let (mut tables, mut makespans) = (Vec::new(), Vec::new());
    for calls in results.values(CALLS) {
        let columns = COLUMNS.map(|(pattern, op)| [format!("{pattern}, {op}: thesis"), "ours".into()]);
        let mut table = Table::new(std::iter::once(String::new()).chain(columns.into_iter().flatten()));
        for (gate, called, thesis, _) in SIZES.into_iter().filter(|(_, _, left, _)| *left != NONE) {
            // What IOFSL joins behind them need not be joined in them.
            let gate = if gate == JOINED { FIFO } else { gate };
            if !results.values(GATE).iter().any(|known| known == gate) {
                continue;
            }
            let (mut near, mut row) = (Vec::new(), vec![format!("{called} ({})", name(gate))]);
            for ((pattern, op), thesis) in COLUMNS.into_iter().zip(thesis) {
                let at = [(OP, op), (CALLS, calls.as_str()), (PATTERN, pattern), (GATE, gate)];
                let ours = results.layer_cell(&at, FORWARDERS, "list_bytes")?.map(|bytes| bytes / KIB);
                row.push(thesis.map_or("-".into(), |thesis| format!("{thesis:.2}")));
                row.push(results.layer(&at, FORWARDERS, "list_bytes"));
                let width = |thesis: f64| thesis * NEAR_PERCENT / 100.0;
                near.extend(ours.interval().zip(thesis).map(|(ours, thesis)| {
                    Some(within(ours, thesis - width(thesis), thesis + width(thesis)))
                }));
            }
            table.row(row);
            let what = format!(
                "{called}, calls at once: {calls}; sizes that leave the forwarders within {NEAR_PERCENT} % of the thesis's"
            );
            sheet.everywhere(what, near);
        }
        tables.push((format!("Leaving the forwarders, {calls} calls at once"), table));
        let mut table = Table::new(
            std::iter::once(String::new()).chain(COLUMNS.map(|(pattern, op)| format!("{pattern}, {op}"))),
        );
        for gate in results.values(GATE) {
            let cells = COLUMNS.map(|(pattern, op)| {
                time(results, &[(OP, op), (CALLS, calls), (PATTERN, pattern), (GATE, gate)])
            });
            table.row(std::iter::once(name(gate).to_owned()).chain(cells));
        }
        makespans.push((format!("Makespan, {calls} calls at once"), table));
    }
    Ok(Figure {
        title: "Control: forwarders that join what is not adjacent".into(),
        results: vec![results],
        setup: "The thesis's IOFSL has a queue behind its scheduler, from which up to 16 requests of a file go on in one call. Here is such a \
                queue behind ours, and half of the data. How many of its calls are in service at once nobody says: it is shown with few and \
                with many. Where a forwarder takes all that comes at once, HBRR and SW do what FIFO does."
            .into(),
        sheet,
        tables: tables.into_iter().chain(makespans).collect(),
        remarks: "What is joined is what has come while all calls were in service: the fewer they are, the larger is what leaves.".into(),
        ..Figure::default()
    })
}

fn processor<'a>(results: &'a Experiment, direct: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("abstract, servers' processors");
    let gates = [FIFO, JOINED, TWINS, TWINS_8MS];
    let mut table = Table::new(["a connection costs", "no forwarders"].into_iter().chain(gates.map(name)));
    for case in results.values(PATTERN) {
        let none = direct.cell(&[(PATTERN, case)], "makespan")?;
        let cell = |gate| results.cell(&[(PATTERN, case), (GATE, gate)], "makespan");
        for (gate, called, thesis) in [(TWINS_8MS, "TWINS (8 ms)", 50.0), (JOINED, "FIFO (to-agg)", 31.70)] {
            let what = format!(
                "{case} for a connection, strided reads of 32 KiB: {called} faster than no forwarders by"
            );
            sheet.change(what, thesis, cell(gate)?.lower(&none));
        }
        let cells = gates.map(|gate| time(results, &[(PATTERN, case), (GATE, gate)]));
        table.row([case.clone(), time(direct, &[(PATTERN, case)])].into_iter().chain(cells));
    }
    Ok(Figure {
        title: "Control: servers that are slower for having more clients".into(),
        results: vec![results, direct],
        setup: "The thesis explains the gain of forwarding by concurrency at the servers. Here a server's processor takes the time between two \
                arrivals of the thesis for each read, and some more for each node that has a connection to it, of which there are fewer with \
                forwarders. How long PVFS2 takes for a connection nobody has published: it is shown short and long."
            .into(),
        sheet,
        tables: vec![("Makespan of strided reads".into(), table)],
        remarks: "A processor takes in the next requests while the disk serves those before: its time is seen only where it is the longer one."
            .into(),
        ..Figure::default()
    })
}

fn collective<'a>(results: &'a Experiment, below: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 5.6, conditions");
    let mut table = Table::new([
        "",
        "collective, to-agg",
        "twins, 1 ms",
        "by collective",
        "twins, 8 ms",
        "by collective",
    ]);
    for (case, called) in
        CASES.into_iter().filter(|(case, _)| results.values(PATTERN).iter().any(|of| of == case))
    {
        let joint = results.cell(&[(PATTERN, case)], "makespan")?;
        let mut row = vec![called.to_owned(), time(results, &[(PATTERN, case)])];
        for gate in [TWINS, TWINS_8MS] {
            let at = [(PATTERN, case), (GATE, gate)];
            let ours = below.cell(&at, "makespan")?.by(&joint);
            sheet.same(format!("{called}: {} by collective calls", name(gate)), ours);
            row.extend([time(below, &at), factor(ours)]);
        }
        table.row(row);
    }
    Ok(Figure {
        title: "Control: collective calls under other conditions".into(),
        results: vec![results, below],
        setup: "Figure 5.6 under the conditions of the section above that the thesis does not tell: other disks, other noise, another order below."
            .into(),
        sheet,
        tables: vec![("Makespan of strided reads of 32 KiB".into(), table)],
        remarks: "The slower disks do not stream for collective calls either.".into(),
        ..Figure::default()
    })
}
