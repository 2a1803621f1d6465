//! Clients on several nodes that lock sections of one file, shared or exclusive: the range-lock paper's experiments (section 4). Nodes are
//! hosts, GLMs are lock servers: the same machines, and the same requests, as for `braid lock range`.
//!
//! | module | what |
//! | --- | --- |
//! | [`parameters`] | all numbers that determine a run |
//! | [`system`] | clients, nodes and lock servers, and the loop that runs them |

pub mod parameters;
pub mod system;

pub use parameters::RangeParameters;
