//! `iogate sim`, `iogate scenario` and `iogate reproduce`, as people and scripts call them.

use std::path::Path;
use std::process::{Command, Output};

fn iogate(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn done(args: &[&str], folder: &Path) -> String {
    let output = iogate(args, folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// The command fails with this status, says all of this, prints nothing and leaves only what was there.
#[track_caller]
fn refused(args: &[&str], files: &[(&str, &str)], status: i32, said: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let output = iogate(args, folder.path());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    for said in said {
        assert!(error.contains(said), "{error}\nshould contain\n{said}");
    }
    assert_eq!(text(&output.stdout), "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), files.len(), "a file was left behind");
}

const SCENARIO: &str = r#"
title = "small"
repetitions = 3
[clients]
nodes = 4
[servers]
nodes = 2
device = "hdd"
[network]
latency = "50us"
jitter = "100us"
bandwidth = "1Gbit/s"
[[app]]
name = "a"
count = 2
processes = 4
pattern = "strided"
op = "read"
bytes = "1MiB"
request = "64KiB"
[sweep]
"servers.gate.scheduler" = ["fifo", "aioli"]
"#;

#[test]
fn a_simulation_gives_the_same_bytes_in_every_process_and_for_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    let outputs = ["1", "2", "5"].map(|threads| {
        let names = ["json", "csv", "html", "trace"].map(|form| format!("{threads}.{form}"));
        let [json, csv, html, trace] = names.each_ref().map(String::as_str);
        let args = [
            "sim",
            "s.toml",
            "--threads",
            threads,
            "--json",
            json,
            "--csv",
            csv,
            "--html",
            html,
            "--trace",
            trace,
        ];
        let table = done(&args, folder.path());
        let files = names.map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
        (table, files)
    });
    assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2], "the same seeds give the same bytes");
    let (table, [json, csv, html, trace]) = &outputs[0];
    assert!(table.contains("2 points, 3 runs each"), "{table}");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), 2);
    assert_eq!(json["scenario"], SCENARIO);
    assert!(csv.lines().count() > 20, "{csv}");
    assert!(html.contains("<svg") && html.contains("small"));
    assert!(done(&["sim", "s.toml", "--html", "-"], folder.path()) == *html, "in place of the table");
    let trace: serde_json::Value = serde_json::from_str(trace).unwrap();
    let events = trace["traceEvents"].as_array().or(trace.as_array()).unwrap();
    let slices: u64 = events.iter().filter(|event| event["ph"] == "X").count() as u64;
    assert!(slices > 100, "{slices} slices");
}

#[test]
fn settings_and_seeds_come_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    let args = [
        "sim",
        "s.toml",
        "--set",
        "servers.nodes=[1, 2, 4]",
        "--set",
        "servers.gate.scheduler=\"sjf\"",
        "--seeds",
        "2",
    ];
    let table = done(&args, folder.path());
    assert!(table.contains("3 points, 2 runs each"), "{table}");
    let csv = done(&["sim", "s.toml", "--csv", "-", "--seed", "5"], folder.path());
    assert!(csv.starts_with("servers.gate.scheduler,") && !csv.contains("confidence interval"), "{csv}");
}

#[test]
fn a_trace_beside_the_scenario_is_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "title = \"t\"\n[clients]\nnodes = 1\n[servers]\nnodes = 1\ndevice = \"unit:100us\"\n\
                    [[app]]\nname = \"t\"\npattern = \"trace\"\nfile = \"t.csv\"\ntimed = true\n";
    let trace = "time_us,app,client,file,op,offset,bytes\n0,1,1,a,r,0,4096\n500,1,2,a,r,4096,4096\n900,1,1,a,w,0,512\n";
    std::fs::write(folder.path().join("s.toml"), scenario).unwrap();
    std::fs::write(folder.path().join("t.csv"), trace).unwrap();
    let json = done(&["sim", "s.toml", "--json", "-", "--seeds", "1"], folder.path());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let makespan =
        json["points"][0]["metrics"].as_array().unwrap().iter().find(|m| m["name"] == "makespan").unwrap();
    assert_eq!(makespan["estimate"]["mean"], 0.001, "the last row comes at 900 us and takes 100");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let with = |from: &str, to: &str| SCENARIO.replace(from, to);
    refused(&["sim", "none.toml"], &[], 2, &["none.toml", "cannot be read"]);
    refused(&["sim", "two-reader"], &[], 2, &["unknown scenario", "did you mean 'two-readers'"]);
    let typing = with("stripe", "").replace("device = \"hdd\"", "devise = \"hdd\"");
    refused(&["sim", "s.toml"], &[("s.toml", &typing)], 2, &["s.toml:8", "devise", "device"]);
    let none = with("nodes = 2\n", "nodes = 0\n");
    refused(&["sim", "s.toml"], &[("s.toml", &none)], 2, &["s.toml:7", "servers.nodes", "from 1 to"]);
    refused(&["scenario", "check", "s.toml"], &[("s.toml", "title =\n")], 2, &["s.toml:1"]);
    let circle = "title = \"c\"\n[clients]\nnodes = 1\nto = \"a\"\n[forwarders.a]\nnodes = 1\nto = \"b\"\n\
                  [forwarders.b]\nnodes = 1\nto = \"a\"\n[servers]\nnodes = 1\ndevice = \"hdd\"\n";
    refused(&["sim", "s.toml"], &[("s.toml", circle)], 2, &["a circle"]);
    refused(
        &["sim", "s.toml", "--json", "x", "--csv", "x"],
        &[("s.toml", SCENARIO)],
        2,
        &["--csv x would replace"],
    );
    refused(
        &["sim", "s.toml", "--html", "no/such/folder/r.html"],
        &[("s.toml", SCENARIO)],
        1,
        &["cannot be written"],
    );
    refused(
        &["sim", "s.toml", "--set", "servers.gate.scheduler=\"elevator\""],
        &[("s.toml", SCENARIO)],
        2,
        &["elevator", "fifo"],
    );
}

#[test]
fn a_run_that_cannot_end_says_who_waits() {
    let without_sweep =
        SCENARIO.split("[sweep]").next().unwrap().replace("repetitions = 3", "repetitions = 1");
    let stopped =
        format!("{without_sweep}\n[[fault]]\nkind = \"stopped-server\"\nserver = 1\nfrom = \"10ms\"\n");
    let waits = "4 of 4 processes of a-1 wait, the first for requests to be answered";
    refused(&["sim", "s.toml"], &[("s.toml", &stopped)], 1, &["seed 1", waits]);
    // What goes on again after the time limit is cut off there, and the table says so.
    let slow = stopped
        .replace("10ms\"", "10ms\"\nuntil = \"1h\"")
        .replace("[clients]", "time_max = \"1min\"\n[clients]");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), slow).unwrap();
    let table = done(&["sim", "s.toml"], folder.path());
    assert!(table.contains("1 run was ended by the time limit"), "{table}");
}

/// Extents in the order of first use make a disk faster at random accesses than one with the same file.
#[test]
fn random_accesses_that_come_out_too_fast_are_warned_of() {
    let sparse = SCENARIO.replace("strided", "random").replace("64KiB\"", "64KiB\"\nfile_bytes = \"800GiB\"");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), sparse).unwrap();
    let args = ["sim", "s.toml", "--seeds", "1", "--set", "servers.gate.scheduler=fifo"];
    let said = |more: &[&str]| {
        let output = iogate(&[&args[..], more].concat(), folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let warned = said(&[]);
    assert!(warned.contains("warning: a-1: random accesses are faster here than on a disk"), "{warned}");
    assert!(!said(&["--set", "servers.extent=1TiB"]).contains("warning"));
    // Also by a replay, of what it sees: about half of its rows go back.
    let rows: String =
        (0..100u64).map(|row| format!("0,1,1,f,r,{},4096\n", (row * 27_919 % 50_000) << 20)).collect();
    let trace = |name: &str, rows: &str| {
        let text = format!("time_us,app,client,file,op,offset,bytes\n{rows}");
        std::fs::write(folder.path().join(name), text).unwrap();
        iogate(&["replay", name, "--device", "hdd"], folder.path())
    };
    let replayed = text(&trace("t.csv", &rows).stderr).to_owned();
    assert!(replayed.contains("warning: f: random accesses are faster here than on a disk"), "{replayed}");
    let long = trace("long.csv", &format!("0,1,1,f,r,{},4096\n", 1u64 << 50));
    assert_eq!(long.status.code(), Some(2));
    assert!(text(&long.stderr).contains("of which a target gets"), "{}", text(&long.stderr));
    refused(
        &["sim", "s.toml"],
        &[(
            "s.toml",
            &SCENARIO.replace("strided", "random").replace("64KiB\"", "64KiB\"\nfile_bytes = \"900TiB\""),
        )],
        2,
        &["s.toml:", "has a file of 900TiB, of which a server gets 450TiB: its device ('hdd') has "],
    );
}

/// What took long is not lost with the one form of it that has no room.
#[test]
fn a_form_that_cannot_be_written_takes_no_other_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("s.toml"), SCENARIO).unwrap();
    for (args, shown) in [
        (&["sim", "s.toml", "--json", "/dev/full", "--csv", "c.csv"][..], "makespan"),
        (&["sim", "s.toml", "--trace", "/dev/full"], "makespan"),
        (&["why", "s.toml", "--html", "/dev/full"], "whose time"),
        (&["profile", "--device", "unit:1", "--out", "/dev/full"], "in flight"),
    ] {
        let output = iogate(args, at);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stdout).contains(shown), "{args:?}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("/dev/full cannot be written: No space left"), "{args:?}");
    }
    assert!(std::fs::read_to_string(at.join("c.csv")).unwrap().starts_with("servers.gate.scheduler,of"));
}

#[test]
fn reproduced_pages_are_written_whole_and_kept_results_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["reproduce", "coordination", "--quick", "--out", "pages", "--results", "kept"];
    let first = done(&args, folder.path());
    assert_eq!(first, "pages/coordination.md\npages/coordination.html\npages/coordination.json\n");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("pages/coordination.md");
    for part in ["Section 3.2", "Figures 3 and 5", "Figure 6", "Figure 7", "Figure 8", "quick form"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(read("pages/coordination.html").matches("<svg").count() >= 4);
    let kept = read("kept/coordination-formulas-quick.json");
    std::fs::write(folder.path().join("kept/coordination-formulas-quick.json"), &kept[..kept.len() / 2])
        .unwrap();
    let output = iogate(&args, folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("coordination-formulas-quick.json is broken off"));
    assert!(read("pages/coordination.md") == page, "kept results give the same page");
    assert!(read("kept/coordination-formulas-quick.json") == kept, "half a file is done again");
    // What is of something else is not taken, whatever its points are called.
    let origin = |key: &str| kept.split(&format!("\"{key}\":\"")).nth(1).unwrap().split('"').next().unwrap();
    for (from, what) in [
        (origin("plan"), "is of another form of the scenario"),
        (origin("build"), "was made by another build"),
    ] {
        let other = kept.replacen(from, "0123456789abcdef", 1);
        std::fs::write(folder.path().join("kept/coordination-formulas-quick.json"), other).unwrap();
        let output = iogate(&args, folder.path());
        assert_eq!(output.status.code(), Some(2));
        let said = [&format!("coordination-formulas-quick.json {what}"), "remove it"];
        assert!(said.iter().all(|said| text(&output.stderr).contains(said)), "{}", text(&output.stderr));
    }
    std::fs::write(folder.path().join("kept/coordination-formulas-quick.json"), kept).unwrap();
    // Nor is a file that is called as a scenario that is built in.
    std::fs::write(folder.path().join("coordination-formulas"), "no scenario").unwrap();
    assert_eq!(done(&args, folder.path()), first);
    // Without a word on where to, the quick form leaves the pages of the papers' sizes alone.
    let page = folder.path().join("docs/reproduction/coordination.md");
    std::fs::create_dir_all(page.parent().unwrap()).unwrap();
    std::fs::write(&page, "of the papers' sizes").unwrap();
    let quick = ["reproduce", "coordination", "--quick", "--results", "kept"];
    let said = done(&quick, folder.path());
    assert!(said.starts_with("target/reproduction-quick/coordination.md\n"), "{said}");
    assert_eq!(std::fs::read_to_string(page).unwrap(), "of the papers' sizes");
}

#[test]
fn the_twins_page_has_a_section_for_each_experiment_and_no_empty_rows() {
    let folder = tempfile::tempdir().unwrap();
    done(&["reproduce", "twins", "--quick", "--out", "pages"], folder.path());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("pages/twins.md");
    let parts = [
        "Figures 3.4 to 3.7",
        "The numbers in the thesis's text",
        "Figure 5.6",
        "Tables 3.1, 3.3, 4.1 and 5.1",
        "Table 3.2",
        "Figures 4.3 and 4.4",
        "Figures 5.3 and 5.4",
        "Figures 5.7 to 5.9",
        "Figure 5.5",
        "Figures 5.10 and 5.11",
        "What the results depend on",
        "Beyond the thesis",
        "quick form",
    ];
    for part in parts {
        assert!(page.contains(part), "{part}");
    }
    // Rows whose settings no scenario has would be of dashes only. The quick form leaves out writes.
    let empty = |row: &&str| row.split('|').skip(2).all(|cell| matches!(cell.trim(), "-" | ""));
    let reads = page.split("\n\n").filter(|block| !block.contains("write"));
    let rows: Vec<&str> = reads.flat_map(str::lines).filter(|line| line.starts_with("| ")).collect();
    let empty: Vec<&str> = rows.iter().copied().filter(empty).collect();
    assert!(rows.len() > 100 && empty.is_empty(), "{} rows, of these empty: {empty:#?}", rows.len());
    assert!(read("pages/twins.html").matches("<svg").count() >= 4);
}

#[test]
fn why_names_who_slows_an_application_down_and_what_it_gains_without() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    let one = ["why", "s.toml", "--set", "servers.gate.scheduler=fifo", "--app", "a-2"];
    let said = done(&[&one[..], &["--counterfactual", "a-1"]].concat(), folder.path());
    for part in ["a-1 slowed it down most", "What to do: ", "Without a-1 it takes ", "whose time", "slots"] {
        assert!(said.contains(part), "{said}\nshould contain\n{part}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&done(&[&one[..], &["--json"]].concat(), folder.path())).unwrap();
    let why = &json[0]["apps"][0];
    let sum: f64 =
        why["causes"].as_array().unwrap().iter().map(|part| part["seconds"].as_f64().unwrap()).sum();
    assert!((sum - why["busy_s"].as_f64().unwrap()).abs() < 1e-6, "{why}");
    for (flag, app) in [("--app", "a-3"), ("--counterfactual", "a")] {
        let said = ["unknown application", "expected one of: a-1, a-2"];
        refused(&["why", "s.toml", flag, app], &[("s.toml", SCENARIO)], 2, &said);
    }
}

/// A process that is gone when the test is over.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_simulation_that_is_killed_leaves_nothing_where_it_would_write() {
    use rustix::fs::{Mode, OFlags};
    let (scenarios, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    if rustix::fs::open(folder.path(), flags, Mode::from_raw_mode(0o600)).is_err() {
        return eprintln!("skipped: no files without names here");
    }
    std::fs::write(scenarios.path().join("s.toml"), SCENARIO).unwrap();
    let mut sim = Command::new(env!("CARGO_BIN_EXE_iogate"));
    sim.args(["sim", "s.toml", "--seeds", "100000", "--json"]).arg(folder.path().join("out.json"));
    let mut sim = Killed(sim.current_dir(scenarios.path()).spawn().unwrap());
    let begin = std::time::Instant::now();
    let holds_an_output = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", sim.0.id())).unwrap();
        open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .any(|path| path.starts_with(folder.path()))
    };
    while !holds_an_output() {
        assert!(begin.elapsed().as_secs() < 60, "it does not begin its output");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    sim.0.kill().unwrap();
    sim.0.wait().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
