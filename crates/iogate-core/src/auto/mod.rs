//! Which scheduler, and with which parameters: decided from what the load was and what the storage charges.
//!
//! | module | purpose |
//! |---|---|
//! | [`ring`] | what came and what completed: the ring that a gate's driver fills |
//! | [`window`] | a window of work, which is read out of a ring |
//! | [`bursts`] | how much work applications have, by what they had before |
//! | `addresses` | where on a device the bytes of files are taken to lie |
//! | `load` | whether the load is still of the same kind |
//! | [`pricing`] | what the storage charges, for a shadow |
//! | [`shadow`] | a window as it would have been under another scheduler |
//! | `places` | which entry of a table belongs to an application |
//! | `subsets` | a window with some of its applications only |
//! | `ends` | when applications end, where it is known how much work they have |
//! | [`objective`] | which of two outcomes is better |
//! | [`candidates`] | the schedulers that are considered |
//! | [`meter`] | what the storage charges, learnt from a gate's dispatches |
//! | `judging` | a window that is being judged, and what is kept of it |
//! | `reference` | what requests cost by themselves |
//! | [`prior`] | what is chosen before anything can be simulated: a tree that was learnt from many situations |
//! | `turns` | two schedulers measured in turns, where a prediction says too little |
//! | `correction` | what measurements have said of predictions |
//! | [`chooser`] | the choice, and what became of it |
//! | [`features`] | what is seen of arrivals: counts of each application |
//! | [`pattern`] | an application's pattern, in words and in numbers |
//! | [`status`] | what a choice says of itself |
//! | [`driver`] | a chooser beside a gate in virtual time |
//! | [`without`] | what applications would have gained without another one |
//! | [`live`] | a chooser beside a gate in real time: what is noted under the gate's lock, and what is thought outside of it |
//!
//! A [`Chooser`] stands beside a gate and is no scheduler: it is told what came and what completed, thinks outside
//! the gate's lock for as many simulated requests as it is given, and its answer is applied by `Gate::switch`. It has no clock
//! and no source of randomness; the same calls give the same choices.

mod addresses;
pub mod bursts;
pub mod candidates;
pub mod chooser;
mod correction;
pub mod driver;
mod ends;
pub mod features;
mod judging;
pub mod live;
mod load;
pub mod meter;
pub mod objective;
pub mod pattern;
mod places;
pub mod pricing;
pub mod prior;
mod reference;
pub mod ring;
pub mod shadow;
pub mod status;
mod subsets;
#[cfg(test)]
mod tests;
mod turns;
pub mod window;
pub mod without;

pub use bursts::Bursts;
pub use candidates::Candidates;
pub use chooser::Chooser;
pub use driver::{Auto, Pace};
pub use live::{Live, Log, Storage};
pub use meter::Meter;
pub use pricing::Pricing;
pub use prior::Prior;
pub use ring::Ring;
pub use status::Choice;
