//! A host on a stage, with devices played by the tests.

mod abandoned;
mod leaving;
mod locking;
mod membership;
mod mirrors;
mod objects;
mod stage;
mod transactions;
