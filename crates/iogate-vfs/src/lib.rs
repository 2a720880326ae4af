//! What a front end, a server or a client sees of a file system, and of those who use it. No network is needed for any of it.
//!
//! | module | purpose |
//! |---|---|
//! | `tree`: [`Tree`] | a file system: names, attributes, open files |
//! | `directory`: [`DirectoryTree`] | a directory of this machine as a tree |
//! | [`held`], [`kernel_handle`] | files that are held, for who names them by handles |
//! | `striped`: [`StripedTree`] | names in one tree, data in several |
//! | `object_id` | what the objects of a striped file are called, and where that is noted |
//! | `locked_file`: [`LockedFile`] | a file that one process has for itself |
//! | [`outside`] | locks of a file that hold past this program |
//! | [`taken_locks`] | locks that a table decides about, taken on the files, too |
//! | [`ends`] | who may use the end of a striped file |
//! | [`fence`] | ranges of records that nobody may write to any more |
//! | [`answers`] | what is remembered of requests that must not be carried out twice, in a file |
//! | `private` | the folder of an export that is the server's own |
//! | `credentials`: [`Caller`]; [`groups`] | in whose name something is done |
//! | [`users`] | whose ids a client's are on this machine |
//! | [`app`] | which application a process belongs to |
//! | [`policy_file`] | the file that says who is entitled to what |
//! | `clock`: [`Clock`] | what time it is for leases |
//! | `boot`: [`boot_id`] | which life of this machine it is |
//! | `watchdog`: [`Watchdog`] | starts threads when all that there are are held up |

pub mod answers;
pub mod app;
mod boot;
mod clock;
mod credentials;
mod directory;
pub mod ends;
pub mod fence;
pub mod groups;
pub mod held;
pub mod kernel_handle;
mod locked_file;
mod object_id;
pub mod outside;
pub mod policy_file;
mod private;
mod striped;
pub mod taken_locks;
mod tree;
pub mod users;
mod watchdog;

pub use boot::{BOOT_ID, boot_id};
pub use clock::Clock;
pub use credentials::{Caller, CallerError, Groups};
pub use directory::{DirectoryTree, path_of};
pub use locked_file::LockedFile;
pub use striped::{StripedTree, Swept};
pub use tree::{
    ObjectName, OpenHow, Tree, TreeFile, TreeState, Waiting, WhenGone, all_answers, resize_by_handle,
};
pub use users::Users;
pub use watchdog::Watchdog;
