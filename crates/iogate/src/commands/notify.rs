//! Tells a service manager how far this process is: text to the datagram socket that `NOTIFY_SOCKET` names, as sd_notify(3) says.
//!
//! Without that variable nothing is told. What cannot be told is a warning: the service works, but its manager may think otherwise.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::output::say;

const SOCKET: &str = "NOTIFY_SOCKET";
/// A manager that takes nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The service can be used; `doing` is shown beside it, as by `systemctl status`.
pub(crate) fn ready(doing: &str) {
    // A line is an assignment: one in the text would be one of its own.
    tell(&format!("READY=1\nSTATUS={}\n", doing.replace(char::is_control, " ")));
}

/// The service ends. May be told more than once.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=ends when what it has accepted is done\n");
}

fn tell(text: &str) {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, text) {
        say(format_args!(
            "warning: {SOCKET} {}: the service manager cannot be told: {error}",
            socket.display()
        ));
    }
}

/// Sends to a socket by its path, or by its abstract name behind `@`.
fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => {
            let expected = "expected a path that begins with a slash, or a name behind @";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, expected));
        }
    };
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(PATIENCE))?;
    from.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_socket_is_found_by_its_path_and_by_its_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let named = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1\n").unwrap();
        assert_eq!(received(&named), "READY=1\n");

        let name = format!("iogate-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1\n").unwrap();
        assert_eq!(received(&hidden), "STOPPING=1\n");
    }

    #[test]
    fn what_is_no_socket_is_an_error() {
        for wrong in ["relative", "vsock:2:1", "@", "/nowhere/at/all"] {
            assert!(send(OsStr::new(wrong), "READY=1\n").is_err(), "{wrong}");
        }
        assert!(send(OsStr::from_bytes(&[b'/'; 200]), "READY=1\n").is_err());
    }
}
