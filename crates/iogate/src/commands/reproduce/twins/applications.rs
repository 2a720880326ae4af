//! Two applications, one some time after the other.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{GATE, HBRR, JOINED, TWINS, TWINS_8MS, name};
use crate::commands::reproduce::{Experiment, Lab, shown};
use crate::failure::Failure;

const START: &str = "app.b.start";

pub(super) fn section(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("twins-two-applications")?;
    let direct = lab.experiment("twins-two-applications-direct")?;
    // Equal applications: what B suffers dt after A is what A suffers at -dt.
    let starts = results.values(START);
    let later = starts.iter().filter(|dt| *dt != "0s").rev();
    let columns: Vec<(String, &str, &str)> = (later.map(|dt| (format!("-{dt}"), dt.as_str(), "b")))
        .chain(starts.iter().map(|dt| (dt.clone(), dt.as_str(), "a")))
        .collect();
    let table = |metric: &str| {
        let mut table =
            Table::new(std::iter::once("dt".to_owned()).chain(columns.iter().map(|column| column.0.clone())));
        let mut row = |called: &str, results: &Experiment, gate: Option<&str>| {
            let cells = columns.iter().map(|(_, dt, app)| {
                let at: Vec<(&str, &str)> =
                    std::iter::once((START, *dt)).chain(gate.map(|gate| (GATE, gate))).collect();
                shown(results.app(&at, app, metric))
            });
            table.row(std::iter::once(called.to_owned()).chain(cells));
        };
        row("no forwarders", &direct, None);
        for gate in [JOINED, HBRR, TWINS, TWINS_8MS] {
            row(name(gate), &results, Some(gate));
        }
        table
    };
    Ok(Section {
        title: "Figures 5.10 and 5.11: two applications".into(),
        scenarios: ["twins-two-applications", "twins-two-applications-direct"].map(String::from).into(),
        paper: "The thesis: two applications of 64 processes, strided reads of a file each; dt is from the start of A to that of B \
                (negative: B first). Forwarding makes A up to 35 % faster, TWINS up to 16 % faster than FIFO and HBRR and 45 % than \
                no forwarding. The interference factor (time by the time alone) is up to 25 % lower with FIFO and HBRR, and with \
                TWINS up to 12 % lower than with these and 31 % than without forwarders."
            .into(),
        tables: vec![
            ("Time of A".into(), table("completion")),
            ("Interference factor of A".into(), table("interference")),
        ],
        pictures: Vec::new(),
        verdict: "Agrees: where both start together, TWINS makes A faster than FIFO (`to-agg`), with 8 ms also than no forwarders \
                  (by half; the thesis has 45 %), and with 1 ms the applications interfere a third less than with FIFO. Differs: an \
                  application alone keeps step without forwarders and nearly so with TWINS of 8 ms, takes 2 or 6 s, and is done \
                  before the other begins where dt is longer, so that the factor is 1; two at once always lose the step, hence the \
                  factor of 27 at dt = 0. Times alone differ so much between the schedulers that the times compare better than the \
                  factors."
            .into(),
    })
}
