//! No forwarders, all schedulers, and collective calls.

use iogate_report::Table;
use iogate_report::claims::{Interval, Verdict};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::{
    CONTIGUOUS, FIFO, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, Results, SERVER_WINDOW, STRIDED,
    TWINS, TWINS_8MS, has, name, spaced, time,
};
use crate::commands::reproduce::claims::{Cell, Sheet, above, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents, shares};
use crate::failure::Failure;

const PATTERNS: [&str; 3] = [PER_PROCESS, STRIDED, CONTIGUOUS];
const SMALL: &str = "32KiB";
const LARGE: &str = "256KiB";
/// From where on a difference is one, in percent.
const DIFFERENT: f64 = 10.0;

pub(super) fn figures(results: &Results) -> Result<Vec<Figure<'_>>, Failure> {
    Ok(vec![all(results)?, known(results)?, collective(results)?])
}

/// Times of the main experiments.
struct Times<'a>(&'a Results);

impl Times<'_> {
    /// With a scheduler on the forwarders, or without forwarders.
    fn of(&self, op: &str, request: &str, pattern: &str, gate: Option<&str>) -> Result<Cell, Failure> {
        let at = [(OP, op), (REQUEST, request), (PATTERN, pattern)];
        let [op, request, pattern] = at;
        match gate {
            None => self.0.direct.cell(&at, "makespan"),
            Some(gate) => self.0.schedulers.cell(&[op, request, pattern, (GATE, gate)], "makespan"),
        }
    }

    /// By how many percent one is faster than another: by more seeds where both have been run with more.
    fn faster(
        &self,
        (op, request, pattern): (&str, &str, &str),
        gate: &str,
        base: Option<&str>,
    ) -> Result<Option<Interval>, Failure> {
        let shared = &self.0.shared;
        match base {
            Some(base)
                if op == "read" && has(shared, PATTERN, &[pattern]) && has(shared, GATE, &[gate, base]) =>
            {
                let of =
                    |gate| shared.cell(&[(REQUEST, request), (PATTERN, pattern), (GATE, gate)], "makespan");
                Ok(of(gate)?.lower(&of(base)?))
            }
            _ => Ok(self.of(op, request, pattern, Some(gate))?.lower(&self.of(op, request, pattern, base)?)),
        }
    }
}

pub(super) fn no_gain(faster: Option<Interval>) -> Option<Verdict> {
    Some(within(faster?, f64::NEG_INFINITY, DIFFERENT))
}

pub(super) fn no_difference(faster: Option<Interval>) -> Option<Verdict> {
    Some(within(faster?, -DIFFERENT, DIFFERENT))
}

fn gain(faster: Option<Interval>) -> Option<Verdict> {
    Some(above(faster?, 0.0))
}

fn all(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { direct, schedulers, shared, .. } = results;
    let times = Times(results);
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    let mut sheet = Sheet::of("figures 3.4 and 3.5");
    let mut forwarded = Vec::new();
    let mut slower = Vec::new();
    for (request, pattern) in
        [SMALL, LARGE].into_iter().flat_map(|request| PATTERNS.map(|pattern| (request, pattern)))
    {
        forwarded.push(gain(times.faster(("read", request, pattern), JOINED, None)?));
        slower.push(times.of("write", request, pattern, None)?.less(&times.of(
            "write",
            request,
            pattern,
            Some(JOINED),
        )?));
    }
    sheet.everywhere("reads: forwarders with FIFO (to-agg) are faster than none", forwarded);
    sheet.everywhere("writes: they are slower", slower);
    sheet.next("figures 3.6 and 3.7");
    let (mut alike, mut writes) = (Vec::new(), Vec::new());
    for gate in [HBRR, "sjf", "mlf"] {
        for (request, pattern) in
            [SMALL, LARGE].into_iter().flat_map(|request| PATTERNS.map(|pattern| (request, pattern)))
        {
            alike.push(no_difference(times.faster(("read", request, pattern), gate, Some(JOINED))?));
            writes.push(no_gain(times.faster(("write", request, pattern), gate, Some(JOINED))?));
        }
    }
    sheet.everywhere(format!("reads: HBRR, SJF and MLF take as long as FIFO, within {DIFFERENT} %"), alike);
    sheet.everywhere(format!("writes: none of them gains {DIFFERENT} %"), writes);
    sheet.next("figures 4.1 and 4.2");
    let window = PATTERNS.map(|pattern| times.faster(("read", SMALL, pattern), SERVER_WINDOW, Some(JOINED)));
    let window = window.into_iter().collect::<Result<Vec<_>, _>>()?;
    sheet.everywhere(
        format!("small reads: server windows take as long as FIFO, within {DIFFERENT} %"),
        window.into_iter().map(no_difference),
    );
    sheet.next("figures 5.1 and 5.2");
    let (mut better, mut none) = (Vec::new(), Vec::new());
    for gate in [JOINED, HBRR, SERVER_WINDOW] {
        for pattern in [STRIDED, CONTIGUOUS] {
            for request in [SMALL, LARGE] {
                better.push(gain(times.faster(("read", request, pattern), TWINS, Some(gate))?));
            }
        }
        for request in [SMALL, LARGE] {
            none.push(no_gain(times.faster(("read", request, PER_PROCESS), TWINS, Some(gate))?));
            for pattern in PATTERNS {
                none.push(no_gain(times.faster(("write", request, pattern), TWINS, Some(gate))?));
            }
        }
    }
    sheet.everywhere("reads of shared files: TWINS (1 ms) is faster than FIFO, HBRR and SW", better);
    sheet.everywhere(
        format!("files of a process and writes: it gains less than {DIFFERENT} % over them"),
        none,
    );
    for op in schedulers.values(OP) {
        for request in schedulers.values(REQUEST) {
            let at = |pattern| [(OP, op.as_str()), (REQUEST, request.as_str()), (PATTERN, pattern)];
            let mut table = Table::new(std::iter::once("").chain(PATTERNS));
            let cells = PATTERNS.map(|pattern| time(direct, &at(pattern)));
            table.row(std::iter::once("no forwarders".to_owned()).chain(cells));
            for gate in schedulers.values(GATE) {
                let cells = PATTERNS.map(|pattern| {
                    let [op, request, pattern] = at(pattern);
                    time(schedulers, &[op, request, pattern, (GATE, gate)])
                });
                table.row(std::iter::once(name(gate).to_owned()).chain(cells));
            }
            tables.push((format!("{op}s of {}", spaced(request)), table));
            if request == SMALL {
                let title = format!("Makespan, {op}s of {}", spaced(request));
                pictures.push((title.clone(), groups(&bars(direct, schedulers, title, op, request))));
            }
        }
    }
    tables.push(("Reads of shared files, by more seeds".into(), more_seeds(shared)));
    let points: Vec<_> = (schedulers.values(GATE).iter())
        .map(|gate| {
            let at = vec![(OP, "read"), (REQUEST, SMALL), (PATTERN, STRIDED), (GATE, gate.as_str())];
            (name(gate).to_owned(), at)
        })
        .collect();
    let (caption, table) = shares(schedulers, &points);
    tables.push((format!("Strided reads of 32 KiB. {caption}"), table));
    Ok(Figure {
        title: "Figures 3.4 to 3.7, 4.1, 4.2, 5.1, 5.2: schedulers on four forwarders".into(),
        results: vec![direct, schedulers, shared],
        setup: "The thesis: makespans of reads and writes, of small and large requests, of three patterns, without forwarders and with \
                each scheduler. Reads of shared files differ much from one run to the next: TWINS and those that it is compared with have \
                more seeds there, by which they are compared. How many it takes was found on one of the comparisons, with other seeds \
                than are shown."
            .into(),
        sheet,
        tables,
        pictures,
        remarks: String::new(),
    })
}

/// Makespans of what has more seeds.
fn more_seeds(shared: &Experiment) -> Table {
    let columns = || {
        let of = |request| {
            shared
                .values(PATTERN)
                .iter()
                .map(move |pattern| [(REQUEST, request), (PATTERN, pattern.as_str())])
        };
        shared.values(REQUEST).iter().flat_map(move |request| of(request.as_str()))
    };
    let head = columns().map(|[(_, request), (_, pattern)]| format!("{}, {pattern}", spaced(request)));
    let mut table = Table::new(std::iter::once(String::new()).chain(head));
    for gate in shared.values(GATE) {
        let cells = columns().map(|[request, pattern]| time(shared, &[request, pattern, (GATE, gate)]));
        table.row(std::iter::once(name(gate).to_owned()).chain(cells));
    }
    table
}

fn bars(direct: &Experiment, schedulers: &Experiment, title: String, op: &str, request: &str) -> Groups {
    let at = |pattern| [(OP, op), (REQUEST, request), (PATTERN, pattern)];
    let value = |results: &Experiment, settings: &[(&str, &str)]| {
        Some(Interval::from(results.measured(settings, "makespan")?.estimate))
    };
    let mut series = vec![Bars {
        name: "no forwarders".into(),
        values: PATTERNS.map(|pattern| value(direct, &at(pattern))).into(),
    }];
    for gate in [JOINED, HBRR, TWINS, TWINS_8MS] {
        let values = PATTERNS.map(|pattern| {
            let [op, request, pattern] = at(pattern);
            value(schedulers, &[op, request, pattern, (GATE, gate)])
        });
        series.push(Bars { name: name(gate).into(), values: values.into() });
    }
    Groups { title, unit: Unit::Seconds, groups: PATTERNS.map(String::from).into(), series }
}

fn known(results: &Results) -> Result<Figure<'_>, Failure> {
    let times = Times(results);
    let mut sheet = Sheet::of("figures 3.4 and 3.5");
    for (pattern, thesis) in [(PER_PROCESS, 35.80), (STRIDED, 31.70), (CONTIGUOUS, 23.73)] {
        let what = format!("read 32 KiB, {pattern}: FIFO (to-agg) faster than no forwarders by");
        sheet.change(what, thesis, times.faster(("read", SMALL, pattern), JOINED, None)?);
    }
    for (request, pattern, thesis) in [
        (SMALL, STRIDED, -8.05),
        (SMALL, CONTIGUOUS, -17.33),
        (LARGE, PER_PROCESS, -165.23),
        (LARGE, STRIDED, 0.0),
        (LARGE, CONTIGUOUS, 0.0),
    ] {
        let what =
            format!("write {}, {pattern}: FIFO (to-agg) faster than no forwarders by", spaced(request));
        sheet.change(what, thesis, times.faster(("write", request, pattern), JOINED, None)?);
    }
    sheet.next("figures 3.6 and 3.7");
    for (gate, thesis) in [(HBRR, 0.0), ("mlf", 14.17)] {
        let what = format!("read 32 KiB, {STRIDED}: {gate} faster than FIFO (to-agg) by");
        sheet.change(what, thesis, times.faster(("read", SMALL, STRIDED), gate, Some(JOINED))?);
    }
    sheet.next("figures 5.1 and 5.2");
    let bases = [
        (None, "no forwarders"),
        (Some(JOINED), "FIFO (to-agg)"),
        (Some(HBRR), "HBRR"),
        (Some(SERVER_WINDOW), "SW"),
    ];
    for (request, pattern, figures) in [
        (SMALL, STRIDED, [Some(46.93), Some(24.03), Some(22.30), Some(18.93)]),
        (SMALL, CONTIGUOUS, [Some(43.68), Some(19.85), Some(20.63), Some(16.92)]),
        (LARGE, STRIDED, [Some(24.68), None, Some(21.06), None]),
        (LARGE, CONTIGUOUS, [Some(20.58), None, Some(17.79), None]),
    ] {
        for ((base, called), thesis) in bases.into_iter().zip(figures) {
            let Some(thesis) = thesis else { continue };
            let what = format!("read {}, {pattern}: TWINS (1 ms) faster than {called} by", spaced(request));
            sheet.change(what, thesis, times.faster(("read", request, pattern), TWINS, base)?);
        }
    }
    sheet.next("abstract");
    for (base, called, thesis) in [(Some(JOINED), "FIFO (to-agg)", 28.0), (None, "no forwarders", 50.0)] {
        let ours = times.faster(("read", SMALL, STRIDED), TWINS_8MS, base)?;
        sheet.change(
            format!("TWINS (8 ms), strided reads of 32 KiB: faster than {called} by up to"),
            thesis,
            ours,
        );
    }
    let ours = times.faster(("read", SMALL, STRIDED), TWINS_8MS, Some(FIFO))?;
    let mut table = Table::new(["", "ours"]);
    table.row([
        "strided reads of 32 KiB: TWINS (8 ms) faster than fifo without joining by".into(),
        percents(ours),
    ]);
    Ok(Figure {
        title: "The numbers in the thesis's text".into(),
        results: vec![&results.direct, &results.schedulers, &results.shared],
        setup: "Sections 3.4.3, 3.4.4, 5 and 5.2. A negative number is a longer time; where the thesis sees no difference, it is 0.".into(),
        sheet,
        tables: vec![("Beside what the thesis compares".into(), table)],
        remarks: "The thesis explains the gain of forwarding by concurrency at the servers, which it reduces from as many as there are \
                  clients to as many as there are forwarders. In ours a server is not slower for having more clients, and the network loses \
                  nothing, so that forwarders only add a way and a queue."
            .into(),
        ..Figure::default()
    })
}

fn collective(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { direct, schedulers, collective, .. } = results;
    let times = Times(results);
    let mut sheet = Sheet::of("figure 5.6");
    let together = |op: &str, case: &str, gate: &str| {
        collective.cell(&[(OP, op), (PATTERN, case), (GATE, gate)], "makespan")
    };
    let joint = together("read", "32 KiB", JOINED)?;
    for gate in [TWINS, TWINS_8MS] {
        let ours = times.of("read", SMALL, STRIDED, Some(gate))?.by(&joint);
        sheet.same(format!("strided reads of 32 KiB: {} by collective calls", name(gate)), ours);
    }
    let mut table = Table::new([
        "",
        "no forwarders",
        "to-agg",
        "twins, 1 ms",
        "twins, 8 ms",
        "collective, to-agg",
        "collective, twins, 1 ms",
    ]);
    for op in collective.values(OP) {
        for (request, case) in [(SMALL, "32 KiB"), (LARGE, "256 KiB")] {
            let (op_is, request_is, strided) = ((OP, op.as_str()), (REQUEST, request), (PATTERN, STRIDED));
            let plain = |gate| time(schedulers, &[op_is, request_is, strided, (GATE, gate)]);
            let together = |gate| time(collective, &[op_is, (PATTERN, case), (GATE, gate)]);
            table.row([
                format!("{op} {case}"),
                time(direct, &[op_is, request_is, strided]),
                plain(JOINED),
                plain(TWINS),
                plain(TWINS_8MS),
                together(JOINED),
                together(TWINS),
            ]);
        }
    }
    Ok(Figure {
        title: "Figure 5.6: collective calls".into(),
        results: vec![collective, direct, schedulers],
        setup: "The thesis: for strided reads of 32 KiB TWINS is as fast as collective calls. Ours: 32 processes do the I/O of a call.".into(),
        sheet,
        tables: vec![("Makespan of strided accesses".into(), table)],
        remarks: "A collective call of all processes is a piece of the file that is read from end to end, and the processes wait for each \
                  other, so that nobody can go ahead."
            .into(),
        ..Figure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_as_long_gains_nothing() {
        assert_eq!(gain(Some(Interval::exact(0.0))), Some(Verdict::Differs));
        assert_eq!(gain(Some(Interval { low: 0.1, mean: 1.0, high: 1.9 })), Some(Verdict::Agrees));
        assert_eq!(gain(None), None);
    }
}
