//! What commands do to objects: held against a model that is obviously right, and told by examples.

mod attributes;
mod bounds;
mod data;
mod model;
mod random;
mod request;
mod sweeping;
mod views;
mod words;
