//! What commands do to objects: held against a model that is obviously right, and told by examples.

mod attributes;
mod bounds;
mod data;
mod model;
mod object_gc;
mod random;
mod request;
mod views;
mod words;
