//! The lock table against a naive model.

mod table;
