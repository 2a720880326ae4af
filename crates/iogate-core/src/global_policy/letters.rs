//! Reports and grants as messages.

use alloc::vec::Vec;

use super::{Demand, GateId, Grant, Report, Terms, TooManyClasses};
use crate::policy::{Entitlement, Leaf, Rate};
use crate::request::AppId;
use crate::time::Span;
use crate::wire::{Allotments, CLASS_ALLOTMENT_BYTES, CLASS_USE_BYTES, CLASSES_MAX, ReportUse, WireError};

impl Report {
    /// As a gate sends it. `room` is for the classes.
    ///
    /// # Errors
    /// If it has more classes than a message takes.
    pub fn letter<'a>(
        &self,
        gate: GateId,
        terms: u64,
        room: &'a mut Vec<u8>,
    ) -> Result<ReportUse<'a>, TooManyClasses> {
        if self.classes.len() > CLASSES_MAX {
            return Err(TooManyClasses);
        }
        room.clear();
        for Demand { leaf, demand, used, held } in &self.classes {
            put(room, *leaf);
            [demand, used, held].into_iter().for_each(|rate| room.extend_from_slice(&rate.to_le_bytes()));
        }
        let Report { number, applied, part, leaves, .. } = *self;
        Ok(ReportUse { gate: gate.0, terms, number, applied, part, leaves: leaves.into(), classes: room })
    }

    /// As it has come in.
    ///
    /// # Errors
    /// If its last class is cut off.
    pub fn of_letter(letter: &ReportUse<'_>) -> Result<Report, WireError> {
        let (classes, rest) = letter.classes.as_chunks::<CLASS_USE_BYTES>();
        check(rest, CLASS_USE_BYTES)?;
        let demand = |class: &[u8; CLASS_USE_BYTES]| Demand {
            leaf: leaf(class),
            demand: number(class, 8),
            used: number(class, 16),
            held: number(class, 24),
        };
        Ok(Report {
            number: letter.number,
            applied: letter.applied,
            part: letter.part,
            leaves: letter.leaves != 0,
            classes: classes.iter().map(demand).collect(),
        })
    }
}

impl Grant {
    /// As a coordinator sends it. `room` is for the classes.
    pub fn letter<'a>(&self, room: &'a mut Vec<u8>) -> Allotments<'a> {
        room.clear();
        for (leaf, rate) in &self.classes {
            put(room, *leaf);
            room.extend_from_slice(&rate.to_le_bytes());
        }
        let (lease, every) = (self.lease.as_nanos(), self.every.as_nanos());
        Allotments {
            number: self.number,
            lease,
            every,
            part: self.part,
            learns: self.learns.into(),
            classes: room,
        }
    }

    /// As it has come in.
    ///
    /// # Errors
    /// If its last class is cut off.
    pub fn of_letter(letter: &Allotments<'_>) -> Result<Grant, WireError> {
        let (classes, rest) = letter.classes.as_chunks::<CLASS_ALLOTMENT_BYTES>();
        check(rest, CLASS_ALLOTMENT_BYTES)?;
        let of = |class: &[u8; CLASS_ALLOTMENT_BYTES]| (leaf(class), number(class, 8));
        Ok(Grant {
            number: letter.number,
            lease: Span::from_nanos(letter.lease),
            every: Span::from_nanos(letter.every),
            part: letter.part,
            learns: letter.learns != 0,
            classes: classes.iter().map(of).collect(),
        })
    }
}

fn check(rest: &[u8], expected: usize) -> Result<(), WireError> {
    match rest.len() {
        0 => Ok(()),
        found => Err(WireError::Truncated { expected, found }),
    }
}

/// A class, as both messages begin with it.
fn put(room: &mut Vec<u8>, Leaf { app, within }: Leaf) {
    for class in [app, within.unwrap_or_default()] {
        room.extend_from_slice(&class.0.to_le_bytes());
    }
}

fn leaf(bytes: &[u8]) -> Leaf {
    let both = number(bytes, 0);
    let within = AppId((both >> 32) as u32);
    Leaf { app: AppId(both as u32), within: (within != AppId::default()).then_some(within) }
}

/// The eight bytes at `at`.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Terms {
    /// The same number for the same terms, so that a gate and a coordinator that go by different ones find out.
    pub fn digest(&self) -> u64 {
        let Terms { by, policy, lease, every, skew, absent_max } = self;
        let mut numbers: Vec<u64> =
            [lease, every, skew, absent_max].into_iter().map(|span| span.as_nanos()).collect();
        numbers.push(policy.total.map_or(0, |total| total.get()));
        let mut entitled = |app: Option<AppId>, entitlement: &Entitlement| {
            let Entitlement { weight, min, max } = entitlement;
            let rates =
                |rate: &Rate| [rate.bytes, rate.requests].map(|rate| rate.map_or(0, |rate| rate.get()));
            numbers.push(app.map_or(u64::MAX, |app| app.0.into()));
            numbers.push(u64::from(*weight));
            numbers.extend(rates(min).into_iter().chain(rates(max)));
        };
        policy.apps.iter().for_each(|(app, entitlement)| entitled(Some(*app), entitlement));
        entitled(None, &policy.others);
        let branches = policy
            .branches
            .iter()
            .map(|(app, branch)| (Some(*app), branch.entitlement, branch.others, branch.within));
        let unnamed = policy
            .other_branches
            .map(|others| (None, others.entitlement, Entitlement::default(), Some(others.rest)));
        for (app, entitlement, others, within) in branches.chain(unnamed) {
            entitled(app, &entitlement);
            entitled(within, &others);
        }
        let within = policy.within.iter().flat_map(|(app, branch)| [app, branch]);
        numbers.push(policy.within.len() as u64);
        numbers.extend(within.map(|class| u64::from(class.0)));
        // Their order counts; what they match is in the numbers.
        numbers.extend(policy.paths.globs.iter().map(|(_, class)| u64::from(class.0)));
        numbers.extend(by.bytes().map(u64::from));
        // Fowler, Noll and Vo's 1a.
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use alloc::collections::BTreeSet;

    use super::*;
    use crate::glob::Glob;
    use crate::policy::{Branch, OtherBranches};

    #[test]
    fn letters_say_what_reports_and_grants_do() {
        let demand = |app| Demand { leaf: AppId(app).into(), demand: u64::MAX, used: 7, held: 1 << 40 };
        let within = Leaf { app: AppId(7), within: Some(AppId(u32::MAX)) };
        let report = Report {
            number: 9,
            applied: 8,
            part: u32::MAX,
            leaves: false,
            classes: vec![demand(0), demand(u32::MAX), Demand { leaf: within, ..demand(0) }],
        };
        let mut room = Vec::new();
        let letter = report.letter(GateId(3), 4, &mut room).unwrap();
        assert_eq!((letter.gate, letter.terms), (3, 4));
        assert_eq!(Report::of_letter(&letter), Ok(report.clone()));
        let cut = ReportUse { classes: &letter.classes[..CLASS_USE_BYTES + 1], ..letter };
        assert!(Report::of_letter(&cut).is_err());
        let many = Report { classes: vec![demand(1); CLASSES_MAX + 1], ..report };
        assert_eq!(many.letter(GateId(3), 4, &mut room), Err(TooManyClasses));

        let classes = vec![(AppId(5).into(), 1), (within, u64::MAX)];
        let (lease, every) = (Span::from_secs(1), Span::from_millis(100));
        let grant = Grant { number: 9, lease, every, part: 3, learns: true, classes };
        let letter = grant.letter(&mut room);
        assert_eq!(Grant::of_letter(&letter), Ok(grant));
        assert!(Grant::of_letter(&Allotments { classes: &letter.classes[1..], ..letter }).is_err());
    }

    #[test]
    fn other_terms_have_another_digest() {
        let terms = Terms::default();
        let mut others = vec![terms.clone(); 13];
        others[0].lease = Span::from_secs(2);
        others[1].policy.total = 5.try_into().ok();
        others[2].policy.others.max.bytes = 5.try_into().ok();
        others[3].policy.apps.insert(AppId(1), Entitlement::default());
        let globs = ["a", "**"].map(|text| Glob::parse(text).unwrap()).into_iter().zip([AppId(1), AppId(2)]);
        others[4].policy.paths.globs = globs.clone().collect();
        others[5].policy.paths.globs = globs.rev().collect();
        others[6].policy.branches.insert(AppId(1), Branch::default());
        others[7].policy.branches.insert(AppId(1), Branch { within: Some(AppId(2)), ..Branch::default() });
        others[8].policy.branches.insert(
            AppId(1),
            Branch { others: Entitlement { weight: 2, ..Entitlement::default() }, ..Branch::default() },
        );
        others[9].policy.other_branches = Some(OtherBranches::default());
        others[10].policy.within.insert(AppId(1), AppId(2));
        others[11].by = "user".into();
        others[12].by = "job".into();
        let digests: BTreeSet<u64> = others.iter().map(Terms::digest).collect();
        assert_eq!(digests.len(), others.len());
        assert!(others.iter().all(|other| other.digest() != terms.digest()));
        assert_eq!(terms.clone().digest(), terms.digest());
    }
}
