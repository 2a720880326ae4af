//! How good the automatic choice is: random mixes of applications on random storage, carried out with each fixed candidate and with
//! the choice, in virtual time.
//!
//! | module | purpose |
//! |---|---|
//! | [`storage`] | random storage |
//! | [`mix`] | random mixes; those to tune on and those to test with have nothing in common |
//! | [`run`] | a mix behind a gate |
//! | [`evaluate`] | what the choice made of a mix, against the fixed candidates |
//! | [`gains`] | what each application of a mix gains without another one, and what accounts say of that |
//! | [`without`] | what a simulation of a recording says of that |
//! | [`sampling`] | what accounts of samples say of a mix, beside exact ones of the same time |
//! | [`kept`] | what it is worth to begin with what was learnt of the storage before |
//! | [`losses`] | where what the choice does not gain is lost |
//! | [`again`] | mixes that come again, so that their ends can be expected |
//! | [`saying`] | mixes whose applications say how much they move |
//! | [`phases`] | what it does when all applications go over to something else |
//! | [`train`] | what a prior is learnt from: random situations, with what became of each under each candidate |

pub mod again;
pub mod evaluate;
pub mod gains;
pub mod kept;
pub mod losses;
pub mod mix;
pub mod phases;
pub mod run;
pub mod sampling;
pub mod saying;
pub mod storage;
pub mod train;
pub mod without;
