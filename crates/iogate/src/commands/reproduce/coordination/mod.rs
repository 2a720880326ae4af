//! Server coordination (Song, Yin, Sun, Thakur and Lang: Server-side I/O coordination for parallel file systems, SC 2011): formulas
//! (1) to (3), figures 3 and 5 to 8, and what the gain comes from.

mod below;
mod longer;

use iogate_report::Table;
use iogate_report::claims::{Interval, Verdict};
use iogate_report::html::lines::lines;
use iogate_sim::metrics::Unit;

use super::claims::{Cell, Sheet, within};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab, percents, shares};
use crate::failure::Failure;

pub(super) const GATE: &str = "servers.gate";
/// A queue for each file, served by turns, as PVFS2 has them.
pub(super) const BY_TURNS: &str = "hbrr(quantum=1)";
/// In the paper this is `ORI` and `CIO`; a single queue is ours.
pub(super) const FIFO: &str = "fifo";
const WINDOW: &str = "app-window(window=1s)";
const FLASH_WINDOW: &str = "app-window(window=250ms)";
const STEP: &str = "step_time_mean";

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let both = |name: &str| -> Result<[Experiment; 2], Failure> {
        Ok([lab.experiment(&format!("{name}-disk"))?, lab.experiment(&format!("{name}-flash"))?])
    };
    let (formulas, finish_times) =
        (lab.experiment("coordination-formulas")?, lab.experiment("coordination-finish-times")?);
    let (applications, servers, windows) =
        (both("coordination-applications")?, both("coordination-servers")?, both("coordination-windows")?);
    let controls = lab.experiment("coordination-controls")?;
    let (servers_below, windows_below) =
        (lab.experiment("coordination-servers-below")?, lab.experiment("coordination-windows-below")?);
    let (calls, long) =
        (lab.experiment("coordination-applications-more")?, lab.experiment("coordination-windows-long")?);
    let quiet = lab.experiment("coordination-windows-quiet")?;
    let figures = vec![
        formulas_figure(&formulas)?,
        finish_times_figure(&finish_times)?,
        applications_figure(&applications)?,
        longer::calls(&calls)?,
        servers_figure(&servers)?,
        controls_figure(&controls)?,
        below::servers(&servers_below)?,
        windows_figure(&windows)?,
        longer::longer(&long)?,
        longer::quieter(&quiet)?,
        below::windows(&windows_below)?,
    ];
    let notes = vec![
        "The paper's cluster: up to 64 PVFS2 servers with one disk of 250 GB each on gigabit Ethernet, and 16 with a flash drive on 4X \
         InfiniBand. Ours are models of such devices (`sata-7200-250g`, `pcie-ssd-100g`) behind a simulated network with up to half a \
         millisecond of jitter; `app-window` is the paper's algorithm."
            .into(),
        "Without coordination, PVFS2 keeps a queue for each file and serves the queues side by side. That is here `by turns`: one \
         request of a file, then the next file. `fifo`, a single queue in order of arrival, is a stronger opponent that the paper does \
         not have, and the nearer one in bandwidth (figure 8). Neither is the elevator that the paper's servers had below them: two \
         controls have it. \
         Reductions are of the mean completion time, with the 95 % confidence interval over pairs of runs with the same seed."
            .into(),
        "The paper does not say how much each process reads; here it is 20 requests. A closed loop of synchronous applications completes \
         requests at the rate of the servers whatever the order, so coordination shortens the mean only as far as it lets some \
         applications finish early, or saves seeks. How far depends on the width of the window against a round, in which each application \
         is served once: within a narrower window than that there is little to order."
            .into(),
    ];
    let title = "Server coordination: data servers that serve one application at a time";
    Ok(Reproduced::new("iogate reproduce coordination", title, notes, figures))
}

/// A request's time; and from its start to the end of what was served before, in seconds.
const T: f64 = 1.0;
const BEFORE: f64 = 0.5;
/// How far a mean may be from its formula, in units of T. Jitter takes a tenth of it, as it adds up to a millisecond to a request's way,
/// and as much to its answer's; the rest is for chance.
const NEAR: f64 = 0.02;

/// The mean completion time of all applications but the first over all rounds, in units of T.
fn of_formula(results: &Experiment, m: &str, n: &str, scheduler: &str) -> Result<Cell, Failure> {
    let at = [("app.app.count", m), ("servers.gate.scheduler", scheduler), ("case", n)];
    let all = results.cell(&at, "call_time_mean")?;
    let first = results.app_cell(&at, "first", "call_time_mean")?;
    let count: f64 = m.parse().unwrap_or(1.0);
    Ok(all.with(&first, |mean, first| ((mean * (count + 1.0) - first) / count - BEFORE) / T))
}

/// Whether a mean is surely near its formula.
fn near(ours: Interval, formula: f64) -> Verdict {
    within(ours, formula - NEAR, formula + NEAR)
}

fn formulas_figure(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut table = Table::new([
        "applications m",
        "servers n",
        "formula (1)",
        "independent",
        "formula (2)",
        "coordinated",
        "formula (3)",
        "difference",
    ]);
    let mut kept = Vec::new();
    for m in results.values("app.app.count") {
        for n in results.values("case") {
            let (Ok(mf), Ok(nf)) = (m.parse::<f64>(), n.parse::<f64>()) else { continue };
            let (independent, coordinated) =
                (of_formula(results, m, n, "fifo")?, of_formula(results, m, n, "app-window")?);
            let one = mf - (1..mf as u32).map(|k| (f64::from(k) / mf).powf(nf)).sum::<f64>();
            let two = (mf + 1.0) / 2.0;
            let difference = independent.with(&coordinated, |one, two| one - two);
            kept.extend(
                [(&independent, one), (&coordinated, two)]
                    .map(|(ours, formula)| Some(near(ours.interval()?, formula))),
            );
            let shown = |cell: &Cell| {
                let text = |of: Interval| format!("{:.3} ({:.3} to {:.3})", of.mean, of.low, of.high);
                cell.interval().map_or("-".into(), text)
            };
            table.row([
                m.clone(),
                n.clone(),
                format!("{one:.3}"),
                shown(&independent),
                format!("{two:.3}"),
                shown(&coordinated),
                format!("{:.3}", one - two),
                shown(&difference),
            ]);
        }
    }
    let mut sheet = Sheet::of("formulas (1) to (3)");
    sheet.everywhere(format!("the interval of the mean is within {NEAR} t of the formula"), kept);
    Ok(Figure {
        title: "Section 3.2: the formulas".into(),
        results: vec![results],
        setup: "The paper: with m applications that each need one request of time t from n servers, independent servers complete them after \
                m t - t / m^n * sum(k^n, k < m) on average (1), servers in step after (m + 1) t / 2 (2); the difference is (3). Ours \
                asks again and again, by the clock, in rounds that are over before the next, and takes the mean of them for each seed. A \
                request takes a second, and by up to a millisecond of jitter it reaches its server, in an order of each server's own, and \
                its answer comes back: a mean may be later by that. That is little of t: where jitter was a hundredth of it, it took up \
                what a mean may be off, and many were undecided."
            .into(),
        sheet,
        tables: vec![("Mean completion time in units of t".into(), table)],
        ..Figure::default()
    })
}

fn finish_times_figure(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figures 3 and 5");
    let mut table = Table::new(["", "by turns", "fifo", "app-window"]);
    let window = "app-window";
    for (case, [before, after], less) in [("disk", [4.4, 1.3], 29.8), ("flash", [3.1, 1.2], 19.5)] {
        let at = |gate| [("case", case), (GATE, gate)];
        let spread = |gate| results.cell(&at(gate), "server_finish_spread");
        let time = |gate| results.cell(&at(gate), "completion_mean");
        sheet.factor(format!("{case}: last by first server, by turns"), before, spread(BY_TURNS)?.interval());
        sheet.factor(format!("{case}: last by first server, app-window"), after, spread(window)?.interval());
        let ours = time(window)?;
        sheet.change(
            format!("{case}: completion time shorter than by turns by"),
            less,
            ours.lower(&time(BY_TURNS)?),
        );
        sheet.change(format!("{case}: completion time shorter than fifo by"), less, ours.lower(&time(FIFO)?));
        for (what, metric) in
            [("last by first server", "server_finish_spread"), ("mean completion time", "completion_mean")]
        {
            let cells = [BY_TURNS, FIFO, window].map(|gate| results.shown(&at(gate), metric));
            table.row(std::iter::once(format!("{case}: {what}")).chain(cells));
        }
    }
    let points: Vec<_> = ["disk", "flash"]
        .iter()
        .flat_map(|case| {
            [(BY_TURNS, "by turns"), (FIFO, FIFO), (window, window)]
                .map(|(gate, name)| (format!("{case}, {name}"), vec![("case", *case), (GATE, gate)]))
        })
        .collect();
    let even = shares(results, &points);
    Ok(Figure {
        title: "Figures 3 and 5: when each server finishes".into(),
        results: vec![results],
        setup: "The paper: ten applications read 4 MB each from eight servers at the same time. How much later the last server of an \
                application finishes than the first, mean over the applications, and by how much completion times shrink."
            .into(),
        sheet,
        tables: vec![("Ours".into(), table), even],
        remarks: "A run on flash is short: what the first requests to arrive have begun, before the others, is a larger part of it.".into(),
        ..Figure::default()
    })
}

/// Step times by rows and columns, and by how much they are shorter with windows, in percent: as a table, and all.
fn reductions(
    results: &Experiment,
    rows: &str,
    columns: &str,
    others: &[(&str, &str)],
    (window, base): (&str, &str),
) -> (Table, Vec<Interval>) {
    let head = results.values(columns).iter().map(|value| format!("{value} processes"));
    let mut table = Table::new(std::iter::once(String::new()).chain(head));
    let mut all = Vec::new();
    for row in results.values(rows) {
        let cells = results.values(columns).iter().map(|column| {
            let at = |gate| {
                let own = [(rows, row.as_str()), (columns, column.as_str()), (GATE, gate)];
                others.iter().copied().chain(own).collect::<Vec<_>>()
            };
            let less = results.lower(&at(window), &at(base), STEP);
            all.extend(less);
            percents(less)
        });
        let cells: Vec<String> = cells.collect();
        table.row(std::iter::once(row.clone()).chain(cells));
    }
    (table, all)
}

fn applications_figure(both: &[Experiment; 2]) -> Result<Figure<'_>, Failure> {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    let mut sheet = Sheet::of("figure 6");
    for (results, name, paper) in [(&both[0], "disk", (8.0, 42.0)), (&both[1], "flash", (11.0, 43.0))] {
        let (count, processes) = ("app.ior.count", "app.ior.processes");
        for (base, called) in [(BY_TURNS, "by turns"), (FIFO, FIFO)] {
            let (table, all) = reductions(results, count, processes, &[], (WINDOW, base));
            sheet.changes(format!("{name}: shorter than {called} by"), paper, all);
            tables.push((format!("{name}: completion time of a request is shorter than {called} by"), table));
        }
        let more = more_with_more(results, count, processes)?;
        sheet.everywhere(format!("{name}: most applications gain more than fewest, against by turns"), more);
        let of = |gate| results.series(gate, count, &[(processes, "8"), (GATE, gate)], STEP);
        let title = format!("Completion time of a request, 8 processes an application ({name})");
        let picture = results.lines(
            &title,
            count,
            "applications",
            Unit::Seconds,
            vec![of(BY_TURNS), of(FIFO), of(WINDOW)],
        );
        pictures.push((title, lines(&picture)));
        let most = results.values(count).last().map_or("", String::as_str);
        let points: Vec<_> = [BY_TURNS, FIFO, WINDOW]
            .map(|gate| (gate.to_owned(), vec![(count, most), (processes, "8"), (GATE, gate)]))
            .into();
        let (caption, table) = shares(results, &points);
        tables.push((format!("{name}, {most} applications of 8 processes. {caption}"), table));
    }
    Ok(Figure {
        title: "Figure 6: more and more applications".into(),
        results: both.iter().collect(),
        setup: "The paper: 2 to 16 IORs of 8, 16 or 32 processes on 16 servers, a barrier after each request of 128 KiB; windows of 1 s."
            .into(),
        sheet,
        tables,
        pictures,
        remarks: "With more applications or processes a round takes longer against the window, and there is less to order within one. Where \
                  two small applications lose on flash, one of them has the servers to itself, and does not keep all of them busy."
            .into(),
    })
}

/// For each number of processes, whether the reduction is larger for the largest number of `rows` than for the smallest.
fn more_with_more(results: &Experiment, rows: &str, columns: &str) -> Result<Vec<Option<Verdict>>, Failure> {
    let ends = results.values(rows).first().zip(results.values(rows).last());
    let Some((fewest, most)) = ends else { return Ok(Vec::new()) };
    let each = results.values(columns).iter().map(|column| {
        let left = |row: &str| -> Result<Cell, Failure> {
            let time = |gate| results.cell(&[(rows, row), (columns, column.as_str()), (GATE, gate)], STEP);
            Ok(time(WINDOW)?.with(&time(BY_TURNS)?, |window, base| window / base))
        };
        Ok(left(most)?.less(&left(fewest)?))
    });
    each.collect()
}

const PROCESSES: &str = "app.pio.processes";
const READ: (&str, &str) = ("app.pio.op", "read");
const WRITE: (&str, &str) = ("app.pio.op", "write");
/// Up to here a completion time is the same for the most servers as for the fewest.
const FLAT: f64 = 1.1;

fn servers_figure(both: &[Experiment; 2]) -> Result<Figure<'_>, Failure> {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    let mut sheet = Sheet::of("figure 7");
    for (results, name, window, ends) in [
        (&both[0], "disk", WINDOW, [("2", 10.0), ("64", 46.0)]),
        (&both[1], "flash", FLASH_WINDOW, [("2", 10.0), ("16", 39.0)]),
    ] {
        for (count, paper) in ends {
            for (base, called) in [(BY_TURNS, "by turns"), (FIFO, FIFO)] {
                let mut all = Vec::new();
                for p in results.values(PROCESSES) {
                    let time = |gate| {
                        results.cell(&[("case", count), (PROCESSES, p.as_str()), (GATE, gate), READ], STEP)
                    };
                    all.extend(time(window)?.lower(&time(base)?));
                }
                let what = format!("{name}, reads, servers: {count}; shorter than {called} by");
                sheet.changes(what, (paper, paper), all);
            }
        }
        let most = ends[1].0;
        for (what, gate, grows) in [
            ("with coordination", window, false),
            ("without, by turns", BY_TURNS, true),
            ("without, fifo", FIFO, true),
        ] {
            let growths = growths(results, gate, most)?;
            let how = if grows { "grows" } else { "stays" };
            let cases = growths.into_iter().map(|growth| {
                let growth = growth?;
                Some(if grows { within(growth, FLAT, f64::INFINITY) } else { within(growth, 0.0, FLAT) })
            });
            sheet.everywhere(
                format!("{name}, reads: {what}, the completion time {how} from 2 servers on"),
                cases,
            );
        }
        for (op, called) in [(READ, "reads"), (WRITE, "writes")] {
            for (base, of) in [(BY_TURNS, "by turns"), (FIFO, FIFO)] {
                let (table, _) = reductions(results, "case", PROCESSES, &[op], (window, base));
                let what = "shorter by, for each number of servers, than";
                tables.push((format!("{name}, {called}: {what} {of}"), table));
            }
        }
        let of = |gate| results.series(gate, "case", &[(PROCESSES, "8"), (GATE, gate), READ], STEP);
        let title = format!("Completion time of a request, 8 processes an application ({name}, reads)");
        let picture =
            results.lines(&title, "case", "servers", Unit::Seconds, vec![of(BY_TURNS), of(FIFO), of(window)]);
        pictures.push((title, lines(&picture)));
    }
    Ok(Figure {
        title: "Figure 7: more and more servers".into(),
        results: both.iter().collect(),
        setup: "The paper: ten applications; each request needs 8 KiB from every server, of which there are 2 to 64 (disk) or 16 (flash). \
                With coordination the completion time stays the same as servers are added; without, it grows. One server is ours."
            .into(),
        sheet,
        tables,
        pictures,
        remarks: "Barriers keep the applications apart by more than the network's jitter, so that all servers see their requests in the same \
                  order whoever schedules. The paper's servers had an elevator and a page cache below, and the next sections have controls: \
                  another order on each server, and both of these."
            .into(),
    })
}

/// Completion time with the most servers by that with two, for each number of processes.
fn growths(results: &Experiment, gate: &str, most: &str) -> Result<Vec<Option<Interval>>, Failure> {
    let growth = |count: &String| {
        let time =
            |case| results.cell(&[("case", case), (PROCESSES, count.as_str()), (GATE, gate), READ], STEP);
        Ok(time(most)?.by(&time("2")?))
    };
    results.values(PROCESSES).iter().map(growth).collect()
}

/// What is compared, and what it is called.
const CONTROLS: [(&str, &str); 6] = [
    (BY_TURNS, "by turns"),
    (FIFO, "fifo"),
    (WINDOW, "app-window, 1 s"),
    ("app-window(window=1s,order=permuted)", "the same, another order of applications on each server"),
    ("app-window(window=3600s)", "priority by id, no windows"),
    ("app-window(window=1s,skew_max=0s)", "windows by each server's own clock, which differ"),
];

fn controls_figure(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut tables = Vec::new();
    let mut sheet = Sheet::of("controls");
    for p in results.values(PROCESSES) {
        let at = |case, gate| [("case", case), (PROCESSES, p.as_str()), (GATE, gate)];
        let head = ["", "1 server", "16 servers", "shorter than fifo: 1 server", "16 servers"];
        let mut table = Table::new(head);
        for (gate, called) in CONTROLS {
            let less = |case| match gate {
                FIFO => "-".into(),
                _ => percents(results.lower(&at(case, gate), &at(case, FIFO), STEP)),
            };
            let time = |case| results.shown(&at(case, gate), STEP);
            table.row([called.to_owned(), time("1"), time("16"), less("1"), less("16")]);
        }
        tables.push((format!("{p} processes an application, completion time of a request"), table));
        let points: Vec<_> = CONTROLS.map(|(gate, called)| (called.to_owned(), at("16", gate).into())).into();
        let (caption, table) = shares(results, &points);
        tables.push((format!("{p} processes, 16 servers. {caption}"), table));
        let step = |case, gate| results.cell(&at(case, gate), STEP);
        let [own, priority, apart] = [CONTROLS[3].0, CONTROLS[4].0, CONTROLS[5].0];
        sheet.everywhere(
            format!("{p} processes: one server has nothing to coordinate, and app-window is as fast as fifo"),
            [step("1", WINDOW)?.by(&step("1", FIFO)?).map(|ratio| within(ratio, 1.0 / FLAT, FLAT))],
        );
        sheet.everywhere(
            format!(
                "{p} processes, 16 servers: the same order everywhere is faster than an order of each server"
            ),
            [step("16", WINDOW)?.less(&step("16", own)?)],
        );
        sheet.everywhere(
            format!("{p} processes, 16 servers: windows in step are faster than windows apart"),
            [step("16", WINDOW)?.less(&step("16", apart)?)],
        );
        sheet.everywhere(
            format!("{p} processes, 16 servers: windows are as fast as priority by id"),
            [step("16", WINDOW)?.by(&step("16", priority)?).map(|ratio| within(ratio, 1.0 / FLAT, FLAT))],
        );
    }
    Ok(Figure {
        title: "Controls: what the gain comes from".into(),
        results: vec![results],
        setup: "Not in the paper, which explains its gain by servers that serve the same application at the same time. If that is all, there \
                is no gain on one server, and none without agreement; what remains of it there comes from preferring some applications to \
                others. Reads from disks as in figure 7."
            .into(),
        sheet,
        tables,
        ..Figure::default()
    })
}

fn windows_figure(both: &[Experiment; 2]) -> Result<Figure<'_>, Failure> {
    let mut tables = Vec::new();
    let mut sheet = Sheet::of("figure 8");
    for (results, name, best) in [(&both[0], "disk", WINDOW), (&both[1], "flash", FLASH_WINDOW)] {
        let key = "app.*.processes";
        window_claims(&mut sheet, name, best, results, key)?;
        for (metric, what) in [(STEP, "completion time of a request"), ("bandwidth", "bandwidth")] {
            let head = results.values(key).iter().map(|value| format!("{value} processes"));
            let mut table = Table::new(std::iter::once(String::new()).chain(head));
            for gate in results.values(GATE) {
                let cells = results
                    .values(key)
                    .iter()
                    .map(|count| results.shown(&[(key, count), (GATE, gate)], metric));
                let name = if gate == BY_TURNS { "by turns" } else { gate };
                table.row(std::iter::once(name.to_owned()).chain(cells));
            }
            tables.push((format!("{name}: {what}"), table));
        }
        let points: Vec<_> = results
            .values(GATE)
            .iter()
            .map(|gate| (gate.clone(), vec![(key, "8"), (GATE, gate.as_str())]))
            .collect();
        let (caption, table) = shares(results, &points);
        tables.push((format!("{name}, 8 processes. {caption}"), table));
    }
    Ok(Figure {
        title: "Figure 8: the width of the window".into(),
        results: both.iter().collect(),
        setup: "The paper: ten applications of four kinds on 16 servers, windows of 250 ms to 2 s.".into(),
        sheet,
        tables,
        remarks:
            "On flash the runs are over within the first window, so that its width makes no difference there."
                .into(),
        ..Figure::default()
    })
}

/// What the paper says of windows, of one kind of device.
fn window_claims(
    sheet: &mut Sheet,
    name: &str,
    best: &str,
    results: &Experiment,
    key: &str,
) -> Result<(), Failure> {
    let windows: Vec<&String> =
        results.values(GATE).iter().filter(|gate| gate.starts_with("app-window")).collect();
    let cell = |count: &str, gate: &str, metric| results.cell(&[(key, count), (GATE, gate)], metric);
    for (base, shown) in [(BY_TURNS, "by turns"), (FIFO, FIFO)] {
        let (mut better, mut rates) = (Vec::new(), Vec::new());
        for count in results.values(key) {
            for window in &windows {
                better.push(cell(count, window, STEP)?.less(&cell(count, base, STEP)?));
                rates.extend(cell(count, window, "bandwidth")?.higher(&cell(count, base, "bandwidth")?));
            }
        }
        sheet.everywhere(format!("{name}: each window is better than {shown}"), better);
        let what = format!("{name}: bandwidth higher than {shown} by");
        match name {
            "disk" => sheet.changes(what, (-1.2, 10.9), rates),
            // About the same or higher.
            _ => sheet.everywhere(
                what + " 0 or more",
                rates.into_iter().map(|rate| Some(within(rate, 0.0, f64::INFINITY))),
            ),
        }
    }
    let mut first = Vec::new();
    for count in results.values(key) {
        let ours = cell(count, best, STEP)?;
        for other in windows.iter().filter(|other| **other != best) {
            first.push(ours.less(&cell(count, other, STEP)?));
        }
    }
    sheet.everywhere(format!("{name}: {best} is better than each other width"), first);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_kept_by_what_is_surely_near_it() {
        let interval = |from: f64, half: f64| Interval { low: from - half, mean: from, high: from + half };
        assert_eq!(near(interval(4.5, 1.0), 4.5), Verdict::Undecided);
        assert_eq!(near(interval(4.5 + NEAR, 0.001), 4.5), Verdict::Undecided);
        assert_eq!(near(interval(4.5 + NEAR / 2.0, 0.001), 4.5), Verdict::Agrees);
        assert_eq!(near(interval(4.5 + 2.0 * NEAR, 0.001), 4.5), Verdict::Differs);
    }
}
