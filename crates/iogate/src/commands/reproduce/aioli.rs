//! aIOLi (Lebre, Denneulin, Huard and Sowa: I/O scheduling service for multi-application clusters, 2006): figures 5 to 7, tables 1
//! and 2.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use super::{Experiment, Lab, Settings, factor, shown};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

const SCHEDULER: &str = "servers.gate.scheduler";
const REQUEST: &str = "app.ior.request";
/// Of collective calls, how much of one is a process's.
const CALLS: &str = "case";
const LONGEST: &str = "servers.gate.run_bytes_max";

pub(super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let sections =
        vec![one_ior(lab)?, ior_and_cat(lab)?, two_iors(lab)?, sequential(lab)?, ten_applications(lab)?];
    Ok(Page {
        title: "aIOLi: a scheduler for many applications on one server".into(),
        notes: vec![
            "The paper's server is an NFS server of 2006: one IDE disk of 80 GB (57 MB/s by hdparm), gigabit Ethernet, transfers of \
             32 KiB, no cache. Ours is the model of such a disk (`aioli-ide`) behind a simulated network; `fifo` with eight requests \
             at once stands for the plain server with its eight daemons, `aioli` is our scheduler with its defaults."
                .into(),
            "The paper gives most results as curves. Where its text or tables have numbers they stand beside ours; \u{b1} is the 95 % \
             confidence interval over the seeds. What the model leaves out: the disk scheduler and the page cache below the server, \
             writes that are answered from the server's memory."
                .into(),
        ],
        sections,
        program: PROGRAM.into(),
    })
}

fn one_ior(lab: &Lab<'_>) -> Result<Section, Failure> {
    let (ior, collective, sequential) = (
        lab.experiment("aioli-one-ior")?,
        lab.experiment("aioli-one-ior-collective")?,
        lab.experiment("aioli-sequential")?,
    );
    let mut tables = Vec::new();
    let mut pictures = Vec::new();
    for op in ["read", "write"] {
        let mut table =
            Table::new(["granularity", "fifo", "aioli", "gain", "collective I/O", "one reader or writer"]);
        for request in ior.values(REQUEST) {
            let at = |scheduler| [("app.ior.op", op), (REQUEST, request.as_str()), (SCHEDULER, scheduler)];
            let gain = ior.mean(&at("aioli"), "bandwidth").zip(ior.mean(&at("fifo"), "bandwidth"));
            table.row([
                request.clone(),
                ior.shown(&at("fifo"), "bandwidth"),
                ior.shown(&at("aioli"), "bandwidth"),
                factor(gain.map(|(aioli, fifo)| aioli / fifo)),
                collective.shown(&[("app.ior.op", op), (CALLS, request)], "bandwidth"),
                sequential.shown(&[("app.reader.op", op), ("app.reader.request", request)], "bandwidth"),
            ]);
        }
        tables.push((format!("Bandwidth, {op}s; the disk alone gives 58 MB/s (55 MiB/s)"), table));
        let series = vec![
            ior.series("fifo", REQUEST, &[("app.ior.op", op), (SCHEDULER, "fifo")], "bandwidth"),
            ior.series("aioli", REQUEST, &[("app.ior.op", op), (SCHEDULER, "aioli")], "bandwidth"),
            collective.series("collective I/O", CALLS, &[("app.ior.op", op)], "bandwidth"),
            sequential.series(
                "one process in order",
                "app.reader.request",
                &[("app.reader.op", op)],
                "bandwidth",
            ),
        ];
        let picture = ior.lines(
            &format!("Bandwidth by granularity, {op}s"),
            REQUEST,
            "bytes of a call",
            Unit::BytesPerSecond,
            series,
        );
        pictures.push((picture.title.clone(), lines(&picture)));
    }
    Ok(Section {
        title: "Figure 5: one IOR of 32 processes, a file of 4 GB".into(),
        scenarios: ["aioli-one-ior", "aioli-one-ior-collective", "aioli-sequential"].map(String::from).into(),
        paper: "The paper: for reads aIOLi is clearly better than plain POSIX calls and than collective MPI-IO, and passes the \
                sequential reference where there is enough to aggregate; between 64 and 512 KiB it stays below that reference, as \
                each call is then only a few requests. Writes are close to the reference. The disk's 57 MB/s are the bound."
            .into(),
        tables,
        pictures,
        verdict: "Agrees for reads: aioli keeps near the disk's rate at every granularity, the plain server only at the largest, and \
                  collective I/O lies between. Differs: our aioli has no dip between 64 and 512 KiB. There the processes of the model \
                  keep in step and their calls adjoin, which the paper's did less. Our write figures of the plain server are not \
                  comparable: its writes are on the disk when they are answered, the paper's in memory."
            .into(),
    })
}

fn ior_and_cat(lab: &Lab<'_>) -> Result<Section, Failure> {
    let both = lab.experiment("aioli-ior-and-cat")?;
    let mut table =
        Table::new(["granularity of IOR", "IOR, fifo", "IOR, aioli", "cat, fifo", "cat, aioli", "cat alone"]);
    for request in both.values(REQUEST) {
        let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler)];
        let time = |scheduler, app| shown(both.app(&at(scheduler), app, "completion"));
        let alone = both
            .app(&at("fifo"), "cat", "completion")
            .zip(both.app(&at("fifo"), "cat", "interference"))
            .map(|(time, interference)| time.estimate.mean / interference.estimate.mean);
        table.row([
            request.clone(),
            time("fifo", "ior"),
            time("aioli", "ior"),
            time("fifo", "cat"),
            time("aioli", "cat"),
            alone.map_or("-".into(), |seconds| format!("{seconds:.1} s")),
        ]);
    }
    Ok(Section {
        title: "Figure 6: a small application beside a large one".into(),
        scenarios: vec!["aioli-ior-and-cat".into()],
        paper: "The paper: a program that reads 16 MB in order (about 2 s when it is alone), started 15 s after the IOR. aIOLi shortens \
                both; at small granularities the IOR gains more than the small program."
            .into(),
        tables: vec![("Completion times".into(), table)],
        pictures: Vec::new(),
        verdict: "Agrees: both gain at every granularity, the IOR most at small ones. The small reader gains less than it could: its requests \
                  come one at a time, and from 128 KiB on their answers queue behind those of the IOR's long runs on the server's port, so \
                  that the next one comes too late for the millisecond that aioli waits."
            .into(),
    })
}

fn two_iors(lab: &Lab<'_>) -> Result<Section, Failure> {
    let (posix, collective) =
        (lab.experiment("aioli-two-iors")?, lab.experiment("aioli-two-iors-collective")?);
    let later = |(experiment, key): (&Experiment, &str), scheduler: &str, request: &str| {
        experiment.mean(&[(key, request), (SCHEDULER, scheduler)], "makespan")
    };
    let (alone, together) = ((&posix, REQUEST), (&collective, CALLS));
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
    for request in posix.values(REQUEST) {
        let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler)];
        let gap = between(&posix, &at("aioli"));
        let together_at = |scheduler| [(CALLS, request.as_str()), (SCHEDULER, scheduler)];
        let gain = |experiment: (&Experiment, &str)| {
            Some(later(experiment, "fifo", request)? / later(experiment, "aioli", request)?)
        };
        table.row([
            request.clone(),
            posix.shown(&at("fifo"), "makespan"),
            posix.shown(&at("aioli"), "makespan"),
            factor(gain(alone)),
            gap,
            collective.shown(&together_at("fifo"), "makespan"),
            collective.shown(&together_at("aioli"), "makespan"),
            factor(gain(together)),
        ]);
    }
    let lengths = lab.experiment("aioli-run-lengths")?;
    let mut shorter = Table::new(
        std::iter::once("runs of at most".to_owned())
            .chain(lengths.values(REQUEST).iter().map(|request| format!("{request} calls"))),
    );
    for longest in lengths.values(LONGEST) {
        let cells = lengths.values(REQUEST).iter().map(|request| {
            let at = [(REQUEST, request.as_str()), (LONGEST, longest.as_str())];
            format!("{}; {}", lengths.shown(&at, "makespan"), between(&lengths, &at))
        });
        shorter.row(std::iter::once(longest.clone()).chain(cells));
    }
    let series = |name: &str, (experiment, key): (&Experiment, &str), scheduler: &str| {
        experiment.series(name, key, &[(SCHEDULER, scheduler)], "makespan")
    };
    let picture = posix.lines(
        "Until both are done",
        REQUEST,
        "bytes of a call",
        Unit::Seconds,
        vec![
            series("fifo", alone, "fifo"),
            series("aioli", alone, "aioli"),
            series("collective, fifo", together, "fifo"),
            series("collective, aioli", together, "aioli"),
        ],
    );
    let mut known = Table::new(["granularity 8 KiB", "paper", "ours"]);
    let smallest = |(experiment, key): (&Experiment, &str), scheduler| {
        experiment.shown(&[(key, "8KiB"), (SCHEDULER, scheduler)], "makespan")
    };
    known.row(["plain calls".into(), "more than 5400 s".into(), smallest(alone, "fifo")]);
    known.row(["plain calls, aIOLi".into(), "155 s".into(), smallest(alone, "aioli")]);
    known.row(["collective".into(), "690 s".into(), smallest(together, "fifo")]);
    let range = |experiment: (&Experiment, &str)| {
        let all = experiment.0.values(experiment.1).iter().filter_map(|request| {
            Some(later(experiment, "fifo", request)? / later(experiment, "aioli", request)?)
        });
        super::span(all)
            .map_or("-".into(), |(low, high)| format!("{} to {}", factor(Some(low)), factor(Some(high))))
    };
    known.row(["gain, plain calls, all granularities".into(), "3.5x to 35x".into(), range(alone)]);
    known.row(["gain, collective".into(), "3.3x to 5x".into(), range(together)]);
    Ok(Section {
        title: "Figure 7: two large applications at once".into(),
        scenarios: ["aioli-two-iors", "aioli-two-iors-collective", "aioli-run-lengths"].map(String::from).into(),
        paper: "The paper: two IORs of 32 processes with 4 GB each. At the smallest granularity more than an hour and a half without \
                aIOLi, 2 min 35 s with it, 11 min 30 s with collective calls. Reads gain 3.5x to 35x with plain calls and 3.3x to 5x \
                with collective ones; at worst 8.5 s lie between the two applications' ends."
            .into(),
        tables: vec![
            ("The numbers in the paper's text".into(), known),
            ("Until both are done".into(), table),
            ("Beyond the paper, aioli with shorter runs: until both are done; between the two".into(), shorter),
        ],
        pictures: vec![(picture.title.clone(), lines(&picture))],
        verdict: "Agrees closely at small granularities, in time and in gain, and aioli with plain calls is the best of all there. Differs: \
                  at 2 and 4 MiB the gain is small, as our plain server then reaches the disk's rate too; the paper's did not. And from \
                  512 KiB on our aioli serves one application almost wholly before the other, where the paper's ends differ by 8.5 s at \
                  most: a run of 16 MiB grows for 512 steps before it is ready, while the queue that was served last has learnt a large \
                  quantum. The third table shows the cure: with runs of at most 128 KiB the two end within two seconds of each other up to \
                  2 MiB, at no cost in time, as this disk needs no longer ones. Our collective I/O does not depend on the granularity: its aggregators read \
                  the same pieces whatever the processes asked for."
            .into(),
    })
}

/// How long after one the other of two applications ends that started together: from the end of the last and the mean of both.
fn between(experiment: &Experiment, settings: &Settings<'_>) -> String {
    let times = experiment.mean(settings, "makespan").zip(experiment.mean(settings, "completion_mean"));
    times.map_or("-".into(), |(last, mean)| format!("{:.1} s", 2.0 * (last - mean)))
}

fn sequential(lab: &Lab<'_>) -> Result<Section, Failure> {
    let readers = lab.experiment("aioli-sequential-readers")?;
    // Table 1, block columns, MB/s for each client.
    const PAPER: [(&str, &str, f64, f64); 4] = [
        ("read", "1", 43.54, 48.81),
        ("read", "4", 3.02, 13.39),
        ("write", "1", 28.40, 28.29),
        ("write", "4", 8.78, 9.59),
    ];
    let mut table = Table::new(["", "paper, NFS", "paper, aIOLi", "ours, fifo", "ours, aioli"]);
    for (op, count, nfs, aioli) in PAPER {
        let clients: f64 = count.parse().unwrap_or(1.0);
        let ours = |scheduler| {
            let at = [("app.client.op", op), ("app.client.count", count), (SCHEDULER, scheduler)];
            let rate = readers.mean(&at, "bandwidth");
            rate.map_or("-".into(), |rate| format!("{:.1} MB/s", rate / clients / 1e6))
        };
        let name = format!("{op}, {count} client{}", if count == "1" { "" } else { "s" });
        let paper = |rate: f64| format!("{rate:.1} MB/s");
        table.row([name, paper(nfs), paper(aioli), ours("fifo"), ours("aioli")]);
    }
    Ok(Section {
        title: "Table 1: sequential programs (Bonnie++)".into(),
        scenarios: vec!["aioli-sequential-readers".into()],
        paper: "The paper: Bonnie++ with files of 4 GB from one and from four clients. aIOLi costs nothing alone, and with four readers \
                each gets more than four times as much."
            .into(),
        tables: vec![("Rate of each client, block reads and writes".into(), table)],
        pictures: Vec::new(),
        verdict: "Agrees in what matters: alone no loss, and several sequential readers gain several times. The model has files of 1 GiB, \
                  no server cache and a fixed read-ahead of eight requests, so the levels differ. Byte-wise access and rewriting are \
                  not modelled."
            .into(),
    })
}

fn ten_applications(lab: &Lab<'_>) -> Result<Section, Failure> {
    let ten = lab.experiment("aioli-ten-applications")?;
    // Table 2, POSIX columns, in seconds.
    const PAPER: [(&str, &str, f64, f64); 10] = [
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
    let mut table = Table::new([
        "application",
        "paper, NFS",
        "paper, aIOLi",
        "gain",
        "ours, fifo",
        "ours, aioli",
        "gain",
    ]);
    let of = |app: &str, scheduler| ten.app(&[(SCHEDULER, scheduler)], app, "completion");
    for (app, name, nfs, aioli) in PAPER {
        let gain = of(app, "fifo").zip(of(app, "aioli"));
        table.row([
            name.into(),
            format!("{nfs} s"),
            format!("{aioli} s"),
            factor(Some(nfs / aioli)),
            shown(of(app, "fifo")),
            shown(of(app, "aioli")),
            factor(gain.map(|(fifo, aioli)| fifo.estimate.mean / aioli.estimate.mean)),
        ]);
    }
    let at = |scheduler| [(SCHEDULER, scheduler)];
    let gain = ten.mean(&at("fifo"), "makespan").zip(ten.mean(&at("aioli"), "makespan"));
    table.row([
        "all of them".into(),
        "595.5 s".into(),
        "143.5 s".into(),
        factor(Some(595.5 / 143.5)),
        ten.shown(&at("fifo"), "makespan"),
        ten.shown(&at("aioli"), "makespan"),
        factor(gain.map(|(fifo, aioli)| fifo / aioli)),
    ]);
    let bars = |name: &str, of: &dyn Fn(usize) -> Option<(f64, f64)>| Bars {
        name: name.into(),
        values: (0..PAPER.len()).map(of).collect(),
    };
    let ours = |scheduler: &'static str| {
        let of = &of;
        move |index: usize| {
            let estimate = of(PAPER[index].0, scheduler)?.estimate;
            Some((estimate.mean, estimate.half_width.unwrap_or(0.0)))
        }
    };
    let picture = Groups {
        title: "Completion time of each application".into(),
        unit: Unit::Seconds,
        groups: PAPER.iter().map(|(_, name, ..)| (*name).into()).collect(),
        series: vec![
            bars("paper, NFS", &|index| Some((PAPER[index].2, 0.0))),
            bars("ours, fifo", &ours("fifo")),
            bars("paper, aIOLi", &|index| Some((PAPER[index].3, 0.0))),
            bars("ours, aioli", &ours("aioli")),
        ],
    };
    Ok(Section {
        title: "Table 2: ten different applications".into(),
        scenarios: vec!["aioli-ten-applications".into()],
        paper: "The paper: four parallel and six sequential programs, 6 GB in all, started together; all are done in less than 2 min 24 s \
                with aIOLi and in close to 10 min without it."
            .into(),
        tables: vec![("Completion times, POSIX calls".into(), table)],
        pictures: vec![(picture.title.clone(), groups(&picture))],
        verdict: "Agrees for the whole: the gain and the total with aioli are close to the paper's. Differs for single programs, most for \
                  writers in order: the paper's server answers writes from memory, ours from the disk."
            .into(),
    })
}
