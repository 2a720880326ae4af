//! Which bytes of which server's part of a file a range of the file is.

/// Round-robin striping over `servers` servers from server 0. Server `s` keeps its stripes, one after the other, in a part of the file
/// with offsets of its own, so that a contiguous range is contiguous on each server, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Striping {
    pub(super) stripe: u64,
    pub(super) servers: u64,
}

/// A range of one server's part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalRange {
    pub(super) server: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Striping {
    /// How many servers hold a part of the `bytes` bytes (not zero) from `offset`.
    pub(super) fn servers_of(&self, offset: u64, bytes: u64) -> u64 {
        let (first, last) = (offset / self.stripe, (offset + bytes - 1) / self.stripe);
        (last - first + 1).min(self.servers)
    }

    /// The part of the range on the `index`-th of these servers, in the order of their first bytes.
    pub(super) fn local(&self, offset: u64, bytes: u64, index: u64) -> LocalRange {
        let Striping { stripe, servers } = *self;
        let end = offset + bytes;
        let (first, last) = (offset / stripe, (end - 1) / stripe);
        let own_first = first + index;
        let own_last = own_first + (last - own_first) / servers * servers;
        let start = own_first / servers * stripe + if index == 0 { offset % stripe } else { 0 };
        let end = own_last / servers * stripe + if own_last == last { end - last * stripe } else { stripe };
        LocalRange { server: (own_first % servers) as u32, start, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn ranges_agree_with_bytes_one_by_one() {
        let mut rng = Rng::new(1, 0);
        for _ in 0..2_000 {
            let striping = Striping { stripe: 1 + rng.below(7), servers: 1 + rng.below(5) };
            let (offset, bytes) = (rng.below(60), 1 + rng.below(60));
            let mut expected: Vec<LocalRange> = Vec::new();
            for at in offset..offset + bytes {
                let stripe = at / striping.stripe;
                let server = (stripe % striping.servers) as u32;
                let local = stripe / striping.servers * striping.stripe + at % striping.stripe;
                match expected.iter_mut().find(|range| range.server == server) {
                    Some(range) => {
                        assert_eq!(range.end, local, "contiguous on each server");
                        range.end += 1;
                    }
                    None => expected.push(LocalRange { server, start: local, end: local + 1 }),
                }
            }
            let found: Vec<LocalRange> = (0..striping.servers_of(offset, bytes))
                .map(|index| striping.local(offset, bytes, index))
                .collect();
            assert_eq!(found, expected, "{striping:?} {offset} {bytes}");
        }
    }
}
