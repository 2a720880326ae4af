//! Forwarders that work together: each has a place of its own among them, and a process that takes one over ends its predecessor.

use alloc::format;

use crate::refusal::{Refusal, errno};
use crate::wire::Hello;

/// Which forwarder a client says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarder {
    /// Its index among `nodes`.
    pub node: u32,
    /// Forwarders that work together.
    pub nodes: u32,
    /// Changes with every start of its process.
    pub instance: u64,
}

/// What a forwarder that comes in is to the one of a session of the same export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They do not concern each other: two of several, or two sessions of one process.
    None,
    /// The session is the same forwarder's, whose process before has gone: nothing of it may follow what comes now.
    Predecessor,
    /// They contradict each other while both are there, so that windows would not be each one's own: the one that comes is not let in.
    Rival(Refusal),
}

impl Forwarder {
    /// Which forwarder a `Hello` is from; `None`: none.
    pub fn of(hello: &Hello<'_>) -> Option<Forwarder> {
        let Hello { node, nodes, instance, .. } = *hello;
        (nodes > 0).then_some(Forwarder { node, nodes, instance })
    }

    /// What this forwarder, which comes in, is to another one, of the same user or not; `is_there` says whether that still has a
    /// connection. Nobody ends what is another user's.
    pub fn relation(
        &self,
        other: &Forwarder,
        is_same_user: bool,
        is_there: impl FnOnce() -> bool,
    ) -> Relation {
        let Forwarder { node, nodes, instance } = *self;
        let is_same = (node, nodes) == (other.node, other.nodes) && nodes > 1;
        if instance == other.instance || nodes == other.nodes && !is_same {
            return Relation::None;
        }
        match (is_same, is_there()) {
            (true, false) if is_same_user => Relation::Predecessor,
            (_, false) => Relation::None,
            (true, true) => Relation::Rival(Refusal::new(
                errno::EADDRINUSE,
                format!(
                    "forwarder {node} of {nodes} is connected already, the server's log says from where: give each forwarder a \
                     `node` of its own"
                ),
            )),
            (false, true) => Relation::Rival(Refusal::new(
                errno::EADDRINUSE,
                format!(
                    "this forwarder is one of {nodes}, and another that is connected is one of {}: give all the same `nodes` \
                     (the server's log says which it is)",
                    other.nodes
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarder(node: u32, nodes: u32, instance: u64) -> Forwarder {
        Forwarder { node, nodes, instance }
    }

    #[test]
    fn each_place_is_one_process_s_and_all_agree_on_how_many_there_are() {
        let own = forwarder(1, 4, 7);
        let relation = |other: Forwarder, is_there| match own.relation(&other, true, || is_there) {
            Relation::None => "none",
            Relation::Predecessor => "before",
            Relation::Rival(refusal) if refusal.text.contains("a `node` of its own") => "same place",
            Relation::Rival(refusal) if refusal.text.contains("is one of 5") => "another number",
            Relation::Rival(refusal) => panic!("{refusal}"),
        };
        for (other, gone, there) in [
            (forwarder(1, 4, 7), "none", "none"),
            (forwarder(1, 4, 8), "before", "same place"),
            (forwarder(2, 4, 8), "none", "none"),
            (forwarder(1, 5, 8), "none", "another number"),
            (forwarder(2, 5, 8), "none", "another number"),
        ] {
            assert_eq!((relation(other, false), relation(other, true)), (gone, there), "{other:?}");
        }
    }

    #[test]
    fn forwarders_that_are_alone_are_not_each_other_s() {
        let (one, other) = (forwarder(0, 1, 7), forwarder(0, 1, 8));
        assert_eq!(one.relation(&other, true, || true), Relation::None);
        assert_eq!(one.relation(&other, true, || false), Relation::None);
    }

    #[test]
    fn what_another_user_has_left_is_not_ended_and_its_place_is_not_taken() {
        let (own, other) = (forwarder(1, 4, 7), forwarder(1, 4, 8));
        assert_eq!(own.relation(&other, false, || false), Relation::None);
        assert!(matches!(own.relation(&other, false, || true), Relation::Rival(_)));
    }
}
