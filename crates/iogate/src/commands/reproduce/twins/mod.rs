//! TWINS (Bez: Evaluating I/O scheduling techniques at the forwarding layer and coordinating data server accesses, 2016): chapters 3
//! to 5.
//!
//! | module | purpose |
//! |---|---|
//! | `schedulers` | no forwarders and all schedulers; collective calls (figures 3.4 to 3.7, 4.1, 4.2, 5.1, 5.2, 5.6) |
//! | `layers` | sizes and distances on the way (tables 3.1 to 5.1) |
//! | `settings` | widths of windows, numbers of forwarders (figures 4.3, 4.4, 5.3, 5.4, 5.7 to 5.9) |
//! | `contention` | losses in the network, and variants of the windows (figure 5.5) |
//! | `applications` | two applications (figures 5.10 and 5.11) |
//! | `conditions` | what the results depend on (section 4.2.4) |
//! | `controls` | depth for reads and writes, lists, servers' processors, conditions of collective calls |

mod applications;
mod conditions;
mod contention;
mod controls;
mod layers;
mod schedulers;
mod settings;

use super::figure::Reproduced;
use super::{Experiment, Lab, Settings};
use crate::failure::Failure;

pub(super) const OP: &str = "app.mpi-io-test.op";
const REQUEST: &str = "app.mpi-io-test.request";
pub(super) const PATTERN: &str = "case";
pub(super) const GATE: &str = "forwarders.ion.gate";
const FORWARDERS: &str = "ion";

pub(super) const PER_PROCESS: &str = "file per process";
pub(super) const STRIDED: &str = "shared, strided";
pub(super) const CONTIGUOUS: &str = "shared, contiguous";

pub(super) const FIFO: &str = "fifo";
/// IOFSL joins what it forwards, 16 requests at most.
pub(super) const JOINED: &str = "to-agg(run_requests_max=16)";
pub(super) const HBRR: &str = "hbrr";
pub(super) const SERVER_WINDOW: &str = "server-window(window=1s)";
pub(super) const TWINS: &str = "twins(window=1ms)";
pub(super) const TWINS_8MS: &str = "twins(window=8ms)";

/// The experiments.
struct Results {
    direct: Experiment,
    schedulers: Experiment,
    /// What the headlines compare of these, by more seeds.
    shared: Experiment,
    collective: Experiment,
    server_windows: Experiment,
    windows: Experiment,
    forwarders: Experiment,
    contention: Experiment,
    contention_direct: Experiment,
    /// Two widths of windows on disks, by more seeds.
    contention_windows: Experiment,
    two: Experiment,
    two_direct: Experiment,
    /// Both started together, by more seeds.
    together: Experiment,
    depth: Experiment,
    below: Experiment,
    below_direct: Experiment,
    variants: Experiment,
}

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let of = |name: &str| lab.experiment(&format!("twins-{name}"));
    let results = Results {
        direct: of("direct")?,
        schedulers: of("schedulers")?,
        shared: of("shared-reads")?,
        collective: of("collective")?,
        server_windows: of("server-windows")?,
        windows: of("windows")?,
        forwarders: of("forwarders")?,
        contention: of("contention")?,
        contention_direct: of("contention-direct")?,
        contention_windows: of("contention-windows")?,
        two: of("two-applications")?,
        two_direct: of("two-applications-direct")?,
        together: of("two-together")?,
        depth: of("depth")?,
        below: of("below")?,
        below_direct: of("below-direct")?,
        variants: of("variants")?,
    };
    let controls = controls::Controls::run(lab)?;
    let mut figures = schedulers::figures(&results)?;
    figures.extend(layers::figures(&results.schedulers)?);
    figures.extend(settings::figures(&results)?);
    figures.push(contention::congestion(&results)?);
    figures.push(applications::figure(&results)?);
    figures.extend(conditions::figures(&results)?);
    figures.push(applications::lists(controls.two())?);
    figures.extend(controls.figures(&results.below)?);
    figures.push(contention::variants(&results.variants)?);
    let title = "TWINS: forwarders that serve one data server at a time";
    Ok(Reproduced::new("iogate reproduce twins", title, NOTES.map(String::from).into(), figures))
}

const NOTES: [&str; 4] = [
    "The thesis's cluster: four PVFS2 servers with one disk each (direct I/O, no cache), stripes of 64 KiB, 32 client nodes with 128 \
     processes that read or write 32 MB each, 10 Gbit/s Ethernet, and up to eight IOFSL forwarders between them. The text does not say \
     how many forwarders the main experiments have; section 5.3 has four with otherwise the same parameters, and so do ours.",
    "Ours has the same sizes, but where a section says otherwise. A forwarder has up to 16 dispatches on their way. The disks are the \
     model `hdd` (7200 rpm, 255 MB/s); the thesis's nodes had a Seagate ST600MM0088 (10,000 rpm, by Grid'5000's reference repository), \
     of which we have no data sheet. Nothing sorts or joins requests below a server's `fifo`: PVFS2 hands them to 30 threads, each of \
     which has a queue of its own in Linux's CFQ. Messages take 30 to 80 us; the link between the two clusters is left out, as four \
     disks do not fill it. Processes compute for 300 us on average before each call: without that they keep in step for ever, which no \
     processes of a real cluster do (the section on conditions varies it).",
    "IOFSL has a queue behind its scheduler that joins up to 16 requests of a file, adjacent or not. Ours joins only adjacent ones, in \
     the scheduler, where a section does not say otherwise: `to-agg` stands for the thesis's FIFO and TO, `fifo` is the same without joining. `hbrr`, `sjf` and `mlf` join by \
     themselves, `server-window` and `twins` do not.",
    "The thesis has its times as pictures only; the numbers are those of its text and tables. Times are makespans, what is in \
     parentheses, or after \u{b1}, is the 99.7 % confidence interval, as in the thesis, but by Student's t, which is then wider than the \
     thesis's three standard errors; of gains it is over pairs of runs with the same seed. Faster by p % means a time shorter by p %.",
];

/// What a scheduler is called in tables.
pub(super) fn name(gate: &str) -> &str {
    match gate {
        JOINED => "to-agg",
        SERVER_WINDOW => "server-window, 1 s",
        "twins(window=125us)" => "twins, 125 us",
        TWINS => "twins, 1 ms",
        TWINS_8MS => "twins, 8 ms",
        "twins(window=1ms,split=true)" => "twins, 1 ms, split",
        other => other,
    }
}

/// Whether all of these are values of a key.
fn has(results: &Experiment, key: &str, values: &[&str]) -> bool {
    values.iter().all(|value| results.values(key).iter().any(|known| known == value))
}

/// A makespan with its interval.
fn time(results: &Experiment, settings: &Settings<'_>) -> String {
    results.shown(settings, "makespan")
}

/// A size as people write it.
fn spaced(size: &str) -> String {
    size.replace("KiB", " KiB")
}
