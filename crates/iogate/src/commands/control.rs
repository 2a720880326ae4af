//! `iogate umount`, `iogate status`, `iogate set`: what is asked of a mount or a server that is up.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use iogate_core::SchedulerKind;
use iogate_core::nearest::nearest;
use iogate_fuse::{ControlError, MountError};
use iogate_report::metrics::{Form, text};
use iogate_report::status;
use iogate_vfs::policy_file::FAIR;

use crate::cli::{SetArgs, SetMountArgs, StatusArgs, UmountArgs};
use crate::commands::asker::{Asker, PATIENCE, Place, Reached, Said, unanswered};
use crate::commands::serve::ask;
use crate::commands::{child, policy};
use crate::failure::Failure;
use crate::output::{print_or_watch, quoted, say};

pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    match iogate_fuse::unmount(&args.mountpoint, args.lazy) {
        Ok(()) => Ok(()),
        Err(MountError::NotMounted { .. } | MountError::NotOurs { .. }) if args.if_mounted => Ok(()),
        Err(error @ MountError::InUse { .. }) => {
            let again =
                format!("`iogate umount --lazy {}` takes it off at once", quoted(args.mountpoint.display()));
            Err(Failure::failed(error).hint(again))
        }
        Err(error) => Err(Failure::failed(error)),
    }
}

pub(crate) fn set(args: &SetArgs) -> Result<(), Failure> {
    let settings = asked(&args.settings)?;
    let mut asker = Asker::new(Place::of(&args.place)?, args.export.as_deref())?;
    match asker.reach()? {
        Reached::Mount(mountpoint) => told_in_time(mountpoint, &settings),
        Reached::Server(_, client) => {
            client.configure(&settings).map_err(|error| refused(error.into(), &settings))
        }
    }
}

/// Tells a mount what to change, in a process of its own. The kernel lets nobody set an attribute of the root while a program makes or
/// removes something in it, and that may wait for a source that does not answer; who waits so cannot be interrupted, so that a thread
/// would keep this process.
fn told_in_time(mountpoint: &Path, settings: &str) -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut telling = Command::new(program)
        .args(["set-mount", "--"])
        .arg(mountpoint)
        .stdin(Stdio::piped())
        // Not this process's own: who reads them to their end would wait for the one that cannot end.
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("no process that tells the mount")?;
    // It is there to read this, and says itself what it lacks.
    let _ = telling.stdin.take().map(|mut input| input.write_all(settings.as_bytes()));
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        if let Some(status) = telling.try_wait().context("no process that tells the mount")? {
            if status.success() {
                return Ok(());
            }
            let mut why = String::new();
            let _ = telling.stderr.take().map(|mut said| said.read_to_string(&mut why));
            say(why.trim_end());
            std::process::exit(child::code(status));
        }
        if begun.elapsed() >= PATIENCE {
            let _ = telling.kill();
            let (mountpoint, limit) = (quoted(mountpoint.display()), PATIENCE.as_secs());
            let error = anyhow!(
                "the mount at {mountpoint} has not answered in {limit} s, held up by its source; what was to be set may still be"
            );
            let hint = format!("`iogate status {mountpoint}` says what has waited for how long");
            return Err(Failure::failed(error).hint(hint));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Between two looks at a process that tells a mount: the first pause, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Tells a mount what standard input says.
pub(crate) fn set_mount(args: &SetMountArgs) -> Result<(), Failure> {
    let settings = std::io::read_to_string(std::io::stdin()).context("standard input")?;
    iogate_fuse::set(&args.mountpoint, &settings).map_err(|error| match error {
        ControlError::Refused { .. } => Failure::usage(error).hint(what_stays(&settings)),
        _ => unanswered(error),
    })
}

/// A server did not take settings: by its own words, or as it could not be asked.
pub(crate) fn refused(error: anyhow::Error, settings: &str) -> Failure {
    let is_refusal = |error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidInput;
    if error.downcast_ref().is_some_and(is_refusal) {
        Failure::usage(error).hint(what_stays(settings))
    } else {
        Failure::failed(error)
    }
}

/// What is as it was when settings are refused.
fn what_stays(settings: &str) -> &'static str {
    match settings {
        settings if is_policy(settings) => POLICY_STAYS,
        settings if settings.starts_with(ACCOUNTS) => NOTHING_CHANGED,
        _ => SCHEDULER_STAYS,
    }
}

/// After a scheduler is refused.
const SCHEDULER_STAYS: &str = "`iogate schedulers` lists schedulers and parameters; nothing was changed";
/// After a policy is refused.
const POLICY_STAYS: &str = "`iogate policy check FILE` explains a policy; nothing was changed";

/// After what is neither is refused.
const NOTHING_CHANGED: &str = "nothing was changed";

/// Whether a setting is a policy.
fn is_policy(setting: &str) -> bool {
    setting.starts_with("policy=") || setting.starts_with("fair=")
}

/// Whether accounts are kept.
const ACCOUNTS: &str = "accounts=";

/// What is set by a name of its own, and not as a parameter of the scheduler in force.
const NAMES: [&str; 4] = ["scheduler", "policy", "fair", "accounts"];
/// What is given when a gate begins, and stays.
const FIXED: [&str; 4] = ["depth", "queue", "layout", "profile"];

/// Refuses what only who begins a gate can say, and what is no parameter of any scheduler, but near to what else there is. What a
/// scheduler has, who goes by it says.
fn check_name(setting: &str) -> Result<(), Failure> {
    let Some((name, _)) = setting.split_once('=') else { return Ok(()) };
    let name = name.trim();
    if let Some(fixed) = FIXED.iter().find(|fixed| **fixed == name) {
        let error = anyhow!(
            "{setting}: expected what can be changed while it serves: scheduler=NAME, its parameters, policy=FILE, fair={} or accounts=sampled|on|off",
            FAIR.join("|")
        );
        let begins = where_it_begins(fixed);
        return Err(Failure::usage(error)
            .hint(format!("`{fixed}` is set where it begins: {begins}; {NOTHING_CHANGED}")));
    }
    let params = SchedulerKind::ALL.iter().flat_map(|kind| kind.params()).map(|param| param.name);
    if NAMES.contains(&name) || params.clone().any(|param| param == name) {
        return Ok(());
    }
    match nearest(name, NAMES.into_iter().chain(FIXED).chain(params)) {
        Some(near) if NAMES.contains(&&*near) => {
            let error = anyhow!("{setting}: there is no setting '{name}'; did you mean '{near}'?");
            Err(Failure::usage(error).hint(NOTHING_CHANGED))
        }
        _ => Ok(()),
    }
}

/// By which flag or key it begins with a setting.
fn where_it_begins(fixed: &str) -> String {
    match fixed {
        "depth" | "queue" => {
            format!(
                "--{fixed} of `iogate mount` and `iogate nfs`, {fixed} in the `gate` of a server's export"
            )
        }
        _ => format!("--{fixed} of `iogate mount`, `{fixed}` of a server's export"),
    }
}

/// What is asked for, as the mount or the server takes it: of a policy its text, as the file may not be there.
pub(crate) fn asked(settings: &[String]) -> Result<String, Failure> {
    // One argument may have several, as mounts take them.
    settings
        .iter()
        .filter(|setting| !is_policy(setting))
        .flat_map(|setting| setting.split([',', ' ']))
        .try_for_each(check_name)?;
    if let Some(setting) = settings.iter().find(|setting| setting.starts_with(ACCOUNTS) && settings.len() > 1)
    {
        let error = anyhow!("{setting}: it is set by itself, found {} settings", settings.len());
        return Err(Failure::usage(error).hint(NOTHING_CHANGED));
    }
    let Some(setting) = settings.iter().find(|setting| is_policy(setting)) else {
        return Ok(settings.join(","));
    };
    if settings.len() > 1 {
        let error = anyhow!("{setting}: a policy is set by itself, found {} settings", settings.len());
        return Err(Failure::usage(error).hint(POLICY_STAYS));
    }
    match setting.strip_prefix("policy=").filter(|file| *file != "none") {
        Some(file) => policy::read(Path::new(file))
            .map(|(_, text)| format!("policy={text}"))
            .map_err(|failure| failure.hint(POLICY_STAYS)),
        None => Ok(setting.clone()),
    }
}

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    let asker = || Asker::new(place.clone(), None);
    let form = match args {
        StatusArgs { openmetrics: true, .. } => Some(Form::OpenMetrics),
        StatusArgs { prometheus: true, .. } => Some(Form::Prometheus),
        _ => None,
    };
    if let Some(form) = form {
        return print_or_watch(args.watch, true, || Ok(text(&asker()?.exposed()?, form)));
    }
    print_or_watch(args.watch, args.json, || shown(&mut asker()?, args))
}

fn shown(asker: &mut Asker, args: &StatusArgs) -> Result<String, Failure> {
    let StatusArgs { json, all, .. } = *args;
    if json && let Reached::Mount(mountpoint) = asker.reach()? {
        let bytes = iogate_fuse::status(mountpoint).map_err(unanswered)?;
        return Ok(format!("{}\n", String::from_utf8_lossy(&bytes)));
    }
    match asker.status()? {
        Said::Mount(summary) => Ok(status::status(&summary) + &ask::more(&summary, all)),
        Said::Server(status) if json => {
            let json = serde_json::to_string(&status).context("the status as JSON")?;
            Ok(format!("{json}\n"))
        }
        Said::Server(status) => Ok(ask::shown(&status, all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_nearly_there_is_named() {
        for (setting, expected) in [
            ("schduler=aioli", "did you mean 'scheduler'?"),
            ("polcy=none", "did you mean 'policy'?"),
            ("far=user", "did you mean 'fair'?"),
            ("acounts=on", "did you mean 'accounts'?"),
            ("depth=4", "depth=4: expected what can be changed while it serves"),
            ("queue=4", "queue=4: expected what can be changed while it serves"),
            ("window=1ms,schduler=sjf", "did you mean 'scheduler'?"),
        ] {
            let said = asked(&[setting.to_owned()]).unwrap_err().in_full();
            assert!(said.contains(expected), "{setting}: {said}");
        }
        // Whose parameters these are, the gate knows.
        for setting in ["scheduler=sjf", "quantm=4", "window=1ms", "nonsense", "zzzzzzzz=1"] {
            assert_eq!(asked(&[setting.to_owned()]).unwrap(), setting);
        }
    }
}
