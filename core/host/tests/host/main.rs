//! A host on a stage, with devices played by the tests.

mod stage;
mod transactions;
