//! The command-line program: the only place for flags and configuration files. Libraries that live in other programs (turn, preload,
//! `AppFile`) read `IOGATE_*` themselves.
#![forbid(unsafe_code)]
// They panic where standard error takes nothing: `output::say` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

mod attempt;
mod cli;
mod commands;
mod devices;
mod failure;
mod fitted;
mod kept;
mod metrics;
mod output;
mod settings;
mod state;
mod storage;
mod usage;
mod watched;

use std::process::ExitCode;

use cli::Command;
use failure::Failure;

fn main() -> ExitCode {
    match usage::parse().and_then(|cli| cli.map_or(Ok(()), |cli| run(cli.command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.or_help(usage::help).report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::control::umount(&args),
        Command::Status(args) => commands::control::status(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Set(args) => commands::control::set(&args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Record(args) => commands::record::record(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Nfs(args) => commands::nfs::run(&args),
        Command::Turn(args) => commands::turn::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Coord(args) => commands::coord::run(&args),
        Command::Layout(args) => commands::layout::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Advise(args) => commands::advise::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Why(args) => commands::why::run(&args),
        Command::Merge(args) => commands::merge::run(&args),
        Command::Scenario(args) => commands::scenario::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Train(args) => commands::train::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::BenchWorker(args) => commands::bench::worker::run(&args),
        Command::SetMount(args) => commands::control::set_mount(&args),
        Command::DemoReader(args) => commands::demo::reader::run(&args),
        Command::Schedulers(args) => commands::lists::schedulers(&args),
        Command::Devices(args) => commands::lists::devices(&args),
        Command::Completions(args) => commands::manuals::completions(&args),
        Command::Man(args) => commands::manuals::man(&args),
    }
}
