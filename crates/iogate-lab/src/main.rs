//! Runs seeds of the simulated world for a time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use iogate_lab::turns::{self, Report};

const HELP: &str = "\
Usage: iogate-lab SECONDS [--seed N]

Runs simulated worlds, one for each seed from N on (1 if not given), for so many
seconds. Ends with 1 if one of them had a finding: its seed, what happened before,
and what was found. The same seed finds the same.
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
    let (mut runs, mut all) = (0u64, Report::default());
    while began.elapsed() < Duration::from_secs(seconds) || runs == 0 {
        let report = turns::run(first + runs, None);
        runs += 1;
        if !report.findings.is_empty() {
            println!("{report}");
            println!("again: cargo run --release -p iogate-lab -- 0 --seed {}", report.seed);
            return ExitCode::FAILURE;
        }
        all.events += report.events;
        all.turns += report.turns;
        all.kills += report.kills;
    }
    let Report { events, turns, kills, .. } = all;
    println!(
        "{runs} worlds from seed {first} on: {events} events, {turns} turns, {kills} kills, nothing found"
    );
    ExitCode::SUCCESS
}
