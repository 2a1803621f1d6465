//! Tests of the guarantees of locks, counters and fail-over, while clients crash, answers are lost and clocks differ.

#[path = "../bench/mod.rs"]
mod bench;
mod counter;
mod failover;
mod lock;
mod lock_swarm;
mod world;
mod written;
