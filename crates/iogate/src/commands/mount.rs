//! `iogate mount`: a directory, or the files of servers, behind a gate, until it is unmounted.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, anyhow};
use iogate_core::auto::pattern::patterns;
use iogate_core::device::{self, Placement};
use iogate_core::recording::RecordingError;
use iogate_core::stats::summary::{Names, Summary};
use iogate_core::{AppId, FileId, SchedulerConfig, SchedulerKind};
use iogate_engine::store::{Backend, DeviceStats, DirectoryOptions, DirectoryStore, ModelledStore};
use iogate_engine::{Engine, Store};
use iogate_fuse::{
    AppFile, AppNames, CacheMode, Control, FileNames, LockScope, MountError, MountOptions, Mounted, Transport,
};
use iogate_net::transport::auth;
use iogate_net::{Endpoint, ThisSystem};
use iogate_report::metrics::Exposed;
use iogate_report::units;
use iogate_vfs::policy_file::Shares;
use iogate_vfs::{Tree, policy_file};
use signal_hook::iterator::Signals;

use crate::attempt::Attempt;
use crate::cli::{self, Cache, MountArgs, StoreKind};
use crate::commands::layout::MountLayout;
use crate::commands::remote;
use crate::commands::serve::log_to_stderr;
use crate::commands::{notify, policy, signals};
use crate::devices;
use crate::failure::Failure;
use crate::fitted;
use crate::kept::Keeper;
use crate::metrics;
use crate::output::{check_is_file, print, quoted, say};
use crate::storage::{self, Profiles};
use crate::watched::WatchedStore;

/// What the serving process writes to its parent when the mount is ready.
const READY: &[u8] = b"ready\n";
/// Applications, files and targets in a status each.
const GROUPS_MAX: usize = 32;
/// Bytes of a status: as much as an extended attribute holds.
const STATUS_BYTES_MAX: usize = 1 << 16;

pub(crate) fn run(args: &MountArgs) -> Result<(), Failure> {
    // Checked here too, so that what is wrong is said by the process that was asked.
    let asked = Asked::of(args)?;
    if args.foreground {
        return serve(args, asked);
    }
    in_background()?;
    if io::stdout().is_terminal() {
        print(&mounted(args, &asked))?;
    }
    Ok(())
}

/// For who has typed it: what is where now, what decides, and how to look on and to end it.
fn mounted(args: &MountArgs, asked: &Asked<'_>) -> String {
    let what = match &asked.shown {
        Shown::Directory(source) => quoted(source.display()),
        Shown::Servers(endpoints) => remote::name(endpoints),
    };
    let status = iogate_fuse::status(args.mountpoint()).ok();
    let status = status.and_then(|json| serde_json::from_slice::<Summary>(&json).ok());
    let scheduler = status.map(|status| match &asked.pinned {
        Some(_) => format!(", scheduler {}", status.scheduler),
        None => format!(", scheduler {} (auto)", status.scheduler),
    });
    let (point, scheduler) = (quoted(args.mountpoint().display()), scheduler.unwrap_or_default());
    format!(
        "{what} is mounted at {point}{scheduler}: see `iogate status {point}`, end it by `iogate umount {point}`\n"
    )
}

/// What is to be mounted and how, as far as that can be said before anything is begun.
struct Asked<'a> {
    shown: Shown,
    /// The scheduler that nobody chooses.
    fixed: SchedulerKind,
    pinned: Option<SchedulerConfig>,
    /// What a modelled device is called, and one of that name.
    model: &'a str,
    device: Box<dyn device::Device>,
    shares: Option<Shares>,
}

impl Asked<'_> {
    fn of(args: &MountArgs) -> Result<Asked<'_>, Failure> {
        let fixed = match args.store {
            StoreKind::Directory => storage::fixed_scheduler(args.source()),
            StoreKind::Modelled => SchedulerKind::Aioli,
        };
        args.log.as_deref().map(check_is_file).transpose()?;
        let pinned = args.gate.scheduler.pinned()?;
        let model = args.device.as_deref().unwrap_or("hdd");
        let device = devices::device(model)?;
        if args.device.is_some() && matches!(args.store, StoreKind::Directory) {
            let error = anyhow!("--device is for a modelled store, and this one is as fast as the source is");
            return Err(Failure::usage(error).hint("add --store modelled, or leave --device out"));
        }
        let shown = Shown::of(args)?;
        let other = match (args.store, &shown) {
            (StoreKind::Modelled, _) => Some("a modelled store"),
            (StoreKind::Directory, Shown::Servers(_)) => Some("--remote"),
            (StoreKind::Directory, Shown::Directory(_)) => None,
        };
        if let (Some(_), Some(other)) = (&args.gate.known.profile, other) {
            let error = anyhow!("--profile: expected with a directory, found with {other}");
            let hint = "leave it out; --device profile:FILE lets a modelled store charge what a profile says";
            return Err(Failure::usage(error).hint(hint));
        }
        Ok(Asked { shown, fixed, pinned, model, device, shares: policy::of_flags(&args.gate.shares)? })
    }
}

/// Serves it in this process.
fn serve(args: &MountArgs, asked: Asked<'_>) -> Result<(), Failure> {
    if args.announce {
        rustix::process::setsid().context("a session of its own for the mount's process")?;
    }
    let log = args.log.as_deref().map(open_log).transpose()?;
    log_to_stderr();

    if let Shown::Directory(_) = asked.shown {
        // Before the store and the engine start threads.
        iogate_engine::privileges::keep_mode_bits();
    }
    let Behind { front, store, names, modelled, layout, locks, about } = match &asked.shown {
        Shown::Directory(source) => directory(args, source, asked.device)?,
        Shown::Servers(endpoints) => servers(args, endpoints)?,
    };
    let (known, keeping) = match args.store {
        StoreKind::Directory => storage::known_by(&args.gate.known, args.source(), args.direct)?,
        StoreKind::Modelled => (
            storage::modelled(asked.model, ModelledStore::EXTENT_BYTES).map_err(devices::not_a_device)?,
            None,
        ),
    };
    let engine =
        storage::engine(asked.pinned, asked.fixed, known, &args.gate.room, layout.gate, store.clone())?;
    engine.keep_accounts(args.seen.accounts);
    policy::begin(asked.shares.as_ref(), &engine)?;
    let http = args.seen.http.as_ref().map(metrics::Listener::bind).transpose()?;
    let point = std::fs::canonicalize(args.mountpoint()).unwrap_or_else(|_| args.mountpoint().to_owned());

    engine.watch_arrivals();
    let control = Arc::new(MountControl {
        engine: engine.clone(),
        point: point.display().to_string(),
        names,
        files: OnceLock::new(),
        modelled,
        tree: front.tree(),
        about: [about, also_about(args, http.as_ref())].concat(),
        apps: OnceLock::new(),
        transport: OnceLock::new(),
    });
    let told = Arc::downgrade(&control);
    let told = move || told.upgrade().map(|control| Exposed { gates: vec![control.summary()], server: None });
    let _serving = http
        .map(|listener| listener.serve(move || told().unwrap_or_default()))
        .transpose()
        .context("no thread for --http")?;
    // Before the mount, so that no signal finds it without a handler.
    let signals = signals::of_the_end()?;
    let options = MountOptions { layouts: layout.layouts, locks, ..options(args)? };
    let point = args.mountpoint();
    let mounted = match front {
        Front::Servers { tree, name } => {
            iogate_fuse::mount_tree(tree, &name, point, engine.clone(), &options, control.clone())
        }
        Front::Directory(source) => {
            iogate_fuse::mount(source, point, engine.clone(), store, &options, control.clone())
        }
    };
    let mounted = mounted.map_err(Failure::failed)?;
    let _ = control.apps.set(mounted.app_names());
    let _ = control.files.set(mounted.file_names());
    let _ = control.transport.set(match mounted.transport() {
        Transport::Uring => "FUSE over io_uring",
        Transport::Device | Transport::Auto => "/dev/fuse",
    });
    if args.announce {
        announce(log.as_ref())?;
    } else {
        // In the background, the process that was started tells by its end.
        notify::ready(&format!("mounted at {}", point.display()));
    }
    let keeper = keeping.and_then(|keeping| keeping.start(&engine));
    until_unmounted(&mounted, signals, args.announce);
    keeper.into_iter().for_each(Keeper::end);
    engine.shutdown();
    Ok(())
}

/// What the status of a mount says of it whatever is mounted.
fn also_about(args: &MountArgs, http: Option<&metrics::Listener>) -> Vec<(String, String)> {
    let cache = match args.cache {
        Cache::Direct => "direct: every read and write is a request",
        Cache::Page => "the kernel's page cache",
    };
    let mut about = vec![("cache".into(), cache.into())];
    if let Profiles::Measured(file) = Profiles::of(args.gate.known.profile.as_deref()) {
        about.push(("profile".into(), file.display().to_string()));
    }
    if let Some(listener) = http {
        let [page, metrics] = listener.places();
        about.extend([("page".into(), page), ("metrics".into(), metrics)]);
        listener.warning().iter().for_each(say);
    }
    about
}

fn options(args: &MountArgs) -> Result<MountOptions, Failure> {
    Ok(MountOptions {
        cache: match args.cache {
            Cache::Direct => CacheMode::Direct,
            Cache::Page => CacheMode::Page,
        },
        transport: if args.no_uring { Transport::Device } else { Transport::Auto },
        threads_max: args.threads.into(),
        read_only: args.read_only,
        programs: AppFile::from_environment().context("the file of IOGATE_APP_FILE")?,
        ..MountOptions::default()
    })
}

fn locks(args: &MountArgs) -> LockScope {
    match args.locks {
        cli::Locks::Auto => LockScope::Auto,
        cli::Locks::Source => LockScope::Source,
        cli::Locks::Mount => LockScope::Mount,
    }
}

/// Waits until somebody unmounts it, or a signal has it unmounted.
fn until_unmounted(mounted: &Mounted, mut signals: Signals, is_announced: bool) {
    let stopping = || {
        if !is_announced {
            notify::stopping();
        }
    };
    let handle = signals.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            signals.forever().for_each(|_| {
                stopping();
                take_off(mounted);
            });
        });
        mounted.wait();
        stopping();
        handle.close();
    });
}

/// What is to be mounted.
enum Shown {
    Directory(PathBuf),
    Servers(Vec<Endpoint>),
}

impl Shown {
    fn of(args: &MountArgs) -> Result<Shown, Failure> {
        if let Some(source) = args.source() {
            return Ok(Shown::Directory(source.to_owned()));
        }
        let endpoints = remote::endpoints(&args.remote)?;
        if endpoints.is_empty() {
            let error =
                anyhow!("expected what to mount and where, found one path: {}", args.mountpoint().display());
            return Err(Failure::usage(error)
                .hint("`iogate mount SOURCE MOUNTPOINT`, or `iogate mount --remote HOST:PORT MOUNTPOINT`"));
        }
        Ok(Shown::Servers(endpoints))
    }
}

/// Names and attributes, which do not pass the gate.
enum Front<'a> {
    Directory(&'a Path),
    Servers { tree: Arc<dyn Tree>, name: String },
}

impl Front<'_> {
    fn tree(&self) -> Option<Arc<dyn Tree>> {
        match self {
            Front::Directory(_) => None,
            Front::Servers { tree, .. } => Some(Arc::clone(tree)),
        }
    }
}

/// What is mounted.
struct Behind<'a> {
    front: Front<'a>,
    /// Behind the gate.
    store: Arc<dyn Store>,
    /// Remembers what files are called, unless the mount itself does.
    names: Option<Arc<WatchedStore>>,
    modelled: Option<Arc<ModelledStore>>,
    layout: MountLayout,
    /// Among whom locks hold. Of a directory that is settled: the mount does not look at the file system once more.
    locks: LockScope,
    /// What a mount's status says of it.
    about: Vec<(String, String)>,
}

fn directory<'a>(
    args: &MountArgs,
    source: &'a Path,
    device: Box<dyn device::Device>,
) -> Result<Behind<'a>, Failure> {
    let front = Front::Directory(source);
    let how = DirectoryOptions {
        backend: match args.backend {
            cli::Backend::Auto => Backend::Auto,
            cli::Backend::Calls => Backend::Calls,
            cli::Backend::Ring => Backend::Ring,
        },
        direct: args.direct,
    };
    let directory = DirectoryStore::with(source, how).map_err(|error| {
        if matches!(how.backend, Backend::Ring) && error.kind() == std::io::ErrorKind::Unsupported {
            let failure = Failure::failed(anyhow!(error).context("--backend ring cannot be used"));
            return failure.hint("leave --backend out: what io_uring does not carry out, calls do");
        }
        let source = format_args!("the source {}", source.display());
        Failure::failed(anyhow!(error).context(Attempt::enter(source)))
    })?;
    let (inner, modelled): (Arc<dyn Store>, _) = match args.store {
        StoreKind::Directory => (Arc::new(directory), None),
        StoreKind::Modelled => {
            let placement = Placement::new(ModelledStore::EXTENT_BYTES);
            let store = ModelledStore::new(Arc::new(directory), device, placement);
            let store = Arc::new(store.context("the modelled device")?);
            (store.clone(), Some(store))
        }
    };
    let store = Arc::new(WatchedStore::new(inner, source));
    let layout = args.layout.of_mount(source);
    let kind = match args.store {
        StoreKind::Directory => "directory",
        StoreKind::Modelled => "directory in the time of a modelled device",
    };
    let kind = if args.direct { format!("{kind}, direct I/O") } else { kind.into() };
    let source = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let opened = std::fs::File::open(&source).with_context(|| Attempt::enter(source.display()))?;
    let locks = locks(args).at(opened);
    let hold = match locks {
        LockScope::Mount => "hold in this mount",
        _ => "hold for all who use the source's files",
    };
    let about = [
        ("source", source.display().to_string()),
        ("store", kind),
        ("layout", layout.about.clone()),
        ("locks", hold.into()),
    ];
    let about = about.map(|(name, value)| (name.into(), value)).into();
    Ok(Behind { front, store: store.clone(), names: Some(store), modelled, layout, locks, about })
}

fn servers(args: &MountArgs, endpoints: &[Endpoint]) -> Result<Behind<'static>, Failure> {
    let remote = remote::connect(&args.remote, endpoints)?;
    let layout = MountLayout::fixed(remote.layout());
    let name = remote::name(endpoints);
    let about = [("servers", name.clone()), ("layout", layout.about.clone())]
        .map(|(name, value)| (name.into(), value))
        .into();
    let store = remote.store();
    let front = Front::Servers { tree: remote, name };
    Ok(Behind { front, store, names: None, modelled: None, layout, locks: LockScope::Auto, about })
}

/// Unmounts on a signal. Programs that still have files open keep them: what they hold works until they close it. Copies of
/// the mount in other mount namespaces do not keep it.
fn take_off(mounted: &Mounted) {
    let result = match mounted.unmount() {
        Err(MountError::InUse { .. }) => mounted.detach(),
        other => other,
    };
    match result {
        Ok(()) | Err(MountError::NotMounted { .. }) => mounted.leave(),
        Err(error) => say(format_args!("error: {error}")),
    }
}

/// Starts the process that serves the mount, and returns when it is ready or has failed.
fn in_background() -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut child = Command::new(program)
        .args(served_by(std::env::args_os()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the mount's process cannot be started")?;
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_end(&mut said).context("the mount's process does not answer")?;
    }
    if said == READY {
        return Ok(());
    }
    let status = child.wait().context("the mount's process")?;
    match status.code() {
        // It has said why.
        Some(code) if code != 0 => std::process::exit(code),
        _ => Err(Failure::failed(anyhow!("the mount's process ended before the mount was ready ({status})"))),
    }
}

/// The arguments of a mount as the process that serves it gets them: what is behind a `--` is no flag.
fn served_by(own: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = own.into_iter().skip(1).collect();
    let behind_the_command = arguments.len().min(1);
    let flags = ["--foreground", "--announce"].map(OsString::from);
    arguments.splice(behind_the_command..behind_the_command, flags);
    arguments
}

/// The file that takes a background mount's messages. Opened before the mount is up, so that a wrong path is refused.
fn open_log(path: &Path) -> Result<File, Failure> {
    let file = File::options().append(true).create(true).open(path);
    Ok(file.with_context(|| Attempt::write(format_args!("--log {}: the file", path.display())))?)
}

/// Tells the parent that the mount is ready, and lets go of its terminal: messages go to the log from here on.
fn announce(log: Option<&File>) -> Result<(), Failure> {
    let tell = || -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(READY)?;
        out.flush()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(log.unwrap_or(&null))?;
        rustix::stdio::dup2_stdout(&null)?;
        std::env::set_current_dir("/")
    };
    Ok(tell().context("the starting process cannot be told that the mount is ready")?)
}

/// Answers for the mount.
struct MountControl {
    engine: Arc<Engine>,
    /// The mount point.
    point: String,
    names: Option<Arc<WatchedStore>>,
    /// Known when the mount is up.
    files: OnceLock<Arc<FileNames>>,
    modelled: Option<Arc<ModelledStore>>,
    tree: Option<Arc<dyn Tree>>,
    /// What does not change, for its status.
    about: Vec<(String, String)>,
    /// Known when the mount is up.
    apps: OnceLock<Arc<AppNames>>,
    /// Likewise.
    transport: OnceLock<&'static str>,
}

impl Names for MountControl {
    fn app(&self, app: AppId) -> String {
        match self.apps.get().and_then(|apps| apps.get(app)) {
            // A user may call himself what fits an environment; a status has less room.
            Some(name) => fitted::name(&name),
            None if app.0 == 0 => "unknown".into(),
            None => {
                let called = self.engine.paths_called(app).or_else(|| auth::class_called(app));
                called.map_or_else(|| app.to_string(), |name| fitted::name(&name))
            }
        }
    }

    fn file(&self, file: FileId) -> String {
        let name = match &self.names {
            Some(names) => names.name(file).unwrap_or_else(|| format!("inode {file}")),
            None => match self.files.get().and_then(|files| files.get(file)) {
                Some(path) => path.to_string_lossy().into_owned(),
                None => format!("file {file}"),
            },
        };
        fitted::end_of_path(&name)
    }
}

impl MountControl {
    fn summary(&self) -> Summary {
        // Copied under the gate's lock, turned into text outside.
        let (stats, config, apps, now) = self.engine.with_gate(|gate, time| {
            let in_service = units::counted(gate.in_service().into(), "dispatch", "dispatches");
            let now = format!("{} queued, {in_service} in service", gate.queued());
            (gate.stats().clone(), gate.config().clone(), gate.apps_now(time), now)
        });
        let mut summary = Summary::new(&stats, &config.scheduler, config.depth, self, GROUPS_MAX);
        summary.set_now(apps, self);
        summary.patterns = patterns(&self.engine.seen());
        summary.choice = self.engine.choice();
        summary.counters = Some(self.engine.counters(&self.point, self));
        summary.about.clone_from(&self.about);
        summary.about.extend(policy_file::in_short(&self.engine).map(|policy| ("policy".into(), policy)));
        if let Some(transport) = self.transport.get() {
            summary.about.push(("transport".into(), (*transport).into()));
        }
        if let Some(state) = self.tree.as_ref().and_then(|tree| tree.state()) {
            summary.about.push(("connection".into(), state.text));
            summary.counters.iter_mut().for_each(|counters| counters.is_connected = Some(state.is_well));
        }
        if let Some(DeviceStats { busy, transfers, repositions, .. }) =
            self.modelled.as_ref().map(|store| store.device_stats())
        {
            let busy = units::time(busy.as_nanos() as f64);
            let transfers = units::counted(transfers, "transfer", "transfers");
            let repositions = units::counted(repositions, "reposition", "repositions");
            let device = format!("busy for {busy}, {transfers}, {repositions}");
            summary.about.push(("device".into(), device));
        }
        summary.about.push(("now".into(), now));
        summary
    }
}

impl Control for MountControl {
    fn status(&self) -> Vec<u8> {
        fitted::json(self.summary(), STATUS_BYTES_MAX)
    }

    fn accounts(&self, from: u32) -> Vec<u8> {
        serde_json::to_vec(&self.engine.accounts(from, self)).unwrap_or_default()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        policy_file::set(&self.engine, text, 0, &ThisSystem)
    }

    fn record(&self, name: u64, from: u64, room: usize) -> Result<Vec<u8>, RecordingError> {
        self.engine.record(name, from, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_the_process_that_serves_are_before_what_is_no_flag() {
        let own = ["/usr/bin/iogate", "mount", "--read-only", "source", "--", "-mnt"].map(OsString::from);
        let expected = ["mount", "--foreground", "--announce", "--read-only", "source", "--", "-mnt"];
        assert_eq!(served_by(own), expected);
    }
}
