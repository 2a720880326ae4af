//! The text that names a device: `unit:100us`, `linear:15ms:90MB/s`, `hdd`, `edel:slots=4`, `hdd:queue=31`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::preset::{Kind, PRESETS, Preset};
use super::{Device, Linear, Narrow, Nvme, NvmeConfig, NvmeState, Unit};
use crate::nearest::{did_you_mean, nearest};
use crate::time::Span;
use crate::units;

/// Why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceSpecError {
    /// No such device.
    #[error(
        "unknown device '{spec}'; {}expected unit:TIME (as in unit:100us), linear:TIME:RATE (as in linear:15ms:90MB/s) or one of: {known}",
        did_you_mean(.near)
    )]
    Unknown {
        /// What was asked for.
        spec: String,
        /// The nearest name, if one is near.
        near: Option<String>,
        /// All names.
        known: String,
    },
    /// The time of a unit device does not parse.
    #[error(
        "device '{spec}': expected a time after 'unit:', in microseconds or with its unit, such as 100, 50us or 1.5ms"
    )]
    BadTime {
        /// What was asked for.
        spec: String,
    },
    /// The numbers of a linear device do not parse.
    #[error(
        "device '{spec}': expected the time of a jump and a rate after 'linear:', as in linear:15ms:90MB/s; the rate is at least 1 B/s"
    )]
    BadLinear {
        /// What was asked for.
        spec: String,
    },
    /// The depth of the command queue is none, or the state.
    #[error("device '{spec}': expected {expected}")]
    BadOption {
        /// What was asked for.
        spec: String,
        /// What is possible.
        expected: String,
    },
    /// The bound on the transfers in service at once is none.
    #[error("device '{spec}': expected {expected} after 'slots=': {name} serves at most {most} at once")]
    BadSlots {
        /// What was asked for.
        spec: String,
        /// The device.
        name: String,
        /// What is possible.
        expected: String,
        /// How many slots the device has.
        most: u32,
    },
}

/// The device that `spec` names: a preset's name, or `unit:TIME`, with the time in microseconds or with a unit
/// of its own (`unit:100`, `unit:50us`, `unit:1.5ms`); or `linear:TIME:RATE`, as in `linear:15ms:90MB/s`. `:slots=N` after a
/// preset's name bounds the transfers in service at once (`edel:slots=1`), `:queue=N` gives a disk its command queue (`hdd:queue=31`).
pub fn parse(spec: &str) -> Result<Box<dyn Device>, DeviceSpecError> {
    parse_numbered(spec, 0)
}

/// The same, as device `number` of several: disks with command queues do not turn in step.
pub fn parse_numbered(spec: &str, number: u64) -> Result<Box<dyn Device>, DeviceSpecError> {
    if let Some(time) = spec.strip_prefix("unit:") {
        return match units::parse_micros(time) {
            Some(ns) => Ok(Box::new(Unit::new(Span::from_nanos(ns)))),
            None => Err(DeviceSpecError::BadTime { spec: spec.into() }),
        };
    }
    if let Some(numbers) = spec.strip_prefix("linear:") {
        return linear(numbers)
            .map(|device| Box::new(device) as Box<dyn Device>)
            .ok_or_else(|| DeviceSpecError::BadLinear { spec: spec.into() });
    }
    let (name, option) = match spec.split_once(':') {
        Some((name, option)) => (name, Some(option)),
        None => (spec, None),
    };
    let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) else { return Err(unknown(spec)) };
    match option.map(|option| option.split_once('=')) {
        None => Ok(preset.numbered(number)),
        Some(Some(("slots", slots))) => narrowed(spec, preset, slots),
        Some(Some(("state", state))) => match (preset.kind, state) {
            (Kind::Nvme(config), "filled") => Ok(Box::new(Nvme::new(config))),
            (Kind::Nvme(config), "random") => {
                Ok(Box::new(Nvme::new(NvmeConfig { state: NvmeState::Random, ..config })))
            }
            (Kind::Nvme(_), _) => Err(DeviceSpecError::BadOption {
                spec: spec.into(),
                expected: "filled or random after 'state='".into(),
            }),
            _ => {
                let expected = alloc::format!("no 'state=': {} has none to be set", preset.name);
                Err(DeviceSpecError::BadOption { spec: spec.into(), expected })
            }
        },
        Some(Some(("queue", depth))) => {
            let queued = depth.parse().ok().and_then(|depth| preset.with_queue(depth, number));
            queued.ok_or_else(|| bad_queue(spec, preset))
        }
        Some(_) => Err(unknown(spec)),
    }
}

fn linear(numbers: &str) -> Option<Linear> {
    let (jump, rate) = numbers.split_once(':')?;
    let rate = units::parse_rate(rate).filter(|rate| *rate > 0)?;
    Some(Linear::new(Span::from_nanos(units::parse_micros(jump)?), rate))
}

fn unknown(spec: &str) -> DeviceSpecError {
    let names = || PRESETS.iter().map(|preset| preset.name);
    let name = [":slots=", ":queue=", ":state="]
        .iter()
        .find_map(|option| spec.split_once(option))
        .map_or(spec, |(name, _)| name);
    DeviceSpecError::Unknown {
        spec: spec.into(),
        near: nearest(name, names().chain(["unit:TIME", "linear:TIME:RATE"])),
        known: names().collect::<Vec<_>>().join(", "),
    }
}

fn bad_queue(spec: &str, preset: &Preset) -> DeviceSpecError {
    let expected = match preset.kind {
        Kind::Disk(_, most) | Kind::Queued(_, most) if most > 1 => {
            alloc::format!("a number from 1 to {most} after 'queue='")
        }
        _ => alloc::format!("no 'queue=': {} has no command queue to be set", preset.name),
    };
    DeviceSpecError::BadOption { spec: spec.into(), expected }
}

/// A preset with as many slots as the text says.
fn narrowed(spec: &str, preset: &Preset, slots: &str) -> Result<Box<dyn Device>, DeviceSpecError> {
    let device = preset.build();
    let most = device.slots();
    match slots.parse() {
        Ok(slots) if (1..=most).contains(&slots) => Ok(Box::new(Narrow::new(device, slots))),
        _ => Err(DeviceSpecError::BadSlots {
            spec: spec.into(),
            name: preset.name.into(),
            expected: if most == 1 { "1".into() } else { alloc::format!("a number from 1 to {most}") },
            most,
        }),
    }
}
