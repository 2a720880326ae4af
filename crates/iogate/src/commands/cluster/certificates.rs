//! Certificates of a cluster over TCP: an authority of its own, which signs one certificate and is then forgotten. Who can read the
//! cluster's folder, its owner alone, has the key: to the nodes, and to come in.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Whom clients and nodes believe.
pub(crate) const AUTHORITY: &str = "ca.crt";
/// Who the nodes are, and whoever uses the cluster.
pub(crate) const CERTIFICATE: &str = "node.crt";
/// The key of it.
pub(crate) const KEY: &str = "node.key";

/// Whether [`make`] has made all of them.
pub(super) fn are_there(folder: &Path) -> bool {
    folder.join(AUTHORITY).is_file()
}

/// Makes the files in a cluster's folder, for nodes at these hosts. Fails if they cannot be written.
pub(super) fn make(folder: &Path, name: &str, hosts: Vec<String>) -> anyhow::Result<()> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, format!("iogate cluster {name}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().context("the authority's key")?;
    let authority_text = authority.self_signed(&authority_key).context("the authority")?.pem();
    let mut node = CertificateParams::new(hosts).context("the hosts of the nodes")?;
    node.distinguished_name.push(DnType::CommonName, common_name(name));
    node.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().context("the nodes' key")?;
    let certificate =
        node.signed_by(&key, &Issuer::new(authority, authority_key)).context("the certificate")?;
    // The last one is there only if all are.
    let files = [(KEY, key.serialize_pem()), (CERTIFICATE, certificate.pem()), (AUTHORITY, authority_text)];
    for (file, _) in files.iter().rev() {
        // Those of an earlier time may not be overwritten while somebody reads them.
        let _ = std::fs::remove_file(folder.join(file));
    }
    for (file, text) in files {
        let path = folder.join(file);
        let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The name in the nodes' certificate.
pub(super) fn common_name(name: &str) -> String {
    format!("iogate-{name}")
}
