//! The transport over io_uring.
use std::sync::Arc;
use crate::session::Session;
pub(crate) fn is_enabled() -> bool { false }
pub(crate) fn start(_session: &Arc<Session>, _depth: u16) -> std::io::Result<()> { Ok(()) }
