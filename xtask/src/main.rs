//! The project's own checks, run as `cargo xtask COMMAND`.

mod new;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask tidy [--fix]
       cargo xtask swarm SECONDS [--seed N]
       cargo xtask scale [--clients N] [--forwarders N] [--servers N] ...
       cargo xtask new scheduler|store|device|workload NAME
       cargo xtask scale-policy [--gates N] [--applications N] [--groups N] ...

swarm runs simulated worlds with faults, one for each seed from N on (1 if not given),
for so many seconds; it ends with 1 if one of them had a finding (crates/iogate-lab).
scale simulates a large cluster at the level of messages, 100000 clients if not said otherwise.
scale-policy simulates one policy over many gates, 1000 if not said otherwise.

tidy checks what the compiler does not:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let result = match args[..] {
        ["tidy"] => tidy::run(root, false),
        ["tidy", "--fix"] => tidy::run(root, true),
        ["new", kind, name] => return made(new::run(root, kind, name)),
        ["swarm", ref args @ ..] => return lab(root, "iogate-lab", args),
        ["scale-policy", ref args @ ..] => return lab(root, "scale-policy", args),
        ["scale", ref args @ ..] => return lab(root, "scale", args),
        [] | ["help" | "--help" | "-h"] | ["tidy", "--help" | "-h"] => {
            print!("{HELP}{}{}", tidy::HELP, new::HELP);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!(
                "expected `tidy`, `tidy --fix`, `new KIND NAME`, `swarm SECONDS` or `scale`, got `{}`\n\n{HELP}{}",
                args.join(" "),
                tidy::HELP
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn made(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("new: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds a program of the lab as fast as it can be, and runs it.
fn lab(root: &Path, program: &str, args: &[&str]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args([
        "run",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "iogate-lab",
        "--bin",
        program,
        "--",
    ]);
    command.args(args);
    match command.current_dir(root).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("{program}: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}
