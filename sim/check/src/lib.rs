//! Checkers: what must hold of a history and of an array at rest.
