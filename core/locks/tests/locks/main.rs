//! The lock table against a naive model; the lock server on a bench, rule by rule, and in a storm.

mod bench;
mod claims;
mod parts;
mod restart;
mod silence;
mod storm;
mod strangers;
mod table;
