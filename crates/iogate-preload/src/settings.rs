//! What the environment says, read once.
//!
//! | variable | meaning |
//! |---|---|
//! | `IOGATE_FORWARDERS` | where the forwarders listen, separated by commas; without it the library does nothing |
//! | `IOGATE_PREFIX` | the paths that are theirs (`/iogate`) |
//! | `IOGATE_EXPORT` | the export to use, where a forwarder has several |
//! | `IOGATE_SPREAD` | how requests are spread over several forwarders |
//! | `IOGATE_APP`, `IOGATE_APP_FILE` | the application, for the schedulers: as for mounts |
//! | `IOGATE_BURST` | how much the application moves in a burst: as for mounts |
//! | `IOGATE_AUTH` | `none`, `socket` or `munge`: how the forwarders know who this is |
//! | `IOGATE_TLS_AUTHORITIES`, `IOGATE_TLS_CERTIFICATE`, `IOGATE_TLS_KEY` | PEM files: TLS, with a certificate of the user's |
//! | `IOGATE_TLS_NAME` | the name in the forwarders' certificates, if not their host's |
//! | `IOGATE_LOG` | `error`, `warn`, `info` or `debug`: what to say on standard error (`warn`) |

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::lazy::Lazy;

pub(crate) struct Settings {
    /// Without a slash at its end.
    pub(crate) prefix: Vec<u8>,
    pub(crate) forwarders: String,
    pub(crate) export: String,
    pub(crate) spread: String,
    pub(crate) auth: String,
    pub(crate) tls: Option<Tls>,
}

/// How to speak TLS.
pub(crate) struct Tls {
    pub(crate) authorities: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) server_name: Option<String>,
}

const PREFIX: &str = "/iogate";

static SETTINGS: Lazy<Settings> = Lazy::new(read);

/// Whether there is anything to do.
#[inline]
pub(crate) fn is_active() -> bool {
    SETTINGS.is_there()
}

/// The settings; `None` if the library is to do nothing.
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

fn read() -> Option<Settings> {
    let text = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let forwarders = text("IOGATE_FORWARDERS").filter(|value| !value.is_empty())?;
    let mut prefix = env::var_os("IOGATE_PREFIX").unwrap_or_else(|| OsString::from(PREFIX)).into_vec();
    while prefix.len() > 1 && prefix.ends_with(b"/") {
        prefix.pop();
    }
    let plain = prefix.len() > 1
        && prefix.starts_with(b"/")
        && !prefix[1..].split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b".."));
    if !plain {
        let found = OsStrExt::from_bytes(&prefix);
        complain("IOGATE_PREFIX", found, "an absolute path other than / without `.`, `..` and `//`");
        return None;
    }
    Some(Settings {
        prefix,
        forwarders: from_anywhere(&forwarders),
        export: text("IOGATE_EXPORT").unwrap_or_default(),
        spread: text("IOGATE_SPREAD").unwrap_or_default(),
        auth: text("IOGATE_AUTH").unwrap_or_default(),
        tls: tls(&text),
    })
}

/// Forwarders with the paths of their sockets from the root: the program may change its working directory before it needs them.
fn from_anywhere(forwarders: &str) -> String {
    // By the kernel: the C library's function is one of those that come here.
    let here = rustix::process::getcwd(Vec::new()).unwrap_or_default();
    let here = here.to_str().ok().filter(|here| here.starts_with('/') && !here.contains(','));
    let place = |place: &str| match (place.trim().strip_prefix("unix:"), here) {
        (Some(path), Some(here)) if !path.is_empty() && !path.starts_with('/') => {
            format!("unix:{here}/{path}")
        }
        _ => place.into(),
    };
    forwarders.split(',').map(place).collect::<Vec<String>>().join(",")
}

/// What to say on standard error.
pub(crate) fn log() -> tracing::Level {
    let log = env::var_os("IOGATE_LOG").unwrap_or_default();
    match log.to_string_lossy().parse() {
        _ if log.is_empty() => tracing::Level::WARN,
        Ok(level) => level,
        Err(_) => {
            complain("IOGATE_LOG", &log, "error, warn, info or debug; going on with warn");
            tracing::Level::WARN
        }
    }
}

fn tls(text: &dyn Fn(&str) -> Option<String>) -> Option<Tls> {
    let path = |name: &str| text(name).unwrap_or_default().into();
    let authorities = text("IOGATE_TLS_AUTHORITIES").filter(|value| !value.is_empty())?.into();
    let (certificate, key) = (path("IOGATE_TLS_CERTIFICATE"), path("IOGATE_TLS_KEY"));
    Some(Tls { authorities, certificate, key, server_name: text("IOGATE_TLS_NAME") })
}

fn complain(name: &str, found: &std::ffi::OsStr, expected: &str) {
    say(&format!("{name}: expected {expected}; found `{}`", found.display()));
}

/// Tells the user something, past the program's own streams.
pub(crate) fn say(what: &str) {
    let line = format!("iogate: {what}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
