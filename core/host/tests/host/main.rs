//! A host on a stage, with devices played by the tests.

mod locking;
mod membership;
mod stage;
mod transactions;
