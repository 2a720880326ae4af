//! The steps of whole applications: which bytes they access, which messages they exchange, where their processes wait.

mod collective;
mod interpreter;
mod order;
mod patterns;
mod seen;
