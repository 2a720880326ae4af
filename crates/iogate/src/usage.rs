//! The command line: how it is read, what is said where it does not parse, and the overview of all commands.
//!
//! Whoever mistypes a flag gets what every other mistake gets: one line that says what was expected and what came, and a hint.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, Parser};
use iogate_core::SchedulerKind;
use iogate_core::device::Preset;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::is_taken;

/// The commands by what people do with them, each in one group.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Put files behind a gate", &["mount", "umount", "serve", "nfs", "cluster"]),
    ("See and change what a gate does", &["status", "top", "why", "set", "policy", "record"]),
    ("Let jobs take turns", &["run", "turn", "coord", "probe"]),
    ("Choose what suits your storage", &["profile", "advise", "schedulers", "devices", "layout"]),
    ("Experiment", &["demo", "sim", "bench", "replay", "scenario", "reproduce", "merge", "train"]),
    ("Set up your shell", &["completions", "man", "help"]),
];

/// Columns of help where there are more, or there is no terminal.
const WIDTH_MAX: usize = 100;

/// What the libraries say of a value, and what a user understands.
const PLAIN: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number"),
    ("invalid float literal", "expected a number"),
    ("invalid socket address syntax", "expected ADDRESS:PORT, as in 127.0.0.1:2049"),
    ("number would be zero for non-zero type", "expected at least 1"),
    ("number too large to fit in target type", "expected a smaller number"),
];

/// The command that was asked for; none where that was help or a version, which has been printed.
pub(crate) fn parse() -> Result<Option<Cli>, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let said = match Cli::try_parse_from(&arguments) {
        Ok(cli) => return Ok(Some(cli)),
        Err(said) => said,
    };
    let said = match said.kind() {
        // Asked for again with the overview, which takes time to make.
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            with_overview().try_get_matches_from(&arguments).err().unwrap_or(said)
        }
        _ => said,
    };
    match said.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => is_taken(said.print())?,
        // A command without the one below it: help on standard error, and that exit status.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => said.exit(),
        _ => return Err(refusal(&said.render().to_string(), &path(&arguments))),
    };
    Ok(None)
}

/// All commands as help, man pages and completions show them: each default in a paragraph of its own, whoever knows it, this program or the
/// parser.
pub(crate) fn command() -> Command {
    let names: Vec<String> =
        Cli::command().get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let tidied = |command| {
        with_long_help(command, &|argument| {
            let help = argument.get_long_help().or(argument.get_help())?;
            default_apart(&help.to_string())
        })
    };
    names.iter().fold(Cli::command(), |command, name| command.mut_subcommand(name, tidied))
}

/// A command, and those below, with other long help of arguments that it is changed for.
fn with_long_help(command: Command, changed: &dyn Fn(&Arg) -> Option<String>) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let below = |command| with_long_help(command, changed);
    let command = names.iter().fold(command, |command, name| command.mut_subcommand(name, below));
    command.mut_args(|argument| match changed(&argument) {
        Some(help) => argument.long_help(help),
        None => argument,
    })
}

/// Puts `[default: ...]` at the end of the first line of a text into a paragraph at its end.
fn default_apart(help: &str) -> Option<String> {
    let (first, rest) = help.split_once('\n').unwrap_or((help, ""));
    let (what, default) = first.strip_suffix(']')?.split_once(" [default: ")?;
    let rest = rest.trim();
    let gap = if rest.is_empty() { "" } else { "\n\n" };
    Some(format!("{what}{gap}{rest}\n\n[default: {default}]"))
}

/// The same for man pages, where lines of a paragraph run together: each item of a list is one.
pub(crate) fn command_for_man() -> Command {
    with_long_help(command(), &|argument| {
        let help = argument.get_long_help()?.to_string();
        Some(help.replace("\n- ", "\n\n- ").replace("\n\n\n", "\n\n"))
    })
}

/// The same for completions, which offer all that they are told of: without what is hidden, and with the names of schedulers and devices.
pub(crate) fn command_for_completions() -> Command {
    shown(&command())
}

fn shown(command: &Command) -> Command {
    // The parser takes a name that is made while it runs for no other life than the program's, which ends with the script.
    let name: &'static str = command.get_name().to_owned().leak();
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(shown);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let arguments = arguments.map(|argument| match argument.get_id().as_str() {
        "scheduler" => argument.value_parser(named(schedulers())),
        "device" => argument.value_parser(named(devices())),
        _ => argument,
    });
    let shown = Command::new(name).version(env!("CARGO_PKG_VERSION")).subcommands(below).args(arguments);
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}

/// Names with what each is.
type Named = (&'static str, &'static str);

fn schedulers() -> impl Iterator<Item = Named> {
    let chosen = ("auto", "chosen, with its parameters");
    SchedulerKind::ALL.into_iter().map(|kind| (kind.name(), kind.summary())).chain([chosen])
}

fn devices() -> impl Iterator<Item = Named> {
    Preset::all().iter().map(|preset| (preset.name, preset.summary))
}

fn named(names: impl Iterator<Item = Named>) -> PossibleValuesParser {
    names.map(|(name, what)| PossibleValue::new(name).help(what)).collect::<Vec<_>>().into()
}

/// Columns that long help of an argument is indented by.
const INDENT: usize = 10;

/// Items of a list in lines of a width, with what does not fit below the item's own text.
fn hanging(help: &str, width: usize) -> String {
    let lines = help.lines().map(|line| match line.starts_with("- ") {
        true => wrapped(line, 0, 2, width),
        false => line.into(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A text in lines of a width: `begun` is the column where the first one begins, and `column` where others do.
fn wrapped(text: &str, begun: usize, column: usize, width: usize) -> String {
    let (mut wrapped, mut length) = (String::new(), begun);
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 && length + 1 + word.chars().count() > width {
            let _ = write!(wrapped, "\n{:column$}", "");
            length = column;
        } else if index > 0 {
            wrapped.push(' ');
            length += 1;
        }
        wrapped.push_str(word);
        length += word.chars().count();
    }
    wrapped
}

fn with_overview() -> Command {
    let width = width();
    let command = with_long_help(command(), &|argument| {
        Some(hanging(&argument.get_long_help()?.to_string(), width - INDENT))
    });
    let command = command.term_width(width);
    let header = *command.get_styles().get_header();
    let handbook = handbook().map_or(String::new(), |place| format!("\n\nThe handbook: {}", place.display()));
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}{{after-help}}\n\n{header}Options:{header:#}\n{{options}}{handbook}"
    );
    let overview = overview(&command, width);
    command.help_template(template).after_help(overview)
}

/// The first page of the handbook, where the program is installed with it.
fn handbook() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let page = program.parent()?.parent()?.join("share/doc/iogate/docs/README.md");
    page.is_file().then_some(page)
}

/// All commands, group by group, with what each is for.
fn overview(command: &Command, width: usize) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let column = names.map(|name| name.len()).max().unwrap_or_default() + 4;
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print this overview, or the help of a command".into());
            let gap = column - 2 - name.len();
            let about = wrapped(&about, column, column, width);
            let _ = writeln!(text, "  {literal}{name}{literal:#}{:gap$}{about}", "");
        }
    }
    text.trim().into()
}

fn width() -> usize {
    let of_terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = of_terminal.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    let wished = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns.or_else(wished).unwrap_or(WIDTH_MAX).clamp(40, WIDTH_MAX)
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
    let in_a_line = |paragraph: &str| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut paragraphs = said.trim().split("\n\n").map(|paragraph| {
        // Of a usage each line is a way to call it.
        match paragraph.strip_prefix("Usage: ") {
            Some(ways) => format!("Usage: {}", ways.lines().map(str::trim).collect::<Vec<_>>().join(", or ")),
            None => in_a_line(paragraph).replace("[possible values: ", "expected one of "),
        }
    });
    let first = paragraphs.next().unwrap_or_default();
    let mut error = plain(first.strip_prefix("error: ").unwrap_or(&first).trim_end_matches(']'));
    if path == "iogate mount" {
        // Of two paths the first one is what flags may contradict; the parser counts the second one.
        error = error.replace("'[MOUNTPOINT]'", "'<SOURCE>'");
    }
    if error.ends_with("not provided: <COORD>...") {
        // What a user has set in another shell, and not in this one.
        return Failure::usage(anyhow::anyhow!("{error}, and IOGATE_COORD is not set here")).hint(format!(
            "`{path} ADDRESS`, or `export IOGATE_COORD=ADDRESS`, as in unix:/run/coord or io1:7100"
        ));
    }
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
            let plain = Cli::command().styles(clap::builder::Styles::plain());
            let text = overview(&plain, width);
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= width, "{widest}");
            assert!(text.contains("\n  mount        Mount a directory"), "{text}");
        }
    }

    #[test]
    fn completions_offer_what_is_shown_and_names_that_are_known() {
        let command = command_for_completions();
        assert!(
            command.find_subcommand("mount").is_some() && command.find_subcommand("demo-reader").is_none()
        );
        let mount = command.find_subcommand("mount").unwrap();
        let argument = |name| mount.get_arguments().find(|argument| argument.get_id() == name);
        assert!(argument("announce").is_none() && argument("remote").is_some());
        let offered = |name| argument(name).unwrap().get_possible_values();
        assert!(offered("scheduler").iter().any(|value| value.get_name() == "twins"));
        assert!(offered("device").iter().any(|value| value.get_name() == "hdd"));
    }

    #[test]
    fn items_of_a_list_hang() {
        let help = "Which\n\n- a: one of\n- b: two";
        assert_eq!(hanging(help, 9), "Which\n\n- a: one\n  of\n- b: two");
    }

    #[test]
    fn defaults_have_a_line_of_their_own() {
        assert_eq!(default_apart("Which [default: all]").unwrap(), "Which\n\n[default: all]");
        assert_eq!(default_apart("Which [default: a]\n\nMore.").unwrap(), "Which\n\nMore.\n\n[default: a]");
        assert_eq!(default_apart("Which"), None);
        fn all_of(command: &Command) {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_long_help().map(ToString::to_string).unwrap_or_default();
                let first = help.lines().next().unwrap_or_default();
                assert!(
                    !first.contains("[default: "),
                    "{} {}: {first}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(all_of);
        }
        all_of(&command());
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
