//! A device's store: pure logic over disk commands.

mod api;

pub use api::*;
