//! A host on a stage, with devices played by the tests.

mod abandoned;
mod attribute_volumes;
mod leaving;
mod locking;
mod membership;
mod objects;
mod stage;
mod transactions;
