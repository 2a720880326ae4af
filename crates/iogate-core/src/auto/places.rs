//! Which entry of a table belongs to an application, where there are only so many entries.

use crate::hash::HashMap;
use crate::request::AppId;

/// Entries of a table.
pub(super) const PLACES: usize = 64;
/// One in so many calls for an application that has no place looks for one in a full table: looking costs a walk over all.
pub(super) const LOOK_EVERY: u32 = 64;

/// The places of applications.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    index: HashMap<AppId, u32>,
    /// The application that was asked for last, and its place.
    latest: Option<(AppId, u32)>,
    homeless: u32,
}

impl Places {
    /// Where an application has its place, if it has one.
    pub(super) fn get(&mut self, app: AppId) -> Option<usize> {
        if let Some((of, place)) = self.latest
            && of == app
        {
            return Some(place as usize);
        }
        let place = *self.index.get(&app)?;
        self.latest = Some((app, place));
        Some(place as usize)
    }

    /// A place for an application that has none, in a table of so many entries: a new one at its end, or the one of whoever `goes`.
    pub(super) fn settle(
        &mut self,
        app: AppId,
        entries: usize,
        goes: impl FnOnce() -> Option<(usize, AppId)>,
    ) -> Option<usize> {
        let place = if entries < PLACES {
            entries
        } else {
            self.homeless = self.homeless.wrapping_add(1);
            if !self.homeless.is_multiple_of(LOOK_EVERY) {
                return None;
            }
            let (place, gone) = goes()?;
            self.index.remove(&gone);
            place
        };
        self.index.insert(app, place as u32);
        self.latest = Some((app, place as u32));
        Some(place)
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.index.allocation_size()
    }
}
