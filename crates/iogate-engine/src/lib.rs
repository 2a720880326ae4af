//! Drives a [`iogate_core::Gate`] in real time, from many threads, against a [`Store`].
//!
//! The engine decides nothing: it tells the gate the time, carries out what the gate says, and hands each
//! request its result.

mod clock;
mod engine;
pub mod layouts;
mod lock;
mod memory;
mod origin;
pub mod privileges;
pub mod store;
mod sync;
mod workers;

pub use clock::{Clock, unix_now};
pub use engine::{
    Accounts, ClassBy, Completion, Coordinates, Engine, PathClass, SharingStatus, SubmitError, Transfer,
};
pub use layouts::Layouts;
pub use lock::lock;
pub use memory::{PAGE_BYTES, PageMemory};
pub use origin::Origin;
pub use store::{FileHandle, Store};
pub use workers::{Job, Workers};
