//! `iogate layout`: which targets of a parallel file system hold a file; and what `--layout` of a mount means.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use iogate_core::layout::{Extent, FileLayout};
use iogate_core::{Layout, TargetId};
use iogate_engine::Layouts;
use iogate_engine::layouts::System;
use iogate_report::Table;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::cli::LayoutArgs;
use crate::failure::Failure;
use crate::output::print;
use crate::settings;

/// Targets of an extent that the table shows.
const SHOWN_MAX: usize = 16;

/// What the flag `--layout` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutChoice {
    /// Ask the source's file system. How many targets there are, if that is said.
    Auto(Option<u32>),
    /// Round robin for all files.
    Static(Layout),
}

impl FromStr for LayoutChoice {
    type Err = String;

    /// `auto`, `auto,targets=8`, or `stripe=64KiB,targets=4[,first=0]`.
    fn from_str(text: &str) -> Result<LayoutChoice, String> {
        let expected =
            || format!("'{text}': expected auto, auto,targets=8, or stripe=64KiB,targets=4[,first=0]");
        let (mut auto, mut stripe, mut targets, mut first) = (false, None, None, None);
        for (index, item) in text.split(',').enumerate() {
            let number = |value: &str, min, max| {
                value
                    .parse()
                    .ok()
                    .filter(|number| (min..=max).contains(number))
                    .ok_or_else(|| format!("'{item}': expected a number from {min} to {max}"))
            };
            match item.split_once('=') {
                None if item == "auto" && index == 0 => auto = true,
                Some(("stripe", value)) if stripe.is_none() => {
                    stripe = Some(settings::bytes(value).map_err(|error| error.to_string())?);
                }
                Some(("targets", value)) if targets.is_none() => targets = Some(number(value, 1, 4096)?),
                Some(("first", value)) if first.is_none() => first = Some(number(value, 0, 4095)?),
                _ => return Err(expected()),
            }
        }
        match (auto, stripe, targets) {
            (true, None, targets) if first.is_none() => Ok(LayoutChoice::Auto(targets)),
            (false, Some(stripe_bytes), Some(targets)) => {
                let first_target = first.unwrap_or(0);
                if first_target >= targets {
                    return Err(format!("'{text}': expected a first target below the number of targets"));
                }
                Ok(LayoutChoice::Static(Layout { first_target, stripe_bytes, targets }))
            }
            _ => Err(expected()),
        }
    }
}

/// What `--layout` means for a mount.
pub(crate) struct MountLayout {
    /// Of files that have none of their own.
    pub(crate) gate: Layout,
    /// Whom to ask for those of single files.
    pub(crate) layouts: Option<Arc<Layouts>>,
    /// In words.
    pub(crate) about: String,
}

impl MountLayout {
    /// The same for all files.
    pub(crate) fn fixed(gate: Layout) -> MountLayout {
        let about = match gate.targets {
            1 => "a single target".into(),
            targets => {
                format!("{targets} targets in stripes of {}", settings::bytes_shown(gate.stripe_bytes))
            }
        };
        MountLayout { gate, layouts: None, about }
    }
}

impl LayoutChoice {
    /// What it means for a mount of this directory. Where its file system cannot be asked, `auto` is a single target.
    pub(crate) fn of_mount(self, source: &Path) -> MountLayout {
        let hint = match self {
            LayoutChoice::Static(gate) => {
                return MountLayout::fixed(gate);
            }
            LayoutChoice::Auto(targets) => targets,
        };
        let layouts = Layouts::new();
        let ask = || -> io::Result<_> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::open(source, flags, Mode::empty())?;
            let system = System::of(directory.as_fd())?;
            // Where it cannot be told now, single files will tell.
            Ok((system, layouts.targets(directory.as_fd()).ok().flatten()))
        };
        let (is_known, targets, about) = match ask() {
            Ok((Some(system), targets)) => (true, targets, format!("each file's own, from {system}")),
            Ok((None, targets)) => (false, targets, "a single target".into()),
            Err(error) => {
                (false, None, format!("a single target (the file system cannot be asked: {error})"))
            }
        };
        let gate = Layout { targets: hint.or(targets).unwrap_or(1), ..Layout::SINGLE };
        MountLayout { gate, layouts: is_known.then(|| Arc::new(layouts)), about }
    }
}

/// Opens for asking only; does not wait for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(nonblocking).open(path)
}

/// A file's layout, as far as it is known.
struct Known {
    system: Option<System>,
    layout: Option<Arc<FileLayout>>,
    layouts: Layouts,
}

pub(crate) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let (mut out, mut values, mut failure) = (String::new(), Vec::new(), None::<Failure>);
    for path in &args.files {
        match learn(path) {
            Ok(known) if args.json => values.push(known.json(path)),
            Ok(known) => known.write(path, &mut out),
            Err(error) => {
                failure = Some(match failure {
                    Some(failure) => failure.and(error),
                    None => error,
                });
            }
        }
    }
    print(&if args.json { format!("{:#}\n", Value::from(values)) } else { out })?;
    failure.map_or(Ok(()), Err)
}

fn learn(path: &Path) -> Result<Known, Failure> {
    let context = || path.display().to_string();
    let file = open(path).with_context(|| Attempt::read(path.display())).map_err(Failure::usage)?;
    if !file.metadata().with_context(context)?.is_file() {
        let error = anyhow!("{}: expected a regular file; name one, or several", path.display());
        return Err(Failure::usage(error));
    }
    let system = System::of(file.as_fd()).with_context(context)?;
    let layouts = Layouts::new();
    let layout = layouts.of(file.as_fd()).with_context(context)?;
    Ok(Known { system, layout, layouts })
}

impl Known {
    fn name(&self, target: TargetId) -> String {
        self.system.map_or_else(|| target.to_string(), |system| self.layouts.target_name(system, target))
    }

    fn extents(&self) -> &[Extent] {
        self.layout.as_deref().map_or(&[], FileLayout::extents)
    }

    fn json(&self, path: &Path) -> Value {
        let extents = self.extents().iter().map(|extent| {
            let targets = extent.targets.iter().map(|&id| json!({ "target": id.0, "name": self.name(id) }));
            json!({
                "start": extent.start,
                "end": end(extent),
                "stripe_bytes": stripe(extent),
                "targets": targets.collect::<Vec<_>>(),
            })
        });
        json!({
            "file": path.to_string_lossy(),
            "system": self.system.map(|system| system.to_string()),
            "extents": extents.collect::<Vec<_>>(),
        })
    }

    fn write(&self, path: &Path, out: &mut String) {
        let gap = if out.is_empty() { "" } else { "\n" };
        let system = match self.system {
            None => "on no parallel file system that is known".into(),
            Some(system) if self.extents().is_empty() => format!("on {system}, not placed yet"),
            Some(system) => format!("on {system}"),
        };
        writeln!(out, "{gap}{}: {system}", path.display()).expect("text grows");
        let (mut table, mut names) =
            (Table::new(["from", "to", "stripe", "targets"]), Table::new(["target", "name"]));
        for extent in self.extents() {
            let shown = extent.targets.iter().take(SHOWN_MAX).map(TargetId::to_string);
            let mut targets = shown.collect::<Vec<_>>().join(" ");
            if extent.targets.len() > SHOWN_MAX {
                write!(targets, " ... ({} in all)", extent.targets.len()).expect("text grows");
            }
            let [to, stripe] = [end(extent), stripe(extent)]
                .map(|bytes| bytes.map_or_else(|| "-".into(), settings::bytes_shown));
            table.row([settings::bytes_shown(extent.start), to, stripe, targets]);
        }
        let used: BTreeSet<TargetId> =
            self.extents().iter().flat_map(|extent| extent.targets.iter().copied()).collect();
        used.iter().for_each(|&target| names.row([target.to_string(), self.name(target)]));
        if !table.is_empty() {
            write!(out, "{table}\n{names}").expect("text grows");
        }
    }
}

/// `None` where it goes on for ever.
fn end(extent: &Extent) -> Option<u64> {
    Some(extent.end).filter(|&end| end < u64::MAX)
}

/// `None` where there are no stripes.
fn stripe(extent: &Extent) -> Option<u64> {
    Some(extent.stripe_bytes).filter(|&bytes| bytes < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_says_auto_or_round_robin() {
        let parse = str::parse::<LayoutChoice>;
        assert_eq!(parse("auto"), Ok(LayoutChoice::Auto(None)));
        assert_eq!(parse("auto,targets=8"), Ok(LayoutChoice::Auto(Some(8))));
        let four = Layout { first_target: 0, stripe_bytes: 65_536, targets: 4 };
        assert_eq!(parse("stripe=64KiB,targets=4"), Ok(LayoutChoice::Static(four)));
        let second = Layout { first_target: 1, ..four };
        assert_eq!(parse("targets=4,first=1,stripe=65536"), Ok(LayoutChoice::Static(second)));
        for (text, said) in [
            ("", "expected auto"),
            ("auto,stripe=64KiB", "expected auto"),
            ("auto,auto", "expected auto"),
            ("targets=4", "expected auto"),
            ("stripe=64KiB,targets=4,targets=5", "expected auto"),
            ("stripe=64KiB,targets=4,first=4", "first target below"),
            ("stripe=0,targets=4", "out of range"),
            ("stripe=64KiB,targets=4097", "from 1 to 4096"),
            ("stripes=64KiB,targets=4", "expected auto"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
