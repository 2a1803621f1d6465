//! A host on a stage, with devices played by the tests.

mod locking;
mod stage;
mod transactions;
