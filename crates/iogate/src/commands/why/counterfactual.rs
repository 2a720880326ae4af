//! What applications at a gate that is up would gain without another one: what it does is recorded, and simulated with and without it.

use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_core::auto::Pricing;
use iogate_core::auto::without::{Counterfactual, Known, Recording};
use iogate_core::profile::Profile;
use iogate_core::recording::Event;
use iogate_core::stats::summary::Summary;
use iogate_core::{AppId, GateConfig, Layout, SchedulerConfig};
use iogate_report::why::{Doubt, Gain, Why};

use crate::cli::WhyArgs;
use crate::commands::asker::{Asker, Said};
use crate::commands::record::events;
use crate::devices;
use crate::failure::Failure;
use crate::storage::read_profile;

/// Most events that are recorded: what is simulated takes seconds.
const EVENTS_MAX: usize = 400_000;

/// What is known of the storage beside what is recorded.
pub(super) enum Storage {
    Nothing,
    Profile(Box<Profile>),
    Device(Box<dyn Pricing>),
}

/// What the flags say of the storage.
pub(super) fn storage(args: &WhyArgs) -> Result<Storage, Failure> {
    if let Some(device) = &args.device {
        let maker = devices::maker(device).map_err(devices::not_a_device)?;
        return Ok(Storage::Device(Box::new(maker)));
    }
    let Some(file) = &args.profile else { return Ok(Storage::Nothing) };
    let profile = read_profile(file)
        .map_err(|error| Failure::usage(error).hint("`iogate profile DIR --out FILE` measures storage"))?;
    Ok(Storage::Profile(Box::new(profile)))
}

/// What a gate did for a while, and how it was set.
pub(super) struct Recorded {
    events: Vec<Event>,
    summary: Summary,
}

impl Recorded {
    /// Records for so long.
    pub(super) fn record(asker: &mut Asker, time: Duration) -> Result<Recorded, Failure> {
        let events = events(asker, time, EVENTS_MAX)?;
        Ok(Recorded { events, summary: gate(asker)? })
    }

    /// The gate's settings; or why it is not simulated.
    fn config(&self) -> Result<GateConfig, String> {
        let Summary { scheduler, params, depth, targets, now, .. } = &self.summary;
        if targets.len() > 1 {
            return Err("it has several targets, and one device is simulated".into());
        }
        if now.iter().any(|app| app.weight.is_some()) {
            return Err("a policy decides, which is not simulated".into());
        }
        let mut config = SchedulerConfig::by_name(scheduler).map_err(|error| error.to_string())?;
        for (name, value) in params {
            config.set(name, value).map_err(|error| error.to_string())?;
        }
        Ok(GateConfig { scheduler: config, queue_max: u32::MAX - 1, depth: *depth, layout: Layout::SINGLE })
    }

    /// Adds to what is said of applications what they would gain without those.
    pub(super) fn say(
        &self,
        storage: &Storage,
        without: &[AppId],
        apps: &mut [Why],
        name: impl Fn(AppId) -> String,
    ) -> Result<(), Failure> {
        let known = match storage {
            Storage::Nothing => Known::Recorded,
            Storage::Profile(profile) => Known::Profile(profile),
            Storage::Device(pricing) => Known::Device(&**pricing),
        };
        let recording = Recording::new(&self.events, None).map_err(|doubt| doubt.to_string());
        let simulated = recording.and_then(|recording| {
            let config = self.config()?;
            Counterfactual::new(&recording, &config, known).map_err(|error| error.to_string())
        });
        for &left_out in without {
            let other = name(left_out);
            let said = match &simulated {
                Ok(simulated) => simulated.without(left_out).context("the recording cannot be simulated")?,
                Err(why) => {
                    let doubt = Doubt { without: other.clone(), why: why.clone() };
                    let others = apps.iter_mut().filter(|of| of.app != other);
                    others.for_each(|of| of.doubts.push(doubt.clone()));
                    continue;
                }
            };
            for (app, said) in said {
                let app = name(app);
                let Some(why) = apps.iter_mut().find(|why| why.app == app) else { continue };
                match said {
                    Ok(gain) => {
                        let charged = why.apps.iter().find(|part| part.name == other);
                        let gain = Gain {
                            without: other.clone(),
                            with_s: gain.took.as_secs_f64(),
                            without_s: gain.without.as_secs_f64(),
                            charged_s: Some(charged.map_or(0.0, |part| part.seconds)),
                        };
                        why.gains.push(gain);
                    }
                    Err(doubt) => why.doubts.push(Doubt { without: other.clone(), why: doubt.to_string() }),
                }
            }
        }
        Ok(())
    }
}

/// How the gate is set.
fn gate(asker: &mut Asker) -> Result<Summary, Failure> {
    let status = match asker.status()? {
        Said::Mount(summary) => return Ok(*summary),
        Said::Server(status) => status,
    };
    let is_it = |name: &str| asker.export().is_none_or(|export| export == name);
    let found = status.exports.into_iter().find(|of| is_it(&of.name)).map(|of| of.gate.summary);
    found.ok_or_else(|| Failure::failed(anyhow!("{} does not say how its gate is set", asker.place())))
}
