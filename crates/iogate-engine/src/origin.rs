//! Who sends a request: what engines are told, and stores that schedule elsewhere pass on.

use iogate_core::{AppId, BurstSize, ClientId, Time};

/// Who sends a request, for the schedulers that care.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The application; 0 is unknown.
    pub app: AppId,
    /// The client; 0 is unknown.
    pub client: ClientId,
    /// When it was issued, on the client's clock (nanoseconds since the Unix epoch).
    pub issued: Option<Time>,
    /// What the application says that it moves in a burst.
    pub burst: BurstSize,
}
