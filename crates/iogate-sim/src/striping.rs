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
        let parts = self.parts(offset, bytes);
        let mut done = 0;
        loop {
            let mut longest = 0;
            for LocalRange { server, start, end } in parts.clone() {
                let at = start + done;
                if at < end {
                    request(server, at, transfer.min(end - at));
                    longest = longest.max(end - at);
                }
            }
            if longest <= transfer {
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

    /// The part of the `bytes` bytes (not zero) from `offset` on each server that has one, in the order of their first bytes.
    fn parts(&self, offset: u64, bytes: u64) -> impl Iterator<Item = LocalRange> + Clone + use<> {
        let Striping { stripe, servers } = *self;
        let end = offset + bytes;
        let (first, last) = (offset / stripe, (end - 1) / stripe);
        let (last_round, last_server) = (last / servers, last % servers);
        let (rest, last_rest) = (offset - first * stripe, end - last * stripe);
        // There are many servers, and divisions are slow: from one server to the next needs none.
        let (mut round, mut server) = (first / servers, first % servers);
        (first..=last).take(servers as usize).map(move |own_first| {
            // Who comes after the last stripe's server has its last stripe a round earlier.
            let own_last_round = last_round - u64::from(server > last_server);
            let start = round * stripe + if own_first == first { rest } else { 0 };
            let end = own_last_round * stripe + if server == last_server { last_rest } else { stripe };
            let part = LocalRange { server: server as u32, start, end };
            server += 1;
            if server == servers {
                (round, server) = (round + 1, 0);
            }
            part
        })
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
            let found: Vec<LocalRange> = striping.parts(offset, bytes).collect();
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
