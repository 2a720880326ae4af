//! What the list of headlines is written with.

use super::{Cause, Control, Headline, Named, Shows};

/// A headline.
pub(super) const fn headline(
    page: &'static str,
    place: &'static str,
    says: &'static str,
    claims: &'static [Named],
    causes: &'static [Cause],
) -> Headline {
    Headline { page, place, says, claims, causes }
}

/// A claim of it.
pub(super) const fn claim(called: &'static str, figure: &'static str, what: &'static str) -> Named {
    Named { called, figure, what }
}

/// A cause, and what its controls have to show.
pub(super) const fn cause(supposed: &'static str, shows: Shows, controls: &'static [Control]) -> Cause {
    Cause { supposed, tried: "", shows, controls, without: &[] }
}

impl Cause {
    /// Tried on something else than the headline's own figure.
    pub(super) const fn tried(self, tried: &'static str) -> Cause {
        Cause { tried, ..self }
    }

    /// The same without the cause.
    pub(super) const fn without(self, without: &'static [Control]) -> Cause {
        Cause { without, ..self }
    }
}

/// Claims of a control.
pub(super) const fn control(page: &'static str, figure: &'static str, what: &'static str) -> Control {
    Control { page, figure, what }
}
