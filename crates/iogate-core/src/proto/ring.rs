//! Servers that forward to each other in a ring, so that a request would go round for ever: found by a question that has with it by which
//! links it has come. Each link between two servers has a number, drawn at random by the process that forwards.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::refusal::{Refusal, errno};

/// Most links of a trail: no sensible chain of servers is as long.
pub const LINKS_MAX: usize = 32;
/// Most bytes of where a server is that a trail keeps, which is for people only.
const AT_BYTES_MAX: usize = 200;

/// A link that a trail has come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link<'a> {
    number: u64,
    /// Where the server is that it leads to.
    at: &'a [u8],
}

/// The links of a trail, in their order; `None` if these are no links.
fn links(mut trail: &[u8]) -> Option<Vec<Link<'_>>> {
    let mut links = Vec::new();
    while !trail.is_empty() {
        let (number, rest) = trail.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_at_checked(u16::from_le_bytes(*bytes).into())?;
        links.push(Link { number: u64::from_le_bytes(*number), at });
        trail = rest;
    }
    Some(links)
}

/// The trail with one link more: the one of this number, to the server at `at`.
///
/// # Errors
/// `ELOOP` if it has come by this link before, and which servers the ring is of; also if it is too long to be anything but one. `EINVAL` if
/// it is no trail.
pub fn extended(trail: &[u8], number: u64, at: &str) -> Result<Vec<u8>, Refusal> {
    let Some(links) = links(trail) else {
        return Err(Refusal::new(errno::EINVAL, "a trail of links between servers ends in the midst of one"));
    };
    if let Some(first) = links.iter().position(|link| link.number == number) {
        let mut ring: Vec<String> =
            links[first..].iter().map(|link| String::from_utf8_lossy(link.at).into_owned()).collect();
        ring.extend(ring.first().cloned());
        let text = format!("servers forward to each other in a ring: {}", ring.join(" -> "));
        return Err(Refusal::new(errno::ELOOP, text));
    }
    if links.len() >= LINKS_MAX {
        let text = format!("expected at most {LINKS_MAX} servers that forward to each other in a row");
        return Err(Refusal::new(errno::ELOOP, text));
    }
    let at = &at.as_bytes()[..at.len().min(AT_BYTES_MAX)];
    let mut longer = trail.to_vec();
    longer.extend_from_slice(&number.to_le_bytes());
    longer.extend_from_slice(&(at.len() as u16).to_le_bytes());
    longer.extend_from_slice(at);
    Ok(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(links: &[(u64, &str)]) -> Result<Vec<u8>, Refusal> {
        links.iter().try_fold(Vec::new(), |trail, (number, at)| extended(&trail, *number, at))
    }

    #[test]
    fn a_row_of_servers_is_no_ring() {
        let trail = along(&[(1, "unix:/a"), (2, "unix:/b"), (3, "unix:/a")]).unwrap();
        assert_eq!(links(&trail).unwrap().len(), 3, "two exports of one server may be in a row");
    }

    #[test]
    fn who_meets_its_own_link_names_the_ring_and_nobody_else() {
        let refusal = along(&[(9, "unix:/first"), (1, "b:1"), (2, "c:1"), (1, "b:1")]).unwrap_err();
        assert_eq!(refusal.errno, errno::ELOOP);
        assert_eq!(refusal.text, "servers forward to each other in a ring: b:1 -> c:1 -> b:1");
    }

    #[test]
    fn a_trail_without_an_end_is_a_ring() {
        let links: Vec<(u64, &str)> = (0..=LINKS_MAX as u64).map(|number| (number, "a:1")).collect();
        assert!(along(&links[..LINKS_MAX]).is_ok());
        assert_eq!(along(&links).unwrap_err().errno, errno::ELOOP);
    }

    #[test]
    fn what_is_no_trail_is_refused_and_a_long_address_is_cut() {
        let trail = along(&[(1, &"é".repeat(4000))]).unwrap();
        assert!(trail.len() <= 10 + AT_BYTES_MAX);
        for bytes in 1..trail.len() {
            assert_eq!(extended(&trail[..bytes], 2, "b:1").unwrap_err().errno, errno::EINVAL, "{bytes}");
        }
    }
}
