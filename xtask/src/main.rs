//! The project's own checks, run as `cargo xtask COMMAND`.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask tidy [--fix]

tidy checks what the compiler does not:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let result = match args[..] {
        ["tidy"] => tidy::run(root, false),
        ["tidy", "--fix"] => tidy::run(root, true),
        [] | ["help" | "--help" | "-h"] | ["tidy", "--help" | "-h"] => {
            print!("{HELP}{}", tidy::HELP);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("expected `tidy` or `tidy --fix`, got `{}`\n\n{HELP}{}", args.join(" "), tidy::HELP);
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
