//! `iogate bench` through the network and `iogate reproduce --real`: processes of servers, forwarders and applications.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const SCENARIO: &str = r#"
title = "small"
[clients]
nodes = 4
to = "ion"
[forwarders.ion]
nodes = 2
transfer = "64KiB"
gate = { scheduler = "twins", window = "1ms", depth = 4 }
[servers]
nodes = 3
device = "unit:50us"
stripe = "32KiB"
transfer = "64KiB"
[[app]]
name = "reader"
processes = 4
pattern = "strided"
op = "read"
bytes = "512KiB"
request = "64KiB"
[[app]]
name = "writer"
processes = 2
pattern = "contiguous"
sharing = "per-process"
op = "write"
bytes = "256KiB"
request = "64KiB"
"#;

fn iogate(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).current_dir(folder).output().unwrap()
}

/// Runs the scenario with these settings; what it gave, and what it left in the folder for the servers.
fn bench(settings: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let mut args = vec!["bench", "s.toml", "--dir", "d", "--seeds", "1", "--json", "-"];
    args.extend_from_slice(settings);
    let output = iogate(&args, folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(folder.path().join("d")).unwrap().count(), 0, "the folder is removed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A metric of a layer, in the simulation and in the real run.
fn layer(report: &Value, layer: &str, metric: &str) -> Vec<f64> {
    let named = |list: &Value, name: &str| {
        let found = list.as_array().unwrap().iter().find(|entry| entry["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("no {name} in {list}"))
    };
    let points = report["points"].as_array().unwrap().iter();
    points
        .map(|point| {
            let metrics = &named(&point["layers"], layer)["metrics"];
            named(metrics, metric)["estimate"]["mean"].as_f64().unwrap()
        })
        .collect()
}

#[test]
fn requests_pass_both_layers_in_reality_as_in_the_simulation() {
    let report = bench(&[]);
    // 2 MiB are read and 512 KiB written, in requests of two stripes.
    assert_eq!(layer(&report, "ion", "requests"), [40.0, 40.0]);
    assert_eq!(layer(&report, "ion", "request_bytes"), [65_536.0, 65_536.0]);
    assert_eq!(layer(&report, "servers", "requests"), [80.0, 80.0]);
    assert_eq!(layer(&report, "servers", "request_bytes"), [32_768.0, 32_768.0]);
}

#[test]
fn without_forwarders_processes_stripe_over_the_servers() {
    let folder = without_forwarders();
    let report = report_of(&["bench", "s.toml", "--through", "network", "--json", "-"], folder.path());
    assert_eq!(layer(&report, "servers", "requests"), [80.0, 80.0]);
}

/// A folder with the scenario, but for its forwarders.
fn without_forwarders() -> tempfile::TempDir {
    let text = SCENARIO.replace("to = \"ion\"\n", "");
    let (head, rest) = text.split_once("[forwarders.ion]").unwrap();
    let (_, tail) = rest.split_once("[servers]").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), format!("{head}[servers]{tail}")).unwrap();
    folder
}

fn report_of(args: &[&str], folder: &Path) -> Value {
    let output = iogate(args, folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn clients_of_nfs_stripe_over_the_servers_and_are_told_apart() {
    let folder = without_forwarders();
    let report = report_of(&["bench", "s.toml", "--through", "nfs", "--json", "-"], folder.path());
    assert_eq!(layer(&report, "servers", "requests"), [80.0, 80.0]);
    assert_eq!(layer(&report, "servers", "request_bytes"), [32_768.0, 32_768.0]);
    for app in report["points"].as_array().unwrap().iter().flat_map(|point| point["apps"].as_array().unwrap())
    {
        // Only where the servers know whose requests they are.
        let knows = |metric: &Value| metric["name"] == "server_finish_spread";
        assert!(app["metrics"].as_array().unwrap().iter().any(knows), "{app}");
    }
}

#[test]
fn what_has_no_way_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    for (args, said) in [
        (&["--through", "mount"][..], "forwarders are reached through the network only"),
        (&["--through", "nfs"], "forwarders are reached through the network only"),
        (&["--store", "directory"], "--through mount only"),
        (&["--set", "forwarders.ion.spread=file"], "forwarders.ion.spread"),
        (&["--set", "forwarders.ion.nodes=17"], "forwarders.ion.nodes"),
        (&["--set", "servers.device=exponential:1ms"], "servers.device"),
    ] {
        let output = iogate(&[&["bench", "s.toml"], args].concat(), folder.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?} {error}");
        assert!(error.contains(said), "{args:?} {error}");
    }
}

#[test]
fn what_is_ended_while_it_measures_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_iogate"))
        .args(["reproduce", "mechanisms", "--real", "--quick", "--out", "pages"])
        .current_dir(folder.path())
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let left =
        || std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    // The device is measured for two seconds: nothing but a run has a folder, as an end at another time would leave it.
    for _ in 0..40 {
        let found = left();
        if !found.is_empty() {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{found:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(left(), Vec::<std::ffi::OsString>::new());
}

#[test]
fn pages_are_made_for_real_and_have_no_empty_cells() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let args = ["reproduce", "--real", "--quick", "--out", "pages", "--results", "kept"];
    let output = iogate(&args, folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, gate) in [("twins-real", "twins, 1 ms"), ("coordination-real", "app-window: real")] {
        let page = std::fs::read_to_string(folder.path().join(format!("pages/{name}.md"))).unwrap();
        assert!(page.contains(gate) && page.contains("quick form"), "{page}");
        let times = page.split_once("reads of 32 KiB, makespan").map_or(&*page, |(_, times)| times);
        let times = times.split("**").next().unwrap();
        assert!(!times.contains("| - |"), "{times}");
    }
    let page = std::fs::read_to_string(folder.path().join("pages/aioli-real.md")).unwrap();
    assert!(page.contains("| 64KiB | ") && !page.contains("| - | - |"), "{page}");
    let page = std::fs::read_to_string(folder.path().join("pages/mechanisms-real.md")).unwrap();
    assert!(page.contains("| auto | ") && page.contains("The device: "), "{page}");

    // What was kept makes the same pages, and only if it is of them.
    let page = folder.path().join("pages/twins-real.md");
    let (before, of_two) = (std::fs::read(&page).unwrap(), [&args[..], &["twins", "mechanisms"]].concat());
    assert!(iogate(&of_two, folder.path()).status.success());
    assert!(std::fs::read(&page).unwrap() == before);
    for (name, what) in
        [("twins-direct-quick-real.json", "another form"), ("own-device-quick-by.json", "another build")]
    {
        let text = std::fs::read_to_string(kept.join(name)).unwrap();
        let key = if what == "another form" { "\"plan\":" } else { "\"build\":" };
        let (head, tail) = text.split_once(key).unwrap();
        let other = tail.replacen(|digit: char| digit.is_ascii_hexdigit(), "x", 1);
        std::fs::write(kept.join(name), format!("{head}{key}{other}")).unwrap();
        let refused = iogate(&of_two, folder.path());
        assert_eq!(refused.status.code(), Some(2));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(name) && said.contains(what), "{said}");
        std::fs::write(kept.join(name), text).unwrap();
    }
    let refused =
        iogate(&["reproduce", "twins", "agios", "--real", "--quick", "--out", "none"], folder.path());
    assert_eq!(refused.status.code(), Some(2));
    assert!(!folder.path().join("none/twins-real.md").exists(), "before anything is run");
}
