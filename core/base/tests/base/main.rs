//! The shared words, held to plain models of what they say.

mod chance;
mod memory;
mod ranges;
mod time;
