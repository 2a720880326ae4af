//! Text into the rules of a coordinator.

use anyhow::{Context, anyhow};
use iogate_core::Span;
use iogate_core::coord::{CoordConfig, Order, Passing};
use iogate_net::coordinator::Place;

use crate::settings;

/// Bytes that a claim counts less for each second of waiting, if nothing else is said.
const AGEING: u64 = 64 << 20;
/// What can be set.
const NAMES: &str = "order, passing, slots, lease, join, block_max, ageing, claims_max";

/// The rules that some `name=value` make.
pub(super) fn rules(items: &[String]) -> anyhow::Result<CoordConfig> {
    let mut rules = CoordConfig::default();
    let mut ageing = None;
    for item in items.iter().flat_map(|item| item.split(',')).filter(|item| !item.is_empty()) {
        let (name, value) =
            item.split_once('=').ok_or_else(|| anyhow!("expected NAME=VALUE, got `{item}`"))?;
        let time = || settings::nanoseconds(value).map(Span::from_nanos);
        let set = || -> anyhow::Result<()> {
            match name {
                "order" => {
                    rules.order = match value {
                        "fcfs" => Order::Fcfs,
                        "shortest" => Order::Shortest { ageing: AGEING },
                        "weighted" => Order::Weighted,
                        "sets" => Order::Sets,
                        _ => return Err(anyhow!("expected fcfs, shortest, weighted or sets")),
                    }
                }
                "passing" => {
                    rules.passing = match value {
                        "preserve" => Passing::Preserve,
                        "relaxed" => Passing::Relaxed,
                        _ => return Err(anyhow!("expected preserve or relaxed")),
                    }
                }
                "slots" => rules.slots = value.parse().context("expected a number from 1 on")?,
                "claims_max" => rules.claims_max = value.parse().context("expected a number from 1 on")?,
                "lease" => rules.lease = time()?,
                "join" => rules.join = time()?,
                "block_max" => rules.block_max = time()?,
                "ageing" => ageing = Some(settings::bytes(value)?),
                _ => return Err(anyhow!("there is no such rule: expected one of {NAMES}")),
            }
            Ok(())
        };
        let mut set = set;
        set().with_context(|| format!("`{item}`"))?;
    }
    match (&mut rules.order, ageing) {
        (Order::Shortest { ageing }, Some(given)) => *ageing = given,
        (_, Some(_)) => return Err(anyhow!("`ageing` is for order=shortest")),
        (_, None) => {}
    }
    Ok(rules)
}

/// A place as on the command line: a name, perhaps with its number of targets.
pub(super) fn place(text: &str) -> anyhow::Result<Place> {
    let counted = text.rsplit_once('=').and_then(|(name, count)| Some((name, count.parse().ok()?)));
    let (name, targets) = counted.map_or((text, None), |(name, count)| (name, Some(count)));
    if name.is_empty() || targets == Some(0) {
        return Err(anyhow!("expected NAME or NAME=TARGETS with at least one target, got `{text}`"));
    }
    Ok(Place { name: name.into(), targets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_what_is_wrong_is_said() {
        let of = |items: &[&str]| rules(&items.iter().map(ToString::to_string).collect::<Vec<_>>());
        let read =
            of(&["order=shortest,ageing=1MiB", "slots=2", "passing=relaxed,block_max=1s", "lease=250ms"]);
        let read = read.unwrap();
        assert_eq!(read.order, Order::Shortest { ageing: 1 << 20 });
        assert_eq!((read.slots, read.passing), (2, Passing::Relaxed));
        assert_eq!((read.block_max, read.lease), (Span::from_secs(1), Span::from_millis(250)));
        for (wrong, part) in [
            ("order=last", "fcfs, shortest"),
            ("slot=2", "no such rule"),
            ("slots=two", "expected a number"),
            ("lease=10", "lease=10"),
            ("fcfs", "NAME=VALUE"),
            ("ageing=1MiB", "order=shortest"),
        ] {
            let error = format!("{:#}", of(&[wrong]).unwrap_err());
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn places_have_names_and_perhaps_targets() {
        let of = |text: &str| place(text).map(|place| (place.name, place.targets)).ok();
        assert_eq!(of("nfs:io1:/scratch"), Some(("nfs:io1:/scratch".into(), None)));
        assert_eq!(of("scratch=4"), Some(("scratch".into(), Some(4))));
        assert_eq!(of("a=b"), Some(("a=b".into(), None)));
        assert_eq!((of(""), of("x=0")), (None, None));
    }
}
