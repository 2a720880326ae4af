//! The simulated world, part by part, where the outcome can be worked out by hand or must have a known shape.

mod batch;
mod caches;
mod choosing;
mod collective;
#[path = "../common/mod.rs"]
mod common;
mod elevators;
mod extremes;
mod faults;
mod layers;
mod lists;
mod network;
mod observe;
mod processors;
mod queues;
mod slots;
mod turns;
mod waiting;
