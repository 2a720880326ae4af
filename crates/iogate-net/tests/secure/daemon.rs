//! A MUNGE daemon for a test. Needs Debian's package `munge`, which `scripts/setup` installs.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iogate_net::transport::auth::Munge;

/// A daemon with its own key and socket.
pub(crate) struct Daemon {
    process: Child,
    pub(crate) dir: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start(key: u8) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at("key")).unwrap();
        file.write_all(&[key; 64]).unwrap();
        let mut command = Command::new("munged");
        // Debian keeps it where a user's PATH does not lead.
        command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
        command.args(["--foreground", "--force"]);
        for (option, name) in [
            ("--socket", "socket"),
            ("--key-file", "key"),
            ("--log-file", "log"),
            ("--pid-file", "pid"),
            ("--seed-file", "seed"),
        ] {
            command.arg(format!("{option}={}", at(name).display()));
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged runs: scripts/setup installs it");
        let mut daemon = Daemon { process, dir };
        let begin = Instant::now();
        while daemon.munge().encode(b"").is_err() {
            assert!(daemon.process.try_wait().unwrap().is_none(), "munged has ended");
            assert!(begin.elapsed() < Duration::from_secs(60), "munged does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn munge(&self) -> Munge {
        Munge::new(Some(self.socket()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
