//! Words to the user, where no log is set up: this code runs in other people's programs.

/// Writes a line to standard error, whole, past the program's own buffers.
pub(crate) fn say(what: &str) {
    let line = format!("iogate: {what}\n");
    // It may be closed; then nobody wants to know.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
