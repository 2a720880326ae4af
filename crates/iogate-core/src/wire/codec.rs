//! Values as bytes: little-endian numbers, and byte strings with their length before them.

use alloc::vec::Vec;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The fields end too early.
    #[error(
        "a message ends after {found} of at least {expected} bytes of fields: it is truncated or of another version"
    )]
    Truncated {
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// The fields go on behind the last one.
    #[error("a message has {bytes} bytes behind its last field: it is of another version")]
    Trailing {
        /// Bytes left over.
        bytes: usize,
    },
    /// More payload than any message may have.
    #[error(
        "a message announces {bytes} bytes of payload, expected at most {max}: the peer speaks another protocol"
    )]
    TooLong {
        /// Bytes announced.
        bytes: u32,
        /// Most bytes.
        max: u32,
    },
    /// More groups than a request may carry.
    #[error(
        "a request announces {count} groups, expected at most {}, or {} for none sent",
        super::GROUPS_MAX,
        super::GROUPS_UNKNOWN
    )]
    TooManyGroups {
        /// Groups announced.
        count: u16,
    },
    /// No such request.
    #[error("there is no request of kind {kind}: the peer is of another version")]
    UnknownKind {
        /// The number found.
        kind: u16,
    },
}

/// Writes a number at a fixed place.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, number: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&number);
}

/// Reads values one after another.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, taken: 0 }
    }

    pub(crate) fn value<T: Value<'a>>(&mut self) -> Result<T, WireError> {
        T::read(self)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let rest = &self.bytes[self.taken..];
        let taken = rest
            .get(..count)
            .ok_or(WireError::Truncated { expected: self.taken + count, found: self.bytes.len() })?;
        self.taken += count;
        Ok(taken)
    }

    pub(crate) fn end(&self) -> Result<(), WireError> {
        match self.bytes.len() - self.taken {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }
}

/// A value that a field can have.
pub(crate) trait Value<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError>;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! number {
    ($($int:ty),*) => {$(
        impl Value<'_> for $int {
            fn read(reader: &mut Reader<'_>) -> Result<$int, WireError> {
                let mut bytes = [0; size_of::<$int>()];
                bytes.copy_from_slice(reader.take(size_of::<$int>())?);
                Ok(<$int>::from_le_bytes(bytes))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
number!(u8, u16, u32, u64, i64);

impl<const N: usize> Value<'_> for [u8; N] {
    fn read(reader: &mut Reader<'_>) -> Result<[u8; N], WireError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(reader.take(N)?);
        Ok(bytes)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// A byte string of at most 65,535 bytes; what is longer is cut (senders check before).
impl<'a> Value<'a> for &'a [u8] {
    fn read(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
        let count: u16 = reader.value()?;
        reader.take(usize::from(count))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let cut = &self[..self.len().min(usize::from(u16::MAX))];
        (cut.len() as u16).write(out);
        out.extend_from_slice(cut);
    }
}

/// Fields in a fixed order.
pub trait Record<'a>: Sized {
    /// Reads exactly `fields`.
    fn decode(fields: &'a [u8]) -> Result<Self, WireError>;
    /// Appends the fields. Byte strings longer than 65,535 bytes are cut: check them before.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Defines a record, field by field.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        record!(@value $name [$($life)?] { $($field,)* });
    };
    (@value $name:ident [] { $($field:ident,)* }) => {
        impl<'a> Value<'a> for $name {
            fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
                let _ = &reader;
                Ok($name { $($field: reader.value()?,)* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $(self.$field.write(out);)*
            }
        }

        impl<'a> Record<'a> for $name {
            fn decode(fields: &'a [u8]) -> Result<Self, WireError> {
                let mut reader = Reader::new(fields);
                let record = reader.value()?;
                reader.end()?;
                Ok(record)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.write(out);
            }
        }
    };
    (@value $name:ident [$life:lifetime] { $($field:ident,)* }) => {
        impl<$life> Value<$life> for $name<$life> {
            fn read(reader: &mut Reader<$life>) -> Result<Self, WireError> {
                Ok($name { $($field: reader.value()?,)* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }
        }

        impl<$life> Record<$life> for $name<$life> {
            fn decode(fields: &$life [u8]) -> Result<Self, WireError> {
                let mut reader = Reader::new(fields);
                let record = reader.value()?;
                reader.end()?;
                Ok(record)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.write(out);
            }
        }
    };
}
pub(crate) use record;
