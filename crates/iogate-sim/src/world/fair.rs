//! Gates that divide device time among applications, by the rules of `iogate_core::policy`.

use iogate_core::device::{Device, Transfer};
use iogate_core::sched::{ConfigError, Prices};
use iogate_core::{Gate, Op, Span, Time};

use crate::scenario::{App, GateSpec, GlobalSpec, Group, shares};

/// Who gets what at the gates of a layer.
#[derive(Clone, Copy)]
pub(super) struct Shares<'a> {
    pub(super) apps: &'a [App],
    pub(super) groups: &'a [Group],
    /// One policy for all of them.
    pub(super) global: Option<&'a GlobalSpec>,
}

/// How many transfers a device is asked for to find out what it charges, and of how many bytes each.
const TRIALS: u64 = 32;
const BYTES: u64 = 64 << 10;

/// Gives a gate the applications' entitlements, if it is fair. What a jump of its device costs is known where a server's gate lies on
/// the bare device.
pub(super) fn divide(
    gate: &mut Gate,
    spec: &GateSpec,
    Shares { apps, groups, global }: Shares<'_>,
    device: Option<&mut dyn Device>,
) -> Result<(), ConfigError> {
    if !spec.fair {
        return Ok(());
    }
    if let Some(jump) = device.map(jump).filter(|jump| *jump > Span::ZERO) {
        gate.set_prices(Prices::of_jumps([jump; 2], [1; 6]));
    }
    let policy = match global {
        Some(global) => super::global::policy(global, groups, apps, spec.lot),
        None => shares::policy(groups, apps, spec.lot),
    };
    gate.set_policy(Time::ZERO, Some(&policy))
}

/// What a read charges more that begins far away than one that goes on, on average; nothing, if that is less than a tenth.
fn jump(device: &mut dyn Device) -> Span {
    let far = (device.capacity().min(1 << 40) / TRIALS).max(BYTES);
    let mut now = Time::ZERO;
    let mut serve = |address: u64| {
        let took = device.serve(now, Transfer { op: Op::Read, address, bytes: BYTES });
        now = now + took;
        took.as_nanos()
    };
    serve(0);
    let next: u64 = (1..=TRIALS).map(|index| serve(index * BYTES)).sum();
    // In steps that share nothing with the number of trials, so that no two are neighbours.
    let jumps: u64 = (1..=TRIALS).map(|index| serve(index * 13 % TRIALS * far)).sum();
    let more = jumps.saturating_sub(next);
    Span::from_nanos(if more * 10 < next { 0 } else { more / TRIALS })
}
