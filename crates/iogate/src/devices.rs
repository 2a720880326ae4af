//! Devices by name: a model, or a profile in a file.

use std::path::Path;

use anyhow::anyhow;
use iogate_core::device::Device;
use iogate_sim::profile;

use crate::failure::Failure;

/// The device that `--device` names.
pub(crate) fn device(spec: &str) -> Result<Box<dyn Device>, Failure> {
    profile::device(spec, &open).map_err(|error| {
        Failure::usage(error).hint("`iogate devices` lists the models, `iogate profile` measures storage")
    })
}

/// The content of a file, or why there is none.
pub(crate) fn open(file: &str) -> Result<String, String> {
    std::fs::read_to_string(Path::new(file)).map_err(|error| anyhow!(error).to_string())
}
