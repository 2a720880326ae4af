//! aIOLi (Lebre, Denneulin, Huard and Sowa: I/O scheduling service for multi-application clusters, 2006): figures 5 to 7, tables 1
//! and 2.

mod below;

use iogate_report::Table;
use iogate_report::claims::Interval;
use iogate_report::html::lines::lines;
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::claims::{Cell, NEAR, Sheet, above, within};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab, Settings, factor, shares, shown};
use crate::failure::Failure;

pub(super) const SCHEDULER: &str = "servers.gate.scheduler";
pub(super) const REQUEST: &str = "app.ior.request";
const OP: &str = "app.ior.op";
/// Of collective calls, how much of one is a process's.
const CALLS: &str = "case";
const LONGEST: &str = "servers.gate.run_bytes_max";
const THREADS: &str = "servers.gate.queue";

/// The ends of two applications that start together differ by at most so many seconds.
const GAP_MOST: f64 = 8.5;
/// How much faster two applications become, with plain calls and with collective ones: the least and the most.
const GAINS: (f64, f64) = (3.5, 35.0);
const JOINT_GAINS: (f64, f64) = (3.3, 5.0);
/// Both are done at the smallest granularity after so many seconds.
const BOTH_DONE: f64 = 155.0;

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let one = (
        lab.experiment("aioli-one-ior")?,
        lab.experiment("aioli-one-ior-collective")?,
        lab.experiment("aioli-sequential")?,
    );
    let both = lab.experiment("aioli-ior-and-cat")?;
    let (posix, collective) =
        (lab.experiment("aioli-two-iors")?, lab.experiment("aioli-two-iors-collective")?);
    let (threads, lengths) = (lab.experiment("aioli-threads")?, lab.experiment("aioli-run-lengths")?);
    let readers = lab.experiment("aioli-sequential-readers")?;
    let ten = lab.experiment("aioli-ten-applications")?;
    let slots = lab.experiment("aioli-slots")?;
    let synchronous = lab.experiment("aioli-sequential-synchronous")?;
    let cached = below::Cached {
        ior: lab.experiment("aioli-one-ior-cached")?,
        sequential: lab.experiment("aioli-sequential-cached")?,
        collective: lab.experiment("aioli-two-iors-collective-cached")?,
        ten: lab.experiment("aioli-ten-applications-cached")?,
    };
    let bare = below::Bare { ior: &one.0, sequential: &one.2, collective: &collective };
    let figures = vec![
        one_ior(&one.0, &one.1, &one.2)?,
        ior_and_cat(&both)?,
        two_iors(&posix, &collective)?,
        few_threads(&posix, &threads, &lengths)?,
        below::slots(&posix, &slots)?,
        below::synchronous(&one.0, &synchronous)?,
        sequential(&readers)?,
        ten_applications(&ten)?,
        below::cached(bare, &cached)?,
    ];
    let notes = vec![
        "The paper's server is an NFS server of 2006: one IDE disk of 80 GB (57 MB/s by hdparm), gigabit Ethernet, transfers of \
         32 KiB. Ours is the model of such a disk (`aioli-ide`) behind a simulated network; `fifo` with eight requests at once stands \
         for the plain server with its eight daemons, `aioli` is our scheduler with its defaults."
            .into(),
        "The paper gives most results as curves. Where its text or tables have numbers they are statements below; what is in \
         parentheses, or after \u{b1}, is the 95 % confidence interval over the seeds, of gains and ratios over pairs of runs with the \
         same seed. What the model leaves out where a section does not say otherwise: the disk scheduler and the page cache below the \
         server, writes that are answered from the server's memory, the slots of a client's mount."
            .into(),
    ];
    Ok(Reproduced::new(
        "iogate reproduce aioli",
        "aIOLi: a scheduler for many applications on one server",
        notes,
        figures,
    ))
}

fn one_ior<'a>(
    ior: &'a Experiment,
    collective: &'a Experiment,
    sequential: &'a Experiment,
) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 5");
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    for op in ["read", "write"] {
        let mut table =
            Table::new(["granularity", "fifo", "aioli", "gain", "collective I/O", "one reader or writer"]);
        let (mut plain, mut together, mut dip, mut above, mut near) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for request in ior.values(REQUEST) {
            let at = |scheduler| [(OP, op), (REQUEST, request.as_str()), (SCHEDULER, scheduler)];
            let joint = [(OP, op), (CALLS, request.as_str())];
            let one = [("app.reader.op", op), ("app.reader.request", request.as_str())];
            let aioli = ior.cell(&at("aioli"), "bandwidth")?;
            let fifo = ior.cell(&at("fifo"), "bandwidth")?;
            let reference = sequential.cell(&one, "bandwidth")?;
            plain.push(fifo.less(&aioli));
            together.push(collective.cell(&joint, "bandwidth")?.less(&aioli));
            near.extend(aioli.by(&reference));
            match request.as_str() {
                "128KiB" | "512KiB" => dip.push(aioli.less(&reference)),
                _ => above.push(reference.less(&aioli)),
            }
            table.row([
                request.clone(),
                ior.shown(&at("fifo"), "bandwidth"),
                ior.shown(&at("aioli"), "bandwidth"),
                factor(aioli.by(&fifo)),
                collective.shown(&joint, "bandwidth"),
                sequential.shown(&one, "bandwidth"),
            ]);
        }
        if op == "read" {
            sheet.everywhere("reads: aioli is faster than plain calls", plain);
            sheet.everywhere("reads: aioli is faster than collective calls", together);
            sheet.everywhere("reads of 128 and 512 KiB: aioli stays below one reader", dip);
            sheet.everywhere("other reads: aioli passes one reader", above);
        } else {
            sheet.factors("writes: aioli against one writer", (1.0, 1.0), near);
        }
        tables.push((format!("Bandwidth, {op}s"), table));
        let series = vec![
            ior.series("fifo", REQUEST, &[(OP, op), (SCHEDULER, "fifo")], "bandwidth"),
            ior.series("aioli", REQUEST, &[(OP, op), (SCHEDULER, "aioli")], "bandwidth"),
            collective.series("collective I/O", CALLS, &[(OP, op)], "bandwidth"),
            sequential.series(
                "one process in order",
                "app.reader.request",
                &[("app.reader.op", op)],
                "bandwidth",
            ),
        ];
        let title = format!("Bandwidth by granularity, {op}s");
        let picture = ior.lines(&title, REQUEST, "bytes of a call", Unit::BytesPerSecond, series);
        pictures.push((picture.title.clone(), lines(&picture)));
    }
    Ok(Figure {
        title: "Figure 5: one IOR".into(),
        results: vec![ior, collective, sequential],
        setup: "The paper: 32 processes read or write a file of 4 GB by plain calls, with aIOLi, and by collective calls; one process in \
                order is the reference."
            .into(),
        sheet,
        tables,
        pictures,
        remarks: "The paper explains its dip by calls that are a few requests each, of which a server with few threads sees few (see the \
                  section on threads). Writes of the plain server do not compare: ours are on the disk when they are answered, the paper's \
                  in memory."
            .into(),
    })
}

fn ior_and_cat(both: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut table = Table::new([
        "granularity of IOR",
        "IOR, fifo",
        "IOR, aioli",
        "gain",
        "cat, fifo",
        "cat, aioli",
        "gain",
        "cat alone",
    ]);
    let mut sheet = Sheet::of("figure 6, left");
    let (mut ior, mut cat, mut more, mut all_alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for request in both.values(REQUEST) {
        let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler)];
        let gain = |app| -> Result<Cell, Failure> {
            let time = |scheduler| both.app_cell(&at(scheduler), app, "completion");
            Ok(time("fifo")?.with(&time("aioli")?, |fifo, aioli| fifo / aioli))
        };
        let (large, small) = (gain("ior")?, gain("cat")?);
        let gains = |cell: &Cell| cell.interval().map(|gain| above(gain, 1.0));
        ior.push(gains(&large));
        cat.push(gains(&small));
        if ["8KiB", "32KiB"].contains(&request.as_str()) {
            more.push(small.less(&large));
        }
        let alone = both.app_cell(&at("fifo"), "cat", "completion")?;
        let alone =
            alone.with(&both.app_cell(&at("fifo"), "cat", "interference")?, |time, factor| time / factor);
        let time = |scheduler, app| shown(both.app(&at(scheduler), app, "completion"));
        table.row([
            request.clone(),
            time("fifo", "ior"),
            time("aioli", "ior"),
            factor(large.interval()),
            time("fifo", "cat"),
            time("aioli", "cat"),
            factor(small.interval()),
            alone.interval().map_or("-".into(), |alone| format!("{:.1} s", alone.mean)),
        ]);
        all_alone.extend(alone.interval());
    }
    sheet.everywhere("the IOR gains", ior);
    sheet.everywhere("the small program gains", cat);
    sheet.everywhere("at 8 and 32 KiB the IOR gains more", more);
    sheet.number("the small program alone", 2.0, " s", all_alone.first().copied(), NEAR);
    let points = both.values(REQUEST).iter().flat_map(|request| {
        ["fifo", "aioli"].map(|scheduler| {
            (format!("{request}, {scheduler}"), vec![(REQUEST, request.as_str()), (SCHEDULER, scheduler)])
        })
    });
    let even = shares(both, &points.collect::<Vec<_>>());
    Ok(Figure {
        title: "Figure 6, left: a small application beside a large one".into(),
        results: vec![both],
        setup: "The paper: a program that reads 16 MB in order starts 15 s after the IOR.".into(),
        sheet,
        tables: vec![("Completion times".into(), table), even],
        ..Figure::default()
    })
}

/// How long after one the other of two applications ends that started together: from the end of the last and the mean of both.
fn gap(experiment: &Experiment, settings: &Settings<'_>) -> Result<Cell, Failure> {
    let last = experiment.cell(settings, "makespan")?;
    let mean = experiment.cell(settings, "completion_mean")?;
    Ok(last.with(&mean, |last, mean| 2.0 * (last - mean)))
}

/// Seconds with their interval.
fn seconds(interval: Option<Interval>) -> String {
    interval.map_or("-".into(), |Interval { low, mean, high }| format!("{mean:.1} ({low:.1} to {high:.1}) s"))
}

fn two_iors<'a>(posix: &'a Experiment, collective: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut table = Table::new([
        "granularity",
        "fifo",
        "aioli",
        "gain",
        "between the two, aioli",
        "collective, fifo",
        "collective, aioli",
        "gain",
    ]);
    let (mut alone, mut together, mut near) = (Vec::new(), Vec::new(), Vec::new());
    for request in posix.values(REQUEST) {
        let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler)];
        let joint = |scheduler| [(CALLS, request.as_str()), (SCHEDULER, scheduler)];
        let between = gap(posix, &at("aioli"))?.interval();
        let gain = posix.factor(&at("fifo"), &at("aioli"), "makespan");
        let joint_gain = collective.factor(&joint("fifo"), &joint("aioli"), "makespan");
        near.push(between.map(|gap| within(gap, f64::NEG_INFINITY, GAP_MOST)));
        alone.extend(gain);
        together.extend(joint_gain);
        table.row([
            request.clone(),
            posix.shown(&at("fifo"), "makespan"),
            posix.shown(&at("aioli"), "makespan"),
            factor(gain),
            seconds(between),
            collective.shown(&joint("fifo"), "makespan"),
            collective.shown(&joint("aioli"), "makespan"),
            factor(joint_gain),
        ]);
    }
    let smallest = |scheduler| posix.cell(&[(REQUEST, "8KiB"), (SCHEDULER, scheduler)], "makespan");
    let together_smallest = collective.cell(&[(CALLS, "8KiB"), (SCHEDULER, "fifo")], "makespan")?;
    let mut sheet = Sheet::of("figure 7");
    sheet.at_least("8 KiB, plain calls", 5400.0, " s", smallest("fifo")?.interval());
    sheet.number("8 KiB, plain calls, aIOLi", BOTH_DONE, " s", smallest("aioli")?.interval(), NEAR);
    sheet.number("8 KiB, collective calls", 690.0, " s", together_smallest.interval(), NEAR);
    sheet.everywhere(format!("between the ends of the two at most {GAP_MOST} s"), near);
    sheet.next("abstract");
    sheet.factors("gain of two IORs, plain calls", GAINS, alone);
    sheet.factors("gain of two IORs, collective calls", JOINT_GAINS, together);
    let series = |name: &str, experiment: &Experiment, key: &str, scheduler: &str| {
        experiment.series(name, key, &[(SCHEDULER, scheduler)], "makespan")
    };
    let series = vec![
        series("fifo", posix, REQUEST, "fifo"),
        series("aioli", posix, REQUEST, "aioli"),
        series("collective, fifo", collective, CALLS, "fifo"),
        series("collective, aioli", collective, CALLS, "aioli"),
    ];
    let picture = posix.lines("Until both are done", REQUEST, "bytes of a call", Unit::Seconds, series);
    let points = posix.values(REQUEST).iter().flat_map(|request| {
        ["fifo", "aioli"].map(|scheduler| {
            (format!("{request}, {scheduler}"), vec![(REQUEST, request.as_str()), (SCHEDULER, scheduler)])
        })
    });
    let even = shares(posix, &points.collect::<Vec<_>>());
    Ok(Figure {
        title: "Figure 7: two large applications at once".into(),
        results: vec![posix, collective],
        setup: "The paper: two IORs of 32 processes with 4 GB each, started together. The gain is that of the later one's end.".into(),
        sheet,
        tables: vec![("Until both are done".into(), table), even],
        pictures: vec![(picture.title.clone(), lines(&picture))],
        remarks: "All requests of a large call reach our plain server at once and in order, so that it streams from its disk; a client's \
                  mount with few slots would not let them. Long runs grow for many steps before they are ready, while the queue that was \
                  served last has learnt a large quantum: then one application is served almost wholly before the other, as the next \
                  section shows."
            .into(),
    })
}

fn few_threads<'a>(
    posix: &'a Experiment,
    threads: &'a Experiment,
    lengths: &'a Experiment,
) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figure 7, threads of the server");
    let columns = |results: &Experiment, first: &str| {
        let calls = results.values(REQUEST).iter().map(|request| format!("{request} calls"));
        Table::new(std::iter::once(first.to_owned()).chain(calls))
    };
    let cell = |results: &Experiment, at: &Settings<'_>| -> Result<String, Failure> {
        Ok(format!("{}; {}", results.shown(at, "makespan"), seconds(gap(results, at)?.interval())))
    };
    let mut seen = columns(threads, "requests that aioli sees");
    for count in threads.values(THREADS) {
        let (mut near, mut gains, mut row) = (Vec::new(), Vec::new(), vec![count.clone()]);
        for request in threads.values(REQUEST) {
            let at = [(REQUEST, request.as_str()), (THREADS, count.as_str())];
            let plain = posix.cell(&[(REQUEST, request.as_str()), (SCHEDULER, "fifo")], "makespan")?;
            gains.extend(plain.by(&threads.cell(&at, "makespan")?));
            near.push(gap(threads, &at)?.interval().map(|gap| within(gap, f64::NEG_INFINITY, GAP_MOST)));
            row.push(cell(threads, &at)?);
        }
        let smallest = threads.cell(&[(REQUEST, "8KiB"), (THREADS, count)], "makespan")?;
        sheet.number(format!("{count} threads, 8 KiB, aIOLi"), BOTH_DONE, " s", smallest.interval(), NEAR);
        sheet.factors(format!("{count} threads: gain"), GAINS, gains);
        sheet.everywhere(format!("{count} threads: between the ends at most {GAP_MOST} s"), near);
        seen.row(row);
    }
    let mut shorter = columns(lengths, "runs of at most");
    for longest in lengths.values(LONGEST) {
        let cells = lengths
            .values(REQUEST)
            .iter()
            .map(|request| cell(lengths, &[(REQUEST, request.as_str()), (LONGEST, longest.as_str())]));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        shorter.row(std::iter::once(longest.clone()).chain(cells));
    }
    Ok(Figure {
        title: "Controls: threads of the server, and lengths of runs".into(),
        results: vec![posix, threads, lengths],
        setup: "The paper's aIOLi sees what the server's threads hold, 8 by default and 512 at most in its figure 1; it does not say how many \
                there were in figure 7. Above, ours sees everything. Below, the same two IORs with so many; and with shorter runs, which \
                is beyond the paper."
            .into(),
        sheet,
        tables: vec![
            ("Until both are done; between the two".into(), seen),
            ("aioli that sees everything, with shorter runs: until both are done; between the two".into(), shorter),
        ],
        ..Figure::default()
    })
}

/// Table 1, block columns, MB/s for each client: operation, clients, NFS, aIOLi.
const TABLE_1: [(&str, &str, f64, f64); 4] = [
    ("read", "1", 43.54, 48.81),
    ("read", "4", 3.02, 13.39),
    ("write", "1", 28.40, 28.29),
    ("write", "4", 8.78, 9.59),
];

fn sequential(readers: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("table 1, blocks");
    for (op, count, nfs, aioli) in TABLE_1 {
        let clients: f64 = count.parse().unwrap_or(1.0);
        let rate = |scheduler| -> Result<Cell, Failure> {
            let at = [("app.client.op", op), ("app.client.count", count), (SCHEDULER, scheduler)];
            Ok(readers.cell(&at, "bandwidth")?.map(|rate| rate / clients / 1e6))
        };
        let (plain, ours) = (rate("fifo")?, rate("aioli")?);
        let name = format!("{op}, clients: {count}");
        sheet.number(format!("{name}; NFS"), nfs, " MB/s", plain.interval(), NEAR);
        sheet.number(format!("{name}; aIOLi"), aioli, " MB/s", ours.interval(), NEAR);
        let gain = (100.0 * aioli / nfs).round() / 100.0;
        sheet.factor(format!("{name}; gain"), gain, ours.by(&plain));
    }
    let points: Vec<_> = (readers.values("app.client.op").iter())
        .flat_map(|op| {
            ["fifo", "aioli"].map(|scheduler| {
                let at =
                    vec![("app.client.op", op.as_str()), ("app.client.count", "4"), (SCHEDULER, scheduler)];
                (format!("{op}, clients: 4, {scheduler}"), at)
            })
        })
        .collect();
    let even = shares(readers, &points);
    Ok(Figure {
        title: "Table 1: sequential programs (Bonnie++)".into(),
        results: vec![readers],
        setup: "The paper: Bonnie++ with files of 4 GB from one and from four clients; rates of each client. Ours: files of 1 GiB, a \
                read-ahead of eight requests, no server cache."
            .into(),
        sheet,
        tables: vec![even],
        ..Figure::default()
    })
}

/// Table 2, POSIX columns, in seconds: NFS, aIOLi.
const TABLE_2: [(&str, &str, f64, f64); 10] = [
    ("read-2gb-32-nodes", "read 2 GB, 32 nodes, 128 KiB", 490.0, 134.0),
    ("write-2gb-32-nodes", "write 2 GB, 32 nodes, 128 KiB", 409.0, 107.0),
    ("read-256mb-16-nodes", "read 256 MB, 16 nodes, 8 KiB", 595.5, 104.0),
    ("write-128mb-8-nodes", "write 128 MB, 8 nodes, 64 KiB", 51.0, 14.5),
    ("read-32mb-4k", "read 32 MB in order, 4 KiB", 531.0, 48.5),
    ("write-32mb-4k", "write 32 MB in order, 4 KiB", 208.0, 47.0),
    ("read-4mb-32k", "read 4 MB in order, 32 KiB", 57.0, 6.0),
    ("write-4mb-32k", "write 4 MB in order, 32 KiB", 39.0, 19.0),
    ("read-1gb-2m", "read 1 GB in order, 2 MiB", 558.0, 143.5),
    ("write-512mb-2m", "write 512 MB in order, 2 MiB", 192.0, 84.0),
];
const ALL_TEN: (f64, f64) = (595.5, 143.5);

fn ten_applications(ten: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("table 2, POSIX");
    let at = |scheduler| [(SCHEDULER, scheduler)];
    let mut add = |name: &str, (nfs, aioli): (f64, f64), plain: &Cell, ours: &Cell| {
        sheet.number(format!("{name}; NFS"), nfs, " s", plain.interval(), NEAR);
        sheet.number(format!("{name}; aIOLi"), aioli, " s", ours.interval(), NEAR);
        sheet.factor(format!("{name}; gain"), (100.0 * nfs / aioli).round() / 100.0, plain.by(ours));
    };
    add("all of them", ALL_TEN, &ten.cell(&at("fifo"), "makespan")?, &ten.cell(&at("aioli"), "makespan")?);
    for (app, name, nfs, aioli) in TABLE_2 {
        let time = |scheduler| ten.app_cell(&at(scheduler), app, "completion");
        add(name, (nfs, aioli), &time("fifo")?, &time("aioli")?);
    }
    let bars = |name: &str, of: &dyn Fn(usize) -> Option<Interval>| Bars {
        name: name.into(),
        values: (0..TABLE_2.len()).map(of).collect(),
    };
    let ours = |scheduler: &'static str| {
        move |index: usize| {
            let estimate = ten.app(&[(SCHEDULER, scheduler)], TABLE_2[index].0, "completion")?.estimate;
            Some(Interval::from(estimate))
        }
    };
    let picture = Groups {
        title: "Completion time of each application".into(),
        unit: Unit::Seconds,
        groups: TABLE_2.iter().map(|(_, name, ..)| (*name).into()).collect(),
        series: vec![
            bars("paper, NFS", &|index| Some(Interval::exact(TABLE_2[index].2))),
            bars("ours, fifo", &ours("fifo")),
            bars("paper, aIOLi", &|index| Some(Interval::exact(TABLE_2[index].3))),
            bars("ours, aioli", &ours("aioli")),
        ],
    };
    let points = ["fifo", "aioli"].map(|scheduler| (scheduler.to_owned(), vec![(SCHEDULER, scheduler)]));
    let even = shares(ten, &points);
    Ok(Figure {
        title: "Table 2: ten different applications".into(),
        results: vec![ten],
        setup: "The paper: four parallel and six sequential programs, 6 GB in all, started together. Completion times with POSIX calls.".into(),
        sheet,
        tables: vec![even],
        pictures: vec![(picture.title.clone(), groups(&picture))],
        remarks: "Writers in order compare least: the paper's server answers writes from memory, ours from the disk.".into(),
    })
}
