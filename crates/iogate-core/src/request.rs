//! What arrives at a gate.

use crate::time::Time;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $int);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Names a request for its driver. The gate hands it back and never reads anything into it.
    RequestId(u64)
}
id! {
    /// A file, or anything else with a byte range of its own.
    FileId(u64)
}
id! {
    /// The application that a request belongs to; 0 is unknown.
    AppId(u32)
}
id! {
    /// The client (process, connection) that sent a request; 0 is unknown.
    ClientId(u32)
}
id! {
    /// One data server, or one stripe member of a store.
    TargetId(u32)
}

/// How many bytes, read and written, an application says that it moves in one burst, all its processes together. Two bytes of each of
/// its requests say it, to within a thousandth: so nobody who schedules them has to remember who has said what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BurstSize(u16);

impl BurstSize {
    /// It says nothing.
    pub const UNKNOWN: BurstSize = BurstSize(0);
    /// Bits of a size behind its first one: the rest of the 16 says by how many bits that is shifted, and one.
    const BITS: u32 = 10;

    /// The first one that there is of at least so many bytes; of no bytes, that nothing is said.
    pub const fn of(bytes: u64) -> BurstSize {
        if bytes == 0 {
            return BurstSize::UNKNOWN;
        }
        let unit = 1 << BurstSize::BITS;
        let bytes = if bytes < unit { unit } else { bytes };
        let shift = u64::BITS - 1 - bytes.leading_zeros() - BurstSize::BITS;
        // What is rounded up to the next power of two carries into the shift, as it should.
        let parts = bytes.div_ceil(1 << shift) - unit;
        BurstSize((((shift as u64 + 1) << BurstSize::BITS) + parts) as u16)
    }

    /// What a peer has sent; what no size is says nothing.
    pub const fn from_bits(bits: u16) -> BurstSize {
        BurstSize(if bits >> BurstSize::BITS == 0 { 0 } else { bits })
    }

    /// As it is sent.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The bytes, if any are said.
    pub const fn bytes(self) -> Option<u64> {
        if self.0 == 0 {
            return None;
        }
        let parts = (1 << BurstSize::BITS) | self.0 & ((1 << BurstSize::BITS) - 1);
        let shift = (self.0 >> BurstSize::BITS) - 1;
        // From another peer it can be more than there are bytes.
        let bytes = (parts as u128) << shift;
        Some(if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 })
    }
}

/// What a request does to its byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Op {
    /// Reads the range.
    Read,
    /// Writes the range.
    Write,
}

impl Op {
    /// `r` or `w`, as in a trace.
    pub const fn letter(self) -> char {
        match self {
            Op::Read => 'r',
            Op::Write => 'w',
        }
    }

    /// Whether two overlapping requests with these operations must complete in arrival order.
    pub fn conflicts(self, other: Op) -> bool {
        self == Op::Write || other == Op::Write
    }
}

/// One read or write of a contiguous byte range of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The driver's name for it.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, not zero; `offset + bytes` fits 64 bits.
    pub bytes: u32,
    /// The application that it belongs to.
    pub app: AppId,
    /// The client that sent it.
    pub client: ClientId,
    /// The target that holds it, where the driver knows better than the gate's layout.
    pub target: Option<TargetId>,
    /// When the client issued it, on the client's clock.
    pub issued: Option<Time>,
}

impl Request {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn sizes_of_bursts_are_sent_in_two_bytes() {
        assert_eq!(BurstSize::of(0), BurstSize::UNKNOWN);
        for bytes in [1_u64 << 10, 10 << 20, 10 << 30, 7 << 40, 1 << 63] {
            assert_eq!(BurstSize::of(bytes).bytes(), Some(bytes));
        }
        assert_eq!(BurstSize::of(1).bytes(), Some(1 << 10));
        assert_eq!(BurstSize::of((1 << 30) - 1).bytes(), Some(1 << 30));
        assert_eq!(BurstSize::of(u64::MAX).bytes(), Some(u64::MAX));
        assert_eq!(BurstSize::from_bits(u16::MAX).bytes(), Some(u64::MAX));
        assert_eq!(BurstSize::from_bits(1_023), BurstSize::UNKNOWN);
        proptest!(|(bytes in 1_024_u64.., bits: u16)| {
            let said = BurstSize::of(bytes);
            let back = said.bytes().unwrap();
            prop_assert!(back >= bytes && back - bytes <= bytes / 1_024);
            prop_assert_eq!(BurstSize::from_bits(said.bits()), said);
            // Larger numbers are larger sizes.
            let (one, next) = (BurstSize::from_bits(bits), BurstSize::from_bits(bits.saturating_add(1)));
            prop_assert!(one.bytes() <= next.bytes());
        });
    }
}
