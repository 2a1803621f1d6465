//! A device on a bench, rule by rule.

mod bench;
mod deciding;
mod ordering;
mod strangers;
