//! The command line: how it is read, what is said where it does not parse, and the overview of all commands.
//!
//! Whoever mistypes a flag gets what every other mistake gets: one line that says what was expected and what came, and a hint.

use std::ffi::OsString;
use std::fmt::Write;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};

use crate::cli::Cli;
use crate::failure::Failure;

/// The commands by what people do with them, each in one group.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Put files behind a gate", &["mount", "umount", "serve", "nfs", "cluster"]),
    ("See and change what a gate does", &["status", "top", "why", "set", "policy", "record"]),
    ("Let jobs take turns", &["run", "turn", "coord", "probe"]),
    ("Choose what suits your storage", &["profile", "advise", "schedulers", "devices", "layout"]),
    ("Experiment", &["demo", "sim", "bench", "replay", "scenario", "reproduce", "merge"]),
    ("Set up your shell", &["completions", "man", "help"]),
];

/// Columns of the overview where there are more.
const WIDTH_MAX: usize = 100;
/// Where the terminal is not known.
const WIDTH: usize = 80;

/// What the libraries say of a value, and what a user understands.
const PLAIN: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number"),
    ("invalid float literal", "expected a number"),
    ("invalid socket address syntax", "expected ADDRESS:PORT, as in 127.0.0.1:2049"),
    ("number would be zero for non-zero type", "expected at least 1"),
    ("number too large to fit in target type", "expected a smaller number"),
];

/// The command that was asked for. Help and versions are printed, and end the program.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(&arguments).map_err(|error| match error.kind() {
        // Asked for again with the overview, which takes time to make.
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            with_overview().get_matches_from(&arguments);
            error.exit()
        }
        ErrorKind::DisplayVersion => error.exit(),
        _ => refusal(&error.render().to_string(), &path(&arguments)),
    })
}

fn with_overview() -> Command {
    let template = "{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";
    let command = Cli::command();
    let overview = overview(&command, width());
    command.help_template(template).after_help(overview)
}

/// All commands, group by group, with what each is for.
fn overview(command: &Command, width: usize) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let column = names.map(|name| name.len()).max().unwrap_or_default() + 4;
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print this overview, or the help of a command".into());
            let mut line = format!("  {name}");
            line.extend(std::iter::repeat_n(' ', column - line.len()));
            let mut length = column;
            for (index, word) in about.split(' ').enumerate() {
                if index > 0 && length + 1 + word.chars().count() > width {
                    let _ = write!(line, "\n{:column$}", "");
                    length = column;
                } else if index > 0 {
                    line.push(' ');
                    length += 1;
                }
                line.push_str(word);
                length += word.chars().count();
            }
            let _ = writeln!(text, "{line}");
        }
    }
    text.trim().into()
}

fn width() -> usize {
    let of_terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = of_terminal.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    columns.unwrap_or(WIDTH).clamp(40, WIDTH_MAX)
}

/// Where it says what the command takes that the arguments begin with.
pub(crate) fn help() -> String {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    says_what_it_takes(&path(&arguments))
}

fn says_what_it_takes(path: &str) -> String {
    format!("`{path} --help` says what it takes")
}

/// The command that the arguments begin with, as in `iogate policy check`.
fn path(arguments: &[OsString]) -> String {
    let (mut path, mut command) = (String::from("iogate"), &Cli::command());
    for argument in arguments.iter().skip(1) {
        let Some(below) = argument.to_str().and_then(|name| command.find_subcommand(name)) else { break };
        path.push(' ');
        path.push_str(below.get_name());
        command = below;
    }
    path
}

/// What clap says in several paragraphs, in a line and a hint.
fn refusal(said: &str, path: &str) -> Failure {
    let mut paragraphs = said.trim().split("\n\n").map(|paragraph| {
        paragraph
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
            .replace("[possible values: ", "expected one of ")
    });
    let first = paragraphs.next().unwrap_or_default();
    let mut error = plain(first.strip_prefix("error: ").unwrap_or(&first).trim_end_matches(']'));
    let mut hint = says_what_it_takes(path);
    for paragraph in paragraphs {
        if let Some(usage) = paragraph.strip_prefix("Usage: ") {
            hint = format!("usage: {usage}; `{path} --help` says more");
        } else if let Some(tip) = paragraph.strip_prefix("tip: ").filter(|tip| tip.contains("exist")) {
            let _ = write!(error, "; {tip}");
        }
    }
    Failure::usage(anyhow::Error::msg(error)).hint(hint)
}

fn plain(error: &str) -> String {
    let mut error = error.replacen("' expected one of ", "': expected one of ", 1);
    for (theirs, ours) in PLAIN {
        error = error.replace(theirs, ours);
    }
    // A number and its range.
    match error
        .rsplit_once(" is not in ")
        .and_then(|(before, range)| Some((before, range.split_once("..=")?)))
    {
        Some((before, (least, most))) => {
            let before = before.rsplit_once(": ").map_or(before, |(before, _)| before);
            format!("{before}: expected {least} to {most}")
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut known: Vec<&str> = shown.map(Command::get_name).chain(["help"]).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_overview_keeps_to_its_width() {
        for width in [60, 80, 100] {
            let text = overview(&Cli::command(), width);
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= width, "{widest}");
            assert!(text.contains("\n  mount        Mount a directory"), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_a_line_and_a_hint() {
        for (said, line) in [
            (
                "error: invalid value '0' for '--depth <N>': 0 is not in 1..=65536\n\nFor more information, try '--help'.\n",
                "invalid value '0' for '--depth <N>': expected 1 to 65536",
            ),
            (
                "error: invalid value 'all' for '--cache <CACHE>'\n  [possible values: direct, page]\n\nFor more information, try '--help'.\n",
                "invalid value 'all' for '--cache <CACHE>': expected one of direct, page",
            ),
            (
                "error: unrecognized subcommand 'mouny'\n\n  tip: a similar subcommand exists: 'mount'\n\nUsage: iogate <COMMAND>\n",
                "unrecognized subcommand 'mouny'; a similar subcommand exists: 'mount'",
            ),
        ] {
            assert_eq!(refusal(said, "iogate mount").in_full(), line);
        }
    }
}
