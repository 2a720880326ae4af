//! A client of a coordinator: what it asks, how long it waits for that, and what it knows of the turns that it holds.
//!
//! All of it acts on nothing and takes the time as an argument, in nanoseconds of a clock that never goes back and goes on while the
//! machine sleeps. The library of `iogate-net` drives it on sockets, `iogate-lab` in a simulated world.
//!
//! | module | purpose |
//! |---|---|
//! | [`calls`] | the requests of one session, over as many connections as it takes |
//! | [`exchange`] | what a driver does next for a request: connect, send, wait |
//! | [`call`] | a request that is to be answered in time |
//! | [`pending`] | a claim, from its first sending to its grant |
//! | [`lease`] | until when a turn counts |
//! | [`held`] | a turn, from its grant until the coordinator knows that it is over |
//! | [`renewals`] | when each of many turns is to be looked after |

pub mod call;
pub mod calls;
pub mod exchange;
pub mod held;
pub mod lease;
pub mod pending;
pub mod renewals;

pub use call::{Answer, Call, NoAnswer};
pub use calls::{Calls, Reply};
pub use exchange::{Event, Exchange, Step};
pub use held::{Ended, HeldTurn};
pub use lease::Lease;
pub use pending::{Failure, Granting, Limits, PendingClaim};
pub use renewals::{Need, Renewals, Task};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
