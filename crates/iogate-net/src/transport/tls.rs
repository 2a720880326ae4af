//! A stream that is encrypted, and whose two ends have shown each other certificates.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};

use iogate_engine::lock;
use rustls::{AlertDescription, Connection, Error};
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;

use super::certificates::PROTOCOL;
use super::socket::{Peer, PlainSocket, Socket};

/// What each error of this module begins with.
pub(super) const PREFIX: &str = "TLS: ";
/// Bytes that are read from the kernel at once.
const READ_BYTES: usize = 64 << 10;
/// Most encrypted bytes that wait for room in the kernel; and most bytes that wait for the end of the handshake.
const UNSENT_BYTES_MAX: usize = 128 << 10;

/// A TLS connection over a socket. The handshake is part of the first reads and writes; `write` takes up to 128 KiB before it
/// is over. An error is final: every further call fails with it.
///
/// After the handshake, [`Socket::peer`] is the client's common name at the server, and the verified server name at the client.
#[derive(Debug)]
pub struct TlsSocket {
    socket: PlainSocket,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Encrypted bytes from the kernel; those before `consumed` have been decrypted. Has memory only while there are some.
    incoming: Vec<u8>,
    consumed: usize,
    /// Set from the beginning at a client, which says whom it wants; not before the handshake at a server.
    name: Option<String>,
    failure: Option<(ErrorKind, String)>,
}

impl TlsSocket {
    /// A connection whose handshake has not begun; `name` is the server's, at a client.
    pub(super) fn new(socket: PlainSocket, mut connection: Connection, name: Option<String>) -> TlsSocket {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let state = State { connection, incoming: Vec::new(), consumed: 0, name, failure: None };
        TlsSocket { socket, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Socket for TlsSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let state = &mut *self.lock();
        let mut taken = 0;
        // Until the buffers are full or the kernel has nothing more: what is decrypted must not stay behind unnoticed.
        let stopped = 'full: {
            for buffer in buffers {
                let mut rest = &mut buffer[..];
                while !rest.is_empty() {
                    match state.read_some(&self.socket, rest) {
                        Ok(0) => break 'full Ok(()),
                        Ok(bytes) => {
                            taken += bytes;
                            rest = &mut rest[bytes..];
                        }
                        Err(error) => break 'full Err(error),
                    }
                }
            }
            Ok(())
        };
        match stopped {
            Err(error) if taken == 0 => Err(error),
            // An error shows again with the next call.
            _ => Ok(taken),
        }
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let state = &mut *self.lock();
        state.check()?;
        let mut slices = buffers.to_vec();
        let mut rest = &mut slices[..];
        let mut taken = 0;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let bytes = state.connection.writer().write_vectored(rest)?;
            taken += bytes;
            IoSlice::advance_slices(&mut rest, bytes);
            match state.flush(&self.socket) {
                Ok(()) if bytes > 0 => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => break,
            }
        }
        match taken == 0 && !rest.is_empty() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(taken),
        }
    }

    fn wants_flush(&self) -> bool {
        self.lock().connection.wants_write()
    }

    fn flush(&self) -> io::Result<()> {
        self.lock().flush(&self.socket)
    }

    fn is_handshaking(&self) -> bool {
        self.lock().connection.is_handshaking()
    }

    fn peer(&self) -> Peer {
        let state = self.lock();
        match &state.name {
            Some(name) if !state.connection.is_handshaking() => Peer::Certificate { name: name.clone() },
            _ => Peer::Unknown,
        }
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        let state = &mut *self.lock();
        state.connection.send_close_notify();
        // Nobody waits for the goodbye.
        let _ = state.flush(&self.socket);
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failure {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    /// Reads at least one byte into a buffer that is not empty, or 0 at the end.
    fn read_some(&mut self, socket: &PlainSocket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.receive(socket)?,
                read => return read,
            }
        }
    }

    /// Decrypts some more, all that was decrypted before having been taken.
    fn receive(&mut self, socket: &PlainSocket) -> io::Result<()> {
        if self.consumed == self.incoming.len() {
            self.incoming.clear();
            self.consumed = 0;
            self.incoming.reserve_exact(READ_BYTES);
            if let Err(error) = socket.read_into(&mut self.incoming) {
                self.incoming = Vec::new();
                return Err(error);
            }
        }
        let mut encrypted = &self.incoming[self.consumed..];
        // Without bytes, this is how it learns of the end.
        match self.connection.read_tls(&mut encrypted) {
            // Nothing counts behind the goodbye.
            Ok(0) => self.consumed = self.incoming.len(),
            Ok(bytes) => self.consumed += bytes,
            Err(error) => return Err(self.fail(ErrorKind::InvalidData, format!("TLS: {error}"))),
        }
        let was_handshaking = self.connection.is_handshaking();
        let processed = self.connection.process_new_packets();
        // The next step of the handshake, or an alert that says what was wrong. That it cannot be sent, the next write will say.
        let _ = self.flush(socket);
        let has_begun = was_handshaking && !self.connection.is_handshaking();
        match processed {
            // rustls lets in who names no protocol at all.
            Ok(_) if has_begun && self.connection.alpn_protocol() != Some(PROTOCOL) => {
                self.connection.send_close_notify();
                let _ = self.flush(socket);
                let text = "TLS: the other end speaks another protocol: expected iogate/1 by ALPN";
                Err(self.fail(ErrorKind::PermissionDenied, text.into()))
            }
            Ok(_) if self.name.is_none() && !self.connection.is_handshaking() => {
                self.name = self.connection.peer_certificates().and_then(|all| common_name(all.first()?));
                if self.name.is_none() {
                    self.connection.send_close_notify();
                    let _ = self.flush(socket);
                    let text = "TLS: the client's certificate names nobody: expected one common name (CN)";
                    return Err(self.fail(ErrorKind::PermissionDenied, text.into()));
                }
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => {
                let (kind, text) = explain(&error, was_handshaking);
                Err(self.fail(kind, text))
            }
        }
    }

    /// Sends all that is encrypted, or fails with `WouldBlock` when there is no more room.
    fn flush(&mut self, socket: &PlainSocket) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Sink(socket))?;
        }
        Ok(())
    }

    fn fail(&mut self, kind: ErrorKind, text: String) -> io::Error {
        self.failure = Some((kind, text.clone()));
        io::Error::new(kind, text)
    }
}

/// The socket as rustls writes to it.
struct Sink<'a>(&'a PlainSocket);

impl Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What an error of rustls means here, and what to do.
fn explain(error: &Error, handshaking: bool) -> (ErrorKind, String) {
    match error {
        Error::InvalidCertificate(reason) => (
            ErrorKind::PermissionDenied,
            format!("TLS: the other end's certificate is not accepted: {reason}"),
        ),
        Error::NoCertificatesPresented => (
            ErrorKind::PermissionDenied,
            "TLS: the client shows no certificate: expected one by an authority in the listener's `clients`"
                .into(),
        ),
        Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied),
        ) => (
            ErrorKind::PermissionDenied,
            format!("TLS: the other end does not accept our certificate ({alert:?}): see its log"),
        ),
        Error::InvalidMessage(_) if handshaking => (
            ErrorKind::InvalidData,
            format!("TLS: the other end does not speak TLS ({error}): is `auth = \"tls\"` set at both ends?"),
        ),
        error => (ErrorKind::InvalidData, format!("TLS: {error}")),
    }
}

/// The one common name in a certificate.
fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let mut names = certificate.tbs_certificate().subject().iter().filter(|part| part.oid == COMMON_NAME);
    let (name, None) = (names.next()?, names.next()) else { return None };
    let text = match name.value.decode_as::<Utf8StringRef<'_>>() {
        Ok(text) => text.as_str().to_owned(),
        Err(_) => name.value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
    };
    Some(text).filter(|text| !text.is_empty())
}
