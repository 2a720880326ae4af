//! Devices by name: a model, or a profile in a file.

use std::cell::RefCell;
use std::path::Path;

use anyhow::anyhow;
use iogate_core::device::Device;
use iogate_sim::profile::{self, ProfileTextError};

use crate::failure::Failure;

/// The device that `--device` names.
pub(crate) fn device(spec: &str) -> Result<Box<dyn Device>, Failure> {
    numbered(spec, 0)
}

/// The same, as device `number` of several.
pub(crate) fn numbered(spec: &str, number: u64) -> Result<Box<dyn Device>, Failure> {
    profile::numbered(spec, number, &open).map_err(not_a_device)
}

/// The file that `--device` names, if it names one.
pub(crate) fn file(spec: &str) -> Option<&Path> {
    spec.strip_prefix(profile::PREFIX).map(Path::new)
}

/// Makes devices like the one that `--device` names. A file is read once, now.
pub(crate) fn maker(
    spec: &str,
) -> Result<impl Fn() -> Box<dyn Device> + Send + Sync + use<>, ProfileTextError> {
    let content = RefCell::new(String::new());
    let read = |file: &str| {
        let text = open(file)?;
        content.replace(text.clone());
        Ok(text)
    };
    profile::device(spec, &read)?;
    let (spec, content) = (spec.to_owned(), content.into_inner());
    Ok(move || profile::device(&spec, &|_| Ok(content.clone())).expect("a device that has been made before"))
}

/// Says where devices are listed.
pub(crate) fn not_a_device(error: ProfileTextError) -> Failure {
    Failure::usage(error).hint("`iogate devices` lists the models, `iogate profile` measures storage")
}

/// The content of a file, or why there is none.
pub(crate) fn open(file: &str) -> Result<String, String> {
    std::fs::read_to_string(Path::new(file)).map_err(|error| anyhow!(error).to_string())
}
