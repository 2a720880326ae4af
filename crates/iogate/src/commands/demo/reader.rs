//! One process of a demo's application: waits for its start, reads every `stride`-th piece of a file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Context, ensure};

use super::workload::is_intact;
use crate::cli::DemoReaderArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &DemoReaderArgs) -> Result<(), Failure> {
    Ok(read(args).with_context(|| format!("reading {}", args.file.display()))?)
}

fn read(args: &DemoReaderArgs) -> anyhow::Result<()> {
    let file = File::open(&args.file)?;
    let mut buffer = vec![0; args.piece as usize];
    io::stdout().write_all(b"r")?;
    io::stdout().flush()?;
    // All processes start together: when whoever started them says so, or not at all if it is gone.
    io::stdin().read_exact(&mut [0])?;
    let mut offset = args.first;
    while offset < args.end {
        file.read_exact_at(&mut buffer, offset)?;
        ensure!(is_intact(offset, &buffer), "wrong data at offset {offset}");
        offset += args.stride;
    }
    Ok(())
}
