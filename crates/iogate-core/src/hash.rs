//! A fixed hash for identifiers, so that nothing depends on where or when the program runs.

use core::hash::{BuildHasherDefault, Hasher};

/// A hash map keyed by small plain values. Nothing may iterate over it where order matters.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiply and fold: spreads consecutive numbers over both the low and the high bits.
#[derive(Clone, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    /// Which variant of an enum it is.
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
