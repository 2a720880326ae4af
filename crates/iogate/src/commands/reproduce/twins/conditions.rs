//! What the results depend on.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{
    CONTIGUOUS, FIFO, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, SERVER_WINDOW, STRIDED, TWINS,
    TWINS_8MS, name, time,
};
use crate::commands::reproduce::{Experiment, Lab};
use crate::failure::Failure;

pub(super) fn sections(lab: &Lab<'_>, usual: &Experiment) -> Result<Vec<Section>, Failure> {
    Ok(vec![depth(lab, usual)?, below(lab)?])
}

fn depth(lab: &Lab<'_>, usual: &Experiment) -> Result<Section, Failure> {
    let results = lab.experiment("twins-depth")?;
    let mut tables = Vec::new();
    for pattern in [PER_PROCESS, STRIDED, CONTIGUOUS] {
        let mut table = Table::new(["", "4 dispatches", "16 (as above)", "32"]);
        for gate in [FIFO, JOINED, HBRR, SERVER_WINDOW, TWINS, TWINS_8MS] {
            let other = |depth: u32| {
                let gate = match gate.strip_suffix(')') {
                    Some(open) => format!("{open},depth={depth})"),
                    None => format!("{gate}(depth={depth})"),
                };
                time(&results, &[(PATTERN, pattern), (GATE, &gate)])
            };
            let at = [(OP, "read"), (REQUEST, "32KiB"), (PATTERN, pattern), (GATE, gate)];
            table.row([name(gate).to_owned(), other(4), time(usual, &at), other(32)]);
        }
        tables.push((format!("{pattern}, reads of 32 KiB"), table));
    }
    Ok(Section {
        title: "Chapters 3 and 4: why schedulers do not differ".into(),
        scenarios: ["twins-depth", "twins-schedulers"].map(String::from).into(),
        paper: "The thesis: FIFO, HBRR, TO, SJF, MLF and SW hardly differ; traces show that requests do not stay in the scheduler's \
                queue long enough to be sorted (section 4.2.4), as the forwarder's dispatch queue takes them at once. In ours a gate \
                takes no more than so many dispatches at once; each forwarder serves 32 processes with one call each."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: "Agrees: where a forwarder passes on all 32 calls of its processes at once, no scheduler but TWINS makes any \
                  difference at all, which is the thesis's finding by its own explanation. TWINS holds requests back even then. With \
                  fewer dispatches on their way schedulers differ by far more than the thesis's: there its forwarders must have \
                  passed on nearly everything. But then nothing waits that could be joined, and IOFSL joined 1.8 requests on average \
                  (table 3.1); 16 dispatches are between the two."
            .into(),
    })
}

fn below(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("twins-below")?;
    let direct = lab.experiment("twins-below-direct")?;
    let gates = results.values(GATE);
    let head = ["", "no forwarders"].into_iter().chain(gates.iter().map(|gate| name(gate)));
    let mut table = Table::new(head);
    for (case, called) in [
        ("strided: arrival order", "strided, as above"),
        ("strided: adjacent joined", "strided, servers join adjacent requests (`to-agg`)"),
        ("strided: offset order", "strided, servers serve the lowest offset first"),
        ("strided: slower disks", "strided, disks of 125 MB/s (`graphene`)"),
        ("strided: no noise", "strided, no computing before calls"),
        ("strided: noise of 100 us", "strided, 100 us of computing on average"),
        ("strided: noise of 1 ms", "strided, 1 ms of computing on average"),
        ("strided: a barrier after each call", "strided, a barrier after each call"),
        ("file per process: files apart", "file per process, as above: files 256 MiB apart"),
        ("file per process: files adjoin", "file per process, files adjoin"),
    ] {
        let cells = gates.iter().map(|gate| time(&results, &[(PATTERN, case), (GATE, gate)]));
        let first = [called.to_owned(), time(&direct, &[(PATTERN, case)])];
        table.row(first.into_iter().chain(cells));
    }
    Ok(Section {
        title: "What the results depend on".into(),
        scenarios: ["twins-below", "twins-below-direct"].map(String::from).into(),
        paper: "Not in the thesis. Reads of 32 KiB under other conditions that the thesis does not tell."
            .into(),
        tables: vec![("Makespan".into(), table)],
        pictures: Vec::new(),
        verdict: "That step decides shows where processes wait for each other after each call: nobody can go ahead, joining does no \
                  harm, TWINS of 1 ms gains nothing, and wide windows only cost. Servers that serve the lowest offset first make all \
                  schedulers equal, too: processes that are behind go first. Under the other three conditions TWINS stays ahead of \
                  `to-agg`, by 6 to 27 % (1 ms) and 23 to 34 % (8 ms), and behind `fifo`. Slower disks, or processes that compute a \
                  millisecond now and then, suffice for the step to be lost without forwarders. With files that adjoin, reads of a \
                  file per process without forwarders meet the platter at a bad angle each time (252 s in all seeds), and forwarders \
                  then gain 35 %, the thesis's figure, by chance: what forwarding is worth with a file per process depends on where \
                  the files lie."
            .into(),
    })
}
