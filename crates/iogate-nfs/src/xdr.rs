//! XDR (RFC 4506), as far as RPC and NFS use it: bounded reading without copies, and writing.

use std::fmt::Debug;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// They end before the value does.
    #[error("expected {expected} more bytes, found {found}")]
    Truncated {
        /// Bytes of what should come.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A list or text longer than its kind may be.
    #[error("expected at most {max} bytes or items, found {found}")]
    TooLong {
        /// What was announced.
        found: u32,
        /// What there may be.
        max: u32,
    },
    /// A number that stands for nothing here.
    #[error("expected {expected}, found {found}")]
    NoSuchValue {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: u32,
    },
    /// Padding that is not zero, or bytes behind the last value.
    #[error("{0} bytes that belong to nothing")]
    Excess(usize),
}

/// Takes values off bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the first byte on.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails if something has not been taken.
    pub fn end(&self) -> Result<(), XdrError> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::Excess(self.rest.len())) }
    }

    /// So many bytes, without padding.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let truncated = XdrError::Truncated { expected: count, found: self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An array of fixed length, without padding.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let truncated = XdrError::Truncated { expected: N, found: self.rest.len() };
        let (taken, rest) = self.rest.split_first_chunk().ok_or(truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Opaque bytes of at most so many.
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8], XdrError> {
        let count = u32::take(self)?;
        if count > max {
            return Err(XdrError::TooLong { found: count, max });
        }
        let taken = self.bytes(count as usize)?;
        self.bytes(padding(count as usize))?;
        Ok(taken)
    }
}

/// Bytes that fill a value of this length up to a multiple of four.
pub fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

/// Appends opaque bytes with their length and padding.
pub fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    (bytes.len() as u32).put(out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
}

/// A value with a form in XDR.
pub trait Xdr<'a>: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it off.
    fn take(from: &mut Reader<'a>) -> Result<Self, XdrError>;
}

impl Xdr<'_> for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<u32, XdrError> {
        from.array().map(u32::from_be_bytes)
    }
}

impl Xdr<'_> for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<u64, XdrError> {
        from.array().map(u64::from_be_bytes)
    }
}

impl Xdr<'_> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<bool, XdrError> {
        match u32::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(XdrError::NoSuchValue { expected: "0 or 1", found }),
        }
    }
}

impl Xdr<'_> for [u8; 8] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
        from.array()
    }
}

/// A value that may be missing.
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Option<T>, XdrError> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

/// A structure whose fields follow each other.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* pub $field: $kind,)* }

        $crate::xdr::implement!($name $(<$life>)? { $($field: $kind,)* });
    };
}

/// The form of a structure whose fields follow each other.
macro_rules! implement {
    ($name:ident { $($field:ident: $kind:ty,)* }) => {
        impl<'a> $crate::xdr::Xdr<'a> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::xdr::Xdr::put(&self.$field, out);)*
            }

            fn take(from: &mut $crate::xdr::Reader<'a>) -> Result<Self, $crate::xdr::XdrError> {
                Ok($name { $($field: $crate::xdr::Xdr::take(from)?,)* })
            }
        }
    };
    ($name:ident <$life:lifetime> { $($field:ident: $kind:ty,)* }) => {
        impl<$life> $crate::xdr::Xdr<$life> for $name<$life> {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::xdr::Xdr::put(&self.$field, out);)*
            }

            fn take(from: &mut $crate::xdr::Reader<$life>) -> Result<Self, $crate::xdr::XdrError> {
                Ok($name { $($field: $crate::xdr::Xdr::take(from)?,)* })
            }
        }
    };
}

/// Numbers that stand for something.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident ($what:literal) { $($(#[$one_doc:meta])* $one:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$one_doc])* $one = $number,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$one,)*];
        }

        impl $crate::xdr::Xdr<'_> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u32).put(out);
            }

            fn take(from: &mut $crate::xdr::Reader<'_>) -> Result<Self, $crate::xdr::XdrError> {
                match u32::take(from)? {
                    $($number => Ok($name::$one),)*
                    found => Err($crate::xdr::XdrError::NoSuchValue { expected: $what, found }),
                }
            }
        }
    };
}

pub(crate) use {implement, numbers, record};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_bytes_are_padded_bounded_and_not_copied() {
        let mut out = Vec::new();
        put_opaque(&mut out, b"abcde");
        assert_eq!(out, [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(Reader::new(&out).opaque(4), Err(XdrError::TooLong { found: 5, max: 4 }));
        let cut = Reader::new(&out[..10]).opaque(5);
        assert_eq!(cut, Err(XdrError::Truncated { expected: 3, found: 1 }));
        let huge = Reader::new(&[0xff; 8]).opaque(u32::MAX);
        assert_eq!(huge, Err(XdrError::Truncated { expected: 0xffff_ffff, found: 4 }));
    }

    #[test]
    fn what_is_neither_true_nor_false_is_refused() {
        assert_eq!(bool::take(&mut Reader::new(&[0, 0, 0, 1])), Ok(true));
        assert!(bool::take(&mut Reader::new(&[0, 0, 0, 2])).is_err());
    }
}
