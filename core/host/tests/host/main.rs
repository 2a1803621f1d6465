//! Tests of a host on a stage. The tests play the devices.

mod abandoned;
mod attribute_volumes;
mod execution;
mod holds;
mod leaving;
mod locking;
mod membership;
mod objects;
mod one_message;
mod patience;
mod promotions;
mod stage;
mod story;
mod transactions;
