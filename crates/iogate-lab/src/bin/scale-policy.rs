//! Simulates one policy over the gates of a large cluster, and says what its allotter does and costs.

use std::process::ExitCode;

use iogate_lab::scale::policy::{PolicyScale, run};

const HELP: &str = "\
Usage: scale-policy [--gates N] [--applications N] [--groups N] [--report-ms N] [--total 1]
                    [--seed N]

Gates report demands of applications with caps, and hold leases (1000 gates, 100000
applications and a report every 100 ms if not given; --total 1: a total is divided, too;
--groups N: so many groups of applications, each with a cap of half of theirs together).
Half of the demands change at once; the coordinator is gone for a minute. Ends with 1 if a
cap was exceeded.
";

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which lives.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() -> ExitCode {
    let mut scale = PolicyScale::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|value| value.parse().ok()).filter(|&value: &u32| value > 0);
        let set = match &arg[..] {
            "--gates" => number().map(|value| scale.gates = value),
            "--applications" => number().map(|value| scale.applications = value),
            "--groups" => number().map(|value| scale.groups = value),
            "--report-ms" => number().map(|value| scale.report_ms = value.into()),
            "--total" => number().map(|_| scale.has_total = true),
            "--seed" => number().map(|value| scale.seed = value.into()),
            _ => None,
        };
        if set.is_none() {
            eprint!("expected an option with a number above 0, got `{arg}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    }
    let report = run(&scale, &cpu_ns);
    println!("{report}");
    if report.excesses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
