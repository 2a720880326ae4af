//! Which clients have locks, in a file: a server that is started again tells them, so that they ask for their locks again.
//!
//! A line is an address and the client's name in hexadecimal digits. The file is replaced as a whole, and durable before a client is given
//! its first lock.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use iogate_vfs::held::{file_in, set_file_in};

use super::hosts::HostName;

const FILE: &str = "nfs-lock-clients";

/// The file.
#[derive(Debug)]
pub(super) struct Kept(OwnedFd);

impl Kept {
    /// In a folder.
    pub(super) fn new(folder: OwnedFd) -> Kept {
        Kept(folder)
    }

    /// The clients that it has. Lines that are none are left out.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(super) fn read(&self) -> io::Result<BTreeSet<HostName>> {
        let content = file_in(&self.0, FILE)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&content).lines().filter_map(parse).collect())
    }

    /// Replaces it, durably.
    ///
    /// # Errors
    /// The one before is there then.
    pub(super) fn write(&self, hosts: &BTreeSet<HostName>) -> io::Result<()> {
        let text: String = hosts.iter().map(line).collect();
        set_file_in(&self.0, FILE, text.as_bytes())
    }
}

fn line(host: &HostName) -> String {
    let name: String = host.name.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {name}\n", host.address)
}

fn parse(line: &str) -> Option<HostName> {
    let (address, name) = line.split_once(' ')?;
    let digits = |at: usize| u8::from_str_radix(name.get(at..at + 2)?, 16).ok();
    let name = (0..name.len()).step_by(2).map(digits).collect::<Option<Vec<u8>>>()?;
    Some(HostName { address: address.parse().ok()?, name })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let kept = || Kept::new(File::open(folder.path()).unwrap().into());
        assert_eq!(kept().read().unwrap(), BTreeSet::new());
        let host =
            |address: &str, name: &[u8]| HostName { address: address.parse().unwrap(), name: name.to_vec() };
        let hosts =
            BTreeSet::from([host("10.0.0.1", b"a b\n\xff"), host("fe80::1", b""), host("10.0.0.1", b"c")]);
        kept().write(&hosts).unwrap();
        assert_eq!(kept().read().unwrap(), hosts);
        let mut text = std::fs::read(folder.path().join(FILE)).unwrap();
        text.extend_from_slice(b"nobody 00\n10.0.0.2\n10.0.0.2 0\n10.0.0.2 zz\n");
        std::fs::write(folder.path().join(FILE), text).unwrap();
        assert_eq!(kept().read().unwrap(), hosts);
    }
}
