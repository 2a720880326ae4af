//! `iogate completions` and `iogate man`: from the definition of the commands.

use std::fs;

use anyhow::Context;

use crate::attempt::{Attempt, Doing};
use crate::cli::{CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::print;
use crate::usage;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut usage::command(), "iogate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let write = || {
        fs::create_dir_all(&args.directory)?;
        clap_mangen::generate_to(usage::command_for_man(), &args.directory)
    };
    let folder = args.directory.display();
    let cannot = || Attempt::new(Doing::Write, format_args!("the man pages cannot be written to {folder}"));
    Ok(write().with_context(cannot)?)
}
