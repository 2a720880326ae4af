//! Defects that are put in on purpose, one at a time: the checks of these worlds must find each.

/// A defect that is put in on purpose: a simulation that does not find it is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// While records are underway, nobody looks where the file ends.
    OldEnd,
    /// While records are underway, a truncation is not noticed.
    OldEndAfterCut,
    /// What a client did not see done is done again, also what moves bytes.
    Moves,
    /// Requests of a client that is gone are carried out.
    NoFence,
    /// Nobody compares verifiers.
    NoVerifier,
    /// A sync reaches only what its handle has written.
    OwnSync,
    /// Each process decides for itself where a striped file ends.
    NoDecider,
    /// A file that is removed is gone, whether somebody else has it open or not.
    GoneTooEarly,
    /// Nobody remembers that a size was changed.
    ForgottenSize,
    /// A new file has its name before it has what leads to its objects: a crash can leave the one without the other. Not among
    /// [`ALL`](Planted::ALL), as that is noticed.
    LateObject,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 9] = [
        Planted::OldEnd,
        Planted::OldEndAfterCut,
        Planted::Moves,
        Planted::NoFence,
        Planted::NoVerifier,
        Planted::OwnSync,
        Planted::NoDecider,
        Planted::GoneTooEarly,
        Planted::ForgottenSize,
    ];
}
