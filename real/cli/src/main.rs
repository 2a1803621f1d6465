//! The command `braid`.

fn main() {}
