//! The monitor on a bench, rule by rule, and in a storm.

mod bench;
mod fences;
mod leaving;
mod returning;
mod slots;
mod starting;
mod storm;
mod strangers;
