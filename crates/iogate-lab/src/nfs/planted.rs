//! Defects that are put in on purpose, one at a time: the checks of these worlds must find each.

/// A defect that is put in on purpose: a simulation that does not find it is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The verifier stays the same over a crash of the machine.
    SameVerifier,
    /// Each process has a verifier of its own.
    OwnVerifier,
    /// A write-back that failed does not change the verifier.
    FailureUntold,
    /// That a write-back has failed is forgotten with a kill.
    FailureForgotten,
    /// Answers are not kept over a kill.
    AnswersLost,
    /// A sync is answered, and comes later.
    LateSync,
    /// A change of names is answered before it is durable.
    LateNames,
    /// Clients believe every COMMIT.
    CommitBelieved,
    /// A WRITE that was answered is carried out again when it comes again.
    WritesForgotten,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 9] = [
        Planted::SameVerifier,
        Planted::OwnVerifier,
        Planted::FailureUntold,
        Planted::FailureForgotten,
        Planted::AnswersLost,
        Planted::LateSync,
        Planted::LateNames,
        Planted::CommitBelieved,
        Planted::WritesForgotten,
    ];
}
