//! The server on real sockets, with real clients.

mod behaviour;
mod client;
mod clients;
mod host;
mod memory;
mod running;
mod wire;
