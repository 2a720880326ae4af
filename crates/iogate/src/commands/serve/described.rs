//! What a server of this program says of an export's gate in its status.

use iogate_engine::store::DeviceStats;
use iogate_report::Summary;
use serde::{Deserialize, Serialize};

/// A gate, and what is behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Described {
    /// What the gate did.
    #[serde(flatten)]
    pub(crate) gate: Summary,
    /// When the last request of each application was complete: its id, and nanoseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) last_served: Vec<(u32, u64)>,
    /// The modelled devices.
    #[serde(default)]
    pub(crate) devices: Vec<DeviceUse>,
}

/// What a modelled device did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceUse {
    /// For how long it served.
    pub(crate) busy_ns: u64,
    /// How often it had to reposition.
    pub(crate) repositions: u64,
}

impl DeviceUse {
    pub(super) fn of(stats: DeviceStats) -> DeviceUse {
        DeviceUse { busy_ns: stats.busy.as_nanos(), repositions: stats.repositions }
    }
}
