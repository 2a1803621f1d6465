//! Chores around the repository.

fn main() {}
