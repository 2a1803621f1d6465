//! The server, real sockets, and real clients.

mod behaviour;
mod client;
mod clients;
mod host;
mod memory;
mod running;
mod wire;
