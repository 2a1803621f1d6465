//! Tests of lists, queues and directories under concurrent changes: every change is checked as it happens, and every operation must take
//! effect between its begin and its end.

#[path = "../bench/mod.rs"]
mod bench;
mod directory;
mod directory_scenarios;
mod history;
mod list;
mod list_scenarios;
mod queue;
mod queue_scenarios;
mod sequential;
