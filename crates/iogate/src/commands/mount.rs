//! `iogate mount`: a directory behind a gate, until it is unmounted.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, anyhow};
use iogate_core::device::{self, Placement};
use iogate_core::{AppId, FileId, GateConfig};
use iogate_engine::store::{Backend, DeviceStats, DirectoryOptions, DirectoryStore, ModelledStore};
use iogate_engine::{Engine, EngineConfig, Store};
use iogate_fs::{AppFile, AppNames, CacheMode, Control, MountError, MountOptions, Mounted, Transport};
use iogate_report::summary::Names;
use iogate_report::{Summary, units};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{self, Cache, MountArgs, StoreKind, foreground_again};
use crate::failure::Failure;
use crate::settings;
use crate::watched::WatchedStore;

/// What the serving process writes to its parent when the mount is ready.
const READY: &[u8] = b"ready\n";
/// Applications, files and targets in a status each, so that it fits the 64 KiB of an extended attribute.
const GROUPS_MAX: usize = 32;

pub(crate) fn run(args: &MountArgs) -> Result<(), Failure> {
    // Checked here too, so that what is wrong is said by the process that was asked.
    let scheduler = args.scheduler.config()?;
    let device = device::parse(args.device.as_deref().unwrap_or("hdd"))
        .map_err(|error| Failure::usage(error).hint("`iogate devices` lists the models"))?;
    if args.device.is_some() && matches!(args.store, StoreKind::Directory) {
        let error = anyhow!("--device is for a modelled store, and this one is as fast as the source is");
        return Err(Failure::usage(error).hint("add --store modelled, or leave --device out"));
    }
    if !args.foreground {
        return in_background();
    }
    if args.announce {
        rustix::process::setsid().context("a session of its own for the mount's process")?;
    }
    let log = args.log.as_deref().map(open_log).transpose()?;
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();

    let how = DirectoryOptions {
        backend: match args.backend {
            cli::Backend::Auto => Backend::Auto,
            cli::Backend::Calls => Backend::Calls,
            cli::Backend::Ring => Backend::Ring,
        },
        direct: args.direct,
    };
    let directory = DirectoryStore::with(&args.source, how).with_context(|| {
        format!("the source {} must be a directory that can be read", args.source.display())
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
    let store = Arc::new(WatchedStore::new(inner, &args.source));
    let layout = args.layout.of_mount(&args.source);
    let gate = GateConfig { scheduler, queue_max: args.queue, depth: args.depth, layout: layout.gate };
    let engine = Engine::new(&EngineConfig { gate }, store.clone()).context("the gate cannot be started")?;

    let control = Arc::new(MountControl {
        engine: engine.clone(),
        store: store.clone(),
        modelled,
        about: about(args, layout.about),
        apps: OnceLock::new(),
        transport: OnceLock::new(),
    });
    let options = MountOptions {
        cache: match args.cache {
            Cache::Direct => CacheMode::Direct,
            Cache::Page => CacheMode::Page,
        },
        transport: if args.no_uring { Transport::Device } else { Transport::Auto },
        threads_max: args.threads.into(),
        read_only: args.read_only,
        programs: AppFile::from_environment().context("the file of IOGATE_APP_FILE")?,
        layouts: layout.layouts,
        ..MountOptions::default()
    };
    // Before the mount, so that no signal finds it without a handler.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals cannot be handled")?;
    let handle = signals.handle();
    let mounted =
        iogate_fs::mount(&args.source, &args.mountpoint, engine.clone(), store, &options, control.clone())
            .map_err(Failure::failed)?;
    let _ = control.apps.set(mounted.app_names());
    let _ = control.transport.set(match mounted.transport() {
        Transport::Uring => "FUSE over io_uring",
        Transport::Device | Transport::Auto => "/dev/fuse",
    });
    if args.announce {
        announce(log.as_ref())?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| signals.forever().for_each(|_| take_off(&mounted)));
        mounted.wait();
        handle.close();
    });
    engine.shutdown();
    Ok(())
}

/// What a mount's status says of its settings.
fn about(args: &MountArgs, layout: String) -> Vec<(String, String)> {
    let cache = match args.cache {
        Cache::Direct => "direct: every read and write is a request",
        Cache::Page => "the kernel's page cache",
    };
    let store = match args.store {
        StoreKind::Directory => "directory",
        StoreKind::Modelled => "directory in the time of a modelled device",
    };
    let store = if args.direct { format!("{store}, direct I/O") } else { store.into() };
    let source = std::fs::canonicalize(&args.source).unwrap_or_else(|_| args.source.clone());
    let source = source.display().to_string();
    [("source", source), ("store", store), ("layout", layout), ("cache", cache.into())]
        .map(|(name, value)| (name.into(), value))
        .into()
}

/// Unmounts on a signal. Programs that still have files open keep them: what they hold works until they close it.
fn take_off(mounted: &Mounted) {
    let result = match mounted.unmount() {
        Err(MountError::InUse { .. }) => mounted.detach(),
        other => other,
    };
    if let Err(error) = result {
        eprintln!("error: {error}");
    }
}

/// Starts the process that serves the mount, and returns when it is ready or has failed.
fn in_background() -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut child = Command::new(program)
        .args(foreground_again())
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

/// The file that takes a background mount's messages. Opened before the mount is up, so that a wrong path is refused.
fn open_log(path: &Path) -> Result<File, Failure> {
    let file = File::options().append(true).create(true).open(path);
    Ok(file.with_context(|| format!("--log {}: the file cannot be opened for appending", path.display()))?)
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
    store: Arc<WatchedStore>,
    modelled: Option<Arc<ModelledStore>>,
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
            Some(name) => name,
            None if app.0 == 0 => "unknown".into(),
            None => app.to_string(),
        }
    }

    fn file(&self, file: FileId) -> String {
        const CHARS_MAX: usize = 100;
        let name = self.store.name(file).unwrap_or_else(|| format!("inode {file}"));
        // The end of a long path says more than its start.
        match name.char_indices().rev().nth(CHARS_MAX) {
            Some((at, _)) => format!("\u{2026}{}", &name[at..]),
            None => name,
        }
    }
}

impl Control for MountControl {
    fn status(&self) -> Vec<u8> {
        // Copied under the gate's lock, turned into text outside.
        let (stats, config, now) = self.engine.with_gate(|gate, _| {
            let now = format!("{} queued, {} dispatches in service", gate.queued(), gate.in_service());
            (gate.stats().clone(), gate.config().clone(), now)
        });
        let mut summary = Summary::new(&stats, &config.scheduler, config.depth, self, GROUPS_MAX);
        summary.about.clone_from(&self.about);
        if let Some(transport) = self.transport.get() {
            summary.about.push(("transport".into(), (*transport).into()));
        }
        if let Some(DeviceStats { busy, transfers, repositions, .. }) =
            self.modelled.as_ref().map(|store| store.device_stats())
        {
            let busy = units::time(busy.as_nanos() as f64);
            let device = format!("busy for {busy}, {transfers} transfers, {repositions} repositions");
            summary.about.push(("device".into(), device));
        }
        summary.about.push(("now".into(), now));
        serde_json::to_vec(&summary).unwrap_or_default()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        let current = self.engine.with_gate(|gate, _| gate.scheduler().clone());
        let scheduler = settings::apply(&current, text)?;
        self.engine.switch(&scheduler).map_err(|error| error.to_string())
    }
}
