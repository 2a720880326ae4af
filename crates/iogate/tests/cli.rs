//! The real program, as people and scripts call it: results, messages, exit status.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACE: &str = "time_us,app,client,file,op,offset,bytes\n\
                     0,1,1,a,r,0,32768\n0,1,2,a,r,32768,32768\n0,2,3,\"b,c\",w,0,512\n1000.5,1,1,a,r,65536,32768\n";

fn iogate(args: &[&str], input: &str, folder: &Path) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_iogate"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its flags does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The command fails with this status, says this, prints nothing and leaves no file.
#[track_caller]
fn refused(args: &[&str], input: &str, status: i32, said: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = iogate(args, input, folder.path());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.starts_with("error: "), "{error}");
    assert!(error.contains(said), "{error}\nshould contain\n{said}");
    assert!(!error.contains('\x1b'), "no colours in {error}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file was left behind");
}

#[test]
fn a_replay_writes_its_log_and_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), TRACE).unwrap();
    let args = [
        "replay",
        "t.csv",
        "--scheduler",
        "to-agg",
        "--device",
        "unit:100",
        "--log",
        "l.csv",
        "--html",
        "r.html",
    ];
    let output = iogate(&args, "", folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let log = read("l.csv");
    assert_eq!(
        log,
        "start_us,end_us,file,op,offset,bytes,requests,ids\n\
         0,100,a,r,0,65536,2,1+2\n\
         100,200,\"b,c\",w,0,512,1,3\n\
         1000.5,1100.5,a,r,65536,32768,1,4\n"
    );
    for line in ["scheduler   to-agg ", "requests    4 (96.5 KiB)", "dispatches  3", "makespan    1.10 ms"] {
        assert!(text(&output.stdout).contains(line), "{line} in\n{}", text(&output.stdout));
    }
    assert!(read("r.html").starts_with("<!DOCTYPE html>"));

    // Byte for byte the same again, also from standard input and over the old files.
    let html = read("r.html");
    let again = iogate(&args, "", folder.path());
    assert_eq!((&again.stdout, read("l.csv"), read("r.html")), (&output.stdout, log.clone(), html));
    let page = iogate(&[&args[..9], &["-"]].concat(), "", folder.path());
    assert!(text(&page.stdout) == read("r.html"), "the page in place of the summary, not beside it");
    let piped = iogate(
        &["replay", "-", "--scheduler", "to-agg", "--device", "unit:100us", "--log", "p.csv", "--json"],
        TRACE,
        folder.path(),
    );
    assert_eq!(read("p.csv"), log);
    let json: serde_json::Value = serde_json::from_slice(&piped.stdout).unwrap();
    let run = &json["runs"][0];
    assert_eq!((&run["gate"]["scheduler"], &run["gate"]["read"]["requests"]), (&"to-agg".into(), &3.into()));
    assert_eq!(run["makespan_ns"], 1_100_500);
    assert_eq!(run["apps"][0]["bytes"], 3 * 32768);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        4,
        "nothing but t.csv, l.csv, r.html, p.csv"
    );
}

#[test]
fn the_number_of_targets_comes_from_the_trace() {
    let trace = "time_us,app,client,file,op,offset,bytes,target\n0,1,1,a,r,0,8,0\n0,1,1,b,r,0,8,1\n10,1,1,a,r,8,8,1\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), trace).unwrap();
    for (name, input) in [("t.csv", ""), ("-", trace)] {
        let args = ["replay", name, "--scheduler", "twins", "--device", "unit:100", "--log", "l.csv"];
        let output = iogate(&args, input, folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let log = std::fs::read_to_string(folder.path().join("l.csv")).unwrap();
        // Target 0 has the first millisecond, target 1 the second.
        assert_eq!(
            log.lines().skip(1).collect::<Vec<_>>(),
            ["0,100,a,r,0,8,1,1", "1000,1100,b,r,0,8,1,2", "1100,1200,a,r,8,8,1,3"]
        );
    }
    let few = ["replay", "-", "--device", "unit:1", "--targets", "1"];
    refused(
        &few,
        trace,
        2,
        "line 3, column 8 (target): expected a target, from 0 to 0, or nothing, found '1'",
    );
}

#[test]
fn bad_input_is_refused() {
    let unit = |rest: &[&'static str]| [&["replay", "-", "--device", "unit:1"], rest].concat();
    let header = "time_us,app,client,file,op,offset,bytes\n";
    let bad = format!("{header}0,1,1,a,r,0,8\n0,1,1,a,x,0,8\n");
    refused(
        &unit(&["--log", "l.csv"]),
        &bad,
        2,
        "standard input: line 3, column 5 (op): expected r or w, found 'x'",
    );
    let late = format!("{header}5,1,1,a,r,0,8\n4,1,1,a,r,8,8\n");
    refused(&unit(&["--log", "l.csv"]), &late, 2, "line 3, column 1 (time_us): expected a time not before 5");
    refused(&unit(&[]), "", 2, "line 1, column 1 (time_us): expected a header");
    refused(&unit(&["--scheduler", "ailoi"]), TRACE, 2, "did you mean 'aioli'?");
    refused(&unit(&["--param", "quantum_base=1KiB"]), TRACE, 2, "without --scheduler");
    let param = |param| unit(&["--scheduler", "aioli", "--param", param]);
    refused(&param("quantum_bsae=1KiB"), TRACE, 2, "did you mean 'quantum_base'?");
    refused(&param("quantum_base=1"), TRACE, 2, "out of range: expected 512 to 1GiB");
    refused(&param("quantum_base"), TRACE, 2, "expected name=value");
    refused(&unit(&["--depth", "0"]), TRACE, 2, "--depth");
    refused(&unit(&["--stripe", "0"]), TRACE, 2, "out of range");
    refused(&unit(&["--log", "no/such/folder/l.csv"]), TRACE, 1, "no/such/folder/l.csv cannot be written");
    refused(&["replay", "-", "--device", "hd"], TRACE, 2, "did you mean 'hdd'?");
    refused(&["replay", "-", "--device", "unit:soon"], TRACE, 2, "expected a time after 'unit:'");
    refused(&["replay", "nowhere.csv", "--device", "hdd"], "", 2, "the trace nowhere.csv cannot be read");
    refused(&["replay", ".", "--device", "hdd"], "", 2, "the trace . cannot be read");
    refused(&["schedulers", "sjff"], "", 2, "did you mean 'sjf'?");
    refused(&["status", "nowhere"], "", 1, "nowhere");
    refused(&["status", "."], "", 1, "is not the root of an iogate mount");
    refused(&["set", ".", "scheduler=sjf"], "", 1, "is not the root of an iogate mount");
    refused(&["umount", "."], "", 1, "is not a mount point");
    refused(&["mount", "nowhere", "."], "", 1, "the source nowhere must be a directory that can be read");
    refused(&["mount", ".", "nowhere", "--scheduler", "sfj"], "", 2, "did you mean 'sjf'?");
    refused(
        &["mount", ".", "nowhere", "--store", "modelled", "--device", "hd"],
        "",
        2,
        "did you mean 'hdd'?",
    );
    refused(&["mount", ".", "nowhere", "--device", "hdd"], "", 2, "--device is for a modelled store");
    // A file system of others.
    refused(&["umount", "/proc"], "", 1, "/proc is a mount of type proc, not of iogate, and was left alone");
    refused(&["demo", "--html", "no/such/folder/r.html"], "", 1, "no/such/folder/r.html cannot be written");
}

#[test]
fn outputs_replace_neither_the_trace_nor_each_other() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), TRACE).unwrap();
    for (outputs, said) in [
        (["--log", "t.csv", "--html", "r.html"], "--log t.csv would replace the trace"),
        (["--log", "l.csv", "--html", "./t.csv"], "--html ./t.csv would replace the trace"),
        (["--log", "new", "--html", "new"], "--html new would replace the log"),
    ] {
        let args = [&["replay", "t.csv", "--device", "unit:1"], &outputs[..]].concat();
        let output = iogate(&args, "", folder.path());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("t.csv")).unwrap(), TRACE);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_report_that_cannot_be_written_leaves_no_log() {
    let args = ["replay", "-", "--device", "unit:1", "--log", "l.csv", "--html"];
    for html in ["no/such/r.html", "/dev/full"] {
        refused(&[&args[..], &[html]].concat(), TRACE, 1, &format!("{html} cannot be written"));
    }
}

#[test]
fn a_log_on_standard_output_does_not_replace_the_file_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), TRACE).unwrap();
    std::fs::write(folder.path().join("out"), "before\n").unwrap();
    let out = std::fs::File::options().append(true).open(folder.path().join("out")).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_iogate"))
        .args(["replay", "t.csv", "--scheduler", "fifo", "--device", "unit:100", "--log", "/dev/stdout"])
        .current_dir(folder.path())
        .stdout(out)
        .status();
    assert!(status.unwrap().success());
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    assert!(out.starts_with("before\nstart_us,"), "{out}");
    assert!(out.contains("requests    4"), "the summary is there too: {out}");
}

#[test]
fn sorting_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "time_us,app,client,file,op,offset,bytes\n5,1,1,a,r,0,8\n4,1,1,a,r,8,8\n";
    let output = iogate(
        &["replay", "-", "--scheduler", "fifo", "--device", "unit:1", "--sort", "--log", "l.csv"],
        trace,
        folder.path(),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let log = std::fs::read_to_string(folder.path().join("l.csv")).unwrap();
    assert_eq!(log.lines().skip(1).collect::<Vec<_>>(), ["4,5,a,r,8,8,1,2", "5,6,a,r,0,8,1,1"]);
}

#[test]
fn lists_and_manuals_know_every_scheduler_and_command() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = iogate(args, "", folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let list = run(&["schedulers"]);
    let json: serde_json::Value = serde_json::from_str(&run(&["schedulers", "--json"])).unwrap();
    for kind in iogate_core::SchedulerKind::ALL {
        assert!(list.contains(&format!("{}: {}", kind.name(), kind.summary())));
        let entry = json.as_array().unwrap().iter().find(|entry| entry["name"] == kind.name()).unwrap();
        assert_eq!(entry["params"].as_array().unwrap().len(), kind.params().len());
    }
    assert!(run(&["devices"]).contains("hdd: hard disk"));
    assert!(run(&["completions", "bash"]).contains("iogate"));
    run(&["man", "man"]);
    let page = std::fs::read_to_string(folder.path().join("man/iogate-replay.1")).unwrap();
    assert!(page.contains("issued_us"), "{page}");
    assert!(!folder.path().join("man/iogate-demo-reader.1").exists(), "hidden commands have no page");
    let version = env!("CARGO_PKG_VERSION");
    for (name, title) in [("iogate", "IOGATE"), ("iogate-coord-serve", "IOGATE-COORD-SERVE")] {
        let page = std::fs::read_to_string(folder.path().join(format!("man/{name}.1"))).unwrap();
        // A date that is not given is empty: what comes behind it is not taken for it.
        let title = format!(".TH {title} 1 \"\" \"iogate {version}\" \"iogate\"");
        assert!(page.lines().any(|line| line == title), "{page}");
        assert!(page.lines().all(|line| line.trim_end() == line && line != ".SH EXTRA"), "{page}");
        assert!(page.contains("share/doc/iogate/docs/"), "where the pages are that it names: {page}");
    }
}

const SCENARIO: &str = "title = \"One reader\"\nrepetitions = 2\n\n[clients]\nnodes = 2\n\n[servers]\nnodes = 1\n\
    device = \"unit:1ms\"\n\n[[app]]\nname = \"reader\"\npattern = \"trace\"\nfile = \"t.csv\"\n\n\
    [sweep]\nservers.gate.scheduler = [\"fifo\", \"sjf\"]\n";

#[test]
fn scenarios_are_listed_shown_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let listed = iogate(&["scenario", "list"], "", folder.path());
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).lines().any(|line| line.starts_with("two-readers  ")));
    let shown = iogate(&["scenario", "show", "two-readers"], "", folder.path());
    std::fs::write(folder.path().join("mine.toml"), &shown.stdout).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/s.toml"), SCENARIO).unwrap();
    std::fs::write(folder.path().join("sub/t.csv"), TRACE).unwrap();
    let checked = iogate(&["scenario", "check", "mine.toml", "windows", "sub/s.toml"], "", folder.path());
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let said = text(&checked.stdout);
    assert!(said.contains("sub/s.toml: One reader"), "{said}");
    assert!(said.contains("applications 1 with 3 processes"), "{said}");
    assert!(said.contains("sweep        servers.gate.scheduler: fifo | sjf"), "{said}");
    assert!(said.contains("runs         4 (4 in the quick form)"), "{said}");
}

#[test]
fn scenarios_that_are_wrong_are_refused() {
    refused(&["sim", "two-raeders"], "", 2, "did you mean 'two-readers'?");
    refused(&["sim", "none.toml"], "", 2, "the scenario none.toml cannot be read");
    refused(&["scenario", "show", "none"], "", 2, "expected a file, or one that is built in");
    refused(
        &["sim", "windows", "--set", "servers.nods=1"],
        "",
        2,
        "--set servers.nods=1: unknown key 'nods'",
    );
    refused(&["sim", "windows", "--seeds", "0"], "", 2, "expected 1 to 100000");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), SCENARIO.replace("fifo", "fif")).unwrap();
    std::fs::write(folder.path().join("t.csv"), TRACE).unwrap();
    let output = iogate(&["scenario", "check", "a.toml", "windows", "b.toml"], "", folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).starts_with("windows: "), "what is right is said all the same");
    let error = text(&output.stderr);
    assert!(error.starts_with("error: a.toml:17: unknown scheduler 'fif'; did you mean 'fifo'?"), "{error}");
    assert!(error.contains("this is in the point servers.gate.scheduler = fif\n"), "{error}");
    assert!(error.contains("\nthe scenario b.toml cannot be read"), "{error}");
}

#[test]
fn a_file_elsewhere_has_no_layout() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "data").unwrap();
    let output = iogate(&["layout", "a"], "", folder.path());
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "a: on no parallel file system that is known\n");
    let output = iogate(&["layout", "--json", "a"], "", folder.path());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value, serde_json::json!([{ "file": "a", "system": null, "extents": [] }]));
    // What can be said is said, and what cannot is an error.
    let output = iogate(&["layout", "none", "a"], "", folder.path());
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(2), 1));
    assert!(text(&output.stderr).contains("none cannot be read: No such file"), "{}", text(&output.stderr));
}

#[test]
fn a_layout_that_is_none_is_refused() {
    refused(
        &["mount", "/tmp", "/tmp", "--layout", "stripe=64KiB"],
        "",
        2,
        "expected auto, auto,targets=8, or",
    );
    refused(&["mount", "/tmp", "/tmp", "--layout", "stripe=64KiB,targets=0"], "", 2, "from 1 to 4096");
}

#[test]
fn a_profile_is_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = iogate(args, TRACE, folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let table = run(&["profile", "--device", "memory", "--out", "m.toml"]);
    for line in ["model memory, not rotating", "after 4-15 others", "in flight", "the gate: "] {
        assert!(table.contains(line), "{line} in\n{table}");
    }
    let json = run(&["profile", "--device", "profile:m.toml", "--json"]);
    assert!(json.contains("\"kind\": \"model profile:m.toml\""), "{json}");
    let summary = run(&["replay", "-", "--device", "profile:m.toml", "--depth", "8"]);
    assert!(summary.contains("profile:m.toml, at most 8 dispatches in flight"), "{summary}");

    refused(&["profile"], "", 2, "required");
    refused(&["profile", "no/such/folder", "--budget", "1s"], "", 1, "no/such/folder cannot be profiled");
    refused(&["profile", "--device", "floppy"], "", 2, "unknown device 'floppy'");
    refused(&["replay", "-", "--device", "profile:none.toml"], TRACE, 2, "the profile none.toml: ");
    std::fs::write(folder.path().join("old.toml"), "version = 0\n").unwrap();
    let output = iogate(&["replay", "-", "--device", "profile:old.toml"], TRACE, folder.path());
    assert!(text(&output.stderr).contains("the profile old.toml: version: expected 1, found 0"));
}
