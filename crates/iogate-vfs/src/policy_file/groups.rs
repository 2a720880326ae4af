//! `[group.NAME]` of a policy: groups of users, and users within them; or accounts, and jobs within them.

use iogate_core::AppId;
use iogate_core::policy::{BRANCHES_MAX, Branch, Entitlement, Rate, TreeError};
use toml::Spanned;

use super::{ClassBy, DeString, KEYS, Names, Reader, Seen, Shares, SharesError, Value, line, rate_shown};
use crate::app::{application_of_account, application_of_group};

const GROUP_KEYS: [&str; 7] = ["weight", "min", "max", "min_requests", "max_requests", "others", "class"];

/// A group of users, or an account of jobs, as a file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What the file calls it.
    pub name: String,
    /// The class; `None`: there is no group of this name here.
    pub class: Option<AppId>,
    /// What its users or jobs are entitled to together.
    pub entitlement: Entitlement,
    /// What each of them is entitled to that is not named.
    pub others: Entitlement,
    /// Those that are named, in the order of the file.
    pub names: Names,
}

impl Reader<'_> {
    /// Reads all groups, which the policy then has.
    pub(super) fn groups(
        &self,
        (key, groups): (&Spanned<DeString<'_>>, &Value<'_>),
        shares: &mut Shares,
        seen: &mut Seen,
    ) -> Result<(), SharesError> {
        if !matches!(shares.by, ClassBy::User | ClassBy::Job) {
            let why = format!(
                "group: expected by = \"user\" or \"job\" (\"group/user\", \"account/job\") with groups, found \"{}\"",
                shares.by
            );
            return Err(SharesError { line: line(self.text, key.span()), why });
        }
        let expected = "tables of groups, as in [group.physics]";
        let table = groups.get_ref().as_table().ok_or_else(|| self.wrong(groups, "group", expected))?;
        // As they stand in the file.
        let mut tables: Vec<_> = table.iter().collect();
        tables.sort_by_key(|(key, _)| key.span().start);
        for &(key, value) in &tables {
            let group = self.group(key.get_ref(), value, shares.by, seen)?;
            if let Some(class) = group.class {
                let Group { entitlement, others, .. } = group;
                let branch = Branch { entitlement, others, within: None };
                if shares.policy.branches.insert(class, branch).is_some() {
                    let before = shares.groups.iter().find(|one| one.class == Some(class));
                    let before = before.map_or("", |one| &one.name);
                    let why = format!(
                        "group.{}: expected each group once, found the one of group.{before}",
                        group.name
                    );
                    return Err(SharesError { line: line(self.text, key.span()), why });
                }
                for (_, app, entitlement) in &group.names {
                    let Some(app) = *app else { continue };
                    shares.policy.apps.insert(app, *entitlement);
                    shares.policy.within.insert(app, class);
                }
            }
            shares.groups.push(group);
        }
        // Once for all of them: a check looks at each pair.
        let Err(error) = shares.policy.check_tree() else { return Ok(()) };
        let mut known = shares.groups.iter().zip(&tables).filter(|(group, _)| group.class.is_some());
        let at_fault = match error {
            TreeError::FloorsAbove(app, ..) => known.find(|(group, _)| group.class == Some(app)),
            _ => known.nth(BRANCHES_MAX),
        };
        let (key, value) = at_fault.map_or((key, groups), |(_, table)| *table);
        Err(self.no_tree(key, value, error))
    }

    fn group(
        &self,
        name: &str,
        value: &Value<'_>,
        by: ClassBy,
        seen: &mut Seen,
    ) -> Result<Group, SharesError> {
        let place = format!("group.{name}");
        let entitlement = self.entitlement(value, &place, &GROUP_KEYS)?;
        let table = value.get_ref().as_table();
        let others = match table.and_then(|table| table.get("others")) {
            Some(others) => self.entitlement(others, &format!("{place}.others"), &KEYS)?,
            None => Entitlement::default(),
        };
        let names = match table.and_then(|table| table.get("class")) {
            Some(classes) => self.classes(classes, &format!("{place}."), by, seen)?,
            None => Names::new(),
        };
        let class = match by {
            ClassBy::Job => Some(application_of_account(name)),
            _ => name.parse().ok().or_else(|| (self.group)(name)).map(application_of_group),
        };
        Ok(Group { name: name.into(), class, entitlement, others, names })
    }

    /// What is wrong with a group, or with one more of them.
    fn no_tree(&self, key: &Spanned<DeString<'_>>, value: &Value<'_>, error: TreeError) -> SharesError {
        let place = format!("group.{}", key.get_ref());
        if let TreeError::FloorsAbove(_, name, sum, _) = error {
            let most = if name == "min" { "max" } else { "max_requests" };
            let at =
                |key| value.get_ref().as_table().and_then(|table| table.get(key)).map(|value| (key, value));
            if let Some((key, value)) = at(name).or_else(|| at(most)) {
                let sum = sum.try_into().ok();
                let rate = match name {
                    "min" => Rate { bytes: sum, requests: None },
                    _ => Rate { bytes: None, requests: sum },
                };
                let sum = rate_shown(rate).unwrap_or_default();
                let expected = format!("at least {sum}, what those within it are promised together");
                return self.wrong(value, &format!("{place}.{key}"), &expected);
            }
        }
        SharesError { line: line(self.text, key.span()), why: format!("{place}: {error}") }
    }
}
