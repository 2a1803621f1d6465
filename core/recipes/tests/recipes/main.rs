//! Structures on a bench: what they promise, while clients die, answers are lost and clocks differ.

#[path = "../bench/mod.rs"]
mod bench;
mod counter;
mod failover;
mod lock;
mod lock_swarm;
mod world;
