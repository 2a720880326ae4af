//! The gate as a C library: `include/iogate_gate.h` says what its functions promise.
//!
//! [`c_gate`] has the functions of a gate that is driven by hand, over [`hand`], which decides nothing but what a handle means and
//! what becomes of cancelled requests. [`c_engine`] has those of an engine, whose store (`callbacks`) calls the program's functions.

pub mod c_engine;
pub mod c_gate;
mod callbacks;
pub mod failed;
pub mod hand;
pub mod home;
mod intake;
mod scheduler;
mod slab;
mod slots;
mod starts;
pub mod types;
mod underway;

pub use failed::Failed;
