//! Defects that are put in on purpose, one at a time: the checks of these worlds must find each.

/// A defect that is put in on purpose: a simulation that does not find it is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Answers leave although the journal has not kept what they say.
    Unkept,
    /// The journal goes on in the file that has lost its name.
    OldFile,
    /// A client counts its lease from when it hears of the grant.
    LateLease,
    /// A coordinator that does not know all turns grants at once.
    NoGrace,
    /// A restart of the coordinator forgets who waits and who holds.
    Forgetful,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 5] =
        [Planted::Unkept, Planted::OldFile, Planted::LateLease, Planted::NoGrace, Planted::Forgetful];
}
