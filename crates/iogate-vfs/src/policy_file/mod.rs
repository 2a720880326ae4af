//! The file that says who is entitled to what (docs/policy.md), as TOML.
//!
//! It is checked whole: it is right, or nothing of it counts. The error names the line and the key.

mod global;
mod groups;
mod paths;
mod shown;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use iogate_core::global_policy::Terms;
use iogate_core::nearest::nearest;
use iogate_core::policy::{Entitlement, OtherBranches, Policy, Rate, WEIGHT_MAX};
use iogate_core::units::{parse_rate, parse_time};
use iogate_core::{AppId, Span};
use iogate_engine::{Accounts, ClassBy, Coordinates, Engine};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::app::{
    REST_OF_GROUPS, application_of_account, application_of_glob, application_of_group, application_of_user,
    application_of_word,
};
pub use global::Global;
pub use groups::Group;
pub use paths::overlaps;
pub use shown::{Shown, in_short, rate_shown};

/// Bytes of a policy that a mount or a server takes.
pub const BYTES_MAX: usize = 60 << 10;

const TOP: [&str; 6] = ["by", "lot", "others", "class", "group", "global"];
/// Groups are classes, and users within them.
const BY_GROUP: &str = "group/user";
/// Accounts are classes, and jobs within them.
const BY_ACCOUNT: &str = "account/job";
/// What a policy may divide by.
const BY: [&str; 7] = ["user", "job", "app", "account", "path", BY_GROUP, BY_ACCOUNT];
/// What each may have an equal share of which: without globs, all files would be one class.
pub const FAIR: [&str; 6] = ["user", "job", "app", "account", BY_GROUP, BY_ACCOUNT];
const KEYS: [&str; 5] = ["weight", "min", "max", "min_requests", "max_requests"];

/// Classes by what a file calls them.
pub type Names = Vec<(String, Option<AppId>, Entitlement)>;

/// Who is entitled to what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// What a class is.
    pub by: ClassBy,
    /// The classes, by what requests have as their application.
    pub policy: Policy,
    /// What the file calls them, in its order; `None`: there is no user of this name here.
    pub names: Names,
    /// Likewise the groups of users, or accounts of jobs, with who is named in them.
    pub groups: Vec<Group>,
    /// Many gates share it; `None`: it is that of one gate.
    pub global: Option<Global>,
}

/// What a policy asks of the system that it is in force on.
pub trait System {
    /// The number of a user of this system.
    fn user(&self, name: &str) -> Option<u32>;

    /// The number of a group of this system.
    fn group(&self, name: &str) -> Option<u32>;

    /// Who divides a policy that many gates share, for one gate. The error is for people.
    fn coordinator(&self, global: &Global) -> Result<Arc<dyn Coordinates>, String>;
}

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct SharesError {
    /// Where, from 1 on.
    pub line: usize,
    /// The key, what was expected and what was found.
    pub why: String,
}

impl Shares {
    /// An equal share for each of what one of [`FAIR`] names.
    pub fn equal(by: &str) -> Option<Shares> {
        if FAIR.contains(&by) { Shares::by_name(by) } else { None }
    }

    fn by_name(by: &str) -> Option<Shares> {
        let within = match by {
            BY_GROUP => ClassBy::User,
            BY_ACCOUNT => ClassBy::Job,
            _ => return ClassBy::by_name(by).map(|by| Shares { by, ..Shares::default() }),
        };
        let mut shares = Shares { by: within, ..Shares::default() };
        shares.policy.other_branches =
            Some(OtherBranches { rest: REST_OF_GROUPS, ..OtherBranches::default() });
        Some(shares)
    }

    /// What it divides by, as the file says it.
    pub fn by(&self) -> &'static str {
        by(&self.policy, self.by)
    }

    /// What each is entitled to that is named nowhere: each other group or account, where it divides by those, else each other class.
    pub fn others(&self) -> &Entitlement {
        others(&self.policy)
    }

    /// Reads a policy. `user` and `group` know users and groups of this system by their names.
    ///
    /// # Errors
    /// Says what is wrong first.
    pub fn parse(
        text: &str,
        user: &dyn Fn(&str) -> Option<u32>,
        group: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Shares, SharesError> {
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            SharesError { line: line(text, at), why: error.message().lines().collect::<Vec<_>>().join(", ") }
        })?;
        Reader { text, user, group }.document(document.get_ref())
    }

    /// Puts it in force.
    ///
    /// # Errors
    /// Says what a gate does not take; the policy before stays.
    pub fn set(&self, engine: &Engine, system: &dyn System) -> Result<(), String> {
        if let Some(global) = &self.global {
            let coordinator = system.coordinator(global)?;
            return engine.share_policy(self.by, global.terms.clone(), global.gates, coordinator);
        }
        engine.set_policy(Some((self.by, &self.policy))).map_err(|error| error.to_string())
    }
}

/// Changes settings of a gate by a text: `policy=` and the text of a policy, `policy=none`, `fair=user` (or what else [`FAIR`] has),
/// `accounts=on` (`off`, `asked`), or what [`Engine::set`] takes. The error is for people, and what was in force stays.
pub fn set(engine: &Engine, text: &str, node: u32, system: &dyn System) -> Result<(), String> {
    if let Some(policy) = text.strip_prefix("policy=") {
        if policy == "none" {
            return engine.set_policy(None).map_err(|error| error.to_string());
        }
        let shares = Shares::parse(policy, &|name| system.user(name), &|name| system.group(name));
        return shares.map_err(|error| format!("the policy, {error}"))?.set(engine, system);
    }
    if let Some(by) = text.strip_prefix("fair=") {
        let shares = Shares::equal(by);
        let expected = || format!("fair: expected one of {}, found {by}", FAIR.join(", "));
        return shares.ok_or_else(expected)?.set(engine, system);
    }
    if let Some(kept) = text.strip_prefix("accounts=") {
        let accounts = Accounts::by_name(kept);
        engine.keep_accounts(
            accounts.ok_or_else(|| format!("accounts: expected on, off or asked, found {kept}"))?,
        );
        return Ok(());
    }
    engine.set(text, node)
}

/// The application of a user's requests, where a policy divides by user. The first time, the gate is told of his group, if it matters.
pub fn application(engine: &Engine, uid: u32, gid: u32) -> AppId {
    engine.placed(application_of_user(uid), application_of_group(gid))
}

fn by(policy: &Policy, by: ClassBy) -> &'static str {
    match by {
        ClassBy::Job if policy.other_branches.is_some() => BY_ACCOUNT,
        _ if policy.other_branches.is_some() => BY_GROUP,
        _ => by.name(),
    }
}

fn others(policy: &Policy) -> &Entitlement {
    policy.other_branches.as_ref().map_or(&policy.others, |others| &others.entitlement)
}

struct Reader<'a> {
    text: &'a str,
    user: &'a dyn Fn(&str) -> Option<u32>,
    group: &'a dyn Fn(&str) -> Option<u32>,
}

/// Which classes were read, and where.
type Seen = BTreeMap<AppId, String>;

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn document(&self, table: &DeTable<'_>) -> Result<Shares, SharesError> {
        for key in table.keys() {
            self.known(key.get_ref(), key.span(), "", &TOP)?;
        }
        let Some(by) = table.get("by") else {
            let why = "by: expected what a class is, as in by = \"user\", found nothing".into();
            return Err(SharesError { line: 1, why });
        };
        let found = by.get_ref().as_str().and_then(Shares::by_name);
        let expected = || format!("one of {}", BY.join(", "));
        let mut shares = found.ok_or_else(|| self.wrong(by, "by", &expected()))?;
        if let Some(lot) = table.get("lot") {
            let time = lot.get_ref().as_str().and_then(parse_time).filter(|time| *time > 0);
            let time = time.ok_or_else(|| self.wrong(lot, "lot", "a time, as in \"20ms\""))?;
            shares.policy.lot = Some(Span::from_nanos(time));
        }
        if let Some(others) = table.get("others") {
            let read = self.entitlement(others, "others", &KEYS)?;
            match &mut shares.policy.other_branches {
                Some(groups) => groups.entitlement = read,
                None => shares.policy.others = read,
            }
        }
        let mut seen = Seen::new();
        if let Some(classes) = table.get("class") {
            shares.names = self.classes(classes, "", shares.by, &mut seen)?;
            let known =
                shares.names.iter().filter_map(|(_, class, entitlement)| Some(((*class)?, *entitlement)));
            shares.policy.apps.extend(known);
        }
        if shares.by == ClassBy::Path {
            shares.policy.paths = self.paths(table.get("class"))?;
        }
        if let Some(groups) = table.get_key_value("group") {
            self.groups(groups, &mut shares, &mut seen)?;
        }
        if let Some(global) = table.get("global") {
            let terms = Terms { by: shares.by().into(), policy: shares.policy.clone(), ..Terms::default() };
            let global = self.global(global, terms)?;
            shares.policy = global.terms.policy.clone();
            shares.global = Some(global);
        }
        Ok(shares)
    }

    /// Tables of classes. `place` is what they are within, with a dot behind it.
    fn classes(
        &self,
        classes: &Value<'_>,
        place: &str,
        by: ClassBy,
        seen: &mut Seen,
    ) -> Result<Names, SharesError> {
        let expected = format!("tables of classes, as in [{place}class.alice]");
        let key = format!("{place}class");
        let classes = classes.get_ref().as_table().ok_or_else(|| self.wrong(classes, &key, &expected))?;
        // As they stand in the file.
        let mut classes: Vec<_> = classes.iter().collect();
        classes.sort_by_key(|(key, _)| key.span().start);
        let mut names = Names::new();
        for (key, value) in classes {
            let name = key.get_ref().as_ref();
            let place = format!("{place}class.{name}");
            let entitlement = self.entitlement(value, &place, &KEYS)?;
            let class = self.class(by, name);
            if let Some(class) = class
                && let Some(before) = seen.insert(class, place.clone())
            {
                let why = format!("{place}: expected each {by} once, found the one of {before}");
                return Err(SharesError { line: line(self.text, key.span()), why });
            }
            names.push((name.into(), class, entitlement));
        }
        Ok(names)
    }

    /// The application that requests of a class have.
    fn class(&self, by: ClassBy, name: &str) -> Option<AppId> {
        match by {
            ClassBy::User => name.parse().ok().or_else(|| (self.user)(name)).map(application_of_user),
            ClassBy::Job | ClassBy::App => Some(application_of_word(name)),
            ClassBy::Account => Some(application_of_account(name)),
            ClassBy::Path => Some(application_of_glob(name)),
        }
    }

    /// Of a table that has these keys.
    fn entitlement(&self, value: &Value<'_>, place: &str, keys: &[&str]) -> Result<Entitlement, SharesError> {
        let expected = "a table with weight, min, max, min_requests or max_requests";
        let table = value.get_ref().as_table().ok_or_else(|| self.wrong(value, place, expected))?;
        for key in table.keys() {
            self.known(key.get_ref(), key.span(), place, keys)?;
        }
        let mut entitlement = Entitlement::default();
        if let Some(weight) = table.get("weight") {
            let number = integer(weight).and_then(|number| u32::try_from(number).ok());
            let fits = number.filter(|weight| (1..=WEIGHT_MAX).contains(weight));
            let expected = format!("a whole number from 1 to {WEIGHT_MAX}");
            entitlement.weight =
                fits.ok_or_else(|| self.wrong(weight, &format!("{place}.weight"), &expected))?;
        }
        let bytes = |key: &str| {
            self.optional(table, place, key, "a rate above 0, as in \"50MiB/s\"", |value| {
                parse_rate(value.get_ref().as_str()?)
            })
        };
        let requests = |key: &str| {
            self.optional(table, place, key, "a whole number of requests a second above 0", integer)
        };
        entitlement.min = Rate { bytes: bytes("min")?, requests: requests("min_requests")? };
        entitlement.max = Rate { bytes: bytes("max")?, requests: requests("max_requests")? };
        let Entitlement { min, max, .. } = entitlement;
        for (key, most, is_above) in [
            ("min", "max", min.bytes.zip(max.bytes).is_some_and(|(min, max)| min > max)),
            (
                "min_requests",
                "max_requests",
                min.requests.zip(max.requests).is_some_and(|(min, max)| min > max),
            ),
        ] {
            if let Some(value) = table.get(key).filter(|_| is_above) {
                return Err(self.wrong(value, &format!("{place}.{key}"), &format!("at most {most}")));
            }
        }
        Ok(entitlement)
    }

    fn optional(
        &self,
        table: &DeTable<'_>,
        place: &str,
        key: &str,
        expected: &str,
        read: impl Fn(&Value<'_>) -> Option<u64>,
    ) -> Result<Option<NonZeroU64>, SharesError> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let number = read(value).and_then(NonZeroU64::new);
        number.map(Some).ok_or_else(|| self.wrong(value, &format!("{place}.{key}"), expected))
    }

    fn known(&self, key: &str, at: Range<usize>, place: &str, known: &[&str]) -> Result<(), SharesError> {
        if known.contains(&key) {
            return Ok(());
        }
        let near = nearest(key, known.iter().copied());
        let near = near.map_or_else(String::new, |near| format!("did you mean '{near}'? "));
        let dot = if place.is_empty() { "" } else { "." };
        let why = format!("{place}{dot}{key}: {near}expected one of {}", known.join(", "));
        Err(SharesError { line: line(self.text, at), why })
    }

    fn wrong(&self, value: &Value<'_>, key: &str, expected: &str) -> SharesError {
        let found: String =
            self.text.get(value.span()).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let why = format!("{key}: expected {expected}, found {found}");
        SharesError { line: line(self.text, value.span()), why }
    }
}

fn integer(value: &Value<'_>) -> Option<u64> {
    let number = value.get_ref().as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn line(text: &str, at: Range<usize>) -> usize {
    1 + text.bytes().take(at.start).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parse(text: &str) -> Result<Shares, SharesError> {
        let group = |name: &str| (name == "physics").then_some(100);
        Shares::parse(text, &|name| (name == "alice").then_some(1000), &group)
    }

    #[test]
    fn groups_are_classes_with_users_within_them() {
        let shares = parse(
            "by = \"user\"\n[group.physics]\nweight = 3\nmax = \"500MB/s\"\n[group.physics.others]\nweight = 5\n\
             [group.physics.class.alice]\nweight = 2\n[group.4711.class.nobody]\n[group.none]\n[class.1001]\n\
             max = \"20MB/s\"\n[others]\nweight = 7\n",
        )
        .unwrap();
        let (policy, physics) = (&shares.policy, application_of_group(100));
        assert!(policy.check().is_ok() && shares.by() == "user" && shares.others().weight == 7);
        assert_eq!(policy.branches[&physics].entitlement.weight, 3);
        assert_eq!(policy.branches[&physics].others.weight, 5);
        assert_eq!(policy.within, [(application_of_user(1000), physics)].into());
        assert_eq!((policy.branches.len(), policy.apps.len()), (2, 2));
        let groups: Vec<_> =
            shares.groups.iter().map(|one| (one.name.as_str(), one.class.is_some())).collect();
        assert_eq!(groups, [("physics", true), ("4711", true), ("none", false)]);
        assert_eq!(shares.groups[1].names[0].1, None);
        assert_eq!(shown::classes(policy, shares.by), "2 groups and 2 named, for each other weight 7");
        let one = parse("by = \"user\"\n[group.physics]\n").unwrap();
        assert_eq!(shown::classes(&one.policy, one.by), "1 group and 0 named, for each other weight 1");

        let each = parse("by = \"group/user\"\n[others]\nmax = \"1MB/s\"\n[group.physics]\n").unwrap();
        assert_eq!(
            (each.by(), each.by, each.others().max.bytes.unwrap().get()),
            ("group/user", ClassBy::User, 1_000_000)
        );
        assert_eq!(each.policy.others, Entitlement::default());
        assert_eq!(Shares::equal("group/user").unwrap().by(), "group/user");
        assert!(Shares::equal("group").is_none() && Shares::equal("account/user").is_none());
    }

    #[test]
    fn accounts_are_classes_with_jobs_within_them() {
        let shares = parse(
            "by = \"account/job\"\n[others]\nweight = 7\n[group.physics]\nweight = 3\n[group.physics.class.4711]\nweight = 2\n",
        )
        .unwrap();
        let (policy, physics) = (&shares.policy, application_of_account("physics"));
        assert!(policy.check().is_ok() && shares.by() == "account/job" && shares.by == ClassBy::Job);
        assert_eq!((policy.branches[&physics].entitlement.weight, shares.others().weight), (3, 7));
        assert_eq!(policy.within, [(AppId(4711), physics)].into());
        let flat = parse("by = \"account\"\n[class.physics]\nweight = 2").unwrap();
        assert_eq!((flat.by(), flat.policy.of(physics).weight), ("account", 2));
        assert_ne!(physics, application_of_word("physics"), "no application is an account");
    }

    #[test]
    fn a_policy_says_who_is_entitled_to_what() {
        let shares = parse(
            "by = \"user\"\nlot = \"20ms\"\n[others]\nmax = \"200MB/s\"\n[class.alice]\nweight = 4\nmin = \"50MiB/s\"\n\
             [class.1001]\nmax_requests = 1_000\n[class.bob]\n",
        )
        .unwrap();
        assert_eq!((shares.by, shares.policy.lot), (ClassBy::User, Some(Span::from_millis(20))));
        let of = |uid| shares.policy.of(application_of_user(uid));
        assert_eq!((of(1000).weight, of(1000).min.bytes.unwrap().get()), (4, 50 << 20));
        assert_eq!(of(1001).max.requests.unwrap().get(), 1_000);
        assert_eq!(of(7).max.bytes.unwrap().get(), 200_000_000);
        let names: Vec<(&str, bool)> =
            shares.names.iter().map(|(name, class, _)| (name.as_str(), class.is_some())).collect();
        assert_eq!(names, [("alice", true), ("1001", true), ("bob", false)]);
        assert!(shares.policy.check().is_ok());
        assert_eq!(Shown(&of(1000)).to_string(), "weight 4, at least 50MiB/s");
        assert_eq!(Shown(&of(7)).to_string(), "weight 1, at most 200MB/s");
        let many = parse(
            "by = \"user\"\n[others]\nmax = \"1MB/s\"\n[global]\ncoordinator = [\"a:1\", \"unix:/b\"]\ngates = 3\nlease = \"2s\"",
        )
        .unwrap();
        let global = many.global.unwrap();
        assert!(many.policy.is_shared && global.terms.policy == many.policy);
        assert_eq!((global.coordinators.len(), global.gates, global.terms.lease), (2, 3, Span::from_secs(2)));
        // Numbers of users mean nothing to who divides by jobs.
        let digests = ["user", "job", "app", "account", "group/user", "account/job"].map(|by| {
            let text = format!(
                "by = \"{by}\"\n[others]\nmax = \"1MB/s\"\n[global]\ncoordinator = \"a:1\"\ngates = 3"
            );
            parse(&text).unwrap().global.unwrap().terms.digest()
        });
        assert_eq!(BTreeSet::from(digests).len(), digests.len());
        for capped in ["[group.physics]", "[group.physics.others]", "[others]"] {
            let groups = "by = \"group/user\"\n[global]\ncoordinator = \"a:1\"\ngates = 2";
            let shares = parse(&format!("{groups}\n{capped}\nmax = \"5MB/s\"")).unwrap();
            assert!(shares.policy.is_shared && shares.policy.is_nested() && shares.policy.check().is_ok());
        }
        let app = parse("by = \"app\"\n[class.\"lammps\"]\nweight = 2").unwrap();
        assert_eq!(app.policy.of(application_of_word("lammps")).weight, 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, at, says) in [
            ("", 1, "by: expected what a class is"),
            (
                "by = \"group\"",
                1,
                "by: expected one of user, job, app, account, path, group/user, account/job, found \"group\"",
            ),
            (
                "by = \"app\"\n[group.physics]",
                2,
                "group: expected by = \"user\" or \"job\" (\"group/user\", \"account/job\") with groups, found \"app\"",
            ),
            (
                "by = \"job\"\n[group.a.class.7]\n[group.b.class.7]",
                3,
                "group.b.class.7: expected each job once, found the one of group.a.class.7",
            ),
            (
                "by = \"user\"\ngroup = 1",
                2,
                "group: expected tables of groups, as in [group.physics], found 1",
            ),
            ("by = \"user\"\n[group.physics]\nwieght = 1", 3, "group.physics.wieght: did you mean 'weight'?"),
            (
                "by = \"user\"\n[group.physics]\nweight = 0",
                3,
                "group.physics.weight: expected a whole number",
            ),
            (
                "by = \"user\"\n[group.physics.class.alice]\nweight = 0",
                3,
                "group.physics.class.alice.weight: expected a whole number",
            ),
            (
                "by = \"user\"\n[group.physics]\n[group.100]",
                3,
                "group.100: expected each group once, found the one of group.physics",
            ),
            (
                "by = \"user\"\n[group.physics.class.alice]\n[group.5.class.1000]",
                3,
                "group.5.class.1000: expected each user once, found the one of group.physics.class.alice",
            ),
            (
                "by = \"user\"\n[class.alice]\n[group.5.class.alice]",
                3,
                "group.5.class.alice: expected each user once",
            ),
            (
                "by = \"user\"\n[group.physics]\nmax = \"5MB/s\"\n[group.physics.others]\nmin = \"6MB/s\"",
                3,
                "group.physics.max: expected at least 6MB/s, what those within it are promised together, found \"5MB/s\"",
            ),
            (
                "by = \"group/user\"\n[global]\ncoordinator = \"a:1\"\ngates = 2",
                2,
                "global.total: expected a total, or a class or a group with a max",
            ),
            ("by = \"user\"\nlots = \"2ms\"", 2, "lots: did you mean 'lot'? expected one of by, lot"),
            ("by = \"user\"\nlot = 0", 2, "lot: expected a time, as in \"20ms\", found 0"),
            ("by = \"user\"\nlot = \"0ms\"", 2, "lot: expected"),
            ("by = \"user\"\nclass = 1", 2, "class: expected tables"),
            (
                "by = \"user\"\n[class.alice]\nweight = 0",
                3,
                "class.alice.weight: expected a whole number from 1 to 10000, found 0",
            ),
            ("by = \"user\"\n[others]\nweight = -1", 3, "others.weight: expected"),
            ("by = \"user\"\n[others]\n\nwieght = 2", 4, "others.wieght: did you mean 'weight'?"),
            (
                "by = \"user\"\n[others]\nmax = 5",
                3,
                "others.max: expected a rate above 0, as in \"50MiB/s\", found 5",
            ),
            ("by = \"user\"\n[others]\nmax = \"0MiB/s\"", 3, "others.max: expected a rate above 0"),
            ("by = \"user\"\n[others]\nmax = \"10MiB\"", 3, "others.max: expected a rate"),
            (
                "by = \"user\"\n[others]\nmax_requests = \"10/s\"",
                3,
                "others.max_requests: expected a whole number",
            ),
            (
                "by = \"user\"\n[others]\nmin = \"2MiB/s\"\nmax = \"1MiB/s\"",
                3,
                "others.min: expected at most max, found \"2MiB/s\"",
            ),
            ("by = \"user\"\n[class.alice]\n[class.1000]\n", 3, "class.1000: expected each user once"),
            ("by = \"user\"\nglobal = 1", 2, "global: expected a table, as in [global]"),
            ("by = \"user\"\n[global]\ngate = 2", 3, "global.gate: did you mean 'gates'?"),
            (
                "by = \"user\"\n[global]\ngates = 2",
                2,
                "global.coordinator: expected where the coordinator is",
            ),
            ("by = \"user\"\n[global]\ncoordinator = []\ngates = 2", 3, "global.coordinator: expected"),
            ("by = \"user\"\n[global]\ncoordinator = \"a:1\"", 2, "global.gates: expected how many"),
            ("by = \"user\"\n[global]\ncoordinator = \"a:1\"\ngates = 0", 4, "global.gates: expected"),
            (
                "by = \"user\"\n[global]\ncoordinator = \"a:1\"\ngates = 2",
                2,
                "global.total: expected a total, or",
            ),
            (
                "by = \"user\"\n[global]\ncoordinator = \"a:1\"\ngates = 2\ntotal = \"5\"",
                5,
                "global.total: expected a rate above 0",
            ),
            (
                "by = \"user\"\n[global]\ncoordinator = \"a:1\"\ngates = 2\ntotal = \"5MB/s\"\nlease = \"200ms\"",
                6,
                "global.lease: expected report (100ms) to be at most a third of lease (200ms)",
            ),
            ("by = \"user\"\n[class.alice", 2, ""),
            ("by = \"user\"\nby = \"app\"", 2, ""),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, at, "{text:?}: {error}");
            assert!(error.why.starts_with(says) && !error.why.is_empty(), "{text:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
