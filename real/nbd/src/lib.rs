//! The NBD front end: serves volumes to every client of the Network Block Device protocol.
//!
//! ```text
//!     client ── bytes ──► Handshake ── Session ──► Requests ── Command ──► Volume (a host of the array)
//!            ◄────────────────── Output ◄── Reply ◄───────────────────────┘
//! ```
//!
//! The codec (`handshake`, `request`, `reply`) is pure: bytes in, values out, and back. `connection` is the one place where
//! it meets a socket. What is served is behind the [`Backend`] trait, so that tests serve memory; [`HostBackend`]
//! serves the array. [`Client`] is the other side, for benchmarks. `docs/nbd.md` says which parts of the protocol are spoken.

mod backend;
mod client;
mod connection;
pub mod fuzz;
mod handshake;
mod neighbours;
mod protocol;
mod reply;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod uri;
mod volume;

pub use backend::{Backend, Error, ErrorNumber, Export, Space, Volume};
pub use client::{Client, ClientError};
pub use protocol::REQUEST_BYTES_MAX;
pub use server::{BindError, Server, Settings};
pub use uri::uri;
pub use volume::{HostBackend, HostVolume, ServedVolume};
