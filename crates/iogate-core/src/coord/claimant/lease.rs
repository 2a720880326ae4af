//! Until when a turn counts.

use crate::wire::Granted;

/// Until when a turn counts, by its holder's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long, as the coordinator said last.
    pub length: u64,
    /// Until when it counts if it is not renewed.
    pub until: u64,
    /// When it is to be renewed.
    pub due: u64,
}

impl Lease {
    /// The lease of a turn that was granted to a claim that was first sent at `sent`, and heard of `now`.
    ///
    /// It runs from the grant, which lies some way back: not before the claim had been sent and had waited as long as the coordinator says.
    pub fn begin(sent: u64, now: u64, granted: &Granted) -> Lease {
        Lease::from(sent.saturating_add(granted.waited).min(now), granted.lease)
    }

    /// The lease after a renewal that was sent at `sent`.
    pub fn from(sent: u64, length: u64) -> Lease {
        Lease { length, until: sent.saturating_add(length), due: sent.saturating_add(length / 3) }
    }

    /// Whether the turn still counts.
    pub fn is_valid(&self, now: u64) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_from_the_earliest_grant_that_can_be() {
        let granted = Granted { token: 1, lease: 900, waited: 40, share: 1000, admission: 0 };
        let lease = Lease::begin(100, 1_000, &granted);
        assert_eq!((lease.until, lease.due), (1_040, 440));
        assert!(lease.is_valid(1_039) && !lease.is_valid(1_040));
        // What the coordinator says cannot lie ahead of now.
        assert_eq!(Lease::begin(100, 110, &granted).until, 1_010);
    }
}
