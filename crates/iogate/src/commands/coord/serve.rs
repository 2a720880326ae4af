//! `iogate coord serve`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_core::Span;
use iogate_core::coord::CoordConfig;
use iogate_core::global_policy::Terms;
use iogate_net::Listener;
use iogate_net::coordinator::{
    Coordinator, CoordinatorConfig, Etcd, Journal, Limits, Local, Place, Probed, Prober, StartError,
    TARGETS_MAX,
};
use iogate_turn::probe::{self, Verdict};
use iogate_turn::{Calibration, Settings};

use crate::cli::{Auth, CoordServeArgs, Time};
use crate::commands::policy;
use crate::commands::serve::config::{self, Address, Listen};
use crate::commands::serve::{begin, until_stopped};
use crate::failure::Failure;

pub(super) fn run(args: &CoordServeArgs) -> Result<(), Failure> {
    if args.with_parent {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal).context("the end of the parent")?;
    }
    let (terms, class_names) = args.policy.as_deref().map(terms).transpose()?.unzip();
    let config = CoordinatorConfig {
        table: CoordConfig::parse(&args.rules.join(",")).context("--set").map_err(Failure::usage)?,
        places: all(&args.places, place)?,
        turn_max: all(&args.turn_max, turn_max)?.into_iter().collect(),
        weights: all(&args.weights, weight)?.into_iter().collect(),
        probers: probers(args)?,
        terms,
        class_names: class_names.unwrap_or_default(),
        limits: Limits::default(),
    };
    let signals = begin()?;
    // The state first: a second coordinator must not take the place of the first one's socket.
    let journal = journal(args)?;
    let listeners = listeners(args)?;
    let coordinator = Coordinator::start(config, listeners, journal).map_err(|error| match error {
        StartError::Settings(_) => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    let mut lines = String::new();
    for endpoint in coordinator.endpoints() {
        lines.push_str(&format!("listening at {endpoint}\n"));
    }
    until_stopped(&lines, &lines, signals)?;
    coordinator.shutdown();
    Ok(())
}

/// The policy that gates share, and what it calls classes and groups.
fn terms(path: &Path) -> Result<(Terms, HashMap<u32, String>), Failure> {
    let (shares, _) = policy::read(path)?;
    let groups = shares.groups.iter();
    let of_groups = groups.clone().flat_map(|group| &group.names);
    let names = shares.names.iter().chain(of_groups).map(|(name, class, _)| (name, *class));
    let names = names.chain(groups.map(|group| (&group.name, group.class)));
    let names = names.filter_map(|(name, class)| Some((class?.0, name.clone()))).collect();
    let lacks = || {
        let error = anyhow!(
            "--policy {}: expected [global], found none: gates that share it need that",
            path.display()
        );
        Failure::usage(error).hint("docs/policy.md, \"Over many gates\"")
    };
    Ok((shares.global.ok_or_else(lacks)?.terms, names))
}

/// Where it is kept who holds and who waits.
fn journal(args: &CoordServeArgs) -> Result<Box<dyn Journal>, Failure> {
    if let Some(dir) = &args.state {
        return Ok(Box::new(Local::open(dir).map_err(Failure::failed)?));
    }
    if let Some(url) = args.etcd.iter().find(|url| !url.starts_with("http://")) {
        let error = anyhow!("--etcd: expected http://HOST:PORT, got `{url}`");
        return Err(
            Failure::usage(error).hint("through a TLS proxy on this host, etcd is reached by http too")
        );
    }
    if args.name.is_empty() || args.name.contains('/') {
        return Err(Failure::usage(anyhow!("--name: expected a word without a slash, got `{}`", args.name)));
    }
    let own = args.advertise.clone().unwrap_or_else(|| args.listen[0].clone());
    let etcd = Etcd::new(args.etcd.clone(), &args.name, own, args.leader_lease.0).context("etcd")?;
    Ok(Box::new(etcd))
}

/// The sockets, bound.
fn listeners(args: &CoordServeArgs) -> Result<Vec<Listener>, Failure> {
    let auth = args.auth.map(|auth| match auth {
        Auth::None => config::Auth::None,
        Auth::Peer => config::Auth::Peer,
        Auth::Munge => config::Auth::Munge,
        Auth::Tls => config::Auth::Tls,
    });
    let tls = match (&args.tls_certificate, &args.tls_key, &args.tls_clients) {
        (Some(certificate), Some(key), Some(clients)) => Some(config::Tls {
            certificate: certificate.clone(),
            key: key.clone(),
            clients: clients.clone(),
            users: std::collections::BTreeMap::new(),
        }),
        _ => None,
    };
    if (auth == Some(config::Auth::Tls)) != tls.is_some() {
        let error = anyhow!("--auth tls goes with --tls-certificate, --tls-key and --tls-clients");
        return Err(Failure::usage(error));
    }
    let bind = |endpoint: &iogate_net::Endpoint| {
        // On a Unix socket the kernel says who is there, whatever holds for the network.
        let is_unix = is_unix_socket(endpoint);
        let listen = Listen {
            at: Address(endpoint.clone()),
            auth: auth.filter(|_| !is_unix || args.listen.iter().all(is_unix_socket)),
            tls: tls.clone(),
            anonymous: None,
            munge_socket: args.munge_socket.clone(),
            allow_unauthenticated_network: args.allow_unauthenticated_network,
            allow_unauthenticated_forwarders: false,
            users_allowed: None,
            mode: None,
        };
        listen.auth().context("--auth").map_err(Failure::usage)?;
        Ok(listen.bind()?)
    };
    args.listen.iter().map(bind).collect()
}

fn is_unix_socket(endpoint: &iogate_net::Endpoint) -> bool {
    matches!(endpoint, iogate_net::Endpoint::Unix(_))
}

/// What finds out whether file systems are quiet, by the names of their places.
fn probers(args: &CoordServeArgs) -> Result<HashMap<String, Prober>, Failure> {
    if args.probes.is_empty() {
        return Ok(HashMap::new());
    }
    let settings = Settings::from_environment().map_err(Failure::usage)?;
    let prober = |text: &String| prober(text, &settings).with_context(|| format!("--probe {text}"));
    args.probes.iter().map(prober).collect::<Result<_, _>>().map_err(Failure::failed)
}

/// `DIR`, or `NAME=DIR`.
fn prober(text: &str, settings: &Settings) -> anyhow::Result<(String, Prober)> {
    let (name, directory) = match text.rsplit_once('=') {
        Some((name, directory)) if !Path::new(text).is_dir() => (name.to_owned(), directory),
        _ => {
            let place =
                iogate_turn::Place::of(Path::new(text), settings).context("the place of the directory")?;
            (place.name().to_owned(), text)
        }
    };
    let config = Calibration::read(&name, &settings.calibration)?.apply(&settings.backoff);
    let directory = PathBuf::from(directory);
    // What cannot be probed is told now, and not with the first turn.
    probe::measure(&directory, 0, 1)?;
    let prober = Prober::new(move |goes_on| {
        let mut watch = || if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let report = probe::wait_until_quiet(&[&directory], &config, None, &mut watch);
        let report = report.map_err(|error| error.to_string())?;
        Ok(Probed { attempts: report.attempts, is_quiet: report.verdict == Verdict::Quiet })
    });
    Ok((name, prober))
}

/// Reads each of several values of a flag.
fn all<T>(texts: &[String], read: impl Fn(&str) -> anyhow::Result<T>) -> Result<Vec<T>, Failure> {
    texts.iter().map(|text| read(text)).collect::<anyhow::Result<_>>().map_err(Failure::usage)
}

/// A place as on the command line: a name, perhaps with its number of targets.
fn place(text: &str) -> anyhow::Result<Place> {
    let wrong =
        || anyhow!("--place: expected NAME or NAME=TARGETS with 1 to {TARGETS_MAX} targets, got `{text}`");
    // What looks like a number is one, and no part of a name.
    let is_number = |text: &str| {
        text.is_empty() || text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
    };
    let counted = text.rsplit_once('=').filter(|(_, count)| is_number(count));
    let (name, targets) = match counted {
        Some((name, count)) => {
            let count = count.parse().ok().filter(|count| (1..=TARGETS_MAX).contains(count));
            (name, Some(count.ok_or_else(wrong)?))
        }
        None => (text, None),
    };
    if name.is_empty() || name.contains(char::is_control) {
        return Err(wrong());
    }
    Ok(Place { name: name.into(), targets })
}

/// How long turns of a place may be.
fn turn_max(text: &str) -> anyhow::Result<(String, Span)> {
    let wrong = || anyhow!("--turn-max: expected NAME=TIME, as in scratch=1800s, got `{text}`");
    let (name, time) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let time: Time = time.parse().map_err(|_| wrong())?;
    let nanoseconds = u64::try_from(time.0.as_nanos()).ok().filter(|time| *time > 0).ok_or_else(wrong)?;
    Ok((name.into(), Span::from_nanos(nanoseconds)))
}

/// The weight of a user.
fn weight(text: &str) -> anyhow::Result<(u32, u32)> {
    let pair = text.split_once('=').and_then(|(uid, weight)| {
        Some((uid.parse().ok()?, weight.parse().ok().filter(|weight| *weight > 0)?))
    });
    pair.ok_or_else(|| anyhow!("--weight: expected UID=WEIGHT with a weight from 1 on, got `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_names_and_perhaps_targets() {
        let of = |text: &str| place(text).map(|place| (place.name, place.targets)).ok();
        assert_eq!(of("nfs:io1:/scratch"), Some(("nfs:io1:/scratch".into(), None)));
        assert_eq!(of("scratch=4"), Some(("scratch".into(), Some(4))));
        assert_eq!(of("a=b"), Some(("a=b".into(), None)));
        for wrong in
            ["", "=4", "x=0", "x=", "x=-4", "x=+", "x=4k", "x=1048577", "x=99999999999", "a\0b", "a\nb=4"]
        {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn limits_and_weights_are_pairs() {
        assert_eq!(
            turn_max("nfs:io1:/scratch=1800s").unwrap(),
            ("nfs:io1:/scratch".into(), Span::from_secs(1800))
        );
        for wrong in ["", "scratch", "=30m", "scratch=30", "scratch=0s", "scratch=-1s"] {
            assert!(turn_max(wrong).is_err(), "{wrong}");
        }
        assert_eq!(weight("1000=5").unwrap(), (1000, 5));
        for wrong in ["", "1000", "1000=0", "-1=5", "1000=x", "a=5"] {
            assert!(weight(wrong).is_err(), "{wrong}");
        }
    }
}
