//! Tests of a device on a bench, rule by rule.

mod absent_blocks;
mod bench;
mod deciding;
mod execution;
mod greedy_hosts;
mod locking;
mod membership;
mod objects;
mod ordering;
mod requests;
mod story;
mod strangers;
mod suspects;
