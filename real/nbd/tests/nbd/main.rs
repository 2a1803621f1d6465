//! The server on real sockets. Programs of others are tried on whole arrays, in `tests/processes`.

mod behaviour;
mod client;
mod memory;
mod running;
mod wire;
