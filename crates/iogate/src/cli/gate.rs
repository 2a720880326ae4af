//! The flags of whoever begins a gate, which `iogate mount` and `iogate nfs` have alike.

use clap::Args;
use iogate_engine::Accounts;

use super::{KnownArgs, RoomArgs, SEEN, SchedulerArgs, SharesArgs, kinds_of_accounts};
use crate::metrics;

/// What goes first in it, and who gets how much.
#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,

    #[command(flatten)]
    pub(crate) shares: SharesArgs,

    #[command(flatten)]
    pub(crate) room: RoomArgs,

    #[command(flatten)]
    pub(crate) known: KnownArgs,
}

/// What can be seen of it.
#[derive(Debug, Args)]
pub(crate) struct SeenArgs {
    /// Show what the gate does, live: answer HTTP there, with a page at / and for monitoring /metrics, in OpenMetrics (docs/metrics.md)
    ///
    /// HOST:PORT, unix:PATH, or a port of loopback. Whoever reaches it may look; nothing can be changed there.
    #[arg(long, value_name = "ADDRESS", visible_alias = "metrics", help_heading = SEEN)]
    pub(crate) http: Option<metrics::Address>,

    /// Keep accounts of who slows whom down, for `iogate why`: of samples of the time (sampled), of all of it (on), or none (off)
    #[arg(long, value_name = "HOW", default_value = "sampled", value_parser = kinds_of_accounts(), help_heading = SEEN)]
    pub(crate) accounts: Accounts,
}
