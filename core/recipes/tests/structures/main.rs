//! Structures that many change at once, on the bench: every change of what is there is looked at as it happens, and every operation must have taken effect
//! between its begin and its end.

#[path = "../bench/mod.rs"]
mod bench;
mod directory;
mod directory_scenarios;
mod list;
mod list_scenarios;
mod queue;
mod queue_scenarios;
mod sequential;
