//! `[nfs]` of a server's configuration: exports that clients of NFS mount, too, behind the same gates.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use iogate_engine::Engine;
use iogate_nfs::port_mapper::Registration;
use iogate_nfs::{Access, Limits, Network, Server, ServerConfig};
use iogate_vfs::DirectoryTree;
use iogate_vfs::app::AppFile;
use serde::Deserialize;
use toml::Spanned;

use super::config::{Config, Export, Users};
use crate::attempt::{Attempt, Doing};
use crate::commands::nfs::{Kept, mount_command, register, warn_of_handles};
use crate::failure::Failure;
use crate::kept::Keeper;
use crate::output::say;
use crate::settings::line_of;

/// Where NFS is, if nothing else is said.
const PORT: u16 = 2049;

/// The server of NFS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nfs {
    /// For NFS and MOUNT.
    #[serde(default = "loopback")]
    listen: Spanned<SocketAddr>,
    /// Who may come in [default: this machine].
    #[serde(default)]
    allow: Vec<Allowed>,
    /// From ports that any user may take, too.
    #[serde(default)]
    any_port: bool,
    /// This machine's port mapper is told where it listens.
    #[serde(default)]
    portmap: bool,
    export: Vec<Shared>,
}

/// An export of the configuration, for clients of NFS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// Its name.
    export: Spanned<String>,
    /// What clients mount [default: the directory's path].
    #[serde(default)]
    path: Option<Spanned<String>>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    users: Users,
    /// The groups of users are looked up here.
    #[serde(default)]
    own_groups: bool,
    /// Changes of names are answered before they are durable.
    #[serde(default)]
    async_names: bool,
    /// Where is kept what lets handles outlive the server [default: `.iogate` in the directory].
    #[serde(default)]
    state: Option<PathBuf>,
}

/// A network, as text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Allowed(Network);

impl TryFrom<String> for Allowed {
    type Error = iogate_nfs::NetworkError;

    fn try_from(text: String) -> Result<Allowed, iogate_nfs::NetworkError> {
        text.parse().map(Allowed)
    }
}

fn loopback() -> Spanned<SocketAddr> {
    Spanned::new(0..0, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))
}

/// An export as it was built: what NFS takes of it.
pub(super) struct Built {
    /// Its directory, if it has one.
    pub(super) tree: Option<Arc<DirectoryTree>>,
    pub(super) engine: Arc<Engine>,
    /// What keeps what it learns of it.
    pub(super) keeper: Option<Keeper>,
}

impl Shared {
    fn of<'a>(&self, exports: &'a [Export]) -> Option<(usize, &'a Export, &'a Path)> {
        let (at, export) =
            exports.iter().enumerate().find(|(_, export)| export.name == *self.export.get_ref())?;
        Some((at, export, export.directory.as_deref()?))
    }

    /// What clients mount: with the directory as the kernel says it, as `iogate nfs` does.
    fn path(&self, directory: &Path) -> PathBuf {
        match &self.path {
            Some(path) => PathBuf::from(path.get_ref()),
            None => std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf()),
        }
    }
}

impl Nfs {
    /// What is wrong with it, in its configuration's text.
    pub(super) fn check(&self, exports: &[Export], text: &str) -> anyhow::Result<()> {
        let wrong = |span: std::ops::Range<usize>, what: String| {
            Err(anyhow!("nfs, line {}: {what}", line_of(text, span.start)))
        };
        let listen = self.listen.get_ref();
        if !listen.ip().is_loopback() && self.allow.is_empty() {
            let what = format!(
                "listen = \"{listen}\": expected allow = [\"10.0.0.0/24\"] or the like with it, as clients are believed"
            );
            return wrong(self.listen.span(), what);
        }
        if self.export.is_empty() {
            return Err(anyhow!("nfs: expected at least one [[nfs.export]]"));
        }
        let mut paths = std::collections::BTreeSet::new();
        for shared in &self.export {
            let (span, name) = (shared.export.span(), shared.export.get_ref());
            let Some(export) = exports.iter().find(|export| export.name == *name) else {
                let names: Vec<_> = exports.iter().map(|export| format!("`{}`", export.name)).collect();
                let names = names.join(", ");
                return wrong(span, format!("there is no export `{name}`: expected one of {names}"));
            };
            let Some(directory) = &export.directory else {
                let what = format!("export `{name}` is no directory: only those can be served by NFS");
                return wrong(span, what);
            };
            if let Some(path) = &shared.path
                && (!path.get_ref().starts_with('/') || path.get_ref().contains(char::is_control))
            {
                let found = path.get_ref();
                return wrong(path.span(), format!("path: expected one that begins with /, found {found:?}"));
            }
            shared.users.build().context("nfs")?;
            let path = shared.path(directory);
            if !paths.insert(path.clone()) {
                let path = path.display();
                return wrong(
                    span,
                    format!("two exports are mounted as {path}: give each a path of its own"),
                );
            }
        }
        Ok(())
    }

    /// The socket, bound.
    pub(super) fn bind(&self) -> Result<TcpListener, Failure> {
        let listen = self.listen.get_ref();
        Ok(TcpListener::bind(listen)
            .with_context(|| Attempt::new(Doing::Listen, format_args!("nfs: cannot listen at {listen}")))?)
    }

    /// Begins to serve. Returns what the port mapper has been told, and what to tell people, too.
    pub(super) fn start(
        &self,
        config: &Config,
        built: &[Built],
        listener: TcpListener,
    ) -> Result<(Server, Option<Registration>, String), Failure> {
        let (mut exports, mut paths) = (Vec::new(), Vec::new());
        for shared in &self.export {
            let found = shared.of(&config.export);
            let found = found.and_then(|(at, export, path)| {
                let Built { tree, engine, .. } = built.get(at)?;
                Some((export, path, tree.clone()?, engine))
            });
            let (export, directory, tree, engine) =
                found.ok_or_else(|| anyhow!("nfs: there is no directory `{}`", shared.export.get_ref()))?;
            let read_only = shared.read_only || export.read_only;
            let Kept { secret, places, answers, warning } =
                Kept::of(&tree, directory, shared.state.as_deref(), read_only)?;
            if let Some(warning) = warning {
                say(format_args!("warning: export `{}`: {warning}", export.name));
            }
            let path = shared.path(directory);
            exports.push(iogate_nfs::Export {
                path: path.as_os_str().as_bytes().to_vec(),
                tree,
                engine: Arc::clone(engine),
                read_only,
                users: shared.users.build().context("nfs: users")?,
                own_groups: shared.own_groups,
                applications: AppFile::from_environment().context("nfs: the file of IOGATE_APP_FILE")?,
                sync_names: !shared.async_names,
                secret,
                kernel_handles: true,
                places,
                answers,
            });
            paths.push(path);
        }
        let networks = self.allow.iter().map(|allowed| allowed.0).collect();
        let access = Access { networks, any_port: self.any_port };
        let config = ServerConfig { exports, access, limits: Limits::default() };
        let server = Server::start(config, listener).context("nfs: the server cannot be started")?;
        warn_of_handles(&server);
        let address = server.address().context("nfs: where it listens")?;
        let registered = self.portmap.then(|| register(&server, address)).transpose()?;
        let mut lines = format!("nfs at {address}\n");
        for path in &paths {
            lines.push_str(&format!("mount with: {}\n", mount_command(address, path, registered.is_some())));
        }
        Ok((server, registered, lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "[[listen]]\nat = \"unix:/run/iogate.socket\"\n[[export]]\nname = \"a\"\ndirectory = \"/a\"\n\
                        [[export]]\nname = \"far\"\nforward = \"h:1\"\n[[export]]\nname = \"b\"\ndirectory = \"/b\"\n";

    fn parse(rest: &str) -> anyhow::Result<Config> {
        Config::parse(&format!("{HEAD}{rest}"))
    }

    #[test]
    fn what_is_shared_is_read() {
        let text = "[nfs]\nlisten = \"10.0.0.1:2049\"\nallow = [\"10.0.0.0/24\"]\n[[nfs.export]]\nexport = \"b\"\n\
                    path = \"/scratch\"\nread_only = true\nusers = { squash = \"all\", nobody = \"7:8\" }\n\
                    [[nfs.export]]\nexport = \"a\"\nown_groups = true\nasync_names = true\n";
        let config = parse(text).unwrap();
        let nfs = config.nfs.unwrap();
        let found = nfs.export.iter().map(|shared| {
            let (at, _, directory) = shared.of(&config.export).unwrap();
            (at, shared.path(directory), shared.read_only)
        });
        assert_eq!(found.collect::<Vec<_>>(), [(2, "/scratch".into(), true), (0, "/a".into(), false)]);
        assert!(!nfs.any_port && nfs.export[1].own_groups && nfs.export[1].async_names);
        let plain = parse("[nfs]\n[[nfs.export]]\nexport = \"a\"\n").unwrap().nfs.unwrap();
        assert_eq!(plain.listen.get_ref().to_string(), "127.0.0.1:2049");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let export = "[[nfs.export]]\nexport = \"a\"\n";
        for (text, parts) in [
            (
                format!("[nfs]\nlisten = \"0.0.0.0:1\"\n{export}"),
                &["line 13", "0.0.0.0:1", "expected allow"][..],
            ),
            (format!("[nfs]\nallow = [\"10.0.0.0/99\"]\n{export}"), &["line 13", "a network", "10.0.0.0/99"]),
            (format!("[nfs]\nlisten = \"here\"\n{export}"), &["line 13", "socket address"]),
            ("[nfs]\n".into(), &["missing field `export`"]),
            ("[nfs]\nexport = []\n".into(), &["at least one [[nfs.export]]"]),
            (
                "[nfs]\n[[nfs.export]]\nexport = \"c\"\n".into(),
                &["line 14", "no export `c`", "`a`, `far`, `b`"],
            ),
            ("[nfs]\n[[nfs.export]]\nexport = \"far\"\n".into(), &["line 14", "`far` is no directory"]),
            (format!("[nfs]\n{export}path = \"x\"\n"), &["line 15", "begins with /", "\"x\""]),
            (format!("[nfs]\n{export}{export}"), &["line 16", "two exports are mounted as /a"]),
            (
                format!(
                    "[nfs]\n{export}users = {{ map = [{{ client = 4294967295, server = 0, count = 2 }}] }}\n"
                ),
                &["nfs: users.map: "],
            ),
            (format!("[nfs]\n{export}colour = 1\n"), &["line 15", "unknown field `colour`"]),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            for part in parts {
                assert!(error.contains(part), "{part} of {text}\n{error}");
            }
        }
    }
}
