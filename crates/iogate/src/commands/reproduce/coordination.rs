//! Server coordination (Song, Yin, Sun, Thakur and Lang: Server-side I/O coordination for parallel file systems, SC 2011): formulas
//! (1) to (3), figures 3 and 5 to 8.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use super::claims::{Claims, Tolerance};
use super::{Experiment, Lab, percent, span};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

pub(super) const GATE: &str = "servers.gate";
/// A queue for each file, served by turns, as PVFS2 has them.
pub(super) const BY_TURNS: &str = "hbrr(quantum=1)";
/// In the paper this is `ORI` and `CIO`; a single queue is ours.
pub(super) const FIFO: &str = "fifo";

/// Reductions agree within so many points, ratios within so many percent: the paper's runs have no intervals, and ours are on models
/// of its devices.
const POINTS: f64 = 10.0;
const NEAR: Tolerance = Tolerance::Percent(20.0);

pub(super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let sections = vec![formulas(lab)?, finish_times(lab)?, applications(lab)?, servers(lab)?, windows(lab)?];
    Ok(Page {
        title: "Server coordination: data servers that serve one application at a time".into(),
        notes: vec![
            "The paper's cluster: up to 64 PVFS2 servers with one disk of 250 GB each on gigabit Ethernet, and 16 with a flash drive on \
             4X InfiniBand. Ours are models of such devices (`sata-7200-250g`, `pcie-ssd-100g`) behind a simulated network with up to \
             half a millisecond of jitter; `app-window` is the paper's algorithm."
                .into(),
            "Without coordination, PVFS2 keeps a queue for each file and serves the queues side by side. That is here `by turns`: one \
             request of a file, then the next file. `fifo`, a single queue in order of arrival, is a stronger opponent that the paper \
             does not have. Reductions are of the mean completion time, \u{b1} is the 95 % confidence interval over the seeds."
                .into(),
            "The paper does not say how much each process reads; here it is 20 requests. That matters: a closed loop of synchronous \
             applications completes requests at the rate of the servers whatever the order, so coordination shortens the mean only as \
             far as it lets some applications finish early (or saves seeks), and the effect fades when runs are long against a window."
                .into(),
        ],
        sections,
        program: PROGRAM.into(),
    })
}

fn formulas(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("coordination-formulas")?;
    /// A request's time; and from its start to the end of what was served before, in seconds.
    const T: f64 = 0.1;
    const BEFORE: f64 = 0.05;
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
    let mut inside = 0;
    let mut all = 0;
    let mut claims = Claims::default();
    for m in results.values("app.app.count") {
        for n in results.values("case") {
            let (Ok(mf), Ok(nf)) = (m.parse::<f64>(), n.parse::<f64>()) else { continue };
            let at = |scheduler| {
                [("app.app.count", m.as_str()), ("servers.gate.scheduler", scheduler), ("case", n.as_str())]
            };
            // In units of T, over the m applications; the half-width is that of the mean over all, of which they are m of m + 1.
            let mean = |scheduler| -> Option<(f64, f64)> {
                let point = results.point(&at(scheduler))?;
                let ours = point.apps.iter().filter(|app| app.name != "first");
                let times: Vec<f64> =
                    ours.filter_map(|app| Some(app.metric("completion")?.estimate.mean)).collect();
                let mean = times.iter().sum::<f64>() / times.len() as f64;
                let half = point.metric("completion_mean")?.estimate.half_width.unwrap_or(0.0);
                Some(((mean - BEFORE) / T, half * (mf + 1.0) / mf / T))
            };
            let one = mf - (1..mf as u32).map(|k| (f64::from(k) / mf).powf(nf)).sum::<f64>();
            let two = (mf + 1.0) / 2.0;
            let (Some(independent), Some(coordinated)) = (mean("fifo"), mean("app-window")) else { continue };
            // Jitter adds up to two milliseconds of a hundred.
            let jitter = 0.02;
            for ((ours, half), formula) in [(independent, one), (coordinated, two)] {
                all += 1;
                inside += usize::from((ours - formula) <= half + jitter && (ours - formula) >= -half);
            }
            let shown = |(mean, half): (f64, f64)| format!("{mean:.3} \u{b1} {half:.3}");
            table.row([
                m.clone(),
                n.clone(),
                format!("{one:.3}"),
                shown(independent),
                format!("{two:.3}"),
                shown(coordinated),
                format!("{:.3}", one - two),
                format!("{:.3}", independent.0 - coordinated.0),
            ]);
        }
    }
    claims.everywhere("means within their interval of the formula, or up to 0.02 t above it", inside, all);
    Ok(Section {
        title: "Section 3.2: the formulas".into(),
        scenarios: vec!["coordination-formulas".into()],
        paper: "The paper: with m applications that each need one request of time t from n servers, independent servers complete them \
                after m t - t / m^n * sum(k^n, k < m) on average (1), servers in step after (m + 1) t / 2 (2); the difference is (3). \
                By up to two milliseconds of jitter, 0.02 t, the requests reach the servers and the answers come back: a mean may \
                be later by that."
            .into(),
        tables: vec![
            ("Mean completion time in units of t".into(), table),
            ("The paper's figures and ours".into(), claims.table()),
        ],
        pictures: Vec::new(),
        verdict: claims.verdict(),
    })
}

fn finish_times(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("coordination-finish-times")?;
    let mut table = Table::new(["", "paper", "by turns", "fifo", "app-window"]);
    let mut claims = Claims::default();
    let window = "app-window";
    for (case, before, after, reduction) in [("disk", 4.4, 1.3, 29.8), ("flash", 3.1, 1.2, 19.5)] {
        let at = |gate| [(GATE, gate), ("case", case)];
        let spread = |gate| results.shown(&at(gate), "server_finish_spread");
        for (when, gate, published) in [("without", BY_TURNS, before), ("with", window, after)] {
            let what = format!("{case}: last by first server, {when} coordination");
            let ours = results.mean(&at(gate), "server_finish_spread").map(two_decimals);
            claims.number(what, "x", published, ours, NEAR);
        }
        let shorter = results.reduction(&at(window), &at(BY_TURNS), "completion_mean");
        let what = format!("{case}: completion time shorter by");
        claims.change(what, (reduction, reduction), shorter.map(|shorter| (shorter, shorter)), POINTS);
        table.row([
            format!("{case}: last by first server"),
            format!("{before}x -> {after}x"),
            spread(BY_TURNS),
            spread(FIFO),
            spread(window),
        ]);
        let time = |gate| results.shown(&at(gate), "completion_mean");
        table.row([
            format!("{case}: mean completion time"),
            "-".into(),
            time(BY_TURNS),
            time(FIFO),
            time(window),
        ]);
        let less = |gate| percent(results.reduction(&at(window), &at(gate), "completion_mean"));
        table.row([
            format!("{case}: shorter with app-window by"),
            format!("{reduction} %"),
            less(BY_TURNS),
            less(FIFO),
            String::new(),
        ]);
    }
    Ok(Section {
        title: "Figures 3 and 5: when each server finishes".into(),
        scenarios: vec!["coordination-finish-times".into()],
        paper: "The paper: ten applications read 4 MB each from eight servers at the same time. The last server of an application \
                finishes 4.4 times as late as the first (disk; 3.1 flash), with coordination 1.3 (1.2) times; completion times shrink \
                by 29.8 % (19.5 %)."
            .into(),
        tables: vec![
            ("The paper's figures and ours, against by turns".into(), claims.table()),
            (
                "An application's last server by its first, mean over the applications; completion times".into(),
                table,
            ),
        ],
        pictures: Vec::new(),
        verdict: claims.verdict()
            + " A run on flash is short: what the first requests to arrive have begun, before the others, is a larger part of it.",
    })
}

/// As it is shown.
fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Mean step time by application count or server count, and reductions against both opponents.
fn reductions(
    results: &Experiment,
    rows: &str,
    columns: &str,
    others: &[(&str, &str)],
    window: &str,
    base: &str,
) -> (Table, Vec<f64>) {
    let mut table = Table::new(
        std::iter::once(String::new())
            .chain(results.values(columns).iter().map(|value| format!("{value} processes"))),
    );
    let mut all = Vec::new();
    for row in results.values(rows) {
        let cells = results.values(columns).iter().map(|column| {
            let at = |gate| {
                let mut settings = others.to_vec();
                settings.extend([(rows, row.as_str()), (columns, column.as_str()), (GATE, gate)]);
                settings
            };
            let less = results.reduction(&at(window), &at(base), "step_time_mean");
            all.extend(less);
            percent(less)
        });
        let cells: Vec<String> = cells.collect();
        table.row(std::iter::once(row.clone()).chain(cells));
    }
    (table, all)
}

fn applications(lab: &Lab<'_>) -> Result<Section, Failure> {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    let mut claims = Claims::default();
    for (name, paper) in [("disk", (8.0, 42.0)), ("flash", (11.0, 43.0))] {
        let results = lab.experiment(&format!("coordination-applications-{name}"))?;
        let window = "app-window(window=1s)";
        let (count, processes) = ("app.ior.count", "app.ior.processes");
        let (by_turns, all) = reductions(&results, count, processes, &[], window, BY_TURNS);
        let (fifo, all_fifo) = reductions(&results, count, processes, &[], window, FIFO);
        for (base, all) in [("by turns", &all), ("fifo", &all_fifo)] {
            claims.change(
                format!("{name}: shorter than {base} by"),
                paper,
                span(all.iter().copied()),
                POINTS,
            );
        }
        let (kept, cases) = more_with_more(&results, count, processes, window);
        claims.everywhere(
            format!("{name}: most applications gain more than fewest, against by turns"),
            kept,
            cases,
        );
        tables.push((
            format!("{name}: completion time of a request is shorter by, against by turns"),
            by_turns,
        ));
        tables.push((format!("{name}: against fifo"), fifo));
        let of = |gate| results.series(gate, count, &[(processes, "8"), (GATE, gate)], "step_time_mean");
        let title = format!("Completion time of a request, 8 processes an application ({name})");
        let series = vec![of(BY_TURNS), of(FIFO), of(window)];
        let picture = results.lines(&title, count, "applications", Unit::Seconds, series);
        pictures.push((title, lines(&picture)));
    }
    tables.insert(
        0,
        (
            "The paper's figures and ours, over all numbers of applications and processes".into(),
            claims.table(),
        ),
    );
    Ok(Section {
        title: "Figure 6: more and more applications".into(),
        scenarios: ["coordination-applications-disk", "coordination-applications-flash"].map(String::from).into(),
        paper: "The paper: 2 to 16 IORs of 8, 16 or 32 processes on 16 servers, a barrier after each request of 128 KiB; windows of 1 s. \
                Completion times shrink by 8 to 42 % (disk) and 11 to 43 % (flash), more with more applications."
            .into(),
        tables,
        pictures,
        verdict: claims.verdict()
            + " On disks with many processes a run takes tens of windows, and the reduction falls again with the applications (see the \
               third note). Where two applications of eight processes lose on flash, one of them has the servers to itself, and does \
               not keep all of them busy.",
    })
}

/// In how many of the numbers of processes the reduction is larger for the largest number of `rows` than for the smallest, and of how
/// many.
fn more_with_more(results: &Experiment, rows: &str, columns: &str, window: &str) -> (usize, usize) {
    let ends = results.values(rows).first().zip(results.values(rows).last());
    let Some((fewest, most)) = ends else { return (0, 0) };
    let gains = results.values(columns).iter().filter_map(|column| {
        let gain = |row: &str| {
            let at = |gate| [(rows, row), (columns, column.as_str()), (GATE, gate)];
            results.reduction(&at(window), &at(BY_TURNS), "step_time_mean")
        };
        Some(gain(most)? > gain(fewest)?)
    });
    gains.fold((0, 0), |(kept, all), more| (kept + usize::from(more), all + 1))
}

fn servers(lab: &Lab<'_>) -> Result<Section, Failure> {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    let mut claims = Claims::default();
    for (name, window, fewest, most) in
        [("disk", "app-window(window=1s)", 10.0, 46.0), ("flash", "app-window(window=250ms)", 10.0, 39.0)]
    {
        let results = lab.experiment(&format!("coordination-servers-{name}"))?;
        let processes = "app.pio.processes";
        let read: &[(&str, &str)] = &[("app.pio.op", "read")];
        let (by_turns, _) = reductions(&results, "case", processes, read, window, BY_TURNS);
        let (fifo, _) = reductions(&results, "case", processes, read, window, FIFO);
        for (paper, count) in
            [(fewest, results.values("case").first()), (most, results.values("case").last())]
        {
            let Some(count) = count else { continue };
            let mut all = (Vec::new(), Vec::new());
            for (base, all) in [(BY_TURNS, &mut all.0), (FIFO, &mut all.1)] {
                for p in results.values(processes) {
                    let at =
                        |gate| [("case", count.as_str()), (processes, p.as_str()), (GATE, gate), read[0]];
                    all.extend(results.reduction(&at(window), &at(base), "step_time_mean"));
                }
            }
            for (base, all) in [("by turns", all.0), ("fifo", all.1)] {
                let what = format!("{name}, reads, {count} servers: shorter than {base} by");
                claims.change(what, (paper, paper), span(all.into_iter()), POINTS);
            }
        }
        for (what, gate, grows) in
            [("with coordination", window, false), ("without, by turns", BY_TURNS, true)]
        {
            let growths = growths(&results, processes, read, gate);
            let kept = growths.iter().filter(|growth| (**growth > FLAT) == grows).count();
            let how = if grows { "grows" } else { "stays" };
            claims.everywhere(
                format!("{name}, reads: {what}, the completion time {how} with the servers"),
                kept,
                growths.len(),
            );
        }
        tables.push((
            format!("{name}, reads: shorter by, for each number of servers, against by turns"),
            by_turns,
        ));
        tables.push((format!("{name}, reads: against fifo"), fifo));
        let of =
            |gate| results.series(gate, "case", &[(processes, "8"), (GATE, gate), read[0]], "step_time_mean");
        let title = format!("Completion time of a request, 8 processes an application ({name}, reads)");
        let series = vec![of(BY_TURNS), of(FIFO), of(window)];
        let picture = results.lines(&title, "case", "servers", Unit::Seconds, series);
        pictures.push((title, lines(&picture)));
    }
    tables.insert(0, ("The paper's figures and ours, over the numbers of processes".into(), claims.table()));
    Ok(Section {
        title: "Figure 7: more and more servers".into(),
        scenarios: ["coordination-servers-disk", "coordination-servers-flash"].map(String::from).into(),
        paper: "The paper: ten applications; each request needs 8 KiB from every server, of which there are 2 to 64. With coordination the \
                completion time stays the same as servers are added; without, it grows. The reduction grows from about 10 % to 46 % \
                (disk, 64 servers) and 39 % (flash, 16 servers)."
            .into(),
        tables,
        pictures,
        verdict: claims.verdict()
            + " Barriers keep the applications apart by more than the network's jitter, so that all servers see their requests in the \
               same order whoever schedules. What makes the paper's servers drift apart as they become more (unequal disks, other \
               traffic) is not in the model: a supposition, which no control tests yet.",
    })
}

/// Up to here a completion time is the same for the most servers as for the fewest.
const FLAT: f64 = 1.1;

/// Completion time with the most servers by that with the fewest, for each number of processes.
fn growths(results: &Experiment, processes: &str, others: &[(&str, &str)], gate: &str) -> Vec<f64> {
    let ends = results.values("case").first().zip(results.values("case").last());
    let Some((fewest, most)) = ends else { return Vec::new() };
    let growth = |count: &String| {
        let time = |case: &str| {
            let own = [("case", case), (processes, count.as_str()), (GATE, gate)];
            let at: Vec<(&str, &str)> = others.iter().copied().chain(own).collect();
            results.mean(&at, "step_time_mean")
        };
        Some(time(most)? / time(fewest)?)
    };
    results.values(processes).iter().filter_map(growth).collect()
}

fn windows(lab: &Lab<'_>) -> Result<Section, Failure> {
    let mut tables = Vec::new();
    let mut claims = Claims::default();
    for (name, best) in [("disk", "app-window(window=1s)"), ("flash", "app-window(window=250ms)")] {
        let results = lab.experiment(&format!("coordination-windows-{name}"))?;
        let key = "app.*.processes";
        window_claims(&mut claims, name, best, &results, key);
        for (metric, what) in [("step_time_mean", "completion time of a request"), ("bandwidth", "bandwidth")]
        {
            let mut table = Table::new(
                std::iter::once("".to_owned())
                    .chain(results.values(key).iter().map(|value| format!("{value} processes"))),
            );
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
    }
    tables.insert(0, ("The paper's figures and ours".into(), claims.table()));
    Ok(Section {
        title: "Figure 8: the width of the window".into(),
        scenarios: ["coordination-windows-disk", "coordination-windows-flash"].map(String::from).into(),
        paper: "The paper: ten applications of four kinds on 16 servers. Every window is better than none; 1 s is best on disks and 250 ms \
                on flash; bandwidth is about the same (disk: from 1.2 % lower to 10.9 % higher) or higher (flash)."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: claims.verdict()
            + " On flash the runs are over within the first window, so that its width makes no difference there.",
    })
}

/// What the paper says of windows, of one kind of device.
fn window_claims(claims: &mut Claims, name: &str, best: &str, results: &Experiment, key: &str) {
    let time = |count: &str, gate: &str| results.mean(&[(key, count), (GATE, gate)], "step_time_mean");
    let windows = || results.values(GATE).iter().filter(|gate| gate.starts_with("app-window"));
    for (base, shown) in [(BY_TURNS, "by turns"), (FIFO, "fifo")] {
        let better: Vec<bool> = results
            .values(key)
            .iter()
            .flat_map(|count| {
                windows().filter_map(move |window| Some(time(count, window)? < time(count, base)?))
            })
            .collect();
        let kept = better.iter().filter(|better| **better).count();
        claims.everywhere(format!("{name}: each window is better than {shown}"), kept, better.len());
    }
    let mut first = (0, 0);
    for count in results.values(key) {
        let fastest = windows()
            .filter_map(|window| Some((time(count, window)?, window.as_str())))
            .min_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, window)) = fastest {
            first = (first.0 + usize::from(window == best), first.1 + 1);
        }
    }
    claims.everywhere(format!("{name}: {best} is the best"), first.0, first.1);
    if name == "disk" {
        for (base, shown) in [(BY_TURNS, "by turns"), (FIFO, "fifo")] {
            let changes = results.values(key).iter().flat_map(|count| {
                let rate = |gate: &str| results.mean(&[(key, count.as_str()), (GATE, gate)], "bandwidth");
                windows().filter_map(move |window| Some(100.0 * (rate(window)? / rate(base)? - 1.0)))
            });
            let what = format!("{name}: bandwidth higher than {shown} by");
            claims.change(what, (-1.2, 10.9), span(changes.collect::<Vec<_>>().into_iter()), POINTS);
        }
    }
}
