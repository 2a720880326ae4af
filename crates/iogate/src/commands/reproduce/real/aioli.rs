//! aIOLi for real: applications that are clients of an NFS server, without and with scheduling.

use iogate_report::Table;
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use super::{Reduced, makespans_near};
use crate::cli::{BenchStore, BenchWay};
use crate::commands::bench::runner::Runner;
use crate::commands::bench::{BY, REAL, SIMULATION};
use crate::commands::reproduce::aioli::{REQUEST, SCHEDULER};
use crate::commands::reproduce::claims::{Sheet, above};
use crate::commands::reproduce::{Experiment, Lab, factor, shown};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

const SCENARIO: &str = "aioli-ior-and-cat";
const WITHOUT: &str = "fifo";
const WITH: &str = "aioli";
/// Two strided readers of eight processes, and a small program that starts when they are under way: a 128th of the paper's bytes.
const SET: [&str; 11] = [
    "repetitions=5",
    "alone=false",
    "clients.nodes=17",
    "app.ior.count=2",
    "app.ior.processes=8",
    "app.ior.nodes=8",
    "app.ior.node_step=8",
    "app.ior.bytes=4MiB",
    "app.cat.first_node=16",
    "app.cat.start=500ms",
    "app.cat.bytes=2MiB",
];
const SIZES: &str = "app.ior.request=[32KiB, 128KiB, 512KiB]";
const QUICK: [&str; 11] = [
    "repetitions=1",
    "alone=false",
    "clients.nodes=5",
    "app.ior.count=2",
    "app.ior.processes=2",
    "app.ior.nodes=2",
    "app.ior.node_step=2",
    "app.ior.bytes=512KiB",
    "app.cat.first_node=4",
    "app.cat.start=20ms",
    "app.cat.bytes=256KiB",
];
const QUICK_SIZES: &str = "app.ior.request=[64KiB]";
const READERS: [&str; 2] = ["ior-1", "ior-2"];
const SMALL: &str = "cat";

pub(in super::super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let runner = Runner::new(BenchStore::Modelled, None, Some(BenchWay::Nfs))?;
    let (set, sizes) = if lab.quick { (&QUICK, QUICK_SIZES) } else { (&SET, SIZES) };
    let set: Vec<&str> = set.iter().copied().chain([sizes]).collect();
    let called = "aioli-through-nfs";
    let reduced = Reduced { scenario: SCENARIO, called, set: &set, keep: &[], files: &[] };
    let results = lab.side_by_side(&runner, &reduced)?;
    Ok(Page {
        title: "aIOLi for real: applications behind an NFS server".into(),
        notes: vec![
            "The paper's scheduler lay in an NFS server. Here an `iogate serve` process serves NFS version 3 with a gate behind it; each \
             process of the applications is a process, and a client of NFS over TCP, from the address of its node and its application \
             (in 127.0.0.0/8). The server's files are in memory, in the time of the model `aioli-ide`, the paper's disk. Without \
             scheduling (`fifo`) the server has eight requests at once on the disk, as a plain one with eight daemons; with it (`aioli`) \
             the gate decides."
                .into(),
            "The clients are this project's own (`iogate_nfs::client`), which keep nothing in memory and send what programs ask for, \
             so that reads of the small program are not joined or fetched in advance by its kernel. That others' clients get the same \
             service is what the tests with libnfs and the kernel's client are for ([nfs.md](../nfs.md))."
                .into(),
            "Every point is simulated too, with the time that a request spent outside of gate and device in the real run. All points \
             have their first repetition before any has its second, so that what else runs hits all alike. \u{b1} is the 95 % confidence \
             interval; what is in parentheses is that of gains, over pairs of runs with the same seed."
                .into(),
        ],
        sections: vec![section(&results, &set)?],
        program: PROGRAM.into(),
    })
}

fn section(results: &Experiment, set: &[&str]) -> Result<Section, Failure> {
    let mut head = vec!["granularity of the readers".to_owned()];
    for of in ["the two readers", "the small one"] {
        head.extend([WITHOUT, WITH].map(|scheduler| format!("{of}, {scheduler}")));
        head.push("gain".into());
    }
    head.extend([WITHOUT, WITH].map(|scheduler| format!("seeks, {scheduler}")));
    let (mut tables, mut verdicts) = (Vec::new(), Vec::new());
    for (by, called) in [(REAL, "Real"), (SIMULATION, "Simulated")] {
        let mut table = Table::new(head.clone());
        let mut sheet = Sheet::of("figures 6 and 7");
        let (mut readers, mut small, mut factors) = (Vec::new(), Vec::new(), Vec::new());
        for request in results.values(REQUEST) {
            let at = |scheduler| [(REQUEST, request.as_str()), (SCHEDULER, scheduler), (BY, by)];
            let of = |app| {
                let time = |scheduler| results.app_cell(&at(scheduler), app, "completion");
                Ok::<_, Failure>([time(WITHOUT)?, time(WITH)?])
            };
            let ([first, first_with], [second, second_with]) = (of(READERS[0])?, of(READERS[1])?);
            let both = [first.with(&second, f64::max), first_with.with(&second_with, f64::max)];
            let of_small = of(SMALL)?;
            let mut row = vec![request.clone()];
            for ([without, with], gains) in [(&both, &mut readers), (&of_small, &mut small)] {
                let gain = without.by(with);
                gains.push(gain.map(|gain| above(gain, 1.0)));
                row.extend([without, with].map(|cell| cell.shown(Unit::Seconds)));
                row.push(factor(gain));
            }
            factors.extend(both[0].by(&both[1]));
            row.extend([WITHOUT, WITH].map(|scheduler| shown(results.measured(&at(scheduler), "seeks"))));
            table.row(row);
        }
        sheet.everywhere("the readers gain", readers);
        sheet.everywhere("the small program gains", small);
        sheet.next("abstract");
        sheet.factors("gain of two readers", (3.5, 35.0), factors);
        verdicts.push(format!("{called}: {}", sheet.claims.verdict()));
        tables.push((format!("{called}: completion times"), table));
        tables.push((format!("{called}: what the paper says, and ours"), sheet.claims.table()));
    }
    verdicts.push(makespans_near(results, &[]));
    Ok(Section {
        title: "Figures 6 and 7: two strided readers and a small program".into(),
        scenarios: vec![SCENARIO.into()],
        paper: format!(
            "The paper has one reader of 32 processes beside the small program (figure 6), or two (figure 7), with 4 GB each; its \
             figures are in aioli.md. Both readers are done when the later one is. Set in the scenario: `{}`.",
            set.join("`, `")
        ),
        tables,
        pictures: Vec::new(),
        verdict: verdicts.join(" "),
    })
}
