//! Tests of the lock table against a naive model, and of the lock engine alone, and of the lock server: rule by rule on a bench, and in swarm runs.

mod bench;
mod clients;
mod engine;
mod hostile_hosts;
mod leased;
mod lock_ids;
mod parts;
mod restart;
mod silence;
mod strangers;
mod swarm;
mod table;
