//! Tests of the repository itself: direction of dependencies, tidiness.
