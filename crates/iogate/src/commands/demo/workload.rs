//! What the demo's applications do.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Every block of the demo's files begins with its own offset, so that readers can check what they get.
pub(super) const BLOCK: u64 = 4 * KIB;

/// One application: processes that read a file together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Application {
    /// Its name, for people, as `IOGATE_APP`, and of its file.
    pub(crate) name: &'static str,
    /// How many processes it has. Process `i` reads the pieces `i`, `i + processes`, ... one after another.
    pub(crate) processes: u64,
    /// Bytes of its file.
    pub(crate) bytes: u64,
    /// Bytes in one read.
    pub(crate) piece: u64,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) applications: Vec<Application>,
}

impl Workload {
    /// Two strided parallel readers and one small sequential one.
    fn new(bytes: u64) -> Workload {
        let strided = |name| Application { name, processes: 8, bytes, piece: 32 * KIB };
        Workload {
            applications: vec![
                strided("strided-1"),
                strided("strided-2"),
                Application { name: "sequential", processes: 1, bytes: bytes / 16, piece: 32 * KIB },
            ],
        }
    }

    pub(crate) fn full() -> Workload {
        Workload::new(48 * MIB)
    }

    pub(crate) fn quick() -> Workload {
        Workload::new(4 * MIB)
    }

    /// Bytes that are read in a run.
    pub(crate) fn bytes(&self) -> u64 {
        self.applications.iter().map(|app| app.bytes).sum()
    }

    /// Makes the files.
    pub(super) fn create_files(&self, folder: &Path) -> io::Result<()> {
        for app in &self.applications {
            let mut file = BufWriter::with_capacity(MIB as usize, File::create(folder.join(app.name))?);
            let mut block = [0x5a; BLOCK as usize];
            for offset in (0..app.bytes).step_by(BLOCK as usize) {
                block[..8].copy_from_slice(&offset.to_le_bytes());
                file.write_all(&block)?;
            }
            file.flush()?;
        }
        Ok(())
    }
}

/// Whether what was read at `offset` is what was written there.
pub(super) fn is_intact(offset: u64, bytes: &[u8]) -> bool {
    bytes
        .chunks(BLOCK as usize)
        .zip((offset..).step_by(BLOCK as usize))
        .all(|(block, offset)| block.len() == BLOCK as usize && block[..8] == offset.to_le_bytes())
}
