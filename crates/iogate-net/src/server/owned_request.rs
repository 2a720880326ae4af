//! A request with the bytes that it was read from: decoded once, by who takes it in, and moved to who carries it out.

use iogate_core::wire::{Request, WireError};

/// A request that owns its fields.
pub(super) struct OwnedRequest {
    /// Borrows from `fields`. Nobody else gets it for longer than [`OwnedRequest::get`] says.
    request: Request<'static>,
    fields: Vec<u8>,
}

impl OwnedRequest {
    /// Reads the fields of a request of this kind.
    pub(super) fn decode(kind: u16, fields: Vec<u8>) -> Result<OwnedRequest, WireError> {
        // SAFETY: what a `Vec` has on the heap stays where it is when the `Vec` is moved. Nobody changes it, and it is freed with
        // the request that borrows from it, which does nothing when it is dropped.
        let borrowed: &'static [u8] = unsafe { &*std::ptr::from_ref(fields.as_slice()) };
        Ok(OwnedRequest { request: Request::decode(kind, borrowed)?, fields })
    }

    /// The request.
    pub(super) fn get(&self) -> &Request<'_> {
        &self.request
    }

    /// Bytes of its fields.
    pub(super) fn bytes(&self) -> usize {
        self.fields.len()
    }
}

#[cfg(test)]
mod tests {
    use iogate_core::wire::{Kind, Unlink};

    use super::*;

    #[test]
    fn a_request_goes_on_after_a_move() {
        let (kind, mut fields) = (Kind::Unlink as u16, Vec::new());
        let unlink = Unlink { directory: 1, path: b"a/name" };
        Request::Unlink(unlink).encode(&mut fields);
        let owned = OwnedRequest::decode(kind, fields.clone()).unwrap();
        let moved = std::thread::spawn(move || Box::new(owned)).join().unwrap();
        assert_eq!((moved.get(), moved.bytes()), (&Request::Unlink(unlink), fields.len()));
        fields.pop();
        assert!(OwnedRequest::decode(kind, fields).is_err());
    }
}
