//! The protocols among servers that crash, over a network that loses and repeats messages.

mod attack;
mod exhaustive;
mod recovery;
mod world;
