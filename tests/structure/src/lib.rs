//! Tests of the repository itself: which crate may use which, and that the tree is tidy.
