//! The NBD front end: a server that serves volumes to any client of the Network Block Device protocol.
//!
//! ```text
//!     client ── bytes ──► Handshake ── Negotiated ──► Requests ── Command ──► Volume (a host of the array)
//!            ◄────────────────── Output ◄── Reply ◄───────────────────────┘
//! ```
//!
//! The codec (`handshake`, `request`, `reply`) is pure: bytes in, values out, and the reverse. Only `connection` joins it to a socket. The
//! exports are behind the [`Backend`] trait, so that tests can serve memory; [`HostBackend`] serves an array. [`Client`] is a client for
//! benchmarks. `docs/nbd.md` lists the supported parts of the protocol.

mod backend;
mod client;
mod connection;
pub mod fuzz;
mod handshake;
mod neighbours;
mod pressure;
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
