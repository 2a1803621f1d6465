//! Tests of commands on objects: compared with a simple model, and as examples.

mod attribute_volume;
mod bounds;
mod data;
mod model;
mod random;
mod request;
mod views;
mod words;
