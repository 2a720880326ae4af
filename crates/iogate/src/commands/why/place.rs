//! Who slows whom down at a gate that is up: its accounts at two times, and what lies between them.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_core::blame::{Account, Page, Sampled, window};
use iogate_core::{AppId, Span, Time};
use iogate_net::ThisSystem;
use iogate_report::units;
use iogate_report::why::{Below, InForce, Why};
use iogate_vfs::app::{application_of_user, application_of_word};
use iogate_vfs::policy_file::System;
use serde::Serialize;

use super::counterfactual::Recorded;
use super::{Answer, unknown};
use crate::cli::WhyArgs;
use crate::commands::asker::{Asker, Place, Reached, Said, unanswered};
use crate::commands::serve::ask;
use crate::failure::Failure;
use crate::output::{quoted, say};

/// How long a gate is recorded, if nothing is said.
const RECORDED: Duration = Duration::from_secs(5);
/// Applications that a terminal is told of, unless some are named.
const SHOWN_MAX: usize = 6;

/// What a gate says of some time.
#[derive(Serialize)]
pub(super) struct AtPlace {
    /// The mount point, or the server's address.
    place: String,
    /// How long it was looked at, in seconds.
    seconds: f64,
    /// Whether that is all the time since the accounts began.
    total: bool,
    /// From how many samples amounts are known; all of the time, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
    /// What is in force there, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<String>,
    apps: Vec<Why>,
    /// Whether all are to be told of.
    #[serde(skip)]
    is_asked: bool,
}

pub(super) fn look(args: &WhyArgs, place: Place) -> Result<AtPlace, Failure> {
    let pause = pause(args)?;
    let mut asker = Asker::new(place, args.export.as_deref())?;
    let storage = super::counterfactual::storage(args)?;
    let mut looked = Accounts::read(&mut asker)?;
    let (mut recorded, mut in_force_before) = (None, None);
    if let Some(pause) = pause {
        let before = looked;
        in_force_before = in_force(&mut asker);
        if io::stderr().is_terminal() {
            say(format_args!("looking at {} for {}", asker.place(), units::time(pause.as_nanos() as f64)));
        }
        match args.without.is_empty() {
            true => thread::sleep(pause),
            false => recorded = Some(Recorded::record(&mut asker, pause)?),
        }
        looked = Accounts::read(&mut asker)?.since(before, asker.place())?;
    }
    let in_force = in_force(&mut asker);
    let apps = looked.chosen(args)?;
    let name = |id: u32| looked.name(AppId(id));
    let sampled = looked.sampled.as_ref();
    let mut apps: Vec<Why> =
        apps.into_iter().map(|account| Why::new(account, sampled, in_force.as_ref(), name)).collect();
    if let Some(who) = in_force.as_ref().and_then(InForce::below) {
        let both = [in_force.as_ref(), in_force_before.as_ref()];
        let throughout = both.iter().all(|at| at.is_some_and(InForce::is_cut_off));
        let below = Below { who: who.into(), throughout };
        apps.iter_mut().filter(|why| why.busy_s > 0.0).for_each(|why| why.waits_below(below.clone()));
    }
    if let Some(recorded) = recorded {
        let mut without = Vec::new();
        for app in &args.without {
            without.push(looked.known(app, application_of_word(app))?);
        }
        recorded.say(&storage, &without, &mut apps, |app| looked.name(app))?;
    }
    // Who waited longest for others comes first.
    apps.sort_by(|one, other| other.for_others_s().total_cmp(&one.for_others_s()));
    let is_asked = [&args.apps, &args.users, &args.jobs].iter().any(|named| !named.is_empty());
    Ok(AtPlace {
        place: args.scenario.scenario.display().to_string(),
        seconds: looked.span().as_secs_f64(),
        total: pause.is_none(),
        samples: sampled.map(|sampled| sampled.samples),
        in_force: in_force.map(|in_force| in_force.line(in_force_before.as_ref())),
        apps,
        is_asked,
    })
}

/// What decides there, if it says so: without that, advice is what it would be of any gate.
fn in_force(asker: &mut Asker) -> Option<InForce> {
    let said = asker.status().ok()?;
    let (place, export) = (quoted(asker.place().name()), asker.export().map(quoted));
    match said {
        Said::Mount(gate) => Some(InForce::new(place, export, &gate)),
        Said::Server(status) => {
            let is_asked = |name: &str| asker.export().is_none_or(|export| export == name);
            let of_export = status.exports.into_iter().find(|export| is_asked(&export.name))?;
            Some(InForce::new(place, export, &of_export.gate.summary))
        }
    }
}

/// How long the gate is looked at; `None`: what has been since the accounts began is asked for.
fn pause(args: &WhyArgs) -> Result<Option<Duration>, Failure> {
    match args.duration {
        None => Ok((!args.without.is_empty()).then_some(RECORDED)),
        Some(time) if time.0 > Duration::ZERO => Ok(Some(time.0)),
        Some(_) => Err(Failure::usage(anyhow!("--for: expected more than no time"))
            .hint("without it, it is all the time since the accounts began")),
    }
}

impl Answer for AtPlace {
    fn title(&self) -> String {
        let since = if self.total { ", since the accounts began" } else { "" };
        let samples = self.samples.map_or_else(String::new, |samples| {
            format!(", from {}", units::counted(samples, "sample", "samples"))
        });
        format!("{}: {}{since}{samples}", self.place, units::time(self.seconds * 1e9))
    }

    fn apps(&self) -> &[Why] {
        &self.apps
    }

    fn text(&self) -> String {
        let mut out = self.title() + "\n";
        out.extend(self.in_force.as_ref().map(|in_force| in_force.clone() + "\n"));
        if self.apps.is_empty() {
            out += match self.total {
                true => "No application has had requests in the gate yet.\n",
                false => "No application had requests in the gate.\n",
            };
        }
        let most = if self.is_asked { usize::MAX } else { SHOWN_MAX };
        for why in self.apps.iter().take(most) {
            write!(out, "\n{}", why.text()).expect("text grows");
        }
        if let Some(more) = self.apps.len().checked_sub(most).filter(|more| *more > 0) {
            writeln!(out, "\n{more} more applications: --app NAME, or --json for all").expect("text grows");
        }
        out
    }
}

fn page(asker: &mut Asker, from: u32) -> Result<Page, Failure> {
    let bytes = match asker.reach()? {
        Reached::Mount(mountpoint) => iogate_fuse::accounts(mountpoint, from).map_err(unanswered)?,
        Reached::Server(endpoint, client) => (client.accounts(from))
            .with_context(|| format!("the server at {endpoint} does not say its accounts"))?,
    };
    let place = asker.place();
    let page: Option<Page> = ask::understood(place, &bytes)?;
    page.ok_or_else(|| {
        Failure::failed(anyhow!("{place} keeps no accounts"))
            .hint(format!("`iogate set {} accounts=sampled` begins them", quoted(place.name())))
    })
}

fn restarted(place: &Place) -> Failure {
    Failure::failed(anyhow!("{place} began its accounts anew meanwhile: ask again"))
}

/// What a gate says of the time from `since` to `at`.
struct Accounts {
    at: Time,
    began: Time,
    since: Time,
    sampled: Option<Sampled>,
    accounts: Vec<Account>,
    names: HashMap<AppId, String>,
}

impl Accounts {
    /// All that it says now.
    fn read(asker: &mut Asker) -> Result<Accounts, Failure> {
        let Page { at, began, sampled, mut accounts, names, mut next } = page(asker, 0)?;
        let mut names: HashMap<AppId, String> = names.into_iter().collect();
        while let Some(from) = next {
            let page = page(asker, from)?;
            if page.began != began {
                return Err(restarted(asker.place()));
            }
            accounts.extend(page.accounts);
            names.extend(page.names);
            // A gate that does not go on would be asked for ever.
            next = page.next.filter(|next| *next > from);
        }
        Ok(Accounts { at, began, since: began, sampled, accounts, names })
    }

    /// What has come since.
    fn since(mut self, before: Accounts, place: &Place) -> Result<Accounts, Failure> {
        if self.began != before.began {
            return Err(restarted(place));
        }
        for (app, name) in before.names {
            self.names.entry(app).or_insert(name);
        }
        self.accounts = window(&before.accounts, &self.accounts);
        let sampled = |(now, before): (Sampled, Sampled)| now.since(&before);
        self.sampled = self.sampled.zip(before.sampled).map(sampled);
        Ok(Accounts { since: before.at, ..self })
    }

    fn span(&self) -> Span {
        self.at.since(self.since)
    }

    fn name(&self, app: AppId) -> String {
        self.names.get(&app).cloned().unwrap_or_else(|| app.to_string())
    }

    /// Those that are asked for: all, if none are named. One that had nothing in the gate has an account of nothing.
    fn chosen(&self, args: &WhyArgs) -> Result<Vec<&Account>, Failure> {
        let mut named = Vec::new();
        for app in &args.apps {
            named.push(self.known(app, application_of_word(app))?);
        }
        for user in &args.users {
            let number = user.parse().ok().or_else(|| ThisSystem.user(user));
            let number = number
                .ok_or_else(|| Failure::usage(anyhow!("--user {user}: this machine knows no such user")))?;
            named.push(self.known(&format!("user {user}"), application_of_user(number))?);
        }
        for job in &args.jobs {
            named.push(self.known(&format!("job {job}"), application_of_word(job))?);
        }
        let is_asked =
            |account: &&Account| named.is_empty() || account.app.is_some_and(|app| named.contains(&app));
        Ok(self.accounts.iter().filter(is_asked).collect())
    }

    /// An application, by what it is called or by its number.
    fn known(&self, name: &str, number: AppId) -> Result<AppId, Failure> {
        let called = self.names.iter().find(|(_, called)| *called == name).map(|(app, _)| *app);
        called.or_else(|| self.names.contains_key(&number).then_some(number)).ok_or_else(|| {
            let mut names: Vec<&str> = self.names.values().map(String::as_str).collect();
            names.sort_unstable();
            match names.is_empty() {
                true => Failure::failed(anyhow!("'{name}': no application has had requests in the gate yet")),
                false => unknown(name, names.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::blame::{Cause, PAGE_ACCOUNTS};

    use super::*;

    /// An extended attribute has no more room.
    #[test]
    fn the_largest_page_fits_64_kib() {
        let apps = (0..18).map(|_| (Some(AppId(u32::MAX)), Span::MAX)).collect();
        let (app, causes) = (Some(AppId(u32::MAX)), [Span::MAX; Cause::ALL.len()]);
        let account = Account { app, busy: Span::MAX, dispatches: u64::MAX, causes, apps };
        let page = Page {
            at: Time::MAX,
            began: Time::MAX,
            sampled: Some(Sampled {
                occupied: Span::MAX,
                sampled: Span::MAX,
                samples: u64::MAX,
                squares: u64::MAX,
            }),
            accounts: vec![account; PAGE_ACCOUNTS as usize],
            // What is escaped takes six bytes.
            names: vec![(AppId(u32::MAX), "\u{1}".repeat(100)); PAGE_ACCOUNTS as usize],
            next: Some(u32::MAX),
        };
        let bytes = serde_json::to_vec(&Some(&page)).unwrap();
        assert!(bytes.len() <= 1 << 16, "{}", bytes.len());
        assert_eq!(serde_json::from_slice::<Option<Page>>(&bytes).unwrap(), Some(page));
    }
}
