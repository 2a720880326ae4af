//! `iogate sim` and `iogate reproduce` in parts, interrupted and begun again, and `iogate merge`.

use iogate_sim::experiment::digest;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn iogate(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iogate")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What it prints, and what it says besides.
#[track_caller]
fn done(args: &[&str], folder: &Path) -> (String, String) {
    let output = iogate(args, folder);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

#[track_caller]
fn refused(args: &[&str], folder: &Path, status: i32, said: &[&str]) {
    let output = iogate(args, folder);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
    for said in said {
        assert!(error.contains(said), "{error}\nshould contain\n{said}");
    }
    assert_eq!(text(&output.stdout), "");
}

const SCENARIO: &str = r#"
title = "small"
repetitions = 3
clients.nodes = 4
servers = { nodes = 2, device = "hdd", gate.scheduler = "fifo" }
network = { latency = "50us", jitter = "100us", bandwidth = "1Gbit/s" }
app = [{ name = "a", count = 2, processes = 4, pattern = "strided", op = "read", bytes = "1MiB", request = "64KiB" }]
sweep = { "servers.gate.scheduler" = ["fifo", "aioli"] }
"#;

fn with_scenario(scenario: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    folder
}

fn shard(folder: &Path, shard: &str) {
    done(&["sim", "s.toml", "--shard", shard, "--results", "kept"], folder);
}

#[test]
fn shards_of_a_simulation_give_the_bytes_of_one_run() {
    let folder = with_scenario(SCENARIO);
    let at = folder.path();
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    let whole = ["sim", "s.toml", "--json", "1.json", "--csv", "1.csv", "--html", "1.html"];
    let table = done(&whole, at).0;
    for index in [2, 3, 1] {
        let shard = format!("{index}/3");
        let args = ["sim", "s.toml", "--shard", &shard, "--results", "kept"];
        assert_eq!(done(&args, at).0, format!("kept/s.{index}-of-3.runs\n"));
    }
    let kept = read("kept/s.2-of-3.runs");
    let again = done(&["sim", "s.toml", "--shard", "2/3", "--results", "kept"], at).1;
    assert!(again.contains("2 of 2 runs are there") && read("kept/s.2-of-3.runs") == kept, "{again}");
    let files = ["kept/s.3-of-3.runs", "kept/s.1-of-3.runs", "kept/s.2-of-3.runs"];
    let outputs = ["--json", "2.json", "--csv", "2.csv", "--html", "2.html"];
    let merged = done(&[&["merge"][..], &files, &outputs].concat(), at).0;
    assert!(merged == table);
    for form in ["json", "csv", "html"] {
        assert!(read(&format!("1.{form}")) == read(&format!("2.{form}")), "{form}");
    }
    assert!(done(&["merge", "kept"], at).0 == table, "a folder is as good as its files");
    // Without shards, runs are kept as well.
    let args = ["sim", "s.toml", "--results", "other", "--json", "-"];
    assert!(done(&args, at).0 == read("1.json") && done(&args, at).0 == read("1.json"));
    assert!(done(&["merge", "other/s.runs"], at).0 == table);
}

/// The lines with the checksums that belong to them.
fn sealed(text: &str) -> String {
    let json = text.lines().map(|line| line.split_once('\t').expect("a checksum").0);
    json.map(|json| format!("{json}\t{:016x}\n", digest(json.as_bytes()))).collect()
}

#[test]
fn a_byte_that_storage_has_changed_is_noticed() {
    let folder = with_scenario(SCENARIO);
    let at = folder.path();
    let args = ["sim", "s.toml", "--results", "kept"];
    let table = done(&args, at).0;
    let path = at.join("kept/s.runs");
    let whole = fs::read(&path).unwrap();
    let lines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    // A digit in the midst of the second run, which is one of another result then.
    let digit = (lines[1]..lines[2]).filter(|at| whole[*at].is_ascii_digit()).nth(20).unwrap();
    let mut damaged = whole.clone();
    damaged[digit] ^= 1;
    fs::write(&path, &damaged).unwrap();
    refused(
        &["merge", "kept"],
        at,
        1,
        &["s: shards without all their runs: 1/1 has 1 of", "line 3 is damaged"],
    );
    let (again, said) = done(&args, at);
    assert!(said.contains("s.runs: line 3 is damaged") && said.contains("done again"), "{said}");
    assert!(again == table && done(&["merge", "kept"], at).0 == table);
    damaged = whole.clone();
    let digit = (0..lines[0]).filter(|at| whole[*at].is_ascii_digit()).nth(5).unwrap();
    damaged[digit] ^= 1;
    fs::write(&path, &damaged).unwrap();
    for args in [&args[..], &["merge", "kept"]] {
        refused(args, at, 2, &["s.runs", "its first line is damaged"]);
    }
    // As files were before there were checksums.
    let old = String::from_utf8(whole).unwrap().replacen("\"version\":2", "\"version\":1", 1);
    let old: String = old.lines().map(|line| line.split_once('\t').unwrap().0.to_owned() + "\n").collect();
    fs::write(&path, old).unwrap();
    refused(
        &args,
        at,
        2,
        &["s.runs is kept from before: its form is version 1, this program's 2", "remove it"],
    );
}

#[test]
fn what_cannot_be_joined_is_said() {
    let folder = with_scenario(SCENARIO);
    let at = folder.path();
    shard(at, "1/4");
    shard(at, "2/4");
    refused(
        &["merge", "kept"],
        at,
        1,
        &["s: shards without all their runs: 3/4 is missing, 4/4 is missing", "alone"],
    );
    shard(at, "4/4");
    shard(at, "3/4");
    done(&["merge", "kept"], at);
    // Broken off, or of something else.
    let path = at.join("kept/s.2-of-4.runs");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    refused(&["merge", "kept"], at, 1, &["2/4 was interrupted (1 of 2 runs)"]);
    let said = done(&["sim", "s.toml", "--shard", "2/4", "--results", "kept"], at).1;
    assert!(
        said.contains("s.2-of-4.runs: line 3 is broken off") && said.contains("1 of 2 runs are there"),
        "{said}"
    );
    done(&["merge", "kept"], at);
    fs::write(&path, &whole[..20]).unwrap();
    refused(
        &["merge", "kept"],
        at,
        1,
        &["kept/s.2-of-4.runs was interrupted before its first line was whole"],
    );
    let said = done(&["sim", "s.toml", "--shard", "2/4", "--results", "kept"], at).1;
    assert!(said.contains("its first line is broken off"), "{said}");
    let build = whole.split("\"build\":\"").nth(1).unwrap().split('"').next().unwrap();
    fs::write(&path, sealed(&whole.replacen(build, "0123456789abcdef", 1))).unwrap();
    refused(&["merge", "kept"], at, 2, &["kept/s.2-of-4.runs is of another program", "0123456789abcdef"]);
    refused(
        &["sim", "s.toml", "--shard", "2/4", "--results", "kept"],
        at,
        2,
        &["of another program", "remove it"],
    );
    fs::write(&path, &whole).unwrap();
    // A file by the name of another shard.
    fs::create_dir(at.join("renamed")).unwrap();
    fs::write(at.join("renamed/s.1-of-4.runs"), &whole).unwrap();
    let renamed = ["sim", "s.toml", "--shard", "1/4", "--results", "renamed"];
    refused(&renamed, at, 2, &["renamed/s.1-of-4.runs is kept from before: it is shard 2/4, not 1/4"]);
    for shard in
        [r#"{"index":0,"of":4}"#, r#"{"index":1,"of":0}"#, r#"{"index":1,"of":18446744073709551615}"#]
    {
        let wrong = whole.replacen(r#"{"index":2,"of":4}"#, shard, 1);
        fs::write(at.join("wrong.runs"), sealed(&wrong)).unwrap();
        refused(&["merge", "wrong.runs"], at, 2, &["its first line does not say what its runs are of"]);
    }
    let other_seed = ["sim", "s.toml", "--shard", "2/4", "--results", "kept", "--seed", "5"];
    refused(&other_seed, at, 2, &["kept/s.2-of-4.runs", "other settings, sizes or seeds", "remove it"]);
    done(&["sim", "s.toml", "--shard", "2/4", "--results", "seeds", "--seed", "5"], at);
    refused(&["merge", "kept", "seeds"], at, 2, &["seeds/s.2-of-4.runs is of another form of s"]);
    done(&["sim", "s.toml", "--shard", "1/2", "--results", "halves"], at);
    refused(&["merge", "kept", "halves"], at, 2, &["one of 2 shards, not of 4"]);
    fs::write(at.join("t.toml"), SCENARIO).unwrap();
    done(&["sim", "t.toml", "--shard", "1/4", "--results", "t"], at);
    refused(&["merge", "kept", "t"], at, 2, &["t/t.1-of-4.runs is of the scenario t, not s"]);
    refused(&["merge", "s.toml"], at, 2, &["s.toml has no partial results"]);
    fs::create_dir(at.join("empty")).unwrap();
    refused(&["merge", "empty"], at, 2, &["empty has no partial results", "--results"]);
    refused(&["merge", "none"], at, 2, &["none cannot be read"]);
    refused(&["sim", "s.toml", "--shard", "0/2", "--results", "k"], at, 2, &["expected I/N", "2/8"]);
    refused(&["sim", "s.toml", "--shard", "1/2"], at, 2, &["--results"]);
    refused(&["sim", "s.toml", "--shard", "1/2", "--results", "k", "--csv", "-"], at, 2, &["--csv"]);
    refused(&["reproduce", "auto", "--shard", "1/2", "--results", "k"], at, 2, &["auto has no scenarios"]);
}

#[test]
fn a_shard_that_fails_is_named_with_its_reason_and_done_again_alone() {
    // A server that never goes on: the run in which it stops says so.
    let stopped = "fault = [{ kind = \"stopped-server\", server = 1, from = \"10ms\" }]\n";
    let folder = with_scenario(&format!("{SCENARIO}\n").replace("sweep", &format!("{stopped}sweep")));
    let at = folder.path();
    let args = ["sim", "s.toml", "--shard", "1/2", "--results", "kept", "--threads", "1"];
    refused(&args, at, 1, &["seed 1", "processes of a-1 wait"]);
    let said = ["1/2 failed (servers.gate.scheduler = fifo, seed 1: ", "2/2 is missing"];
    refused(&["merge", "kept"], at, 1, &said);
    refused(&args, at, 1, &["seed 1"]);
}

/// Whether a file of runs in the folder has its head and so many runs.
fn has_runs(folder: &Path, least: usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let lines =
        |path: &Path| fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count());
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .into_iter()
        .any(|path| path.extension().is_some_and(|ending| ending == "runs") && lines(&path) > least)
}

#[test]
fn a_killed_reproduction_goes_on_and_gives_the_bytes_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let page = |pages: &str| {
        ["md", "html", "json"]
            .map(|ending| fs::read(at.join(pages).join(format!("checkpoint.{ending}"))).unwrap())
    };
    let args = |pages, kept| ["reproduce", "checkpoint", "--quick", "--out", pages, "--results", kept];
    done(&args("whole", "whole-kept"), at);
    // Killed when it has kept some runs, and again when it has gone on a while.
    let kept = at.join("kept");
    for least in [1, 3] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iogate"))
            .args(args("pages", "kept"))
            .args(["--threads", "1"])
            .current_dir(at)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !has_runs(&kept, least) && child.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // What a kill in the midst of writing leaves: half a line, half a first line, half of what was finished.
    let runs = |path: &Path| path.extension().is_some_and(|ending| ending == "runs");
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in files.iter().filter(|path| runs(path)) {
        fs::File::options().append(true).open(path).unwrap().write_all(b"{\"run\":{\"run\":1,\"re").unwrap();
    }
    fs::write(kept.join("checkpoint-alone-quick.runs"), "{\"version\":1,\"na").unwrap();
    let finished = fs::read_to_string(at.join("whole-kept/checkpoint-pair-quick.json")).unwrap();
    fs::write(kept.join("checkpoint-pair-quick.json"), &finished[..finished.len() / 2]).unwrap();
    let said = done(&args("pages", "kept"), at).1;
    for file in [
        "checkpoint-alone-quick.runs: its first line is broken off",
        "checkpoint-pair-quick.json is broken off",
    ] {
        assert!(said.contains(file), "{file}\n{said}");
    }
    assert!(page("pages") == page("whole"));
    let files = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(files.filter(|path| runs(path)).count(), 0, "what is finished is not kept twice");
}

#[test]
fn shards_of_a_reproduction_give_the_bytes_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let paper = ["reproduce", "checkpoint", "--quick"];
    done(&[&paper[..], &["--out", "whole", "--results", "kept"]].concat(), at);
    for shard in ["3/3", "1/3"] {
        done(&[&paper[..], &["--shard", shard, "--results", "parts"]].concat(), at);
    }
    refused(&["merge", "parts", "--results", "joined"], at, 1, &["checkpoint-", "2/3 is missing"]);
    let written = done(&[&paper[..], &["--shard", "2/3", "--results", "parts"]].concat(), at).0;
    assert!(written.contains("parts/checkpoint-mix-quick.2-of-3.runs\n"), "{written}");
    refused(&["merge", "parts"], at, 2, &["of the scenario"]);
    let joined = done(&["merge", "parts", "--results", "joined"], at).0;
    for path in joined.lines() {
        let name = Path::new(path).file_name().unwrap();
        assert!(fs::read(at.join(path)).unwrap() == fs::read(at.join("kept").join(name)).unwrap(), "{path}");
    }
    assert_eq!(joined.lines().count(), fs::read_dir(at.join("kept")).unwrap().count());
    done(&[&paper[..], &["--out", "pages", "--results", "joined"]].concat(), at);
    for name in ["checkpoint.md", "checkpoint.html", "checkpoint.json"] {
        let [whole, pages] = ["whole", "pages"].map(|folder| fs::read(at.join(folder).join(name)).unwrap());
        assert!(whole == pages, "{name}");
    }
}
