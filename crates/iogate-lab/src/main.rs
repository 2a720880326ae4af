//! Runs seeds of the simulated world for a time.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use iogate_lab::{data, nfs, turns};

const HELP: &str = "\
Usage: iogate-lab SECONDS [--seed N]

Runs simulated worlds, one of turns, one of data and one of NFS for each seed from N on
(1 if not given), for so many seconds. Ends with 1 if one of them had a finding: its seed, what
happened before, and what was found. The same seed finds the same.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (seconds, seed) = match args[..] {
        [seconds] => (seconds, "1"),
        [seconds, "--seed", seed] | ["--seed", seed, seconds] => (seconds, seed),
        _ => ("", ""),
    };
    let (Ok(seconds), Ok(first)) = (seconds.parse::<u64>(), seed.parse::<u64>()) else {
        eprint!("expected a number of seconds, got `{}`\n\n{HELP}", args.join(" "));
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let (mut seeds, mut turns, mut data) = (0u64, turns::Report::default(), data::Report::default());
    let mut nfs = nfs::Report::default();
    while began.elapsed() < Duration::from_secs(seconds) || seeds == 0 {
        let seed = first + seeds;
        seeds += 1;
        let of_turns = turns::run(seed, None);
        if !of_turns.findings.is_empty() {
            return found(&of_turns, seed);
        }
        let of_data = data::run(seed, None);
        if !of_data.findings.is_empty() {
            return found(&of_data, seed);
        }
        let of_nfs = nfs::run(seed, None);
        if !of_nfs.findings.is_empty() {
            return found(&of_nfs, seed);
        }
        turns.events += of_turns.events;
        turns.turns += of_turns.turns;
        turns.kills += of_turns.kills;
        data.events += of_data.events;
        data.calls += of_data.calls;
        data.kills += of_data.kills;
        nfs.events += of_nfs.events;
        nfs.calls += of_nfs.calls;
        nfs.kills += of_nfs.kills;
        nfs.crashes += of_nfs.crashes;
    }
    let turns::Report { events, turns, kills, .. } = turns;
    println!(
        "{seeds} worlds of turns from seed {first} on: {events} events, {turns} turns, {kills} kills, nothing found"
    );
    let data::Report { events, calls, kills, .. } = data;
    println!(
        "{seeds} worlds of data from seed {first} on: {events} events, {calls} calls, {kills} kills, nothing found"
    );
    let nfs::Report { events, calls, kills, crashes, .. } = nfs;
    println!(
        "{seeds} worlds of NFS from seed {first} on: {events} events, {calls} calls, {kills} kills and {crashes} crashes, nothing found"
    );
    ExitCode::SUCCESS
}

fn found(report: &dyn Display, seed: u64) -> ExitCode {
    println!("{report}");
    println!("again: cargo run --release -p iogate-lab -- 0 --seed {seed}");
    ExitCode::FAILURE
}
