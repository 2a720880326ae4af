//! `[global]` of a policy: it is one over many gates.

use std::path::{Path, PathBuf};

use iogate_core::Span;
use iogate_core::global_policy::Terms;
use iogate_core::units::{parse_rate, parse_time};

use super::{Reader, SharesError, Value, integer};

const KEYS: [&str; 8] = ["coordinator", "gates", "total", "lease", "report", "skew", "absent", "tls"];
const TLS_KEYS: [&str; 3] = ["certificate", "key", "servers"];
/// Most gates that one coordinator knows.
const GATES_MAX: u32 = 1 << 16;

/// How a policy is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Where the coordinators are, of which one leads: `HOST:PORT`, `unix:PATH`.
    pub coordinators: Vec<String>,
    /// How many gates there are thought to be, where no coordinator has ever answered; at least 1.
    pub gates: u32,
    /// What a gate proves to coordinators by who it is, each on its own host; `None`: as is usual on a socket, or by MUNGE.
    pub tls: Option<TlsFiles>,
    /// What all gates and the coordinator go by, with the policy.
    pub terms: Terms,
}

/// Files in PEM, by absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The gate's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that sign coordinators' certificates.
    pub servers: PathBuf,
}

impl Reader<'_> {
    /// Reads it into `terms`, whose policy is read already.
    pub(super) fn global(&self, table: &Value<'_>, mut terms: Terms) -> Result<Global, SharesError> {
        let expected = "a table, as in [global] with coordinator and gates";
        let keys = table.get_ref().as_table().ok_or_else(|| self.wrong(table, "global", expected))?;
        for key in keys.keys() {
            self.known(key.get_ref(), key.span(), "global", &KEYS)?;
        }
        let lacks = |key: &str, expected: &str| SharesError {
            line: super::line(self.text, table.span()),
            why: format!("global.{key}: expected {expected}, found nothing"),
        };
        let expected =
            "where the coordinator is, as in \"io1:7100\" or \"unix:/run/iogate/coord\", or a list of them";
        let at = keys.get("coordinator").ok_or_else(|| lacks("coordinator", expected))?;
        let places: Option<Vec<String>> = match at.get_ref().as_array() {
            Some(places) => places.iter().map(|place| place.get_ref().as_str().map(Into::into)).collect(),
            None => at.get_ref().as_str().map(|place| vec![place.into()]),
        };
        let coordinators =
            places.filter(|places| !places.is_empty() && places.iter().all(|at| !at.is_empty()));
        let coordinators = coordinators.ok_or_else(|| self.wrong(at, "global.coordinator", expected))?;
        // Whoever reads the policy may be elsewhere than who wrote it, and may go elsewhere.
        let is_relative =
            |place: &String| place.strip_prefix("unix:").is_some_and(|path| !path.starts_with('/'));
        if coordinators.iter().any(is_relative) {
            let expected = "the absolute path of a socket, as in \"unix:/run/iogate/coord\"";
            return Err(self.wrong(at, "global.coordinator", expected));
        }
        let expected = format!("how many gates there are, a whole number from 1 to {GATES_MAX}");
        let gates = keys.get("gates").ok_or_else(|| lacks("gates", &expected))?;
        let fits = integer(gates).and_then(|count| u32::try_from(count).ok());
        let count = fits.filter(|count| (1..=GATES_MAX).contains(count));
        let gates = count.ok_or_else(|| self.wrong(gates, "global.gates", &expected))?;
        terms.policy.total =
            self.optional(keys, "global", "total", "a rate above 0, as in \"2GiB/s\"", |value| {
                parse_rate(value.get_ref().as_str()?)
            })?;
        for (key, span) in [
            ("lease", &mut terms.lease),
            ("report", &mut terms.every),
            ("skew", &mut terms.skew),
            ("absent", &mut terms.absent_max),
        ] {
            let read = |value: &Value<'_>| parse_time(value.get_ref().as_str()?);
            if let Some(time) = self.optional(keys, "global", key, "a time above 0, as in \"1s\"", read)? {
                *span = Span::from_nanos(time.get());
            }
        }
        if terms.every.as_nanos() > terms.lease.as_nanos() / 3 {
            let key = if keys.contains_key("report") { "report" } else { "lease" };
            let value = keys.get(key).unwrap_or(table);
            let expected =
                format!("report ({}) to be at most a third of lease ({})", terms.every, terms.lease);
            return Err(self.wrong(value, &format!("global.{key}"), &expected));
        }
        if terms.policy.total.is_none() && !terms.policy.has_cap() {
            return Err(lacks(
                "total",
                "a total, or a class or a group with a max: else there is nothing to share",
            ));
        }
        terms.policy.is_shared = true;
        let tls = keys.get("tls").map(|files| self.tls_files(files)).transpose()?;
        Ok(Global { coordinators, gates, tls, terms })
    }

    fn tls_files(&self, value: &Value<'_>) -> Result<TlsFiles, SharesError> {
        let expected = "a table, as in { certificate = \"/etc/iogate/gate.crt\", key = \"/etc/iogate/gate.key\", servers = \
                        \"/etc/iogate/ca.crt\" }";
        let keys = value.get_ref().as_table().ok_or_else(|| self.wrong(value, "global.tls", expected))?;
        for key in keys.keys() {
            self.known(key.get_ref(), key.span(), "global.tls", &TLS_KEYS)?;
        }
        let file = |key: &str| {
            let at = keys.get(key).ok_or_else(|| self.wrong(value, "global.tls", expected))?;
            // As for sockets.
            let path = at.get_ref().as_str().map(Path::new).filter(|path| path.is_absolute());
            let name = format!("global.tls.{key}");
            path.map(Into::into).ok_or_else(|| self.wrong(at, &name, "the absolute path of a PEM file"))
        };
        Ok(TlsFiles { certificate: file("certificate")?, key: file("key")?, servers: file("servers")? })
    }
}

#[cfg(test)]
mod tests {
    use crate::policy_file::Shares;

    #[test]
    fn a_coordinator_is_where_it_is_for_everybody() {
        for (coordinator, is_taken) in [
            ("\"unix:/run/coord\"", true),
            ("\"unix:coord\"", false),
            ("[\"io1:7100\", \"unix:../coord\"]", false),
        ] {
            let text = format!(
                "by = \"user\"\n[others]\nmax = \"1MB/s\"\n[global]\ncoordinator = {coordinator}\ngates = 2"
            );
            match Shares::parse(&text, &|_| None, &|_| None) {
                Ok(_) => assert!(is_taken, "{coordinator}"),
                Err(error) => {
                    assert!(!is_taken && error.line == 5, "{error}");
                    let said = "global.coordinator: expected the absolute path of a socket, as in";
                    assert!(error.why.starts_with(said), "{error}");
                }
            }
        }
    }
}
