//! What a run has of its caller besides the scenario.

use iogate_core::sched::Own;

use super::SimError;
use crate::scenario::GateSpec;

/// Schedulers of the caller's own, by name, and whether the run is to end.
#[derive(Clone, Copy)]
pub struct Lent<'a> {
    /// A new scheduler for a gate whose scenario says `own:NAME`, or `None` if there is none of this name. Called from any thread.
    pub scheduler: &'a (dyn Fn(&str) -> Option<Box<dyn Own>> + Sync),
    /// Asked every now and then by the thread of a run; once it is true, the run ends with [`SimError::Stopped`].
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Lent<'_> {
    /// Nothing.
    pub const NONE: Lent<'static> = Lent { scheduler: &|_| None, is_stopped: &|| false };

    /// The scheduler of the caller's own that a gate is to have, if it is to have one.
    pub(super) fn own(&self, layer: &str, spec: &GateSpec) -> Result<Option<Box<dyn Own>>, SimError> {
        let Some(name) = &spec.own else { return Ok(None) };
        match (self.scheduler)(name) {
            Some(own) => Ok(Some(own)),
            None => Err(SimError::NoOwn { layer: layer.to_owned(), name: name.clone() }),
        }
    }
}
