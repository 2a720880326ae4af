//! A FUSE mount that puts a gate in front of a directory, or of a tree.
//!
//! [`mount()`] makes a faithful POSIX pass-through of a source directory: reads and writes of every program go through
//! an [`iogate_engine::Engine`], everything else goes straight to the source and does not wait behind them. [`mount_tree`]
//! does the same for any [`iogate_vfs::Tree`], as a server's that a client has connected to.
//!
//! | module | purpose |
//! |---|---|
//! | `abi` | the kernel's records and constants |
//! | `options` | settings of a mount |
//! | `mount`, `error` | attaching to a directory and taking off again; why a mount does not come about |
//! | `session` | agreeing with the kernel, threads, the end |
//! | `dev`, `uring` | the two transports: `/dev/fuse`, and io_uring |
//! | `buffer` | memory of transfers that come through the device, used again |
//! | `file_system` | what the transports see of what is mounted |
//! | `operations` | decodes everything but reads and writes |
//! | `data` | reads and writes |
//! | `full` | writes that find no room just after a removal |
//! | `append` | where appends go: after the file's end and after those that are underway |
//! | `locks` | locks that programs ask for, where they hold among several machines |
//! | `interrupt` | what killed processes wait for |
//! | `handle` | open files and directories, by the handle that the kernel sends back |
//! | `file_names` | what the files that were opened are called, for people |
//! | `coherence` | mapped memory and direct writes of the same file |
//! | `notify` | telling the kernel to drop what it has cached |
//! | `passthrough` | the operations on a directory |
//! | `tree` | the operations on a tree |
//! | `app` | which application a process belongs to |
//! | `declared_apps` | what processes say of that themselves |
//! | `control` | status and settings through the mount itself |
//! | `fuzz` | what any bytes ask for; built for fuzzing only |
//!
//! Locks (POSIX, OFD and BSD) are kept by the kernel: they work between the processes of one mount.

mod abi;
mod app;
mod append;
mod buffer;
mod coherence;
mod control;
mod data;
mod declared_apps;
mod dev;
mod error;
mod file_names;
mod file_system;
mod full;
#[cfg(fuzzing)]
pub mod fuzz;
mod handle;
mod interrupt;
mod locks;
mod mount;
mod notify;
mod operations;
mod options;
mod passthrough;
mod session;
mod tree;
mod uring;

pub use app::AppNames;
pub use control::{Control, ControlError, accounts, record, set, status};
pub use error::MountError;
pub use file_names::FileNames;
pub use iogate_vfs::app::{AppFile, application_of_word};
pub use mount::unmount;
pub use options::{CacheMode, LockScope, MountOptions, Transport};
pub use session::{Mounted, mount, mount_tree};
