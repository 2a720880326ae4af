//! Who slows an application down, for people: a sentence, what to do, and the account as tables.

use std::fmt::Write;

use iogate_core::Span;
use iogate_core::blame::{Account, Cause};
use serde::Serialize;

use crate::table::Table;
use crate::units::time;

/// Less than this part of an application's time is not worth a sentence.
const WORTH: f64 = 0.02;

/// One application, and who slows it down.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// Its name.
    pub app: String,
    /// For how long it had requests in the gate, in seconds; of several gates, summed.
    pub busy_s: f64,
    /// That time by cause.
    pub causes: Vec<Part>,
    /// That time by application, itself included, the largest first. What is missing is nobody's.
    pub apps: Vec<Part>,
    /// What it gains without others, if that was tried.
    pub gains: Vec<Gain>,
}

/// A part of an application's time.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The cause, or the application.
    pub name: String,
    /// How long.
    pub seconds: f64,
    /// Of its time, in percent.
    pub percent: f64,
}

/// How an application did without another one.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// Which one was left out.
    pub without: String,
    /// How long it took with it, and without, in seconds.
    pub with_s: f64,
    /// See `with_s`.
    pub without_s: f64,
}

impl Why {
    /// Puts an account into words; `name` has the names of applications.
    pub fn new(account: &Account, name: impl Fn(u32) -> String) -> Why {
        let busy = account.busy.as_secs_f64();
        let part = |name: String, span: Span| {
            let seconds = span.as_secs_f64();
            Part { name, seconds, percent: if busy > 0.0 { 100.0 * seconds / busy } else { 0.0 } }
        };
        let named = |app: Option<_>| app.map_or("others".into(), |iogate_core::AppId(app)| name(app));
        let causes = Cause::ALL.into_iter().zip(account.causes).filter(|(_, span)| *span > Span::ZERO);
        Why {
            app: named(account.app),
            busy_s: busy,
            causes: causes.map(|(cause, span)| part(cause.name().into(), span)).collect(),
            apps: account.apps.iter().map(|(app, span)| part(named(*app), *span)).collect(),
            gains: Vec::new(),
        }
    }

    /// How long it waited for others, in seconds.
    pub fn for_others_s(&self) -> f64 {
        self.apps.iter().filter(|part| part.name != self.app).map(|part| part.seconds).sum()
    }

    /// The other application that it waited for longest, if that is worth a word.
    pub fn culprit(&self) -> Option<&Part> {
        self.apps.iter().find(|part| part.name != self.app).filter(|part| part.percent >= 100.0 * WORTH)
    }

    /// Of the time that it does not take itself, the cause of most.
    fn main_cause(&self) -> Option<(Cause, &Part)> {
        let named = |part: &Part| Cause::ALL.into_iter().find(|cause| cause.name() == part.name);
        let causes = self.causes.iter().filter_map(|part| Some((named(part)?, part)));
        let others = causes.filter(|(cause, _)| *cause != Cause::Own);
        others.max_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds))
    }

    /// Who, how much, why, and what to do: a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let span = |seconds: f64| time(seconds * 1e9);
        let (app, busy) = (&self.app, span(self.busy_s));
        let mut said = vec![match self.culprit() {
            Some(Part { name, seconds, percent }) => format!(
                "{app} had requests in the gate for {busy}; {name} slowed it down most: {} of that, {percent:.0} %.",
                span(*seconds)
            ),
            None => {
                format!("{app} had requests in the gate for {busy}; no other application slowed it down.")
            }
        }];
        if let Some((cause, part)) = self.main_cause().filter(|(_, part)| part.percent >= 100.0 * WORTH) {
            said.push(format!("Mostly ({:.0} %) because {}.", part.percent, cause.meaning()));
            said.push(format!("What to do: {}.", advice(cause, self.culprit())));
        }
        for Gain { without, with_s, without_s } in &self.gains {
            let (gain, took) = (with_s - without_s, span(*with_s));
            let percent = if *with_s > 0.0 { 100.0 * gain / with_s } else { 0.0 };
            said.push(match gain >= 0.0 {
                true => {
                    format!("Without {without} it takes {} less than {took}, {percent:.0} %.", span(gain))
                }
                false => format!("Without {without} it takes {} longer than {took}.", span(-gain)),
            });
        }
        said
    }

    /// The sentences, and tables.
    pub fn text(&self) -> String {
        let span = |seconds: f64| time(seconds * 1e9);
        let mut out = self.sentences().join("\n") + "\n";
        for (name, parts) in [("whose time", &self.apps), ("cause", &self.causes)] {
            let mut table = Table::new([name, "time", "percent"]);
            for Part { name, seconds, percent } in parts {
                table.row([name.clone(), span(*seconds), format!("{percent:.1}")]);
            }
            let nobody = self.busy_s - parts.iter().map(|part| part.seconds).sum::<f64>();
            if nobody > 1e-3 * self.busy_s {
                table.row(["nobody".into(), span(nobody), format!("{:.1}", 100.0 * nobody / self.busy_s)]);
            }
            write!(out, "\n{table}").expect("text grows");
        }
        out
    }
}

fn advice(cause: Cause, culprit: Option<&Part>) -> String {
    let who = culprit.map_or("itself", |part| part.name.as_str());
    match cause {
        Cause::Order => "let the programs not write where others read or write at the same time".into(),
        Cause::Cap => "raise the cap, or send less".into(),
        Cause::Share => format!("a larger weight than {who}"),
        Cause::Window => "shorter windows, or a scheduler without any".into(),
        Cause::Wait => "a scheduler that waits less, or not at all: `fifo`, `sjf`".into(),
        Cause::HandOver => "more threads for the mount or server, or fewer programs on its processors".into(),
        Cause::Slots | Cause::Positioning | Cause::Beside if culprit.is_none() => {
            "nothing that concerns others: it waits for its own requests; larger ones cost less".into()
        }
        Cause::Positioning => {
            format!(
                "longer runs: `aioli` or `mlf`; or turns (`iogate turn`), so that {who} does not come between"
            )
        }
        Cause::Slots | Cause::Beside => {
            format!(
                "a share for each (a policy), or turns (`iogate turn`), so that {who} takes less at a time"
            )
        }
        Cause::Own => "faster storage".into(),
    }
}
