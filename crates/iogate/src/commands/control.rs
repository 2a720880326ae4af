//! `iogate umount`, `iogate status`, `iogate set`: what is asked of a mount that is up.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_fs::ControlError;
use iogate_report::{Summary, text};

use crate::cli::{SetArgs, StatusArgs, UmountArgs};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    iogate_fs::unmount(&args.mountpoint, args.lazy).map_err(Failure::failed)
}

pub(crate) fn set(args: &SetArgs) -> Result<(), Failure> {
    iogate_fs::set(&args.mountpoint, &args.settings.join(",")).map_err(|error| match error {
        ControlError::Refused { .. } => Failure::usage(error)
            .hint("`iogate schedulers` lists schedulers and parameters; nothing was changed"),
        _ => Failure::failed(error),
    })
}

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let Some(seconds) = args.watch else { return print(&shown(&args.mountpoint, args.json)?) };
    let pause = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|pause| *pause >= Duration::from_millis(50))
        .ok_or_else(|| Failure::usage(anyhow!("--watch {seconds}: expected at least 0.05 seconds")))?;
    let clear = std::io::stdout().is_terminal() && !args.json;
    let mut first = true;
    loop {
        let shown = shown(&args.mountpoint, args.json)?;
        if clear {
            // Home, the text with each line's rest erased, then the rest of the screen: no flicker.
            print(&format!("\x1b[H{}\x1b[J", shown.replace('\n', "\x1b[K\n")))?;
        } else {
            print(&format!("{}{shown}", if first || args.json { "" } else { "\n" }))?;
        }
        first = false;
        std::thread::sleep(pause);
    }
}

fn shown(mountpoint: &Path, json: bool) -> Result<String, Failure> {
    let bytes = iogate_fs::status(mountpoint).map_err(Failure::failed)?;
    if json {
        return Ok(format!("{}\n", String::from_utf8_lossy(&bytes)));
    }
    let summary: Summary = serde_json::from_slice(&bytes).with_context(|| {
        format!("the mount at {} answers in another version's words", mountpoint.display())
    })?;
    Ok(text::status(&summary))
}
