//! File handles: what a client names a file by, over restarts of the server, and cannot make up.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | the version of this form, 1 |
//! | 1 | the export |
//! | 2 | what the key is: see [`Key`] |
//! | 3 | of a kernel's handle, its type |
//! | 4..12 | a code over all other bytes, which only the server can compute |
//! | 12.. | the key, at most 52 bytes |
//!
//! Who has a handle may use it: what its holder may do with the file is still decided by the file's permissions, for each call.

use crate::wire::FileHandle;

/// The version of the form.
const VERSION: u8 = 1;
/// Bytes in front of the key.
const HEAD: usize = 12;
/// Most bytes of a kernel's handle.
pub const KERNEL_BYTES_MAX: usize = 52;

const ROOT: u8 = 0;
const KERNEL: u8 = 1;
const NUMBER: u8 = 2;

/// What finds a file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The root of the export.
    Root,
    /// What the kernel finds by itself (`open_by_handle_at(2)`).
    Kernel(KernelHandle),
    /// A number that the server has a path for, as long as it runs.
    Number {
        /// The file's number.
        inode: u64,
        /// Tells it from an earlier file of that number.
        generation: u64,
    },
}

/// A handle of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelHandle {
    kind: u8,
    length: u8,
    bytes: [u8; KERNEL_BYTES_MAX],
}

impl KernelHandle {
    /// Of these bytes; `None` if they do not fit into a handle.
    pub fn new(kind: i32, handle: &[u8]) -> Option<KernelHandle> {
        let mut bytes = [0; KERNEL_BYTES_MAX];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(KernelHandle { kind: kind.try_into().ok()?, length: handle.len() as u8, bytes })
    }

    /// Its type, for the kernel.
    pub fn kind(&self) -> i32 {
        self.kind.into()
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Makes handles, and tells one's own from others.
#[derive(Clone)]
pub struct Sealer {
    secret: [u64; 2],
    export: u8,
}

impl Sealer {
    /// With a secret that is kept, so that handles stay good.
    pub fn new(secret: [u8; 16], export: u8) -> Sealer {
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&secret[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Sealer { secret: [half(0), half(8)], export }
    }

    /// A number that is the same for as long as the secret is.
    pub fn fsid(&self) -> u64 {
        sip(self.secret, &[b"fsid", &[self.export]])
    }

    /// The handle for a key.
    pub fn seal(&self, key: &Key) -> FileHandle {
        let (mut head, mut number) = ([0; HEAD], [0; 16]);
        (head[0], head[1]) = (VERSION, self.export);
        let body: &[u8] = match key {
            Key::Root => {
                head[2] = ROOT;
                &[]
            }
            Key::Kernel(handle) => {
                (head[2], head[3]) = (KERNEL, handle.kind);
                handle.as_bytes()
            }
            Key::Number { inode, generation } => {
                head[2] = NUMBER;
                number[..8].copy_from_slice(&inode.to_be_bytes());
                number[8..].copy_from_slice(&generation.to_be_bytes());
                &number
            }
        };
        let code = sip(self.secret, &[&head[..4], body]);
        head[4..].copy_from_slice(&code.to_be_bytes());
        let mut bytes = [0; HEAD + KERNEL_BYTES_MAX];
        let all = HEAD + body.len();
        bytes[..HEAD].copy_from_slice(&head);
        bytes[HEAD..all].copy_from_slice(body);
        // It has as many bytes as a handle may have, at most.
        FileHandle::new(&bytes[..all]).unwrap_or_else(|| unreachable!("a key fits a handle"))
    }

    /// The key of a handle; `None` if this server has not made it.
    pub fn open(&self, handle: &FileHandle) -> Option<Key> {
        let (head, body) = handle.as_bytes().split_first_chunk::<HEAD>()?;
        if head[0] != VERSION || head[1] != self.export {
            return None;
        }
        if sip(self.secret, &[&head[..4], body]).to_be_bytes() != head[4..] {
            return None;
        }
        match (head[2], body.len()) {
            (ROOT, 0) => Some(Key::Root),
            (KERNEL, _) => KernelHandle::new(head[3].into(), body).map(Key::Kernel),
            (NUMBER, 16) => {
                let (inode, generation) = body.split_first_chunk::<8>()?;
                let generation = u64::from_be_bytes(*generation.first_chunk()?);
                Some(Key::Number { inode: u64::from_be_bytes(*inode), generation })
            }
            _ => None,
        }
    }
}

/// Which export a handle says that it is of: only its [`Sealer`] knows whether that is so.
pub fn export_of(handle: &FileHandle) -> Option<u8> {
    handle.as_bytes().get(1).copied()
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer {{ export: {} }}", self.export)
    }
}

/// SipHash-2-4 (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012) of parts that follow each other.
fn sip(secret: [u64; 2], parts: &[&[u8]]) -> u64 {
    let mut state = [
        secret[0] ^ 0x736f_6d65_7073_6575,
        secret[1] ^ 0x646f_7261_6e64_6f6d,
        secret[0] ^ 0x6c79_6765_6e65_7261,
        secret[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut take = |word: u64| {
        state[3] ^= word;
        round(&mut state);
        round(&mut state);
        state[0] ^= word;
    };
    let (mut word, mut count) = (0u64, 0u64);
    for byte in parts.iter().copied().flatten() {
        word |= u64::from(*byte) << (8 * (count % 8));
        count += 1;
        if count.is_multiple_of(8) {
            take(word);
            word = 0;
        }
    }
    take(word | count << 56);
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_code_is_siphash() {
        // The first, the ninth and the sixteenth of the reference implementation's vectors: key 00 .. 0f, message 00 .. n-1.
        let secret: [u8; 16] = std::array::from_fn(|at| at as u8);
        let sealer = Sealer::new(secret, 0);
        let message: Vec<u8> = (0..15).collect();
        let code = |count: usize| sip(sealer.secret, &[&message[..count / 2], &message[count / 2..count]]);
        assert_eq!(code(0).to_le_bytes(), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        assert_eq!(code(8).to_le_bytes(), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
        assert_eq!(code(15).to_le_bytes(), [0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1]);
    }

    fn keys() -> impl Strategy<Value = Key> {
        let kernel = (0..256i32, prop::collection::vec(any::<u8>(), 0..=KERNEL_BYTES_MAX))
            .prop_map(|(kind, bytes)| Key::Kernel(KernelHandle::new(kind, &bytes).unwrap()));
        let number =
            (any::<u64>(), any::<u64>()).prop_map(|(inode, generation)| Key::Number { inode, generation });
        prop_oneof![Just(Key::Root), kernel, number]
    }

    proptest! {
        #[test]
        fn a_key_comes_back_and_a_changed_handle_is_refused(
            key in keys(), secret: [u8; 16], at: prop::sample::Index, bit in 0..8u32,
        ) {
            let sealer = Sealer::new(secret, 3);
            let handle = sealer.seal(&key);
            prop_assert_eq!(sealer.open(&handle), Some(key));
            let mut bytes = handle.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(sealer.open(&FileHandle::new(&bytes).unwrap()), None);
            bytes[at] ^= 1 << bit;
            bytes.pop();
            prop_assert_eq!(sealer.open(&FileHandle::new(&bytes).unwrap()), None);
            prop_assert_eq!(Sealer::new(secret, 4).open(&handle), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_no_handle() {
        assert!(KernelHandle::new(1, &[0; 53]).is_none());
        assert!(KernelHandle::new(256, &[]).is_none());
    }
}
