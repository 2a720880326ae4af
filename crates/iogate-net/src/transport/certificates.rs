//! Certificates, keys and authorities from files, for both ends of TLS connections.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use super::{PlainSocket, TlsSocket};

/// What both ends must speak inside, so that a certificate for another service's connections is of no use here.
pub(super) const PROTOCOL: &[u8] = b"iogate/1";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("cannot read {what} from {}: expected PEM (`-----BEGIN ...`): {source}", path.display())]
    File {
        /// What was expected.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// Others can read the key.
    #[error("every user of this host can read the private key {} (mode {mode:o}): chmod 600 it", path.display())]
    KeyForAll {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key is not that of the certificate, or of no known kind.
    #[error(
        "the certificate {} and the private key {} do not go together: {source}",
        certificate.display(),
        key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A certificate that cannot vouch for others.
    #[error("{} has a certificate that is no authority: {reason}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Not the name of a server.
    #[error("expected the server's host name or address, as in its certificate, found `{0}`")]
    ServerName(String),
    /// TLS cannot be set up for another reason.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// A server's certificate, and whose clients it lets in. TLS 1.3 only.
#[derive(Clone, Debug)]
pub struct TlsServer(Arc<ServerConfig>);

/// A client's certificate, and whose servers it trusts. TLS 1.3 only.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

impl TlsServer {
    /// Reads the server's certificate (with those between it and its authority, if any), its private key, and the authorities
    /// that sign clients' certificates. All three are PEM files.
    pub fn load(certificate: &Path, key: &Path, client_authorities: &Path) -> Result<TlsServer, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(authorities(client_authorities)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().map_err(
            |error| TlsError::Authority { path: client_authorities.into(), reason: error.to_string() },
        )?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|source| TlsError::Pair { certificate: certificate.into(), key: key.into(), source })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // A resumed connection would rest on a certificate that was verified some time ago.
        config.send_tls13_tickets = 0;
        Ok(TlsServer(Arc::new(config)))
    }

    /// The server's end of a connection. The handshake goes on with reads and writes.
    pub fn accept(&self, socket: PlainSocket) -> Result<TlsSocket, TlsError> {
        let connection = ServerConnection::new(self.0.clone())?;
        Ok(TlsSocket::new(socket, Connection::Server(connection), None))
    }
}

impl TlsClient {
    /// Reads the authorities that sign servers' certificates, the client's certificate (with those between it and its
    /// authority, if any) and its private key, all PEM files.
    pub fn load(server_authorities: &Path, certificate: &Path, key: &Path) -> Result<TlsClient, TlsError> {
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[&TLS13])?
                .with_root_certificates(authorities(server_authorities)?)
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|source| TlsError::Pair {
                    certificate: certificate.into(),
                    key: key.into(),
                    source,
                })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(TlsClient(Arc::new(config)))
    }

    /// The client's end of a connection to a server whose certificate must be for `server_name`, a host name or an address.
    /// The handshake goes on with reads and writes.
    pub fn connect(&self, socket: PlainSocket, server_name: &str) -> Result<TlsSocket, TlsError> {
        let server = ServerName::try_from(server_name.to_owned())
            .map_err(|_| TlsError::ServerName(server_name.into()))?;
        let connection = ClientConnection::new(self.0.clone(), server)?;
        Ok(TlsSocket::new(socket, Connection::Client(connection), Some(server_name.into())))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::File { what: "a certificate", path: path.into(), source };
    let all: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    match all.is_empty() {
        true => Err(wrong(pem::Error::NoItemsFound)),
        false => Ok(all),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Authority { path: path.into(), reason: error.to_string() })?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let wrong = |source| TlsError::File { what: "a private key", path: path.into(), source };
    let mode = std::fs::metadata(path).map_err(|error| wrong(pem::Error::Io(error)))?.permissions().mode();
    if mode & 0o004 != 0 {
        return Err(TlsError::KeyForAll { path: path.into(), mode: mode & 0o7777 });
    }
    PrivateKeyDer::from_pem_file(path).map_err(wrong)
}
