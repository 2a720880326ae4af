//! Who slows an application down, for people: a sentence, what to do, and the account as tables.

mod advice;

use std::fmt::Write;

use iogate_core::Span;
use iogate_core::blame::{Account, Cause, Sampled, is_as_much};
use serde::Serialize;

pub use advice::InForce;

use crate::live::printable;
use crate::table::Table;
use crate::units::time;

/// Less than this part of an application's time is not worth a sentence.
const WORTH: f64 = 0.02;
/// Amounts that differ by more than this part are not the same.
const DIFFERS: f64 = 0.15;
/// So many of those who slow an application down alike are named.
const NAMED_MAX: usize = 3;

/// One application, and who slows it down.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// Its name.
    pub app: String,
    /// For how long it had requests in the gate, in seconds; of several gates, summed.
    pub busy_s: f64,
    /// How far that may lie from the truth, to each side, if it is known from samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_plus_minus_s: Option<f64>,
    /// Dispatches that have begun with a request of it, whether samples know of them or not.
    pub dispatches: u64,
    /// That time by cause.
    pub causes: Vec<Part>,
    /// That time by application, itself included, the largest first. What is missing is nobody's.
    pub apps: Vec<Part>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What lies below the gate and does not answer, which it waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Below>,
    /// What it gains without others, if that was tried.
    pub gains: Vec<Gain>,
    /// Without whom it is not said, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
}

/// What lies below a gate and does not answer.
#[derive(Clone, Debug, Serialize)]
pub struct Below {
    /// Which servers, and what is the matter with each.
    pub who: String,
    /// Nothing that lies there was connected to, at both ends of the time that was looked at.
    pub throughout: bool,
}

/// In the place of [`Cause::Own`], where nothing below the gate worked on what was in service.
const BELOW: &str = "below";

/// A part of an application's time.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The cause, or the application.
    pub name: String,
    /// How long.
    pub seconds: f64,
    /// How far that may lie from the truth, to each side, if it is known from samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plus_minus_s: Option<f64>,
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
    /// What its account charges the other one with in the same time, in seconds; `None`: it is of another time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_s: Option<f64>,
}

impl Gain {
    /// What is charged, if it is another amount.
    fn charged_otherwise(&self) -> Option<f64> {
        let gain = self.with_s - self.without_s;
        let differs = |charged: &f64| {
            let apart = (charged - gain).abs();
            apart > DIFFERS * gain.abs() && apart > WORTH * self.with_s
        };
        self.charged_s.filter(differs)
    }
}

/// What an application gains without another one, and cannot be said.
#[derive(Clone, Debug, Serialize)]
pub struct Doubt {
    /// Which one would be left out.
    pub without: String,
    /// Why it cannot be said.
    pub why: String,
}

impl Why {
    /// Puts an account into words; `name` has the names of applications, `sampled` says what an account of samples is of, and what is in
    /// force is known of a gate that is up.
    pub fn new(
        account: &Account,
        sampled: Option<&Sampled>,
        in_force: Option<&InForce>,
        name: impl Fn(u32) -> String,
    ) -> Why {
        let scaled = sampled.map(|sampled| sampled.scaled(account));
        let account = scaled.as_ref().unwrap_or(account);
        let busy = account.busy.as_secs_f64();
        let plus_minus = |span: Span| sampled.map(|sampled| sampled.plus_minus(span).as_secs_f64());
        let part = |name: String, span: Span| {
            let (seconds, plus_minus_s) = (span.as_secs_f64(), plus_minus(span));
            Part {
                name,
                seconds,
                plus_minus_s,
                percent: if busy > 0.0 { 100.0 * seconds / busy } else { 0.0 },
            }
        };
        // Names are users' own, and may have anything in them.
        let named =
            |app: Option<_>| app.map_or("others".into(), |iogate_core::AppId(app)| printable(&name(app)));
        let causes = Cause::ALL.into_iter().zip(account.causes).filter(|(_, span)| *span > Span::ZERO);
        let mut why = Why {
            app: named(account.app),
            busy_s: busy,
            busy_plus_minus_s: plus_minus(account.busy),
            dispatches: account.dispatches,
            causes: causes.map(|(cause, span)| part(cause.name().into(), span)).collect(),
            apps: account.apps.iter().map(|(app, span)| part(named(*app), *span)).collect(),
            advice: None,
            below: None,
            gains: Vec::new(),
            doubts: Vec::new(),
        };
        why.advice = why.advise(in_force);
        why
    }

    /// What lies below the gate does not answer. The gate's account knows nothing of that: what was in service is the request's own
    /// there. Where it was so throughout, nothing worked on that, and it is nobody's.
    pub fn waits_below(&mut self, below: Below) {
        if below.throughout
            && let Some(own) = self.causes.iter_mut().find(|part| part.name == Cause::Own.name())
        {
            own.name = BELOW.into();
            let (seconds, percent) = (own.seconds, own.percent);
            if let Some(itself) = self.apps.iter_mut().find(|part| part.name == self.app) {
                itself.seconds = (itself.seconds - seconds).max(0.0);
                itself.percent = (itself.percent - percent).max(0.0);
            }
            self.apps.retain(|part| part.seconds > 0.0);
        }
        self.advice = Some(format!("see to what does not answer, as others wait for it, too: {}", below.who));
        self.below = Some(below);
    }

    /// What to do about what takes most of its time.
    fn advise(&self, in_force: Option<&InForce>) -> Option<String> {
        let (cause, _) = self.main_cause().filter(|_| !self.is_too_little_sampled())?;
        Some(advice::advice(&self.app, cause, &self.culprits(), self.for_others_percent(), in_force))
    }

    /// Whether it was in the gate, and in no sample.
    fn is_too_little_sampled(&self) -> bool {
        self.busy_plus_minus_s.is_some() && self.busy_s == 0.0 && self.dispatches > 0
    }

    /// How long it waited for others, in seconds.
    pub fn for_others_s(&self) -> f64 {
        self.apps.iter().filter(|part| part.name != self.app).map(|part| part.seconds).sum()
    }

    /// The same as a part of its time, in percent.
    fn for_others_percent(&self) -> f64 {
        self.apps.iter().filter(|part| part.name != self.app).map(|part| part.percent).sum()
    }

    /// The other application that it waited for longest, if that is worth a word, and those that it waited for as long as far as an
    /// account can tell.
    pub fn culprits(&self) -> Vec<&Part> {
        let others = || self.apps.iter().filter(|part| part.name != self.app);
        let most = others().next().filter(|part| part.percent >= 100.0 * WORTH);
        most.map_or_else(Vec::new, |most| {
            others().take_while(|part| is_as_much(part.seconds, most.seconds)).collect()
        })
    }

    /// Of the time that it does not take itself, the cause of most, if that is worth a word.
    fn main_cause(&self) -> Option<(Cause, &Part)> {
        let named = |part: &Part| Cause::ALL.into_iter().find(|cause| cause.name() == part.name);
        let causes = self.causes.iter().filter_map(|part| Some((named(part)?, part)));
        let others = causes.filter(|(cause, _)| *cause != Cause::Own);
        let most = others.max_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds));
        most.filter(|(_, part)| part.percent >= 100.0 * WORTH)
    }

    /// For how much of its time a request takes as long as it does, in percent.
    fn own_percent(&self) -> f64 {
        self.causes.iter().find(|part| part.name == Cause::Own.name()).map_or(0.0, |part| part.percent)
    }

    /// Who, how much, why, and what to do: a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let span = |seconds: f64| time(seconds * 1e9);
        let (app, busy) = (&self.app, surely(self.busy_s, self.busy_plus_minus_s));
        if self.is_too_little_sampled() {
            return vec![format!(
                "{app} is too little sampled: {} of its dispatches began, and it had nothing in the gate in any sample.",
                self.dispatches
            )];
        }
        let culprits = self.culprits();
        if let Some(Below { who, throughout: true }) = &self.below {
            return vec![
                format!(
                    "{app} had requests in the gate for {busy}; what lies below the gate does not answer: {who}."
                ),
                format!("What to do: {}.", self.advice.as_deref().unwrap_or_default()),
            ];
        }
        let who = match culprits.as_slice() {
            [] => "no other application slowed it down".into(),
            [Part { name, seconds, plus_minus_s, percent }] => {
                format!(
                    "{name} slowed it down most: {} of that, {percent:.0} %",
                    surely(*seconds, *plus_minus_s)
                )
            }
            [Part { seconds, plus_minus_s, percent, .. }, ..] => format!(
                "{} slowed it down most, as far as can be told alike: {} of that, {percent:.0} %, or a little less each",
                names(&culprits),
                surely(*seconds, *plus_minus_s)
            ),
        };
        let mut said = vec![format!("{app} had requests in the gate for {busy}; {who}.")];
        if let Some((cause, Part { percent, .. })) = self.main_cause() {
            // What is in service or in the way may be its own, too.
            let own =
                if *percent > 1.1 * self.for_others_percent() { ", its own requests included" } else { "" };
            let meaning = cause.meaning();
            said.push(match self.own_percent() {
                most if most > *percent => {
                    format!("Mostly ({most:.0} %) it takes that long itself; then ({percent:.0} %) {meaning}{own}.")
                }
                _ => format!("Mostly ({percent:.0} %) because {meaning}{own}."),
            });
        }
        if let Some(Below { who, .. }) = &self.below {
            said.push(format!(
                "What lies below the gate does not answer now: {who}. What is in service there waits for it, and is booked as `own`."
            ));
        }
        said.extend(self.advice.as_ref().map(|advice| format!("What to do: {advice}.")));
        for gain in &self.gains {
            let Gain { without, with_s, without_s, .. } = gain;
            let (gained, took) = (with_s - without_s, span(*with_s));
            let percent = if *with_s > 0.0 { 100.0 * gained / with_s } else { 0.0 };
            let mut sentence = match gained >= 0.0 {
                true => {
                    format!("Without {without} it takes {} less than {took}, {percent:.0} %", span(gained))
                }
                false => format!("Without {without} it takes {} longer than {took}", span(-gained)),
            };
            if let Some(charged) = gain.charged_otherwise() {
                let what = span(charged);
                sentence += &format!("; {what} are charged to {without}, which is not what would be gained");
            }
            said.push(sentence + ".");
        }
        for Doubt { without, why } in &self.doubts {
            said.push(format!("What it gains without {without} cannot be said: {why}."));
        }
        said
    }

    /// The sentences, and tables.
    pub fn text(&self) -> String {
        let mut out = self.sentences().join("\n") + "\n";
        if self.is_too_little_sampled() {
            return out;
        }
        for (name, parts) in [("whose time", &self.apps), ("cause", &self.causes)] {
            let mut table = Table::new([name, "time", "percent"]);
            for Part { name, seconds, plus_minus_s, percent } in parts {
                table.row([name.clone(), surely(*seconds, *plus_minus_s), format!("{percent:.1}")]);
            }
            let nobody = self.busy_s - parts.iter().map(|part| part.seconds).sum::<f64>();
            if nobody > 1e-3 * self.busy_s {
                let percent = format!("{:.1}", 100.0 * nobody / self.busy_s);
                table.row(["nobody".into(), time(nobody * 1e9), percent]);
            }
            write!(out, "\n{table}").expect("text grows");
        }
        out
    }
}

/// A time, and how far it may lie from the truth.
fn surely(seconds: f64, plus_minus_s: Option<f64>) -> String {
    let span = |seconds: f64| time(seconds * 1e9);
    let sure = plus_minus_s.map_or_else(String::new, |plus_minus| format!(" +- {}", span(plus_minus)));
    span(seconds) + &sure
}

/// The names of applications as a part of a sentence.
fn names(parts: &[&Part]) -> String {
    let mut names: Vec<String> = parts.iter().take(NAMED_MAX).map(|part| part.name.clone()).collect();
    if parts.len() > NAMED_MAX {
        names.push(format!("{} more", parts.len() - NAMED_MAX));
    }
    match names.as_slice() {
        [] => "itself".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(apps: Vec<Part>, gains: Vec<Gain>, doubts: Vec<Doubt>) -> Why {
        let (app, causes) = ("a".into(), Vec::new());
        let (busy_plus_minus_s, advice, below) = (None, None, None);
        Why {
            app,
            busy_s: 10.0,
            busy_plus_minus_s,
            dispatches: 7,
            causes,
            apps,
            advice,
            below,
            gains,
            doubts,
        }
    }

    #[test]
    fn amounts_of_samples_are_scaled_and_say_how_sure_they_are() {
        let ms = Span::from_millis;
        let mut causes = [Span::ZERO; Cause::ALL.len()];
        (causes[Cause::Slots as usize], causes[Cause::Own as usize]) = (ms(60), ms(20));
        let apps = vec![(Some(iogate_core::AppId(2)), ms(60)), (Some(iogate_core::AppId(1)), ms(20))];
        let account = Account { app: Some(iogate_core::AppId(1)), busy: ms(80), dispatches: 9, causes, apps };
        let squares = 400 * (200_000u64 >> 6).pow(2);
        let sampled = Sampled { occupied: ms(8_000), sampled: ms(80), samples: 400, squares };
        let said = Why::new(&account, Some(&sampled), None, |app| app.to_string()).text();
        let first = format!("1 had requests in the gate for {} +- ", time(8e9));
        assert!(said.starts_with(&first), "{said}");
        assert!(said.contains(&format!("2 slowed it down most: {} +- ", time(6e9))), "{said}");
        // One that was there between samples only.
        let none = Account { busy: Span::ZERO, causes: Default::default(), apps: Vec::new(), ..account };
        let said = Why::new(&none, Some(&sampled), None, |app| app.to_string()).text();
        assert_eq!(
            said,
            "1 is too little sampled: 9 of its dispatches began, and it had nothing in the gate in any sample.\n"
        );
    }

    /// What is said of an application that took 10 s, and would take so long without another one.
    fn said(without_s: f64, charged_s: f64) -> String {
        let (without, charged_s) = ("b".into(), Some(charged_s));
        let gains = vec![Gain { without, with_s: 10.0, without_s, charged_s }];
        let doubts = vec![Doubt { without: "c".into(), why: "too little".into() }];
        why(Vec::new(), gains, doubts).sentences()[1..].join("\n")
    }

    #[test]
    fn who_is_charged_alike_is_named_alike() {
        let first = |charged: &[(&str, f64)]| {
            let part = |(name, seconds): &(&str, f64)| Part {
                name: (*name).into(),
                seconds: *seconds,
                plus_minus_s: None,
                percent: 10.0 * seconds,
            };
            let apps = charged.iter().map(part).collect();
            why(apps, Vec::new(), Vec::new()).sentences().remove(0)
        };
        let said = first(&[("b", 4.0), ("a", 3.5), ("c", 3.3)]);
        assert!(said.ends_with(&format!("; b slowed it down most: {} of that, 40 %.", time(4e9))), "{said}");
        let said = first(&[("b", 4.0), ("c", 3.5), ("a", 2.5)]);
        assert!(said.contains("; b and c slowed it down most, as far as can be told alike: "), "{said}");
        let said = first(&["b", "c", "d", "e", "f"].map(|name| (name, 2.0)));
        assert!(said.contains("; b, c, d and 2 more slowed it down most"), "{said}");
        assert!(first(&[("a", 9.9), ("b", 0.1)]).ends_with("; no other application slowed it down."));
    }

    #[test]
    fn a_server_that_does_not_answer_is_the_cause() {
        let part = |name: &str, seconds: f64| Part {
            name: name.into(),
            seconds,
            plus_minus_s: None,
            percent: 10.0 * seconds,
        };
        let stuck = |throughout| {
            let mut why = why(vec![part("a", 6.0), part("b", 4.0)], Vec::new(), Vec::new());
            why.causes = vec![part("slots", 4.0), part("own", 6.0)];
            why.waits_below(Below { who: "no connection to ds1:7000, trying again".into(), throughout });
            why
        };
        let why = stuck(true);
        let said = why.text();
        assert!(said.contains("does not answer: no connection to ds1:7000"), "{said}");
        assert!(!said.contains("b slowed it down") && !said.contains("own"), "{said}");
        assert_eq!(why.causes[1].name, "below");
        assert_eq!(why.apps.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["b"]);
        // What was before that is not known to have waited for it.
        let said = stuck(false).text();
        assert!(
            said.contains("does not answer now: no connection to ds1:7000") && said.contains("own"),
            "{said}"
        );
        assert!(said.contains("b slowed it down most"), "{said}");
    }

    #[test]
    fn both_amounts_are_shown_where_they_differ() {
        let doubt = "What it gains without c cannot be said: too little.";
        assert_eq!(
            said(6.0, 4.5),
            format!("Without b it takes {} less than {}, 40 %.\n{doubt}", time(4e9), time(1e10))
        );
        let charged = format!("; {} are charged to b, which is not what would be gained.", time(5e9));
        assert!(said(6.0, 5.0).contains(&charged), "{}", said(6.0, 5.0));
        assert!(said(10.5, 0.0).starts_with("Without b it takes"), "{}", said(10.5, 0.0));
        // Next to nothing is next to nothing.
        assert!(!said(9.95, 0.1).contains("charged"), "{}", said(9.95, 0.1));
    }
}
