//! The page: complete, self-contained, accessible, and drawn by a browser where one is installed.

use std::process::Command;

use iogate_core::stats::summary::{Numbers, Summary};
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, Span, Time,
};
use iogate_report::timeline::Served;
use iogate_report::{AppResult, Report, Run, Timeline, comparison, html};

/// Two applications that read a file each, through a real gate, 1 ms a dispatch.
fn run(label: &str, scheduler: &str) -> Run {
    let scheduler = SchedulerConfig::by_name(scheduler).unwrap();
    let config = GateConfig { scheduler, queue_max: 1_000, depth: 1, layout: Layout::SINGLE };
    let mut gate = Gate::new(&config).unwrap();
    for i in 0..40u32 {
        let (app, piece) = (1 + i % 2, u64::from(i / 2));
        let request = Request {
            id: RequestId(i.into()),
            file: FileId(app.into()),
            op: Op::Read,
            offset: piece * 4096,
            bytes: 4096,
            app: AppId(app),
            client: ClientId(i),
            target: None,
            issued: None,
        };
        gate.submit(Time::ZERO, &request).unwrap();
    }
    let mut timeline = Timeline::default();
    let mut now = Time::ZERO;
    loop {
        match gate.next(now) {
            Decision::Dispatch(dispatch) => {
                let end = now + Span::from_millis(1);
                let lane = timeline.lane(dispatch.app.0, || format!("app <{}> & \"co\"", dispatch.app));
                timeline.record(Served {
                    start_ns: now.as_nanos(),
                    end_ns: end.as_nanos(),
                    lane,
                    file: "<f>".into(),
                    op: 'r',
                    offset: dispatch.offset,
                    bytes: dispatch.bytes,
                    requests: dispatch.parts.into(),
                });
                now = end;
                gate.complete(now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
            }
            Decision::WaitUntil(time, _) => now = time,
            Decision::Idle => break,
        }
    }
    let apps = timeline.lanes.iter().map(|lane| AppResult {
        name: lane.name.clone(),
        bytes: 20 * 4096,
        completion_ns: now.as_nanos(),
        waiting_mean_ns: 1,
    });
    Run {
        label: label.into(),
        device: "unit:1ms".into(),
        apps: apps.collect(),
        gate: Summary::new(gate.stats(), gate.scheduler(), 1, &Numbers, 32),
        makespan_ns: now.as_nanos(),
        device_busy_ns: now.as_nanos(),
        repositions: 0,
        held_back: 0,
        held_back_ns: 0,
        timeline,
    }
}

fn report() -> Report {
    Report {
        title: "A <report> & more".into(),
        notes: vec!["A note.".into()],
        program: "iogate test".into(),
        runs: vec![run("without", "fifo"), run("with", "to-agg")],
    }
}

#[test]
fn a_summary_counts_what_the_gate_did() {
    let run = run("with", "to-agg");
    assert_eq!((run.gate.requests(), run.gate.bytes()), (40, 40 * 4096));
    assert_eq!(run.gate.read.request_bytes.max, 4096);
    assert_eq!(run.gate.read.dispatch_bytes.max, 20 * 4096);
    assert_eq!(run.gate.dispatches(), 2);
    assert_eq!(run.gate.read.request_sizes[0].count, 40);
    assert_eq!((run.gate.apps.len(), run.gate.apps[0].requests), (2, 20));
    let back: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(back.gate.settings(), run.gate.settings());
    assert_eq!(back.timeline.opening.len(), 2);
}

#[test]
fn a_comparison_says_how_much_better() {
    let comparison = comparison::comparison(&report());
    let words = |name: &str| {
        let line = comparison.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words("dispatches out"), "40 2 20.00x");
    assert_eq!(words("all done after"), "40 ms 2 ms 20.00x");
    assert_eq!(words("mean dispatch size out"), "4 KiB 80 KiB 20.00x");
    assert_eq!(words("requests in"), "40 40");
}

#[test]
fn one_of_a_thing_is_no_plural() {
    let one = Run { repositions: 1, held_back: 1, ..run("one", "fifo") };
    let text = comparison::run(&one);
    assert!(text.contains(", 1 reposition\n"), "{text}");
    assert!(text.contains("1 request that found the gate full"), "{text}");
}

#[test]
fn lines_for_spreadsheets_are_quoted_where_needed() {
    let csv = report().csv();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("run,scheduler,device,application,bytes,completion_us,waiting_mean_us"));
    assert_eq!(lines.next(), Some("without,fifo,unit:1ms,\"app <1> & \"\"co\"\"\",81920,40000.000,0.001"));
    assert_eq!(lines.count(), 3);
}

#[test]
fn the_page_needs_nothing_else_and_is_accessible() {
    let page = html::page(&report());
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("A &lt;report&gt; &amp; more") && !page.contains("<report>"), "text is escaped");
    let pictures = page.matches("role=\"img\"").count();
    assert_eq!(pictures, 1 + 2 + 2 + 2, "bars, two timelines, two beginnings, two distributions");
    assert_eq!(page.matches("<desc>").count(), pictures);
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_report_without_anything_in_it_is_a_page() {
    let mut report = report();
    report.runs.truncate(1);
    report.runs[0].apps.clear();
    report.runs[0].timeline = Timeline::default();
    assert!(html::page(&report).ends_with("</html>"));
    report.runs.clear();
    assert!(html::page(&report).ends_with("</html>"));
}

/// Times of a trace and of a device can be any.
#[test]
fn a_run_that_ends_with_the_last_moment_that_there_is_has_a_page() {
    let mut report = report();
    report.runs.truncate(1);
    let run = &mut report.runs[0];
    run.makespan_ns = u64::MAX;
    for lane in [0, 1] {
        let file = "f".into();
        let (start_ns, end_ns) = (1_000_000, u64::MAX);
        run.timeline.record(Served {
            start_ns,
            end_ns,
            lane,
            file,
            op: 'r',
            offset: 0,
            bytes: 1,
            requests: 1,
        });
    }
    let page = html::page(&report);
    assert!(page.contains("had 50 % of the time served and was last served at 18446744074 s"));
}

#[test]
fn a_browser_draws_it() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    }) else {
        return eprintln!("skipped: no browser is installed");
    };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    // What the browser made of it, in numbers.
    let probe = "<script>addEventListener('load', () => {\
         const boxes = [...document.querySelectorAll('svg[role=img]')].map((svg) => svg.getBoundingClientRect());\
         const shown = boxes.filter((box) => box.width > 600 && box.height > 60).length;\
         const all = [...document.querySelectorAll('[data-tip]')];\
         const blocks = all.filter((block) => block.getBoundingClientRect().width > 0.5);\
         blocks[0].dispatchEvent(new PointerEvent('pointermove', { clientX: 9, clientY: 9 }));\
         const tip = document.getElementById('tip');\
         const wide = document.documentElement.scrollWidth > innerWidth;\
         document.title = `pictures=${shown} blocks=${blocks.length} tip=${!tip.hidden && tip.textContent.length > 9} wide=${wide}`;\
         });</script></body>";
    std::fs::write(&page, html::page(&report()).replace("</body>", probe)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .args(["--window-size=1200,1600", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let title =
        dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or("no title");
    // 40 and 2 dispatches as blocks; 2 and 2 columns of sizes.
    assert_eq!(title, "pictures=7 blocks=46 tip=true wide=false");
}
