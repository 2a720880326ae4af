//! `iogate nfs`: a directory for clients of NFS, behind a gate.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_engine::Engine;
use iogate_engine::layouts::OpenLayouts;
use iogate_engine::store::{Backend, DirectoryOptions, DirectoryStore};
use iogate_net::server::{self, Server};
use iogate_net::transport::auth::{self, Policy};
use iogate_net::{Endpoint, Listener};
use iogate_nfs::port_mapper::{Registration, SOCKET};
use iogate_nfs::{Access, Export, Lasting, Limits, ServerConfig};
use iogate_vfs::answers::{Answers, Keeping};
use iogate_vfs::app::AppFile;
use iogate_vfs::users::Squash;
use iogate_vfs::{DirectoryTree, Users, held};

use crate::attempt::{Attempt, Doing};
use crate::cli::NfsArgs;
use crate::commands::layout::{LayoutChoice, MountLayout};
use crate::commands::policy;
use crate::commands::serve::{begin, until_stopped};
use crate::failure::Failure;
use crate::kept::{Keeper, KeptPrices};
use crate::metrics;
use crate::output::{quoted, say};
use crate::storage;

/// Under which the secret of handles is kept.
const SECRET: &str = "nfs-handles";
/// Permissions of the socket of `--control`.
const CONTROL_MODE: u32 = 0o600;

pub(crate) fn run(args: &NfsArgs) -> Result<(), Failure> {
    let pinned = args.gate.scheduler.pinned()?;
    let shares = policy::of_flags(&args.gate.shares)?;
    check(args)?;
    let applications = AppFile::from_environment().context("the file of IOGATE_APP_FILE")?;
    let signals = begin()?;
    let path =
        std::fs::canonicalize(&args.directory).with_context(|| Attempt::enter(args.directory.display()))?;
    let Gate { tree, engine, layout, keeping } = gate(args, &path, pinned)?;
    policy::begin(shares.as_ref(), &engine)?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| Attempt::new(Doing::Listen, format_args!("cannot listen at {}", args.listen)))?;
    let squash = if args.no_root_squash { Squash::None } else { Squash::Root };
    let users = Users::new(squash, args.anonymous, Vec::new(), Vec::new()).context("users")?;
    let Kept { secret, places, answers, warning } =
        Kept::of(&tree, &path, args.state.as_deref(), args.read_only)?;
    let export = Export {
        path: path.as_os_str().as_bytes().to_vec(),
        tree: Arc::clone(&tree),
        engine: Arc::clone(&engine),
        read_only: args.read_only,
        users,
        own_groups: args.own_groups,
        applications,
        sync_names: !args.async_names,
        secret,
        kernel_handles: true,
        places,
        answers,
    };
    let access = Access { networks: args.networks.clone(), any_port: args.any_port };
    let config = ServerConfig { exports: vec![export], access, limits: Limits::default() };
    let nfs = iogate_nfs::Server::start(config, listener).context("the server cannot be started")?;
    let control = control(args, &tree, &engine, &layout)?;
    if control.is_some() {
        engine.keep_accounts(args.seen.accounts);
    }

    let address = nfs.address().context("where it listens")?;
    let registered = args.portmap.then(|| register(&nfs, address)).transpose()?;
    let mount = mount_command(address, &path, registered.is_some());
    let mut lines = format!("listening at {address}\nmount with: {mount}\n");
    let _serving = match (&args.seen.http, &control) {
        (Some(place), Some(control)) => {
            let listener = metrics::Listener::bind(place)?;
            lines.push_str(&listener.lines());
            Some(listener.serve_server(control)?)
        }
        _ => None,
    };
    if let Some(warning) = warning {
        say(format_args!("warning: {warning}"));
    }
    warn_of_handles(&nfs);
    let keeper = keeping.and_then(|keeping| keeping.start(&engine));
    until_stopped(&lines, &format!("listening at {address}"), signals)?;
    drop(registered);
    nfs.shutdown();
    if let Some(control) = &control {
        control.shutdown();
    }
    keeper.into_iter().for_each(Keeper::end);
    engine.shutdown();
    Ok(())
}

/// Refuses what would let anybody in, and what is not there.
fn check(args: &NfsArgs) -> Result<(), Failure> {
    if !args.listen.ip().is_loopback() && args.networks.is_empty() {
        let error = anyhow!("--listen {}: expected --allow with it, as clients are believed", args.listen);
        return Err(Failure::usage(error).hint("--allow 10.0.0.0/24 lets in clients of that network"));
    }
    if let Some(endpoint @ Endpoint::Tcp { .. }) = &args.control {
        let error = anyhow!("--control {endpoint}: expected unix:PATH, as only this machine may ask");
        return Err(Failure::usage(error));
    }
    Ok(())
}

/// The files, and the gate in front of their data.
struct Gate {
    tree: Arc<DirectoryTree>,
    engine: Arc<Engine>,
    layout: MountLayout,
    keeping: Option<KeptPrices>,
}

fn gate(args: &NfsArgs, path: &Path, pinned: Option<iogate_core::SchedulerConfig>) -> Result<Gate, Failure> {
    let how = DirectoryOptions { backend: Backend::Auto, direct: false };
    let store = DirectoryStore::with(path, how).with_context(|| Attempt::enter(path.display()))?;
    let store = Arc::new(store);
    let mut layout = LayoutChoice::Auto(None).of_mount(path);
    let fixed = storage::fixed_scheduler(Some(&args.directory));
    let (known, keeping) = storage::known_by(&args.gate.known, Some(path), how.direct)?;
    let engine = storage::engine(pinned, fixed, known, &args.gate.room, layout.gate, store.clone())?;
    let tree = DirectoryTree::new(path, store).with_context(|| path.display().to_string())?;
    let tree = Arc::new(tree);
    if let Some(layouts) = layout.layouts.take() {
        tree.learn_layouts(OpenLayouts::new(layouts, Arc::clone(&engine)));
    }
    Ok(Gate { tree, engine, layout, keeping })
}

/// Says so where handles do not last.
pub(crate) fn warn_of_handles(nfs: &iogate_nfs::Server) {
    match nfs.lasting() {
        Lasting::Always => {}
        Lasting::UntilRenamed => say(
            "warning: a file handle lasts until others rename its file: for more it takes root, and a file system that has handles",
        ),
        Lasting::UntilEnd => {
            say("warning: file handles last until this server ends, or others rename a file");
        }
    }
}

/// What lets handles outlive a server.
pub(crate) struct Kept {
    /// What they are sealed with.
    pub(crate) secret: [u8; 16],
    /// Where it is noted which file each is for, if the kernel does not know.
    pub(crate) places: Option<OwnedFd>,
    /// The answers of calls that must not be carried out twice.
    pub(crate) answers: Arc<Answers>,
    /// What to warn of.
    pub(crate) warning: Option<String>,
}

impl Kept {
    /// Below a tree, which is of a directory, or in a directory of its own.
    pub(crate) fn of(
        tree: &DirectoryTree,
        directory: &Path,
        state: Option<&Path>,
        read_only: bool,
    ) -> Result<Kept, Failure> {
        if let Some(state) = state {
            let (secret, places) = std::fs::create_dir_all(state)
                .and_then(|()| std::fs::File::open(state))
                .and_then(|state| Ok((held::secret_below(&state, SECRET)?, held::folder_below(&state)?)))
                .with_context(|| {
                    format!("state: {} must be a directory that can be written", state.display())
                })?;
            let (answers, warning) = answers_below(state, read_only);
            return Ok(Kept { secret, places: Some(places), answers, warning });
        }
        match tree.kept_secret(SECRET).and_then(|secret| Ok((secret, tree.kept_folder()?))) {
            Ok((secret, places)) => {
                let (answers, warning) = answers_below(directory, read_only);
                Ok(Kept { secret, places: Some(places), answers, warning })
            }
            Err(error) => {
                let why =
                    if read_only { "nothing can be kept there" } else { "the secret of handles is not kept" };
                let warning = format!(
                    "{error}: {why}, so that clients have to mount again when this server has been started again; a state \
                     directory elsewhere helps"
                );
                let secret = held::random_secret().context("no random numbers")?;
                Ok(Kept { secret, places: None, answers: in_memory(), warning: Some(warning) })
            }
        }
    }
}

fn in_memory() -> Arc<Answers> {
    Arc::new(Answers::in_memory(iogate_nfs::answers::limits()))
}

/// The answers that are kept in the server's own folder below a directory; in memory, where they cannot be or nobody needs them.
fn answers_below(directory: &Path, read_only: bool) -> (Arc<Answers>, Option<String>) {
    if read_only {
        return (in_memory(), None);
    }
    let path = directory.join(".iogate").join("nfs-answers");
    match Answers::open_within(&path, Keeping::Boot, iogate_nfs::answers::limits()) {
        Ok(answers) => (Arc::new(answers), None),
        Err(error) => {
            let what = "answers are not kept: a call that is repeated after the end of this server may be carried out twice";
            (in_memory(), Some(format!("{error}: {what}")))
        }
    }
}

/// What answers for the gate, to root and this process's own user.
fn control(
    args: &NfsArgs,
    tree: &Arc<DirectoryTree>,
    engine: &Arc<Engine>,
    layout: &MountLayout,
) -> Result<Option<Arc<Server>>, Failure> {
    let Some(endpoint) = &args.control else { return Ok(None) };
    // It is a server of the same files, too, by a way that does not lead through the folders above them, as NFS does not: their
    // permissions would keep nobody of this machine out.
    let owners = auth::Access { socket_mode: Some(CONTROL_MODE), ..Policy::Peer.into() };
    let listener = Listener::bind(endpoint, owners).context(Attempt::new(Doing::Listen, "--control"))?;
    let export = server::Export {
        read_only: args.read_only,
        striping: layout.gate,
        ..server::Export::new("nfs", Arc::clone(engine), tree.clone())
    };
    let settings = server::ServerConfig {
        // Nobody comes back to a file that is removed: clients of NFS do not expect it to be there.
        session_grace: Duration::ZERO,
        ..server::ServerConfig::alone(vec![export])
    };
    Ok(Some(Arc::new(Server::start(settings, vec![listener]).context("--control")?)))
}

/// Tells the port mapper, for as long as what is returned is kept.
pub(crate) fn register(nfs: &iogate_nfs::Server, address: SocketAddr) -> Result<Registration, Failure> {
    nfs.listen_for_restarts().with_context(|| {
        Attempt::new(Doing::Listen, format_args!("portmap: cannot listen for datagrams at {address}"))
    })?;
    let registered =
        Registration::of(address, Path::new(SOCKET)).map_err(|error| anyhow!("portmap: {error}"))?;
    if !registered.hears_restarts() {
        say(
            "warning: another status monitor is registered here (rpc.statd): a client that crashes keeps its locks until it locks again",
        );
    }
    Ok(registered)
}

/// How a client with Linux mounts it; `locks`: by the port mapper it finds where to lock.
pub(crate) fn mount_command(address: SocketAddr, path: &Path, locks: bool) -> String {
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => "SERVER".into(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let nolock = if locks { "" } else { ",nolock" };
    let options = format!("vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp{nolock}");
    format!("mount -t nfs -o {options} {} MOUNTPOINT", quoted(format_args!("{host}:{}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_to_mount_is_said_as_the_address_is() {
        let command = |address: &str| mount_command(address.parse().unwrap(), Path::new("/srv/a"), false);
        assert!(command("127.0.0.1:2050").ends_with(
            "-o vers=3,proto=tcp,port=2050,mountport=2050,mountproto=tcp,nolock 127.0.0.1:/srv/a MOUNTPOINT"
        ));
        assert!(command("[::1]:1").contains(" [::1]:/srv/a "));
        assert!(command("0.0.0.0:1").contains(" SERVER:/srv/a "));
        let address = "127.0.0.1:1".parse().unwrap();
        let command = mount_command(address, Path::new("/srv/a b"), true);
        assert!(command.ends_with("mountproto=tcp '127.0.0.1:/srv/a b' MOUNTPOINT"), "{command}");
    }
}
