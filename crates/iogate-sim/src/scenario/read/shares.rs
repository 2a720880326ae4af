//! What applications get at gates that are fair, and the groups that they are in.

use std::num::NonZeroU64;

use iogate_core::nearest::nearest;
use iogate_core::policy::{Entitlement, Rate, TreeError};

use super::cluster::is_name;
use crate::scenario::table::Table;
use crate::scenario::{App, Cluster, Group, shares};

/// The groups of a scenario, with their tables.
pub(super) struct Groups<'a> {
    tables: Vec<Table<'a>>,
    groups: Vec<Group>,
}

impl<'a> Groups<'a> {
    pub(super) fn read(root: &Table<'a>, cluster: &Cluster) -> Groups<'a> {
        let group = |(name, table): (String, Table<'a>)| {
            if !is_name(&name) {
                let text = format!(
                    "a group called '{name}': expected letters, digits, - and _, at least one letter"
                );
                table.unfit("weight", text);
            }
            (Group { name, entitlement: entitlement(&table, cluster) }, table)
        };
        let (groups, tables) = root.tables("group").into_iter().map(group).unzip();
        Groups { tables, groups }
    }

    /// The group that an application's table names, as an index.
    pub(super) fn named(&self, app: &Table<'_>, cluster: &Cluster) -> Option<u32> {
        let name = app.optional_text("group")?;
        check_fair(app, cluster, &["group"]);
        let found = (0..).zip(&self.groups).find(|(_, group)| group.name == name);
        if found.is_none() {
            let names: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
            let path = app.path_of("group");
            let expected = match (nearest(&name, names.iter().copied()), names.is_empty()) {
                (Some(near), _) => {
                    format!("did you mean '{near}'? expected one of: {}", names.join(", "))
                }
                (None, false) => format!("expected one of: {}", names.join(", ")),
                (None, true) => format!("add [group.{name}], or leave it out"),
            };
            app.unfit("group", format!("{path} = {name}: no such group; {expected}"));
        }
        found.map(|(index, _)| index)
    }

    /// Checks what concerns them and these applications together, where all of them are right by themselves.
    pub(super) fn checked(self, apps: &[App]) -> Vec<Group> {
        if self.tables.iter().any(|table| !table.problems().is_empty()) {
            return self.groups;
        }
        for (index, (group, table)) in (0..).zip(self.groups.iter().zip(&self.tables)) {
            if !apps.iter().any(|app| app.group == Some(index)) {
                let name = &group.name;
                let text = format!("no application is in group.{name}: name it in a `group`, or remove it");
                table.unfit("weight", text);
            }
        }
        if let Err(error) = shares::policy(&self.groups, apps, None).check_tree() {
            let at = match error {
                TreeError::FloorsAbove(class, ..) => {
                    (0..).zip(&self.groups).position(|(index, _)| shares::class(index) == class)
                }
                _ => None,
            };
            self.unfit(at.unwrap_or_default(), error);
        }
        self.groups
    }

    fn unfit(&self, at: usize, error: TreeError) {
        let (group, table) = (&self.groups[at], &self.tables[at]);
        let name = &group.name;
        match error {
            TreeError::FloorsAbove(_, _, sum, own) => {
                let key = if table.has("min") { "min" } else { "max" };
                let text = format!(
                    "group.{name}.{key} is {own} bytes a second, and those in it are promised {sum} together: \
                     expected at least that"
                );
                table.unfit(key, text);
            }
            error => table.unfit("weight", format!("group.{name}: {error}")),
        }
    }
}

/// What an application or a group gets at gates that are fair.
pub(super) fn entitlement(table: &Table<'_>, cluster: &Cluster) -> Entitlement {
    check_fair(table, cluster, &["weight", "min", "max"]);
    let rate = |key| Rate { bytes: table.optional(key).and_then(NonZeroU64::new), requests: None };
    let (min, max) = (rate("min"), rate("max"));
    if let (Some(least), Some(most)) = (min.bytes, max.bytes)
        && least > most
    {
        table
            .unfit("min", format!("min is {least} bytes a second, above max, {most}: expected at most that"));
    }
    Entitlement { weight: table.small("weight"), min, max }
}

/// Refuses keys that say something of shares where no gate has any.
fn check_fair(table: &Table<'_>, cluster: &Cluster, keys: &[&str]) {
    let upper = cluster.clients.gate.iter().chain(cluster.forwarders.iter().map(|layer| &layer.gate));
    let is_fair = upper.chain([&cluster.servers.gate]).any(|gate| gate.fair);
    for key in keys.iter().filter(|key| !is_fair && table.has(key)) {
        table.unfit(key, format!("{key}: no gate divides anything; set servers.gate.fair = true"));
    }
}
