//! What may be in a block of a file, and which verifiers a file may have.

use std::collections::{BTreeMap, BTreeSet};

/// What may be in a block, by what its only writer was answered. Zero is a block of zeros.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// What a crash of the machine may leave: the first is durable, if nothing behind it is; in the order in which they were written.
    may_be: Vec<u64>,
    /// What is read until the next crash, and in which boot that is.
    is: Option<(u64, u64)>,
}

impl Default for Block {
    fn default() -> Block {
        Block { may_be: vec![0], is: None }
    }
}

impl Block {
    /// It is about to be written: from now on it may be there.
    pub(super) fn begin(&mut self, value: u64) {
        self.may_be.push(value);
        self.is = None;
    }

    /// What was written last was answered in a boot; nobody has said that it is durable.
    pub(super) fn written(&mut self, value: u64, boot: u64) {
        self.is = Some((value, boot));
    }

    /// What was written last is durable, as was answered in a boot.
    pub(super) fn durable(&mut self, value: u64, boot: u64) {
        self.may_be = vec![value];
        self.is = Some((value, boot));
    }

    /// It was read in a boot. Fails if that cannot be.
    pub(super) fn read(&mut self, found: u64, boot: u64) -> Result<(), String> {
        match self.is {
            Some((value, at)) if at == boot && value != found => {
                return Err(format!("{found} was read in boot {boot} where {value} is"));
            }
            _ => {}
        }
        if !self.may_be.contains(&found) {
            return Err(format!("{found} was read in boot {boot} where one of {:?} may be", self.may_be));
        }
        self.is = Some((found, boot));
        Ok(())
    }
}

/// The verifiers of files, by number.
#[derive(Debug, Default)]
pub(super) struct Verifiers {
    /// Of each file, in which boot each was seen.
    seen: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Verifiers {
    /// A file had a verifier in a boot, in which `failures` write-backs of it have failed by now. Fails if it cannot be.
    pub(super) fn saw(&mut self, file: u64, verifier: u64, boot: u64, failures: u64) -> Result<(), String> {
        let seen = self.seen.entry(file).or_default();
        let at = *seen.entry(verifier).or_insert(boot);
        if at != boot {
            return Err(format!("file {file} has verifier {verifier:x} in boot {boot} as in boot {at}"));
        }
        let here: BTreeSet<u64> = seen.iter().filter(|(_, at)| **at == boot).map(|(seen, _)| *seen).collect();
        if here.len() as u64 > 1 + failures {
            return Err(format!("file {file} has {} verifiers after {failures} failures", here.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_may_take_what_is_not_durable_and_nothing_else() {
        let mut block = Block::default();
        block.begin(1);
        block.durable(1, 0);
        block.begin(2);
        block.written(2, 0);
        assert!(block.clone().read(1, 0).is_err(), "it was acknowledged in this boot");
        assert!(block.clone().read(0, 1).is_err(), "from before what is durable");
        block.read(1, 1).unwrap();
        assert!(block.read(2, 1).is_err(), "it was another one a moment ago");
    }

    #[test]
    fn a_verifier_changes_with_a_boot_and_a_failure_and_else_not() {
        let mut verifiers = Verifiers::default();
        verifiers.saw(1, 10, 0, 0).unwrap();
        assert!(verifiers.saw(1, 10, 1, 0).is_err(), "the same in another boot");
        verifiers.saw(1, 11, 1, 0).unwrap();
        assert!(verifiers.saw(1, 12, 1, 0).is_err(), "another one for nothing");
        verifiers.saw(2, 10, 1, 0).unwrap();
        verifiers.saw(2, 20, 1, 1).unwrap();
    }
}
