//! Where a server listens: a TCP address or the path of a Unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `HOST:PORT`.
    Tcp {
        /// A name or an address; an IPv6 address without its brackets.
        host: String,
        /// The port; 0, for a listener, is any free one.
        port: u16,
    },
    /// `unix:PATH`.
    Unix(PathBuf),
}

/// What is not an endpoint.
#[derive(Debug, thiserror::Error)]
#[error("expected HOST:PORT or unix:PATH, found `{found}`{hint}")]
pub struct EndpointError {
    found: String,
    hint: &'static str,
}

impl Endpoint {
    /// The same place, whatever the working directory becomes.
    ///
    /// # Errors
    ///
    /// If there is no working directory now, and the path is within it.
    pub fn absolute(self) -> io::Result<Endpoint> {
        Ok(match self {
            Endpoint::Unix(path) => Endpoint::Unix(std::path::absolute(path)?),
            tcp @ Endpoint::Tcp { .. } => tcp,
        })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = |hint| EndpointError { found: text.into(), hint };
        // In lists there may be room between them.
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong(": the path is missing")),
                path => Ok(Endpoint::Unix(path.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(": the port is missing"))?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(|| wrong(": a bracket is missing"))?,
            None if host.contains(':') => return Err(wrong(": write an IPv6 address in brackets")),
            None => host,
        };
        if bare.is_empty() {
            return Err(wrong(": the host is missing"));
        }
        let port = port.parse().map_err(|_| wrong(": the port is not a number below 65536"))?;
        Ok(Endpoint::Tcp { host: bare.into(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written_alike() {
        for text in ["io1:7000", "127.0.0.1:1", "[::1]:65535", "unix:/run/iogate/socket"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:5".parse::<Endpoint>().unwrap(), Endpoint::Tcp { host: "::1".into(), port: 5 });
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("io1", "port is missing"),
            ("io1:x", "not a number"),
            ("io1:65536", "not a number"),
            (":80", "host is missing"),
            ("::1:80", "in brackets"),
            ("[::1:80", "bracket is missing"),
            ("unix:", "path is missing"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{text}: {error}");
        }
    }
}
