//! What somebody can do who is slowed down: by what takes most of the time, and by what is in force where that was seen.

use iogate_core::blame::Cause;
use iogate_core::stats::summary::Summary;

use super::{Part, names};
use crate::live::printable;

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
    /// What lies below the gate and does not answer.
    below: Option<String>,
    /// Nothing below it is connected to.
    is_cut_off: bool,
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
        let is_well = gate.counters.as_ref().and_then(|counters| counters.is_connected);
        let connection = gate.about.iter().find(|(name, _)| name == "connection").map(|(_, state)| state);
        let below = connection.filter(|_| is_well == Some(false)).map(|state| without_well(state));
        let is_cut_off = below.as_ref().is_some_and(|(_, nothing_else)| *nothing_else);
        let below = below.map(|(who, _)| printable(&who));
        InForce { place, export, scheduler, is_chosen, by, switches: gate.switches, below, is_cut_off }
    }

    /// Whether nothing that lies below the gate is connected to.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// What lies below the gate and does not answer, which servers and why.
    pub fn below(&self) -> Option<&str> {
        self.below.as_deref()
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

/// What a tree says of its servers, without those that are connected to and answer; and whether none is connected to.
fn without_well(state: &str) -> (String, bool) {
    let (mut bad, mut well): (Vec<String>, usize) = (Vec::new(), 0);
    // That of the words before, if it is connected to; else these are the last of `bad`.
    let mut server = "";
    for said in state.split("; ") {
        let is_more = said.starts_with("a request has waited");
        let is_well = said.contains("connected to ") && !said.contains("no connection to ");
        match (is_more, is_well) {
            (true, _) if server.is_empty() => {
                if let Some(last) = bad.last_mut() {
                    *last = format!("{last}; {said}");
                }
            }
            (true, _) => bad.push(format!("{server}; {said}")),
            (false, true) => (server, well) = (said, well + 1),
            (false, false) => {
                server = "";
                bad.push(said.to_owned());
            }
        }
    }
    (if bad.is_empty() { state.to_owned() } else { bad.join("; ") }, well == 0)
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
        InForce {
            place,
            export: None,
            scheduler: scheduler.into(),
            is_chosen: false,
            by,
            switches: 3,
            below: None,
            is_cut_off: false,
        }
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
    fn of_many_servers_those_are_named_that_do_not_answer() {
        let all = "names: connected to ds0:1; target 0: connected to ds0:1; a request has waited for its answer for 12.0s; \
                   target 1: no connection to ds1:1, trying again";
        assert_eq!(
            without_well(all),
            (
                "target 0: connected to ds0:1; a request has waited for its answer for 12.0s; target 1: no connection to ds1:1, trying again"
                    .into(),
                false
            )
        );
        let gone = "no connection to ds0:1, trying again; a request has waited for its answer for 5.1s";
        assert_eq!(without_well(gone), (gone.into(), true));
        let ring = "ds1:1 is not used: servers forward to each other in a ring: a:1 -> ds1:1 -> a:1";
        assert_eq!(without_well(ring), (ring.into(), true));
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
