//! Tests of the client of a file system, through `Machine::step`: several clients, a volume in memory, and a metadata server, over a
//! network that delays, doubles, reorders and loses messages.

mod advisory;
mod bench;
mod front_end_cache;
mod operations;
mod server;
mod volume;
