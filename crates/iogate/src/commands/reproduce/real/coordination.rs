//! Server coordination for real: data servers in step against data servers each for itself.

use iogate_report::Table;
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use super::{How, Reduced, Results, machine};
use crate::commands::bench::runner::Runner;
use crate::commands::reproduce::coordination::{BY_TURNS, FIFO, GATE};
use crate::commands::reproduce::{Lab, percents};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

const COUNT: &str = "app.pio.count";
const SERVERS: &str = "case";
const DISK: [&str; 4] =
    ["repetitions=3", "app.pio.processes=[2]", "app.pio.count=[2, 8]", "app.pio.op=[read]"];
const FLASH: [&str; 4] =
    ["repetitions=5", "app.pio.processes=[2]", "app.pio.count=[2, 8]", "app.pio.op=[read]"];
const QUICK: [&str; 4] = ["repetitions=1", "app.pio.processes=[1]", "app.pio.count=[2]", "app.pio.op=[read]"];

pub(in super::super) fn page(lab: &Lab<'_>, runner: &Runner) -> Result<Page, Failure> {
    let counts: &[&str] = if lab.quick { &["4"] } else { &["4", "8"] };
    let keep = [(SERVERS, counts)];
    let mut sections = Vec::new();
    let mut paths = Vec::new();
    for (name, window, set, paper) in [
        (
            "disk",
            "app-window(window=1s)",
            &DISK,
            "The paper has two to 64 servers and two to 16 applications; its figures are in coordination.md.",
        ),
        (
            "flash",
            "app-window(window=250ms)",
            &FLASH,
            "The paper has two to 16 servers and applications; its figures are in coordination.md.",
        ),
    ] {
        let scenario = format!("coordination-servers-{name}");
        let set = if lab.quick { &QUICK } else { set };
        let results = lab.real(
            runner,
            &Reduced { scenario: &scenario, called: &scenario, set, keep: &keep, files: &[] },
        )?;
        paths.push(format!("{name}: {}", results.paths()));
        sections.push(section(&results, name, scenario, window, set, paper));
    }
    Ok(Page {
        title: "Server coordination for real: data servers that serve one application at a time".into(),
        notes: vec![
            format!(
"Scenarios of [coordination.md](coordination.md) (figure 7) with real processes on {}: each \
             data server is an `iogate serve` process, each of the applications' processes is one that stripes over all servers with \
             the network client, over Unix sockets. The servers' files are in memory, in the time of a modelled device. Each process \
             makes 20 requests, each of which needs 8 KiB from every server, and all processes of an application wait for each other \
             after each.",
machine()
),
            "Numbers are medians over the repetitions, with the least and the most in parentheses. All points have their first \
             repetition before any has its second, so that what else runs hits all schedulers alike."
                .into(),
            format!(
                "The simulation has the network that the real run had: what a request spends outside of gate and device is measured \
                 ({}), and taken half on the way there, half on the way back.",
                paths.join("; ")
            ),
        ],
        sections,
        program: PROGRAM.into(),
    })
}

fn section(
    results: &Results,
    name: &str,
    scenario: String,
    window: &str,
    set: &[&str],
    paper: &str,
) -> Section {
    const STEP: &str = "step_time_mean";
    let gates = [("by turns", BY_TURNS), ("fifo", FIFO), ("app-window", window)];
    let head = |of: &str| {
        let two =
            gates.iter().flat_map(|(gate, _)| ["simulated", "real"].map(|how| format!("{gate}: {how}")));
        Table::new(["servers".to_owned(), of.to_owned()].into_iter().chain(two))
    };
    let (mut steps, mut ends) = (head("applications"), head("applications"));
    let mut less = Table::new([
        "servers",
        "applications",
        "against by turns: simulated",
        "real",
        "against fifo: simulated",
        "real",
    ]);
    for servers in results.values(SERVERS) {
        for count in results.values(COUNT) {
            let at = |gate| [(SERVERS, servers), (COUNT, count), (GATE, gate)];
            for (table, metric) in [(&mut steps, STEP), (&mut ends, "completion_mean")] {
                let cells = gates.iter().flat_map(|(_, gate)| {
                    [How::Simulated, How::Real]
                        .map(|how| results.shown(&at(gate), metric, Unit::Seconds, how))
                });
                table
                    .row([servers.to_owned(), count.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
            }
            let mut row = vec![servers.to_owned(), count.to_owned()];
            for base in [BY_TURNS, FIFO] {
                row.extend(
                    [How::Simulated, How::Real]
                        .map(|how| percents(results.lower(&at(window), &at(base), STEP, how))),
                );
            }
            less.row(row);
        }
    }
    Section {
        title: format!("Figures 6 and 7: applications and servers ({name})"),
        scenarios: vec![scenario],
        paper: format!("{paper} Set in the scenario: `{}`.", set.join("`, `")),
        tables: vec![
            ("Completion time of a request".into(), steps),
            ("It is shorter with app-window by".into(), less),
            ("Completion time of an application, mean over the applications".into(), ends),
        ],
        pictures: Vec::new(),
        verdict: results.agreement(STEP),
    }
}
