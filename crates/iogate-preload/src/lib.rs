//! A library for `LD_PRELOAD`: paths under a prefix become files of forwarders, without root and without FUSE.
//!
//! It stands in for the functions of the C library that take paths, descriptors and streams. What is not under the prefix is
//! passed on at the price of a look into a bitmap. `docs/preload.md` says how to use it, and what it refuses.
//!
//! An open file of ours is, for the kernel, a *placeholder*: a descriptor (`O_PATH`) of a page of shared memory, which holds what the
//! kernel keeps of an open file: position, flags, which file it is. So `dup`, `fork`, `exec`, redirections and `close` do with it what they
//! do with any descriptor, and processes that share one share its position. Whatever reaches the kernel past this library
//! (`io_uring`, a static program) fails with `EBADF` instead of reading or writing something else.
//!
//! | module | purpose |
//! |---|---|
//! | `abi`, `failed`, `real` | C's pointers; errors as errno; the functions that are stood in for |
//! | `settings`, `connect` | the environment; the tree behind the prefix |
//! | `page`, `description`, `table` | the placeholder; an open file; which descriptor is which |
//! | `paths`, `app` | which path is ours; which application the process belongs to |
//! | `turns` | bulk output in turns, wherever it goes |
//! | `lazy`, `log` | settings that are read when they are first needed; what the library has to say |
//! | `own_descriptors` | descriptors of our own, which programs can neither close nor replace |
//! | `process` | the beginning and the end of a program, its children, and programs that are themselves files of ours |
//! | `opening`, `temporary` | opening files; files and directories with names that nobody has |
//! | `data`, `copies` | reading and writing; copying inside the kernel |
//! | `memory` | mapping files |
//! | `descriptors`, `waiting` | closing and duplicating descriptors, and their flags; waiting for them |
//! | `stdio` | streams |
//! | `names`, `directories`, `cwd` | making, removing, renaming, resolving names; listing directories; a working directory under the prefix |
//! | `stat`, `attributes` | asking for attributes, permissions and space; changing attributes, and extended ones |
//! | `byte_locks`, `locks` | POSIX locks, at the server; locks on this machine |
//! | `mpi` | turns of MPI programs, from a library that is built with their own MPI |
//!
//! Our own system calls go through `rustix`, which asks the kernel and not the C library, so they do not come back here.
#![recursion_limit = "256"]

#[macro_use]
mod real;
#[macro_use]
mod paths;

mod abi;
mod app;
mod attributes;
mod byte_locks;
mod connect;
mod copies;
mod cwd;
mod data;
mod description;
mod descriptors;
mod directories;
mod failed;
mod lazy;
mod locks;
mod log;
mod memory;
mod mpi;
mod names;
mod opening;
mod own_descriptors;
mod page;
mod process;
mod settings;
mod stat;
mod stdio;
mod table;
mod temporary;
mod turns;
mod waiting;
