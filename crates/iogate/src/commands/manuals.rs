//! `iogate completions` and `iogate man`: from the definition of the commands.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

use crate::attempt::{Attempt, Doing};
use crate::cli::{CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::print;
use crate::usage;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut usage::command_for_completions(), "iogate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let write = || {
        fs::create_dir_all(&args.directory)?;
        let mut command = usage::command_for_man().disable_help_subcommand(true);
        command.build();
        write_pages(&command, &args.directory)
    };
    let folder = args.directory.display();
    let cannot = || Attempt::new(Doing::Write, format_args!("the man pages cannot be written to {folder}"));
    Ok(write().with_context(cannot)?)
}

/// The page of a command, and those of all below it that are shown.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    fs::write(folder.join(man.get_filename()), page(&man, command)?)?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| write_pages(below, folder))
}

/// A page as man(7) wants it, which `clap_mangen` alone does not give: a title with a source, behind an empty date (what comes behind none
/// is taken for it), no line breaks beside empty lines, no blanks at ends of lines; and where pages are that it names.
fn page(man: &Man, command: &Command) -> io::Result<String> {
    let mut bytes = Vec::new();
    man.render(&mut bytes)?;
    let rendered = String::from_utf8_lossy(&bytes).replace("\n.br\n\n.br\n", "\n\n");
    let name = man.get_filename();
    let name = name.trim_end_matches(".1");
    let version = command.get_version().unwrap_or_default();
    let mut text = String::new();
    for line in rendered.lines().map(str::trim_end) {
        match line {
            title if title.starts_with(".TH ") => {
                text += &format!(".TH {} 1 \"\" \"iogate {version}\" \"iogate\"", name.to_uppercase());
            }
            ".SH EXTRA" => text += ".SH NOTES",
            line => text += line,
        }
        text.push('\n');
    }
    text += ".SH SEE ALSO\n";
    if name != "iogate" {
        text += "\\fBiogate\\fR(1)\n.PP\n";
    }
    text += "A name such as docs/mount.md is that of a page of the handbook: in share/doc/iogate of where iogate is installed,\n\
        as in /usr/share/doc/iogate/docs/mount.md.\n";
    Ok(text)
}
