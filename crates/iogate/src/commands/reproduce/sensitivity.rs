//! Beyond the papers: their headlines over the ranges of what nobody knows for sure.
//!
//! A parameter is a row: its value in the experiment, the ends of its range, and where that is from. Each is varied alone.

use iogate_report::Table;
use iogate_report::claims::Interval;
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::claims::{POINTS, Sheet, above, within};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab, Settings, percents};
use crate::failure::Failure;

/// What a paper says first, and the two points of ours that it is about.
struct Headline {
    /// As the table of all papers has it.
    figure: &'static str,
    title: &'static str,
    setup: &'static str,
    scenario: &'static str,
    /// What narrows the scenario down to the two points.
    settings: &'static [&'static str],
    base: &'static Settings<'static>,
    with: &'static Settings<'static>,
    /// What is lower, and by how many percent in the paper.
    metric: &'static str,
    published: (f64, f64),
    parameters: &'static [Parameter],
}

/// What is not known for sure.
struct Parameter {
    key: &'static str,
    value: &'static str,
    /// The ends of its range, or what else it may be.
    others: &'static [&'static str],
    source: &'static str,
}

const fn row(
    key: &'static str,
    value: &'static str,
    others: &'static [&'static str],
    source: &'static str,
) -> Parameter {
    Parameter { key, value, others, source }
}

const CACHE: &str = "{ kernel = '2.6.28', memory = '2GiB' }";
const LATENCY: &str = "estimate: a switch and two stacks of the time; nobody measured it";
const DISKS: &str = "estimate: other disks of 7200 rpm, older and newer";
const CACHES: &str = "the papers' servers had Linux's page cache; which part of it mattered is not said";
const PROCESSOR: &str = "TWINS, section 3.4: 26 us between arrivals of reads, 51 us of writes";

const HEADLINES: [Headline; 4] = [AIOLI, COORDINATION, TWINS, CHECKPOINT];

const AIOLI: Headline = Headline {
    figure: "aIOLi",
    title: "aIOLi: two applications at once",
    setup: "The abstract: reads of two applications are 3.5 to 35 times as fast, which is by so many percent less time until both are done. Ours: \
            calls of 32 KiB, a quarter of the paper's bytes.",
    scenario: "aioli-two-iors",
    settings: &["app.ior.request=32KiB", "app.ior.bytes=32MiB", "alone=false"],
    base: &[("servers.gate.scheduler", "fifo")],
    with: &[("servers.gate.scheduler", "aioli")],
    metric: "makespan",
    published: (71.4, 97.1),
    parameters: &[
        row(
            "servers.gate.queue",
            "65536",
            &["8", "512"],
            "aIOLi, figure 1: servers of 8 to 512 threads; it does not say how many figure 7 has",
        ),
        row(
            "servers.gate.depth",
            "8",
            &["1", "64"],
            "estimate: what the module lets through at once is not said",
        ),
        row("servers.device", "aioli-ide", &["pastel", "hdd"], DISKS),
        row("servers.overhead", "0s", &["26us", "51us"], PROCESSOR),
        row("servers.cache", "none", &[CACHE], CACHES),
        row("clients.slots", "unlimited", &["16"], "Linux: RPC_DEF_SLOT_TABLE, 16 requests of a mount"),
        row("network.latency", "50us", &["20us", "200us"], LATENCY),
        row("network.jitter", "100us", &["0s", "500us"], LATENCY),
    ],
};

const COORDINATION: Headline = Headline {
    figure: "coordination",
    title: "Server coordination: ten applications on eight servers",
    setup: "Figure 5: the mean completion time on disks is shorter by so many percent. Ours: against arrival order.",
    scenario: "coordination-finish-times",
    settings: &[
        "case=disk",
        "servers.gate=[{ scheduler = 'fifo' }, { scheduler = 'app-window' }]",
        "repetitions=16",
    ],
    base: &[("servers.gate", "fifo")],
    with: &[("servers.gate", "app-window")],
    metric: "completion_mean",
    published: (29.8, 29.8),
    parameters: &[
        row("servers.device", "sata-7200-250g", &["graphene", "hdd"], DISKS),
        row(
            "servers.transfer",
            "256KiB",
            &["64KiB", "1MiB"],
            "PVFS: flow buffers of 256 KiB; others are a setting",
        ),
        row("servers.overhead", "0s", &["26us", "51us"], PROCESSOR),
        row("servers.cache", "none", &[CACHE], CACHES),
        row("network.latency", "50us", &["20us", "200us"], LATENCY),
        row(
            "network.jitter",
            "1ms",
            &["100us", "10ms"],
            "estimate: what makes servers see other orders; the paper gives no figure",
        ),
    ],
};

const TWINS: Headline = Headline {
    figure: "TWINS",
    title: "TWINS: strided reads through forwarders",
    setup: "The abstract: reads are up to so many percent faster than with the other schedulers. Ours: TWINS (8 ms) against \
            arrival order that joins, calls of 32 KiB, a quarter of the thesis's bytes.",
    scenario: "twins-schedulers",
    settings: &[
        "case=shared, strided",
        "app.mpi-io-test.op=read",
        "app.mpi-io-test.request=32KiB",
        "app.mpi-io-test.bytes=8MiB",
        "forwarders.ion.gate=[{ scheduler = 'to-agg', run_requests_max = 16 }, { scheduler = 'twins', window = '8ms' }]",
        "repetitions=64",
    ],
    base: &[("forwarders.ion.gate", "to-agg(run_requests_max=16)")],
    with: &[("forwarders.ion.gate", "twins(window=8ms)")],
    metric: "makespan",
    published: (28.0, 28.0),
    parameters: &[
        row(
            "app.mpi-io-test.think",
            "{ exponential = '300us' }",
            &["{ exponential = '100us' }", "{ exponential = '1ms' }"],
            "estimate: client noise; the thesis says nothing of it",
        ),
        row(
            "servers.device",
            "hdd",
            &["sas-10k-600g", "graphene"],
            "Grid'5000's repository names a SAS disk of 10,000 rpm; its numbers are estimates",
        ),
        row(
            "servers.gate.depth",
            "1",
            &["8", "30"],
            "PVFS2 hands requests to 30 threads; how many a disk gets at once is not said",
        ),
        row("forwarders.ion.overhead", "0s", &["26us", "51us"], PROCESSOR),
        row("servers.overhead", "0s", &["26us", "51us"], PROCESSOR),
        row("network.latency", "30us", &["10us", "100us"], LATENCY),
        row("network.jitter", "50us", &["0s", "200us"], LATENCY),
    ],
};

const CHECKPOINT: Headline = Headline {
    figure: "checkpoint",
    title: "Checkpoint coordination: two identical jobs take turns",
    setup: "Figures 4.1 to 4.3: the I/O time of both jobs is lower by so many percent with turns.",
    scenario: "checkpoint-pair",
    settings: &["case=[\"none\", \"lock\"]"],
    base: &[("case", "none")],
    with: &[("case", "lock")],
    metric: "io_time_sum",
    published: (71.72, 71.72),
    parameters: &[
        row(
            "servers.device",
            "graphene",
            &["pastel", "array-12t"],
            "the thesis: disks of 12 TB together, of which nothing else is said",
        ),
        row(
            "app.job.request",
            "256KiB",
            &["64KiB", "1MiB"],
            "IOR's default; the thesis does not say the length of calls",
        ),
        row(
            "servers.transfer",
            "1MiB",
            &["32KiB", "256KiB"],
            "NFS: what a mount negotiates, 32 KiB in old kernels",
        ),
        row("servers.gate.depth", "8", &["1", "64"], "Linux: 8 nfsd threads by default"),
        row("servers.cache", "none", &[CACHE], CACHES),
        row(
            "servers.elevator",
            "none",
            &["deadline", "slices"],
            "Linux of the time had CFQ by default; the thesis does not say",
        ),
        row("servers.allocation", "extents", &["ext3", "xfs"], "the thesis does not say which file system"),
        row("network.latency", "50us", &["20us", "200us"], LATENCY),
    ],
};

/// A run of a headline with one parameter changed, or none.
struct Varied {
    key: &'static str,
    value: &'static str,
    results: Experiment,
    lower: Option<Interval>,
}

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let all: Result<Vec<Vec<Varied>>, Failure> =
        HEADLINES.iter().map(|headline| headline.varied(lab)).collect();
    let all = all?;
    let figures = HEADLINES.iter().zip(&all).map(|(headline, varied)| headline.figure(varied));
    let notes = vec![
        "What no paper says is a parameter here, with a range and its source, written down before the runs. Each is set to the ends of its range (or \
         to what else it may be), all others left as they are; in parentheses the 95 % confidence interval of pairs of runs with the same seed. \
         A headline holds as far as its sign, and then its size, do at every end. Near the paper's is within 10 points."
            .to_owned(),
        "Parameters are varied one at a time: what two of them do together is not shown.".to_owned(),
    ];
    let title = "How far the headlines depend on what is not known";
    Ok(Reproduced::new("iogate reproduce sensitivity", title, notes, figures.collect()))
}

impl Headline {
    /// As it is, then with each parameter at each end; in the quick form only the first one.
    fn varied(&self, lab: &Lab<'_>) -> Result<Vec<Varied>, Failure> {
        let parameters = if lab.quick { &self.parameters[..1] } else { self.parameters };
        let ends = parameters.iter().flat_map(|row| row.others.iter().map(|other| (row.key, *other)));
        std::iter::once(("", "")).chain(ends).map(|(key, value)| self.run(lab, key, value)).collect()
    }

    fn run(&self, lab: &Lab<'_>, key: &'static str, value: &'static str) -> Result<Varied, Failure> {
        let mut settings: Vec<String> = self.settings.iter().map(|&setting| setting.to_owned()).collect();
        settings.extend((!key.is_empty()).then(|| format!("{key}={value}")));
        settings.extend(lab.quick.then(|| "repetitions=2".to_owned()));
        let results = lab.experiment_with(self.scenario, &settings)?;
        let [with, base] = [results.cell(self.with, self.metric)?, results.cell(self.base, self.metric)?];
        let lower = with.lower(&base);
        Ok(Varied { key, value, results, lower })
    }

    fn figure<'a>(&self, varied: &'a [Varied]) -> Figure<'a> {
        let mut sheet = Sheet::of(self.figure);
        let all = || varied.iter().filter_map(|one| one.lower);
        let first = varied.first().and_then(|one| one.lower);
        let (least, most) = self.published;
        if least == most {
            sheet.change("as it is: lower by", least, first);
        }
        let near = |lower: Interval| Some(within(lower, least - POINTS, most + POINTS));
        sheet.everywhere("as it is: near the paper's", [first.and_then(near)]);
        sheet.everywhere("at every end: near the paper's", all().map(near));
        sheet.everywhere("at every end: lower", all().map(|lower| Some(above(lower, 0.0))));
        let picture = self.picture(varied);
        Figure {
            title: self.title.into(),
            results: varied.iter().map(|one| &one.results).collect(),
            setup: self.setup.into(),
            sheet,
            tables: vec![("Lower by, with one parameter at another value".into(), self.table(varied))],
            pictures: vec![(picture.title.clone(), groups(&picture))],
            ..Figure::default()
        }
    }

    fn table(&self, varied: &[Varied]) -> Table {
        let mut table = Table::new(["parameter", "as it is", "instead", "lower by", "", "source"]);
        let as_it_is = varied.first().and_then(|one| one.lower);
        table.row(["none", "-", "-", &percents(as_it_is), "", "-"].map(str::to_owned));
        for row in self.parameters {
            for one in varied.iter().filter(|one| one.key == row.key) {
                let word = match one.lower {
                    Some(Interval { high, .. }) if high < 0.0 => "the other sign",
                    Some(Interval { low, .. }) if low <= 0.0 => "no sign",
                    _ => "",
                };
                let cells = [row.key, row.value, one.value, &percents(one.lower), word, row.source];
                table.row(cells.map(str::to_owned));
            }
        }
        table
    }

    fn picture(&self, varied: &[Varied]) -> Groups {
        let name = |one: &Varied| match one.key.rsplit('.').next() {
            Some("") | None => "as it is".to_owned(),
            Some("cache") => "cache".to_owned(),
            Some(key) => format!("{key} {}", one.value),
        };
        Groups {
            title: format!("{}: lower by", self.title),
            unit: Unit::Percent,
            groups: varied.iter().map(name).collect(),
            series: vec![Bars {
                name: "lower by".into(),
                values: varied.iter().map(|one| one.lower).collect(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use iogate_report::ExperimentReport;

    use super::*;
    use crate::commands::scenario::built_in_plan_of;

    #[test]
    fn the_picture_has_the_ends_of_the_table() {
        let results = Experiment::whole("t", true, ExperimentReport::new("t", "p", 0.95));
        let lower = Some(Interval { low: 10.0, mean: 30.0, high: 90.0 });
        let varied = [Varied { key: "", value: "", results, lower }];
        let (table, picture) = (AIOLI.table(&varied).markdown(), groups(&AIOLI.picture(&varied)).0);
        assert!(table.contains("30 % (10 to 90)"), "{table}");
        assert!(picture.contains("30 (10 to 90) %"), "{picture}");
    }

    #[test]
    fn every_parameter_has_a_source_and_its_value_is_the_scenario_s() {
        for headline in &HEADLINES {
            let plan = |more: &[String]| {
                let settings: Vec<String> = headline
                    .settings
                    .iter()
                    .map(|&setting| setting.to_owned())
                    .chain(more.iter().cloned())
                    .collect();
                built_in_plan_of(headline.scenario, &settings, false)
                    .unwrap_or_else(|error| panic!("{}: {more:?}: {error:?}", headline.figure))
            };
            let shown = |more: &[String]| {
                plan(more).points.iter().map(|point| format!("{:?}", point.scenario)).collect::<Vec<_>>()
            };
            let as_it_is = shown(&[]);
            assert_eq!(as_it_is.len(), 2, "{}: with and without", headline.figure);
            for row in headline.parameters {
                assert!(row.source.len() > 20, "{}: {}", headline.figure, row.key);
                if !["none", "extents"].contains(&row.value) {
                    assert_eq!(
                        shown(&[format!("{}={}", row.key, row.value)]),
                        as_it_is,
                        "{}: {}",
                        headline.figure,
                        row.key
                    );
                }
                for other in row.others {
                    let set = shown(&[format!("{}={other}", row.key)]);
                    assert_eq!(set.len(), 2);
                    assert_ne!(set, as_it_is, "{}: {} = {other}", headline.figure, row.key);
                }
            }
        }
    }
}
