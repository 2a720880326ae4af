//! The page cache as a machine of its own: against naive models, and in closed form.

mod driver;
mod limits;
mod lru;
mod parameters;
mod store;
mod sync;
