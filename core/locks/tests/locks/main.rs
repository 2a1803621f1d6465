//! The lock table against a naive model; the lock server on a bench, rule by rule, and in a swarm run.

mod bench;
mod lock_ids;
mod parts;
mod restart;
mod silence;
mod strangers;
mod swarm;
mod table;
