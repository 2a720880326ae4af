//! What a configuration is refused for besides its form, so that `--check` refuses all that a server would when it starts: limits that do
//! not go together, and what depends on this machine, its users, its files and directories. No store is opened, and nobody is connected to.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_core::units::format_size;
use iogate_core::wire::PAYLOAD_BYTES_MAX;
use iogate_net::Endpoint;

use super::config::{Address, Bytes, Config, Export};
use crate::attempt::Attempt;
use crate::devices;

impl Config {
    /// Limits by the file's own keys; those that are not given have their usual values.
    pub(super) fn check_limits(&self) -> anyhow::Result<()> {
        let limits = self.limits();
        let most = u64::from(PAYLOAD_BYTES_MAX);
        if let Some(Bytes(found)) = self.limits.transfer.as_ref().filter(|transfer| transfer.0 > most) {
            let (most, found) = (format_size(most), format_size(*found));
            return Err(anyhow!("limits.transfer: expected at most {most}, found {found}"));
        }
        let transfer = limits.transfer_bytes_max;
        let source =
            if self.limits.transfer.is_some() { "limits.transfer" } else { "the usual limits.transfer" };
        for (key, found) in [("bytes", limits.credit_bytes), ("memory", limits.memory_bytes as u64)] {
            if found < transfer.into() {
                let (found, transfer) = (format_size(found), format_size(transfer.into()));
                return Err(anyhow!("limits.{key}: expected at least {source}, {transfer}, found {found}"));
            }
        }
        for (key, time) in [("hello", limits.hello_timeout), ("stall", limits.stall_timeout)] {
            if time.is_zero() {
                return Err(anyhow!("limits.{key}: expected some time, found 0s, which cuts everybody off"));
            }
        }
        Ok(())
    }

    /// A server that asks itself waits for its own answer.
    pub(super) fn check_others(&self) -> anyhow::Result<()> {
        for export in &self.export {
            let is_this = |server: &&Address| self.listen.iter().any(|listen| listen.at.0 == server.0);
            if let Some(server) = export.servers.iter().chain(&export.forward).find(is_this) {
                return Err(anyhow!(
                    "export `{}`: expected another server, found {}, where this one listens",
                    export.name,
                    server.0
                ));
            }
        }
        Ok(())
    }

    /// What of it does not hold on this machine.
    pub(super) fn check_here(&self) -> anyhow::Result<()> {
        for listen in &self.listen {
            listen.check_anonymous(&self.export)?;
            listen.access().with_context(|| format!("listen at {}", listen.at.0))?;
        }
        self.export
            .iter()
            .try_for_each(|export| export.check_here().with_context(|| format!("export `{}`", export.name)))
    }
}

impl Config {
    /// Directories that are not there, or are none.
    pub(super) fn check_directories(&self) -> anyhow::Result<()> {
        for export in &self.export {
            let names = export.names.as_deref().filter(|_| export.servers.is_empty()).map(Path::new);
            let targets = export.targets.iter().map(PathBuf::as_path);
            for directory in export.directory.as_deref().into_iter().chain(names).chain(targets) {
                let looked =
                    std::fs::read_dir(directory).with_context(|| Attempt::enter(directory.display()));
                looked.with_context(|| format!("export `{}`", export.name))?;
            }
        }
        Ok(())
    }
}

impl Export {
    /// What its words mean.
    pub(super) fn check_words(&self) -> anyhow::Result<()> {
        self.layout_choice()?;
        if let Some(device) = &self.device {
            drop(devices::maker(device).context("device")?);
        }
        if let Some(names) = self.names.as_ref().filter(|_| !self.servers.is_empty()) {
            names.parse::<Endpoint>().context("names")?;
        }
        self.users.build().map(drop)
    }

    fn check_here(&self) -> anyhow::Result<()> {
        super::security::numbers(&self.forwarders).context("forwarders")?;
        for server in self.servers.iter().chain(&self.forward) {
            self.client.options(&server.0).context("client")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: &str = "[[listen]]\nat = \"unix:/run/iogate.socket\"\n";

    #[test]
    fn limits_that_do_not_go_together_are_named_as_the_file_has_them() {
        for (limits, expected) in [
            (
                "bytes = \"2MiB\"",
                "limits.bytes: expected at least the usual limits.transfer, 4MiB, found 2MiB",
            ),
            (
                "bytes = \"64KiB\"\ntransfer = \"1MiB\"",
                "limits.bytes: expected at least limits.transfer, 1MiB, found 64KiB",
            ),
            (
                "memory = \"1MiB\"",
                "limits.memory: expected at least the usual limits.transfer, 4MiB, found 1MiB",
            ),
            ("transfer = \"8GiB\"", "limits.transfer: expected at most 16MiB, found 8GiB"),
            ("stall = \"0s\"", "limits.stall: expected some time, found 0s"),
            ("hello = \"0s\"", "limits.hello: expected some time, found 0s"),
        ] {
            let text = format!("{LISTEN}[[export]]\ndirectory = \"/s\"\n[limits]\n{limits}\n");
            let error = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(error.contains(expected), "{limits}: {error}");
        }
        let least =
            "bytes = \"1KiB\"\nmemory = \"1KiB\"\ntransfer = \"1KiB\"\nstall = \"1ns\"\nhello = \"1ns\"";
        let text = format!("{LISTEN}[[export]]\ndirectory = \"/s\"\n[limits]\n{least}\n");
        Config::parse(&text).unwrap();
    }

    #[test]
    fn a_server_does_not_ask_itself() {
        for what in
            ["forward = \"unix:/run/iogate.socket\"", "servers = [\"a:1\", \"unix:/run/iogate.socket\"]"]
        {
            let error = format!("{:#}", Config::parse(&format!("{LISTEN}[[export]]\n{what}\n")).unwrap_err());
            let expected = "export `default`: expected another server, found unix:/run/iogate.socket, where this one listens";
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn words_that_mean_nothing_are_named() {
        for (export, expected) in [
            ("directory = \"/s\"\nlayout = \"square\"", "layout: 'square': expected auto"),
            ("directory = \"/s\"\ndevice = \"floppy\"", "device: unknown device 'floppy'"),
            ("servers = [\"a:1\"]\nnames = \"a\"", "names: expected HOST:PORT"),
            (
                "directory = \"/s\"\nusers = { map = [{ client = 4294967295, server = 0, count = 2 }] }",
                "users.map: ",
            ),
        ] {
            let text = format!("{LISTEN}[[export]]\n{export}\n");
            let error = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(error.contains(&format!("export `default`: {expected}")), "{export}: {error}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        for (export, wrong) in [
            (format!("directory = \"{folder}\""), None),
            (format!("directory = \"{folder}/no\""), Some("no")),
            (format!("names = \"{folder}\"\ntargets = [\"{folder}\", \"{folder}/b\"]"), Some("b")),
            (format!("names = \"{folder}/n\"\ntargets = [\"{folder}\"]"), Some("n")),
            ("servers = [\"a:1\"]\nnames = \"a:2\"".into(), None),
        ] {
            let config = Config::parse(&format!("{LISTEN}[[export]]\n{export}\n")).unwrap();
            let said = config.check_directories().err().map(|error| format!("{error:#}"));
            let expected =
                wrong.map(|wrong| format!("export `default`: {folder}/{wrong} must be a directory"));
            assert!(
                said.as_deref().unwrap_or_default().starts_with(expected.as_deref().unwrap_or_default()),
                "{said:?}"
            );
            assert_eq!(said.is_some(), expected.is_some(), "{export}: {said:?}");
        }
    }

    #[test]
    fn what_does_not_hold_here_is_named() {
        let nobody = "nobody-is-called-so";
        let served = "[[export]]\ndirectory = \"/s\"\n";
        for (text, expected) in [
            (
                format!("{LISTEN}{served}forwarders = [\"{nobody}\"]\n"),
                "export `default`: forwarders: there is no user `nobody-is-called-so`",
            ),
            (
                format!("{LISTEN}users_allowed = [\"{nobody}\"]\n{served}"),
                "listen at unix:/run/iogate.socket: users_allowed: there is no user",
            ),
            (
                format!("{LISTEN}auth = \"none\"\nanonymous = \"7:7\"\n{served}forwarders = [7]\n"),
                "everybody who reaches it could act in anybody's name",
            ),
            (
                format!(
                    "{LISTEN}[[export]]\nforward = \"a:1\"\nclient = {{ tls = {{ certificate = \"/no/c\", key = \"/no/k\", servers = \
                     \"/no/s\" }} }}\n"
                ),
                "export `default`: client: tls: ",
            ),
            (
                format!(
                    "[[listen]]\nat = \"127.0.0.1:1\"\nauth = \"tls\"\ntls = {{ certificate = \"/no/c\", key = \"/no/k\", clients = \
                     \"/no/s\" }}\n{served}"
                ),
                "listen at 127.0.0.1:1: ",
            ),
        ] {
            let config = Config::parse(&text).unwrap();
            let error = format!("{:#}", config.check_here().unwrap_err());
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }
}
