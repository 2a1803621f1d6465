//! Property tests that compare the basic types with simple models.

mod backoff;
mod chance;
mod memory;
mod ranges;
mod time;
