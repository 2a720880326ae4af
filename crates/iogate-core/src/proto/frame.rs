//! Where a request ends, and what its header alone says to be wrong: the same at servers of files and at coordinators.

use alloc::format;
use alloc::string::String;

use crate::refusal::{Refusal, errno};
use crate::wire::{Kind, REQUEST_HEADER_BYTES, RequestHeader, WireError};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is known of its client: the first request is a Hello.
    New,
    /// It carries a session.
    Session,
    /// Its session is over.
    Over,
}

/// Most bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of fields.
    pub fields: usize,
    /// Of payload.
    pub payload: u32,
}

/// The header and the fields of the request that `bytes` begin with; `None` if they have not come as a whole. Its payload follows.
///
/// # Errors
/// If this request must not come at this stage, or is larger than `bounds` says of its kind: as soon as the header is there, before there
/// is memory for what it announces.
pub fn head(
    bytes: &[u8],
    stage: Stage,
    bounds: impl FnOnce(Kind) -> Bounds,
) -> Result<Option<(RequestHeader, &[u8])>, Refusal> {
    let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_HEADER_BYTES>() else { return Ok(None) };
    let refused = |text: String| Err(Refusal::new(errno::EPROTO, text));
    let header = match RequestHeader::from_bytes(header) {
        Ok(header) => header,
        Err(error) => return refused(format!("{error}")),
    };
    let number = header.kind;
    let kind = Kind::of(number);
    match (stage, kind) {
        (Stage::New, Some(Kind::Hello)) => {}
        (Stage::New, _) => return refused("expected a Hello first".into()),
        (Stage::Session, Some(Kind::Hello)) => return refused("a second Hello on one connection".into()),
        (Stage::Session, _) => {}
        (Stage::Over, _) => return refused("the session has ended: a Goodbye is the last request".into()),
    }
    let Some(kind) = kind else {
        return refused(format!("kind {number}: {}", WireError::UnknownKind { kind: number }));
    };
    let most = bounds(kind);
    if header.payload > most.payload {
        let (found, most) = (header.payload, most.payload);
        return refused(format!(
            "a request of kind {number} has {found} bytes of payload, expected at most {most}"
        ));
    }
    let fields = usize::from(header.fields);
    if fields > most.fields {
        let most = most.fields;
        return refused(format!(
            "a request of kind {number} has {fields} bytes of fields, expected at most {most}"
        ));
    }
    Ok(rest.get(..fields).map(|fields| (header, fields)))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const BOUNDS: Bounds = Bounds { fields: 3, payload: 10 };

    fn request(kind: u16, fields: &[u8], payload: u32) -> Vec<u8> {
        let header = RequestHeader { kind, fields: fields.len() as u16, payload, ..RequestHeader::default() };
        [&header.to_bytes()[..], fields].concat()
    }

    /// What is refused of a request as soon as its header is there; `None`: it waits for its fields.
    fn refusal(stage: Stage, kind: u16, fields: &[u8], payload: u32) -> Option<String> {
        let bytes = request(kind, fields, payload);
        let header = head(&bytes[..REQUEST_HEADER_BYTES], stage, |_| BOUNDS);
        header.err().map(|refusal| refusal.text)
    }

    #[test]
    fn a_request_is_taken_when_its_fields_are_there() {
        let bytes = request(Kind::Write as u16, b"abc", 10);
        for count in 0..bytes.len() {
            assert_eq!(head(&bytes[..count], Stage::Session, |_| BOUNDS), Ok(None), "{count} bytes");
        }
        let more = [&bytes[..], b"payload"].concat();
        let (header, fields) = head(&more, Stage::Session, |_| BOUNDS).unwrap().unwrap();
        assert_eq!((header.payload, fields), (10, &b"abc"[..]));
    }

    #[test]
    fn each_stage_has_its_requests() {
        let (hello, ping) = (Kind::Hello as u16, Kind::Ping as u16);
        for (stage, kind, said) in [
            (Stage::New, ping, "expected a Hello first"),
            (Stage::New, 999, "expected a Hello first"),
            (Stage::Session, hello, "a second Hello on one connection"),
            (Stage::Session, 999, "kind 999: "),
            (Stage::Over, ping, "a Goodbye is the last request"),
            (Stage::Over, hello, "a Goodbye is the last request"),
        ] {
            let refusal = refusal(stage, kind, b"ab", 0).unwrap_or_default();
            assert!(refusal.contains(said), "{stage:?} {kind}: {refusal}");
        }
        assert_eq!(refusal(Stage::New, hello, b"ab", 0), None);
        assert_eq!(refusal(Stage::Session, ping, b"ab", 0), None);
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_has_come() {
        let write = Kind::Write as u16;
        assert_eq!(refusal(Stage::Session, write, b"abc", 10), None);
        let text = refusal(Stage::Session, write, b"abc", 11).unwrap();
        assert_eq!(text, "a request of kind 13 has 11 bytes of payload, expected at most 10");
        let text = refusal(Stage::Session, write, b"abcd", 10).unwrap();
        assert_eq!(text, "a request of kind 13 has 4 bytes of fields, expected at most 3");
    }
}
