//! A gate's keys in the configuration file of `iogate serve`.

use std::collections::BTreeMap;
use std::path::Path;

use iogate_core::auto::Storage;
use iogate_core::nearest::{did_you_mean, nearest};
use iogate_core::sched::{ConfigError, param};
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::Accounts;
use iogate_vfs::policy_file::{FAIR, Shares};
use serde::Deserialize;

use crate::commands::policy;
use crate::storage::first_scheduler;

/// A scheduler with its parameters, and the bounds of a gate.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, toml::Value>")]
pub(crate) struct Gate {
    /// The one that is named; else the one that stays where nothing can be chosen.
    pub(crate) scheduler: SchedulerConfig,
    /// None is named, or `auto` is: it is chosen.
    pub(crate) auto: bool,
    pub(crate) depth: u32,
    pub(crate) queue: u32,
    /// Whether it keeps accounts of who slows whom down.
    pub(crate) accounts: Accounts,
    /// Who is entitled to what of it.
    pub(crate) shares: Option<Shares>,
}

impl Default for Gate {
    fn default() -> Gate {
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        Gate { scheduler, auto: true, depth: 16, queue: 65_536, accounts: Accounts::Sampled, shares: None }
    }
}

impl Gate {
    /// With this scheduler, or one that is chosen; where nothing can be, with the fixed one.
    pub(crate) fn of(pinned: Option<SchedulerConfig>, fixed: SchedulerKind) -> Gate {
        let auto = pinned.is_none();
        Gate { scheduler: pinned.unwrap_or_else(|| SchedulerConfig::new(fixed)), auto, ..Gate::default() }
    }

    /// For a gate over targets that `layout` tells apart, of the forwarder with this index,
    /// and in front of such a storage.
    pub(crate) fn config(&self, layout: Layout, known: &Storage, node: u32) -> GateConfig {
        let mut scheduler = match self.auto {
            true => first_scheduler(&layout, self.scheduler.kind(), known, self.depth),
            false => self.scheduler.clone(),
        };
        scheduler.set_node(node);
        GateConfig { scheduler, queue_max: self.queue, depth: self.depth, layout }
    }
}

/// The keys of a gate that are no parameters of its scheduler.
const KEYS: [&str; 6] = ["scheduler", "depth", "queue", "accounts", "fair", "policy"];

/// A parameter that the scheduler does not have may be another key, mistyped.
fn unknown(name: &str, error: &ConfigError) -> String {
    let no_param = matches!(error, ConfigError::UnknownParam { near: None, .. });
    match nearest(name, KEYS.into_iter()).filter(|_| no_param) {
        Some(near) => format!("unknown key '{name}'; did you mean '{near}'?"),
        None => error.to_string(),
    }
}

impl TryFrom<BTreeMap<String, toml::Value>> for Gate {
    type Error = String;

    fn try_from(mut table: BTreeMap<String, toml::Value>) -> Result<Gate, String> {
        let text = |value: toml::Value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        let mut gate = Gate::default();
        let named = table.remove("scheduler").map(text);
        if let Some(name) = named.as_deref().filter(|name| *name != "auto") {
            gate.scheduler = SchedulerConfig::by_name(name).map_err(|error| error.to_string())?;
            gate.auto = false;
        }
        for (name, most, value) in
            [("depth", 65_536, &mut gate.depth), ("queue", 16_777_216, &mut gate.queue)]
        {
            let Some(given) = table.remove(name) else { continue };
            *value = given
                .as_integer()
                .and_then(|number| u32::try_from(number).ok())
                .filter(|number| (1..=most).contains(number))
                .ok_or_else(|| format!("{name}: expected a number from 1 to {most}, found {given}"))?;
        }
        if let Some(given) = table.remove("accounts") {
            let expected = || format!("accounts: expected \"sampled\", \"on\" or \"off\", found {given}");
            gate.accounts = given.as_str().and_then(Accounts::by_name).ok_or_else(expected)?;
        }
        if let Some(given) = table.remove("fair") {
            let expected = || format!("fair: expected one of {}, found {given}", FAIR.join(", "));
            gate.shares = Some(given.as_str().and_then(Shares::equal).ok_or_else(expected)?);
        }
        if let Some(given) = table.remove("policy") {
            if gate.shares.is_some() {
                return Err("fair and policy: one of them says who is entitled to what".into());
            }
            let path = given.as_str().ok_or_else(|| format!("policy: expected a file, found {given}"))?;
            let read = policy::read(Path::new(path)).map_err(|failure| failure.in_full())?;
            gate.shares = Some(read.0);
        }
        for (name, value) in table {
            if name == param::NODE.name {
                return Err("node: it is said once for all gates, at the top of the file".into());
            }
            if gate.auto {
                return Err(match named {
                    Some(_) => format!(
                        "{name} = {value} and scheduler = \"auto\": what chooses a scheduler chooses its parameters, too"
                    ),
                    None => format!(
                        "{name} = {value}: {}expected a key of gates, or the scheduler whose parameter it is, as in scheduler = \"aioli\"",
                        did_you_mean(&nearest(&name, KEYS.into_iter()))
                    ),
                });
            }
            gate.scheduler.set(&name, &text(value)).map_err(|error| unknown(&name, &error))?;
        }
        Ok(gate)
    }
}
