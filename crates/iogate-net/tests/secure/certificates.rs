//! Authorities and certificates in files, made for a test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use iogate_net::transport::{TlsClient, TlsServer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority that signs certificates into files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: PathBuf,
    pub(crate) dir: PathBuf,
}

/// The files of a certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = dir.join(format!("{name}.crt"));
        std::fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), certificate, dir: dir.into() }
    }

    pub(crate) fn sign(&self, file: &str, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let pair = Pair {
            certificate: self.dir.join(format!("{file}.crt")),
            key: self.dir.join(format!("{file}.key")),
        };
        std::fs::write(&pair.certificate, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        write_key(&pair.key, &key.serialize_pem());
        pair
    }
}

pub(crate) fn write_key(path: &Path, pem: &str) {
    std::fs::write(path, pem).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.into()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub(crate) fn expired(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params
}

/// A server `io1`, a client `alice`, both of the authority `cluster`.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cluster: Authority,
    pub(crate) stranger: Authority,
    pub(crate) server: Pair,
    pub(crate) client: Pair,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Authority::new(dir.path(), "cluster");
        let stranger = Authority::new(dir.path(), "stranger");
        let server = cluster.sign("io1", &named("io1"));
        let client = cluster.sign("alice", &named("alice"));
        Stage { dir, cluster, stranger, server, client }
    }

    pub(crate) fn server(&self) -> TlsServer {
        self.server_with(&self.server)
    }

    pub(crate) fn server_with(&self, pair: &Pair) -> TlsServer {
        TlsServer::load(&pair.certificate, &pair.key, &self.cluster.certificate).unwrap()
    }

    pub(crate) fn client(&self) -> TlsClient {
        self.client_with(&self.client)
    }

    pub(crate) fn client_with(&self, pair: &Pair) -> TlsClient {
        TlsClient::load(&self.cluster.certificate, &pair.certificate, &pair.key).unwrap()
    }
}
