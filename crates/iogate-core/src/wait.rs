//! Deliberate waits: a gate that has requests and dispatches none.

/// Why a gate that has requests dispatches none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum WaitReason {
    /// aioli, mlf: what follows the last dispatch is expected to arrive (a synchronous reader).
    Contiguous,
    /// aioli, mlf: a new strided front was seen, and the piece before the next run is expected.
    Shift,
    /// aioli, mlf: longer runs were seen recently, and this one is expected to grow.
    BetterRun,
    /// twins: the window belongs to another target.
    Window,
    /// A policy: the device is kept for an application that will be back at once.
    Share,
    /// A policy: the applications that have requests have had what they may.
    Cap,
}

impl WaitReason {
    /// All of them, in the order of [`Stats::waits`](crate::stats::Stats::waits).
    pub const ALL: [WaitReason; 6] = [
        WaitReason::Contiguous,
        WaitReason::Shift,
        WaitReason::BetterRun,
        WaitReason::Window,
        WaitReason::Share,
        WaitReason::Cap,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            WaitReason::Contiguous => "contiguous",
            WaitReason::Shift => "shift",
            WaitReason::BetterRun => "better-run",
            WaitReason::Window => "window",
            WaitReason::Share => "share",
            WaitReason::Cap => "cap",
        }
    }
}
