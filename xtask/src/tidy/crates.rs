//! Crates from outside: where they come from, under which licences, and by which versions they are asked for.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use super::Finding;

/// The licences under which a crate may be used.
const LICENCES: [&str; 8] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// How cargo names the default registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages of `metadata`, which is what `cargo metadata` says with dependencies.
pub(crate) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let allowed: Vec<Licensee> =
        LICENCES.iter().map(|licence| Licensee::parse(licence)).collect::<Result<_, _>>()?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let mut findings = BTreeSet::new();
    for package in packages {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        match package["source"].as_str() {
            None => findings.extend(unversioned(package).map(|of| {
                format!("{name} asks for any version of {of}: expected one, as in `{of} = \"1\"`")
            })),
            Some(REGISTRY) => findings.extend(refused(package, &allowed).map(|why| format!("{name} {why}"))),
            Some(other) => {
                findings.insert(format!("{name} is from {other}: expected the default registry"));
            }
        }
    }
    Ok(findings.into_iter().map(|what| Finding::new("Cargo.lock", 0, what)).collect())
}

/// Why a package may not be used, if so.
fn refused(package: &Value, allowed: &[Licensee]) -> Option<String> {
    let expected = || format!("expected one of {}", LICENCES.join(", "));
    let Some(stated) = package["license"].as_str() else {
        return Some(format!("states no licence: {}", expected()));
    };
    // Old packages write `MIT/Apache-2.0`.
    match Expression::parse_mode(stated, ParseMode::LAX) {
        Ok(licence) => {
            let fits = licence.evaluate(|wanted| allowed.iter().any(|one| one.satisfies(wanted)));
            (!fits).then(|| format!("has the licence {stated}: {}", expected()))
        }
        Err(error) => {
            Some(format!("has a licence that is none ({stated}: {}): {}", error.reason, expected()))
        }
    }
}

/// The dependencies from outside that a package of ours asks for without a version.
fn unversioned(package: &Value) -> impl Iterator<Item = &str> {
    let asked = package["dependencies"].as_array().into_iter().flatten();
    asked.filter(|of| of["req"] == "*" && of["path"].is_null()).map(|of| text(&of["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(packages: &Value) -> Vec<String> {
        let found = check(&json!({ "packages": packages })).unwrap();
        found.iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn a_licence_is_one_of_those_that_are_allowed() {
        let of = |licence: Value| {
            found(&json!([{ "name": "a", "version": "1.0.0", "source": REGISTRY, "license": licence }]))
        };
        for fine in ["MIT", "MIT/GPL-3.0", "(GPL-2.0-only OR ISC) AND Zlib", "Apache-2.0 WITH LLVM-exception"]
        {
            assert_eq!(of(json!(fine)), [""; 0], "{fine}");
        }
        for refused in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "MIT WITH LLVM-exception"] {
            let found = of(json!(refused));
            assert!(
                found[0].starts_with(&format!("a 1.0.0 has the licence {refused}: expected")),
                "{found:?}"
            );
        }
        assert!(of(json!("my own"))[0].starts_with("a 1.0.0 has a licence that is none (my own: "));
        assert!(of(Value::Null)[0].starts_with("a 1.0.0 states no licence: expected one of Apache-2.0, "));
    }

    #[test]
    fn crates_come_from_the_default_registry() {
        let elsewhere = "git+https://example.org/a#1";
        let found =
            found(&json!([{ "name": "a", "version": "1.0.0", "source": elsewhere, "license": "MIT" }]));
        assert_eq!(found, [format!("a 1.0.0 is from {elsewhere}: expected the default registry")]);
    }

    #[test]
    fn our_own_packages_ask_for_versions() {
        let path = "/somewhere/iogate-core";
        let asked = json!([{ "name": "b", "req": "*" }, { "name": "iogate-core", "req": "*", "path": path }, { "name": "c", "req": "^1" }]);
        let found = found(&json!([{ "name": "iogate", "version": "0.2.0", "dependencies": asked }]));
        assert_eq!(found, ["iogate 0.2.0 asks for any version of b: expected one, as in `b = \"1\"`"]);
    }
}
