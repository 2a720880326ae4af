//! What the results depend on.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{GATE, PATTERN, name, time};
use crate::commands::reproduce::Lab;
use crate::failure::Failure;

pub(super) fn section(lab: &Lab<'_>) -> Result<Section, Failure> {
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
        ("strided: processes out of step", "strided, processes compute 1 ms on average before each call"),
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
        verdict: String::new(),
    })
}
