//! Tests of the metadata server on a bench: its disk is memory, and the test plays the hosts and the monitor.

mod bench;
mod checks;
mod crashes;
mod full;
mod later_builds;
mod lease;
mod opening;
mod removal;
mod requests;
