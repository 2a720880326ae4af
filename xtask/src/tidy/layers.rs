//! Dependencies between the crates of the workspace point one way.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Finding, Tree};

/// The crates from the bottom up: each may depend on those before it.
const LAYERS: [&str; 15] = [
    "iogate-core",
    "iogate-engine",
    "iogate-gate",
    "iogate-agios",
    "iogate-vfs",
    "iogate-fuse",
    "iogate-nfs",
    "iogate-net",
    "iogate-turn",
    "iogate-preload",
    "iogate-sim",
    "iogate-report",
    "iogate-python",
    "iogate",
    "iogate-lab",
];
/// Drives the core in virtual time: with nothing else of ours, it cannot depend on real time or real files.
const CORE_ONLY: [&str; 2] = ["iogate-sim", "iogate-testkit"];
/// What speaks to other machines: a mount of a local directory links none of it, as its crate is below.
const NETWORK: &str = "iogate-net";
/// The crates from elsewhere that only [`NETWORK`] may use.
const NETWORK_ONLY: [&str; 2] = ["rustls", "ureq"];
/// May use [`NETWORK`] in its tests: they mount what they serve.
const TESTED_WITH_NETWORK: &str = "iogate-fuse";
/// For tests: no crate may need it to be built but [`LAB`], which is for tests itself.
const DEV_ONLY: &str = "iogate-testkit";
/// Simulated worlds: no other crate needs them, and what they drive is pure, or waits in calls of theirs only.
const LAB: &str = "iogate-lab";
const LAB_MAY_USE: [&str; 6] =
    ["iogate-core", "iogate-engine", "iogate-vfs", "iogate-nfs", "iogate-sim", "iogate-testkit"];
/// Rooms of [`NETWORK`] that know what is below them, and nothing of each other.
const APART: [&str; 4] = ["client", "coordinator", "server", "turns"];
const CORE: &str = "iogate-core";
/// The crates from elsewhere that the core may use: without an operating system all of them.
const CORE_MAY_USE: [&str; 6] = ["crc32fast", "hashbrown", "libm", "serde", "serde_json", "thiserror"];
const CORE_MUST_SAY: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];

/// Checks what `cargo metadata --no-deps` says of the workspace, and what the core says of itself.
pub(crate) fn check(metadata: &Value, tree: &Tree) -> Result<Vec<Finding>> {
    let list = |value: &Value, key: &str| -> Result<Vec<Value>> {
        Ok(value[key].as_array().with_context(|| format!("cargo metadata has no list `{key}`"))?.clone())
    };
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let packages = list(metadata, "packages")?;
    let ours: Vec<String> = packages.iter().map(|package| text(package, "name")).collect();

    let mut findings = Vec::new();
    for (name, package) in ours.iter().zip(&packages) {
        if name == "xtask" {
            continue;
        }
        let manifest = format!("crates/{name}/Cargo.toml");
        let level = LAYERS.iter().position(|layer| layer == name);
        if level.is_none() && name != DEV_ONLY {
            findings.push(Finding::new(
                &manifest,
                0,
                format!("`{name}` has no place in LAYERS in {}", file!()),
            ));
            continue;
        }
        for dependency in list(package, "dependencies")? {
            let on = text(&dependency, "name");
            let dev = dependency["kind"] == "dev";
            let problem = if !ours.contains(&on) {
                if name == CORE && !dev && !CORE_MAY_USE.contains(&&on[..]) {
                    Some(format!("`{CORE}` may use {CORE_MAY_USE:?} only, not `{on}`"))
                } else {
                    (name != NETWORK && !dev && NETWORK_ONLY.contains(&&on[..]))
                        .then(|| format!("only `{NETWORK}` may use `{on}`"))
                }
            } else if name == TESTED_WITH_NETWORK && on == NETWORK && dev {
                None
            } else if name == LAB {
                (!LAB_MAY_USE.contains(&&on[..]))
                    .then(|| format!("`{LAB}` may use {LAB_MAY_USE:?} only, not `{on}`"))
            } else if on == DEV_ONLY {
                (!dev).then(|| format!("`{DEV_ONLY}` is a dev-dependency only"))
            } else if CORE_ONLY.contains(&&name[..]) {
                (on != CORE && !dev).then(|| format!("`{name}` depends on `{CORE}` only, not on `{on}`"))
            } else {
                let below = LAYERS.iter().position(|layer| *layer == on);
                (below.is_none() || below >= level)
                    .then(|| format!("`{name}` is below `{on}` and cannot depend on it"))
            };
            findings.extend(problem.map(|what| Finding::new(&manifest, 0, what)));
        }
    }

    let root = "crates/iogate-core/src/lib.rs";
    let core = tree.get(root).unwrap_or_default();
    for attribute in CORE_MUST_SAY {
        if !core.lines().any(|line| line.trim() == attribute) {
            findings.push(Finding::new(root, 0, format!("`{attribute}` is missing")));
        }
    }
    findings.extend(apart(tree));
    Ok(findings)
}

/// Where a room of the network's, or what is below them, names one that it does not know.
fn apart(tree: &Tree) -> Vec<Finding> {
    let folder = format!("crates/{NETWORK}/src/");
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        // `lib.rs` has them all.
        let Some(room) = path.strip_prefix(&folder).filter(|file| *file != "lib.rs") else { continue };
        let own = room.split(['/', '.']).next().unwrap_or_default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            let named = |other: &&&str| {
                line.match_indices("crate::").any(|(at, found)| {
                    let rest = &line[at + found.len()..];
                    let names = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
                    let count = if rest.starts_with('{') { usize::MAX } else { 1 };
                    names.take(count).any(|name| name == **other)
                })
            };
            for other in APART.iter().filter(|other| **other != own).filter(named) {
                let what =
                    format!("`{own}` does not know `{other}`: what both need is in `transport` or below");
                findings.push(Finding::new(path, index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURE: &str = "//! Pure.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    /// `(crate, [(dependency, kind)])`, to what was found.
    fn found(crates: &[(&str, &[(&str, &str)])]) -> Vec<String> {
        let packages: Vec<Value> = crates
            .iter()
            .map(|(name, dependencies)| {
                let dependencies: Vec<Value> = dependencies
                    .iter()
                    .map(|(name, kind)| {
                        let kind = if kind.is_empty() { Value::Null } else { Value::from(*kind) };
                        serde_json::json!({ "name": name, "kind": kind })
                    })
                    .collect();
                serde_json::json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        let tree = Tree::from([("crates/iogate-core/src/lib.rs", PURE)]);
        let findings = check(&serde_json::json!({ "packages": packages }), &tree).unwrap();
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_that_point_down_are_fine() {
        let crates: &[(&str, &[(&str, &str)])] = &[
            ("iogate-core", &[("hashbrown", ""), ("proptest", "dev"), ("iogate-testkit", "dev")]),
            ("iogate-engine", &[("iogate-core", ""), ("libc", "")]),
            ("iogate-sim", &[("iogate-core", ""), ("csv", "")]),
            ("iogate-testkit", &[("iogate-core", ""), ("proptest", "")]),
            ("iogate", &[("iogate-core", ""), ("iogate-engine", ""), ("iogate-sim", "")]),
            ("xtask", &[("anyhow", "")]),
        ];
        assert_eq!(found(crates), Vec::<String>::new());
    }

    #[test]
    fn dependencies_that_point_up_or_sideways_are_found() {
        for (name, on, kind) in [
            ("iogate-core", "iogate-engine", ""),
            ("iogate-engine", "iogate-fuse", ""),
            ("iogate-engine", "iogate", "dev"),
            ("iogate-sim", "iogate-engine", ""),
            ("iogate-fuse", "iogate-testkit", ""),
            ("iogate-engine", "iogate-testkit", "build"),
            ("iogate-testkit", "iogate-engine", ""),
        ] {
            let found = found(&[(name, &[(on, kind)]), (on, &[])]);
            assert_eq!(found.len(), 1, "{name} on {on}: {found:?}");
            assert!(found[0].starts_with(&format!("crates/{name}/Cargo.toml: ")), "{found:?}");
        }
    }

    #[test]
    fn what_mounts_links_no_network() {
        for (on, kind) in [("iogate-net", ""), ("iogate-net", "build"), ("iogate-turn", ""), ("rustls", "")] {
            let found = found(&[("iogate-fuse", &[(on, kind)]), ("iogate-net", &[]), ("iogate-turn", &[])]);
            assert_eq!(found.len(), 1, "on {on}: {found:?}");
        }
        let fine: &[(&str, &[(&str, &str)])] = &[
            ("iogate-vfs", &[]),
            ("iogate-fuse", &[("iogate-vfs", ""), ("iogate-net", "dev")]),
            ("iogate-net", &[("iogate-vfs", ""), ("rustls", ""), ("ureq", "")]),
        ];
        assert_eq!(found(fine), Vec::<String>::new());
        assert_eq!(found(&[("iogate-vfs", &[("iogate-net", "dev")]), ("iogate-net", &[])]).len(), 1);
    }

    #[test]
    fn the_core_uses_few_crates_and_every_crate_has_a_place() {
        assert!(found(&[("iogate-core", &[("libc", "")])])[0].contains("not `libc`"));
        assert!(found(&[("iogate-core", &[("libc", "build")])])[0].contains("not `libc`"));
        assert!(found(&[("iogate-extra", &[])])[0].contains("no place"));
    }

    #[test]
    fn rooms_of_the_network_know_nothing_of_each_other() {
        let found = |path: &str, line: &str| {
            let tree = Tree::from([(&format!("crates/iogate-net/src/{path}")[..], line)]);
            apart(&tree).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for line in [
            "use crate::server::Listener;",
            "    crate::server::random(&mut id)?;",
            "use crate::{client, server};",
        ] {
            let said = found("turns/held.rs", line);
            assert!(
                !said.is_empty() && said[0].starts_with("crates/iogate-net/src/turns/held.rs:1: "),
                "{said:?}"
            );
        }
        assert_eq!(found("transport/poll.rs", "use crate::client::Client;").len(), 1);
        assert_eq!(found("system.rs", "use crate::turns::Held;").len(), 1);
        for (path, line) in [
            ("turns/held.rs", "use crate::transport::Socket;"),
            ("turns/held.rs", "/// A [`Status`](crate::server::Status)."),
            ("server/mod.rs", "use crate::server::session::Session;"),
            ("server/mod.rs", "use crate::transport::client::X;"),
            ("lib.rs", "pub use crate::server::Server;"),
        ] {
            assert_eq!(found(path, line), Vec::<String>::new());
        }
    }

    #[test]
    fn the_core_says_that_it_is_pure() {
        let check = |text: &str| {
            let tree = Tree::from([("crates/iogate-core/src/lib.rs", text)]);
            check(&serde_json::json!({ "packages": [] }), &tree).unwrap().len()
        };
        assert_eq!(check(PURE), 0);
        assert_eq!(check("//! Pure.\n#![no_std]\n// #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(check(""), 2);
    }
}
