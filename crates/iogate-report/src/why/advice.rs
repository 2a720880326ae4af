//! What somebody can do who is slowed down: by what takes most of the time, and by what is in force where that was seen.

use iogate_core::blame::Cause;
use iogate_core::stats::summary::Summary;

use super::{Part, names};

/// Less than this part of an application's time, in percent, is not worth a change for the others' sake.
const OTHERS_MIN: f64 = 10.0;

/// What decides at a gate that is up.
#[derive(Clone, Debug)]
pub struct InForce {
    /// As commands are told it.
    place: String,
    export: Option<String>,
    scheduler: String,
    is_chosen: bool,
    /// What a policy divides by (`user`), if there is one.
    by: Option<String>,
    /// Live changes of the scheduler so far.
    switches: u64,
}

impl InForce {
    /// At this place, or at that export of a server, both quoted for a shell.
    pub fn new(place: String, export: Option<String>, gate: &Summary) -> InForce {
        let policy = gate.about.iter().find(|(name, _)| name == "policy").map(|(_, policy)| policy);
        // "by user: ..."
        let by = policy.map(|policy| {
            let by = policy.strip_prefix("by ").and_then(|by| by.split(':').next());
            by.unwrap_or("app").to_owned()
        });
        let (scheduler, is_chosen) = (gate.scheduler.clone(), gate.choice.is_some());
        InForce { place, export, scheduler, is_chosen, by, switches: gate.switches }
    }

    /// The scheduler and the policy, in a line; and how often the scheduler was changed since `before`, or at all.
    pub fn line(&self, before: Option<&InForce>) -> String {
        let chosen = if self.is_chosen { ", chosen by itself" } else { "" };
        let policy = self.by.as_ref().map_or("no policy".into(), |by| format!("a policy by {by}"));
        let changes = self.switches.saturating_sub(before.map_or(0, |before| before.switches));
        let times = if changes == 1 { "once".into() } else { format!("{changes} times") };
        let changed = match (changes, before) {
            (0, _) => String::new(),
            (_, Some(_)) => format!("; the scheduler was changed {times} in this time"),
            (_, None) => format!("; the scheduler was changed {times} before"),
        };
        format!("in force: {}{chosen}; {policy}{changed}", self.scheduler)
    }

    fn set(&self, what: &str) -> String {
        let export = self.export.as_ref().map_or_else(String::new, |export| format!(" --export {export}"));
        format!("`iogate set {} {what}{export}`", self.place)
    }
}

/// What to do about a cause that takes most of what an application does not take itself. Others have this part of its time, in percent.
pub(super) fn advice(
    app: &str,
    cause: Cause,
    culprits: &[&Part],
    others: f64,
    at: Option<&InForce>,
) -> String {
    let who = names(culprits);
    let set = |what: &str, or: &str| at.map_or_else(|| or.to_owned(), |at| at.set(what));
    let is = |scheduler: &str| at.is_some_and(|at| at.scheduler == scheduler);
    let by = at.and_then(|at| at.by.as_deref());
    let turns = format!("turns (`iogate turn`), so that it does not run beside {who}");
    match cause {
        Cause::Order => "let the programs not write where others read or write at the same time".into(),
        Cause::Cap => "raise its `max` in the policy, or send less".into(),
        Cause::Window => {
            format!("shorter windows, or a scheduler without any: {}", set("scheduler=fifo", "`fifo`"))
        }
        Cause::Wait => format!("a scheduler that does not wait: {}", set("scheduler=fifo", "`fifo`, `sjf`")),
        Cause::HandOver => "more threads for the mount or server, or fewer programs on its processors".into(),
        Cause::Share | Cause::Slots | Cause::Positioning | Cause::Beside
            if culprits.is_empty() || others < OTHERS_MIN =>
        {
            "nothing that concerns others: it waits for its own requests; larger ones cost less".into()
        }
        Cause::Share => match (at, by) {
            (Some(at), Some(by)) => format!(
                "it waits for its part, which `iogate top {}` shows; for a larger one than {who}, a weight in a policy's file (`by = \"{by}\"`, \
                 `[class.{}]`, `weight = 2`) and {}",
                at.place,
                class(app),
                at.set("policy=FILE"),
            ),
            _ => format!("a larger weight than {who}"),
        },
        Cause::Positioning if by.is_some() || is("aioli") || is("mlf") => turns,
        Cause::Positioning => {
            format!("longer runs: {}; or {turns}", set("scheduler=aioli", "`aioli` or `mlf`"))
        }
        Cause::Slots | Cause::Beside => match by {
            Some(_) => format!(
                "what is let in already is in its way: fewer dispatches at once (`--depth`) make the policy hold nearer; or {turns}"
            ),
            None => {
                format!("a share for each: {}; or {turns}", set("fair=app", "a policy, as of `--fair app`"))
            }
        },
        Cause::Own => "faster storage".into(),
    }
}

/// A class's name as a key in TOML. Users and jobs are called by what they are, too.
fn class(app: &str) -> String {
    let name =
        ["user ", "job ", "account ", "group ", "path "].iter().find_map(|kind| app.strip_prefix(kind));
    let name = name.unwrap_or(app);
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match name.chars().all(is_bare) {
        true => name.into(),
        false => format!("{name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scheduler: &str, by: Option<&str>) -> InForce {
        let (place, by) = ("/mnt/s".into(), by.map(Into::into));
        InForce { place, export: None, scheduler: scheduler.into(), is_chosen: false, by, switches: 3 }
    }

    fn said(cause: Cause, others: f64, at: Option<&InForce>) -> String {
        let part = Part { name: "unzip".into(), seconds: others / 10.0, plus_minus_s: None, percent: others };
        advice("user 1000", cause, &[&part], others, at)
    }

    #[test]
    fn nothing_is_advised_that_is_in_force() {
        let none = said(Cause::Slots, 40.0, Some(&at("fifo", None)));
        assert!(none.contains("`iogate set /mnt/s fair=app`") && none.contains("unzip"), "{none}");
        assert!(!said(Cause::Beside, 40.0, Some(&at("fifo", Some("app")))).contains("fair=app"));
        assert!(said(Cause::Positioning, 40.0, Some(&at("fifo", None))).contains("scheduler=aioli"));
        assert!(!said(Cause::Positioning, 40.0, Some(&at("aioli", None))).contains("aioli"));
        let share = said(Cause::Share, 40.0, Some(&at("fifo", Some("user"))));
        assert!(share.contains("`by = \"user\"`") || share.contains("by = \"user\""), "{share}");
        assert!(share.contains("`[class.1000]`") && share.contains("/mnt/s policy=FILE"), "{share}");
    }

    #[test]
    fn of_a_simulated_run_no_command_is_named() {
        for cause in Cause::ALL {
            assert!(!said(cause, 40.0, None).contains("iogate set"), "{cause:?}");
        }
    }

    #[test]
    fn where_others_take_little_nothing_is_changed_for_them() {
        for cause in [Cause::Share, Cause::Slots, Cause::Positioning, Cause::Beside] {
            let said = said(cause, 5.0, Some(&at("fifo", None)));
            assert!(said.starts_with("nothing that concerns others"), "{said}");
        }
    }

    #[test]
    fn names_are_keys_of_the_policys_file() {
        assert_eq!(class("job 17.batch"), "\"17.batch\"");
        assert_eq!(class("report"), "report");
    }

    #[test]
    fn changes_of_the_scheduler_are_said() {
        let (now, mut before) = (at("fifo", Some("user")), at("mlf", None));
        before.switches = 1;
        let line = now.line(Some(&before));
        assert_eq!(line, "in force: fifo; a policy by user; the scheduler was changed 2 times in this time");
        before.switches = 3;
        assert_eq!(now.line(Some(&before)), "in force: fifo; a policy by user");
    }
}
