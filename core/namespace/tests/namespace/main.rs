//! Tests of the namespace of file systems: against a simple model, and of the limits that the model does not have.

mod check;
mod commands;
mod damage;
mod directories;
mod files;
mod model;
mod random;
mod system;
mod transfers;
mod views;
