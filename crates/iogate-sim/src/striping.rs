//! How a range of a file is cut into requests to the servers that hold it.

/// Round-robin striping over `servers` servers from server 0. Server `s` keeps its stripes, one after the other, in a part of the file
/// with offsets of its own, so that a contiguous range is contiguous on each server, too.
#[derive(Clone, Copy, Debug)]
pub struct Striping {
    /// Bytes of a stripe, not zero.
    pub stripe: u64,
    /// How many servers, not zero.
    pub servers: u64,
}

/// A range of one server's part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalRange {
    server: u32,
    start: u64,
    end: u64,
}

impl Striping {
    /// Cuts the `bytes` bytes from `offset` of a file into requests of at most `transfer` bytes (not zero) and calls
    /// `request(server, offset, bytes)` for each, the offset being that in the server's part: all servers by turns, each
    /// one's part from its start.
    pub fn for_each_request(
        &self,
        offset: u64,
        bytes: u64,
        transfer: u64,
        mut request: impl FnMut(u32, u64, u64),
    ) {
        if bytes == 0 {
            return;
        }
        let servers = self.servers_of(offset, bytes);
        let mut done = 0;
        loop {
            let mut any = false;
            for index in 0..servers {
                let local = self.local(offset, bytes, index);
                let at = local.start + done;
                if at < local.end {
                    request(local.server, at, transfer.min(local.end - at));
                    any = true;
                }
            }
            if !any {
                return;
            }
            done += transfer;
        }
    }

    /// Where a server's part of a file of `bytes` bytes ends.
    pub fn part_end(&self, server: u32, bytes: u64) -> u64 {
        let (stripes, rest) = (bytes / self.stripe, bytes % self.stripe);
        let own = stripes / self.servers + u64::from(stripes % self.servers > server.into());
        own * self.stripe + if stripes % self.servers == u64::from(server) { rest } else { 0 }
    }

    /// How many servers hold a part of the `bytes` bytes (not zero) from `offset`.
    fn servers_of(&self, offset: u64, bytes: u64) -> u64 {
        let (first, last) = (offset / self.stripe, (offset + bytes - 1) / self.stripe);
        (last - first + 1).min(self.servers)
    }

    /// The part of the range on the `index`-th of these servers, in the order of their first bytes.
    fn local(&self, offset: u64, bytes: u64, index: u64) -> LocalRange {
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

    #[test]
    fn requests_cover_each_part_once_and_end_where_it_ends() {
        let mut rng = Rng::new(2, 0);
        for _ in 0..2_000 {
            let striping = Striping { stripe: 1 + rng.below(7), servers: 1 + rng.below(5) };
            let (bytes, transfer) = (rng.below(60), 1 + rng.below(9));
            let mut ends = vec![0; striping.servers as usize];
            striping.for_each_request(0, bytes, transfer, |server, at, len| {
                assert_eq!(ends[server as usize], at, "from the start, without a gap");
                assert!((1..=transfer).contains(&len));
                ends[server as usize] += len;
            });
            assert_eq!(ends.iter().sum::<u64>(), bytes);
            let expected = (0..striping.servers as u32).map(|server| striping.part_end(server, bytes));
            assert_eq!(ends, expected.collect::<Vec<_>>(), "{striping:?} {bytes}");
        }
    }
}
