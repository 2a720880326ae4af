//! Policies by path, for tests of what has files and a gate.

use std::collections::BTreeMap;

use iogate_engine::{ClassBy, Engine};
use iogate_vfs::policy_file::Shares;

/// Has the gate divide by path: each glob is a class.
pub(crate) fn divide_by_path(engine: &Engine, globs: &[&str]) {
    let classes: String = globs.iter().map(|glob| format!("[class.\"{glob}\"]\n")).collect();
    let shares = Shares::parse(&format!("by = \"path\"\n{classes}"), &|_| None, &|_| None).unwrap();
    engine.set_policy(Some((ClassBy::Path, &shares.policy))).unwrap();
}

/// How many bytes were read and written of the files of each class, by what it is called.
pub(crate) fn bytes_by_class(engine: &Engine) -> BTreeMap<String, u64> {
    let apps = engine.with_gate(|gate, _| gate.stats().apps.clone());
    let called = |app| engine.paths_called(app).unwrap_or_else(|| format!("application {app}"));
    apps.iter().map(|(app, sums)| (called(*app), sums.bytes)).collect()
}

/// The same, to compare with.
pub(crate) fn bytes<const N: usize>(classes: [(&str, u64); N]) -> BTreeMap<String, u64> {
    classes.map(|(called, bytes)| (called.to_owned(), bytes)).into()
}
