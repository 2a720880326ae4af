//! Experiments: their forms, and their page as a browser draws it.

mod browser;
mod invented;

use iogate_core::{AppId, FileId, Op, Span, Time};
use iogate_report::{ExperimentReport, html};
use iogate_sim::result::ClassResult;
use iogate_sim::world::{Observer as _, Served};

#[test]
fn a_point_is_the_mean_of_its_runs() {
    let report = invented::comparison();
    let point = &report.points[2];
    let expected: Vec<f64> =
        (0..5).map(|seed| invented::run("aioli", 3, 8, seed).0.makespan.as_secs_f64()).collect();
    let makespan = point.metric("makespan").unwrap();
    assert!((makespan.estimate.mean - expected.iter().sum::<f64>() / 5.0).abs() < 1e-9);
    assert_eq!((makespan.estimate.n, &point.seeds[..]), (5, &[0, 1, 2, 3, 4][..]));
    assert!(makespan.estimate.half_width.unwrap() > 0.0);
    let apps: Vec<&str> = point.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(apps, ["climate", "ior <1>", "checkpoint & co"]);
    let layers: Vec<&str> = point.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(layers, ["clients", "servers"]);
    assert_eq!(point.layers[1].request_sizes.iter().map(|class| class.count).sum::<u64>(), 5 * 500);
    assert_eq!(report.label(point), "aioli");
    let window = report.points[3].layer("servers").unwrap();
    assert_eq!(window.metric("waits:window").unwrap().estimate.mean, 10.0);
}

#[test]
fn forms_for_terminals_and_spreadsheets() {
    let report = invented::comparison();
    let text = report.text();
    assert!(text.contains("scheduler") && text.contains("\u{b1}"), "{text}");
    assert!(text.ends_with("4 points, 5 runs each; \u{b1} is the 90 % confidence interval\n"), "{text}");
    let csv = report.csv();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("servers.scheduler,of,name,metric,unit,n,mean,stddev,ci_low,ci_high"));
    let line = lines.find(|line| line.starts_with("aioli,app,ior <1>,completion,s,5,")).unwrap();
    let [.., mean, _, low, high] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let [mean, low, high] = [mean, low, high].map(|number| number.parse::<f64>().unwrap());
    assert!(low < mean && mean < high && (high - mean - (mean - low)).abs() < 1e-9);
    assert!(
        report.table(&["makespan"]).markdown().starts_with("| scheduler | makespan |\n|---|---:|\n| fifo | ")
    );
}

/// A group of so many applications, and one in none.
fn with_groups(apps: u64) -> ExperimentReport {
    let class = |name: String, group: Option<&str>, is_group, share| ClassResult {
        name,
        group: group.map(String::from),
        is_group,
        bytes: 64 << 20,
        time: Span::from_secs(2),
        beside_bytes: share,
        beside_bytes_all: 100,
    };
    let member = |index| class(format!("member-{index}"), Some("staff"), false, 75 / apps);
    let (mut run, _) = invented::run("fifo", 2, 8, 0);
    run.classes = [class("staff".into(), None, true, 75)].into_iter().chain((0..apps).map(member)).collect();
    run.classes.push(class("guest".into(), None, false, 25));
    let mut report = ExperimentReport::new("Groups", "iogate", 0.95);
    report.add(Vec::new(), &[run], None);
    report
}

#[test]
fn groups_are_shown_with_what_is_in_them() {
    let report = with_groups(2);
    let text = report.text();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("group"))
        .filter(|line| !line.starts_with("---"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let bandwidth = ["32", "MiB/s"];
    let row = |name: &[&'static str], share| [name, &["64", "MiB"], &bandwidth, &[share]].concat();
    let expected = [
        vec!["group", "bytes", "bandwidth", "share"],
        row(&["staff"], "0.75"),
        row(&["member-0"], "0.37"),
        row(&["member-1"], "0.37"),
        row(&["guest", "(in", "no", "group)"], "0.25"),
    ];
    assert_eq!(rows[..5], expected, "{text}");
    assert!(text.contains("\n  member-0 "), "{text}");
    assert!(text.contains("1 point, 1 run each; one alone has no interval"), "{text}");
    let csv = report.csv();
    assert!(
        csv.contains("\ngroup,staff,share,ratio,1,0.75,") && csv.contains("\nclass,guest,share,"),
        "{csv}"
    );
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let member = &json["points"][0]["classes"][1];
    assert_eq!((&member["name"], &member["group"]), (&"member-0".into(), &"staff".into()));
    assert!(html::experiment(&report).contains("staff/member-1"));
    // What would be a long table has groups, and what is in none.
    let text = with_groups(23).text();
    assert!(
        text.contains("\nstaff ") && text.contains("\nguest (in no group) ") && !text.contains("member"),
        "{text}"
    );
    assert!(!invented::comparison().text().contains("group"), "without groups there is no such table");
}

/// A report with these schedulers, each of which has one run for each of these makespans.
fn with_makespans(points: &[(&str, &[u64])]) -> ExperimentReport {
    let mut report = ExperimentReport::new("Makespans", "iogate", 0.95);
    for (scheduler, makespans) in points {
        let run = |ms: &u64| {
            let (mut run, _) = invented::run("fifo", 2, 8, *ms);
            run.makespan = Span::from_millis(*ms);
            run.apps.iter_mut().for_each(|app| app.end = app.start + Span::from_millis(*ms));
            run
        };
        for nodes in ["1", "2"] {
            let settings = [("scheduler", *scheduler), ("nodes", nodes)];
            let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
            report.add(settings.into(), &makespans.iter().map(run).collect::<Vec<_>>(), None);
        }
    }
    report
}

#[test]
fn bars_of_all_schedulers_stand_beside_each_other() {
    let names = ["fifo", "a", "b", "c", "d", "e", "f", "last"];
    let points: Vec<(&str, &[u64])> = names.iter().map(|name| (*name, &[100][..])).collect();
    let page = html::experiment(&with_makespans(&points));
    let start = page.find("When each application was done").unwrap();
    let bars = &page[start..start + page[start..].find("</ul>").unwrap()];
    assert!(bars.contains("last, nodes 2") && !bars.contains("The first"), "{bars}");
}

#[test]
fn a_time_s_interval_does_not_reach_below_zero() {
    let page = html::experiment(&with_makespans(&[("fifo", &[100, 3000]), ("sjf", &[200, 2000])]));
    let start = page.find("When each application was done").unwrap();
    let bars = &page[start..start + page[start..].find("<h2").unwrap()];
    assert!(bars.contains("(0 to ") && !bars.contains("(-"), "{bars}");
}

#[test]
fn where_the_baseline_is_best_nothing_is_gained_by_itself() {
    let page = html::experiment(&with_makespans(&[("fifo", &[100, 101]), ("sjf", &[200, 201])]));
    assert!(page.contains("is best") && !page.contains("completion time at best"));
}

#[test]
fn one_run_is_no_plural() {
    let (run, _) = invented::run("fifo", 2, 8, 0);
    let mut report = ExperimentReport::new("One", "iogate", 0.95);
    report.add(Vec::new(), &[run], None);
    let page = html::experiment(&report);
    assert!(page.contains("<b>1</b><span>run</span>"), "{}", &page[page.find("figures").unwrap()..][..400]);
}

#[test]
fn names_that_differ_at_their_end_do_so_in_pictures() {
    let (mut run, _) = invented::run("fifo", 2, 8, 0);
    for (index, app) in run.apps.iter_mut().enumerate() {
        app.name = format!("an-application-with-a-very-long-name-{index}");
    }
    let mut report = ExperimentReport::new("Names", "iogate", 0.95);
    report.add(Vec::new(), &[run], None);
    let page = html::experiment(&report);
    for index in 0..2 {
        assert!(page.contains(&format!(">an-applic\u{2026}g-name-{index}<")), "{index}");
    }
}

/// The form of the JSON is a promise: a file stored by this version is read by later ones.
#[test]
fn stored_results_are_read() {
    let stored = include_str!("experiment-v1.json");
    let report: ExperimentReport = serde_json::from_str(stored).unwrap();
    assert_eq!((report.version, report.points.len()), (1, 1));
    let point = &report.points[0];
    assert_eq!(point.settings["servers.scheduler"], "aioli");
    assert_eq!(point.metric("makespan").unwrap().estimate.half_width, Some(0.25));
    assert_eq!(point.layers[0].metric("dispatch_bytes").unwrap().estimate.stddev, None);
    let recording = point.timeline.as_ref().unwrap().recording.as_ref().unwrap();
    assert_eq!(recording.servers[0].shares[0].busy_ns, [1000, 0, 500]);
    let again: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(stored).unwrap(), "nothing is lost");
    assert!(html::experiment(&report).ends_with("</html>"));
}

#[test]
fn the_best_scheduler_of_each_situation() {
    let report = invented::experiment(&[2, 8, 16], 8);
    let best = report.best("completion_mean").unwrap();
    assert_eq!(best.baseline, "fifo");
    assert_eq!(best.column_axes, ["count", "processes"]);
    assert_eq!(best.columns[..2], ["count 2, processes 2", "count 2, processes 8"]);
    let [(hdd, on_hdd), (flash, on_flash)] = &best.rows[..] else { panic!("two devices") };
    assert_eq!((hdd.as_str(), flash.as_str()), ("hdd", "flash"));
    for cell in on_hdd.iter().flatten() {
        assert_eq!((cell.scheduler.as_str(), cell.clear), ("server-window", true));
        assert!((0.1..0.5).contains(&cell.gain), "{cell:?}");
        assert_eq!(cell.all.len(), 4);
    }
    assert!(on_flash.iter().flatten().all(|cell| cell.scheduler == "aioli"));
    assert_eq!(best.rows.iter().map(|(_, cells)| cells.len()).sum::<usize>(), 2 * 6);
    // The same runs under two names: no difference.
    let mut alike = ExperimentReport::new("", "", 0.95);
    for processes in [2, 8] {
        let runs: Vec<_> = (0..4).map(|seed| invented::run("fifo", 2, processes, seed).0).collect();
        for scheduler in ["fifo", "to-agg"] {
            let settings = [("scheduler", scheduler.to_owned()), ("processes", processes.to_string())];
            alike.add(settings.map(|(key, value)| (key.to_owned(), value)).to_vec(), &runs, None);
        }
    }
    let best = alike.best("makespan").unwrap();
    let cells: Vec<_> = best.rows.iter().flat_map(|(_, cells)| cells).flatten().collect();
    assert_eq!(cells.len(), 2);
    assert!(cells.iter().all(|cell| !cell.clear && cell.gain == 0.0), "{cells:?}");
    assert_eq!(alike.best("request_bytes"), None, "neither side of it is better");

    // Cases instead of schedulers, and not all combinations.
    let mut sparse = ExperimentReport::new("", "", 0.95);
    for (pattern, piece) in [("contiguous", "all"), ("strided", "1"), ("strided", "2")] {
        for (case, scheduler) in [("fifo", "fifo"), ("twins, 1 ms", "aioli")] {
            let runs: Vec<_> = (0..4).map(|seed| invented::run(scheduler, 2, 8, seed).0).collect();
            let settings = [("case", case), ("pattern", pattern), ("piece", piece)];
            sparse.add(settings.map(|(key, value)| (key.into(), value.into())).to_vec(), &runs, None);
        }
    }
    let best = sparse.best("makespan").unwrap();
    assert_eq!(best.columns, ["all", "piece 1", "piece 2"]);
    let filled = |cells: &Vec<Option<_>>| cells.iter().map(Option::is_some).collect::<Vec<_>>();
    assert_eq!(filled(&best.rows[0].1), [true, false, false]);
    assert_eq!(filled(&best.rows[1].1), [false, true, true]);
    let [Some(twins), ..] = &best.rows[0].1[..] else { panic!("{best:?}") };
    assert_eq!((twins.scheduler.as_str(), twins.clear), ("twins, 1 ms", true));
    assert_eq!(invented::comparison().best("makespan"), None, "there is one situation only");
}

#[test]
fn pages_of_any_shape() {
    let one = {
        let mut report = ExperimentReport::new("One", "iogate test", 0.95);
        report.add(Vec::new(), &[invented::run("fifo", 1, 1, 1).0], None);
        report
    };
    let without_runs = {
        let mut report = ExperimentReport::new("None", "iogate test", 0.95);
        report.add(vec![("a".into(), "1".into())], &[], None);
        report.add(vec![("a".into(), "2".into())], &[], None);
        report
    };
    // A device may take as long as there is time.
    let endless = {
        let mut report = ExperimentReport::new("Endless", "iogate test", 0.95);
        let (run, mut recording) = invented::run("fifo", 2, 1, 1);
        for app in [1, 2] {
            recording.served(&Served {
                server: 0,
                app: AppId(app),
                file: FileId(0),
                op: Op::Write,
                offset: 0,
                bytes: 1,
                requests: 1,
                start: Time::ZERO,
                end: Time::MAX,
            });
        }
        report.add(Vec::new(), &[run], Some(recording));
        report
    };
    let empty = ExperimentReport::new("Empty", "iogate test", 0.95);
    for report in [one, without_runs, endless, empty, invented::comparison()] {
        let page = html::experiment(&report);
        assert!(page.ends_with("</html>"), "{}", report.title);
        assert!(!report.text().is_empty() && !report.csv().is_empty());
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{}: {outside}", report.title);
        }
        for odd in ["NaN", "inf\"", "-inf"] {
            assert!(!page.contains(odd), "{}: {odd}", report.title);
        }
        assert_eq!(page.matches("<desc>").count(), page.matches("role=\"img\"").count());
    }
}

#[test]
fn values_below_0_are_drawn_to_the_other_side() {
    use iogate_report::claims::Interval;
    use iogate_report::html::lines::{Lines, Series, lines};
    use iogate_report::html::whiskers::{Bars, Groups, groups};
    let uneven = Interval { low: -60.0, mean: -20.0, high: -15.0 };
    let bars = Bars { name: "gain".into(), values: vec![Some(uneven), Some(Interval::exact(20.0)), None] };
    let unit = iogate_sim::metrics::Unit::Percent;
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let drawn = groups(&Groups { title: "Gain".into(), unit, groups: names, series: vec![bars] }).0;
    let of = |attribute: &str| -> Vec<f64> {
        let bars = drawn.split("<rect class=\"c0\"").skip(1);
        let value =
            |bar: &str| bar.split(&format!(" {attribute}=\"")).nth(1)?.split('"').next()?.parse().ok();
        bars.map(|bar| value(bar).unwrap()).collect()
    };
    let (x, width) = (of("x"), of("width"));
    assert!((x[0] + width[0] - x[1]).abs() < 0.2, "both begin at 0: {x:?} {width:?}");
    assert!((width[0] - width[1]).abs() < 0.2, "{width:?}");
    assert!(drawn.contains("-20 (-60 to -15) %") && drawn.contains(">20 %<"), "{drawn}");
    let (middle, whisker) = (x[0] + width[0], drawn.split("class=\"whisker\" d=\"M").nth(1).unwrap());
    let low: f64 = whisker.split(' ').next().unwrap().parse().unwrap();
    assert!((middle - low - 3.0 * width[0]).abs() < 0.5, "it is as far as -60 from 0: {low} {x:?} {width:?}");

    let series = Series { name: "gain".into(), points: vec![(1.0, -20.0, 1.0), (2.0, 20.0, 1.0)] };
    let x_ticks = vec![(1.0, "1".into()), (2.0, "2".into())];
    let (title, x_label, y_label) = ("Gain".into(), "nodes".into(), "gain".into());
    let drawn = lines(&Lines { title, x_label, x_ticks, y_label, unit, series: vec![series] }).0;
    assert!(drawn.contains("-20 % at nodes 1, 20 % at nodes 2") && drawn.contains(">-20 %<"), "{drawn}");
}

#[test]
fn a_thousand_points_are_a_page_that_can_be_loaded() {
    let processes: Vec<u64> = (1..=63).collect();
    let report = invented::experiment(&processes, 2);
    assert_eq!(report.points.len(), 1008);
    let page = html::experiment(&report);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(page.contains("of 1008 points are shown"));
    let timelines = report.points.iter().filter(|point| point.timeline.is_some()).count();
    assert_eq!(timelines, 16);
}

#[test]
fn a_browser_draws_it() {
    let (sweep, comparison, dense) =
        (invented::experiment(&[1, 2, 4, 8, 16], 8), invented::comparison(), invented::dense());
    let pages =
        [("sweep", &sweep, 1200, 20), ("sweep", &sweep, 500, 20), ("comparison", &comparison, 1200, 10)];
    std::thread::scope(|scope| {
        for (name, report, width, pictures) in pages.into_iter().chain([("dense", &dense, 1200, 10)]) {
            scope.spawn(move || {
                let Some(drawn) = browser::draw(&html::experiment(report), width) else {
                    return eprintln!("skipped: no browser is installed");
                };
                assert_eq!(drawn.title, report.title, "{name} at {width}");
                assert!(drawn.pictures >= pictures, "{name} at {width}: {drawn:?}");
                assert!(drawn.blocks > 100, "{name} at {width}: {drawn:?}");
                assert!(drawn.tip, "{name} at {width}: {drawn:?}");
                assert!(!drawn.wide, "{name} at {width} is wider than the window: {drawn:?}");
                assert_eq!(drawn.overlaps, 0, "{name} at {width}: {drawn:?}");
                assert_eq!(drawn.heat, name == "sweep", "{name} at {width}: {drawn:?}");
            });
        }
    });
}
