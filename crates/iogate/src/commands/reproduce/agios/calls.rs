//! Table III on flash, where each call of a server's kernel takes processor time: a control.

use iogate_report::Table;

use super::situations::Situations;
use super::{Lab, ratios};
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percent};
use crate::commands::scenario;
use crate::failure::Failure;

const CALL: &str = "call";

pub(super) fn figure<'a>(lab: &Lab<'_>, results: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("table III, calls of the kernel");
    let mut found = Vec::new();
    for call in results.values(CALL) {
        let mut plan = scenario::built_in_plan("agios-edel-calls", lab.quick)?;
        plan.points.retain(|point| point.settings.iter().any(|(key, value)| key == CALL && value == call));
        let situations = Situations::new(&plan, &|settings, base| ratios(results, settings, base));
        let some = !situations.all.is_empty();
        for (index, name) in situations.schedulers.iter().enumerate().skip(1) {
            let somewhere = situations.all.iter().any(|situation| situation.right == index);
            sheet.fact(
                format!("{call} a call: {name} is the best choice somewhere"),
                true,
                some.then_some(somewhere),
            );
        }
        found.push((call, situations));
    }
    let columns = found.iter().map(|(call, _)| format!("{call} a call"));
    let mut table = Table::new(std::iter::once("pattern".to_owned()).chain(columns));
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for situation in found.iter().flat_map(|(_, situations)| &situations.all) {
        let row = (situation.pattern.as_str(), situation.op.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    for (pattern, op) in rows {
        let cells = found.iter().map(|(_, situations)| {
            let of = situations.all.iter().find(|of| (of.pattern.as_str(), of.op.as_str()) == (pattern, op));
            of.map_or("-".to_owned(), |of| match of.right {
                0 => "none".to_owned(),
                right => format!("{} ({})", situations.schedulers[right], percent(Some(100.0 * of.gain))),
            })
        });
        table.row(std::iter::once(format!("{pattern}, {op}")).chain(cells));
    }
    Ok(Figure {
        title: "Control: calls of the kernel on flash".into(),
        results: vec![results],
        setup: "Not in the paper. The situations of Edel again, where a server's processor takes so long for each call of its kernel, of which \
                there is one for all requests that a scheduler has joined."
            .into(),
        sheet,
        tables: vec![("The fastest with 8 processes, and how much shorter the time is; `none` where it is not significantly".into(), table)],
        remarks: "Where a call takes little against what the drive takes, joining saves nothing that counts. Where it takes more, joining pays \
                  in nearly every situation, and the schedulers that join without waiting are the best."
            .into(),
        ..Figure::default()
    })
}
