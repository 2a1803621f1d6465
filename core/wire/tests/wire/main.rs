//! The wire format: kept as it is written down, and closed to everything else.

mod any;
mod any_objects;
mod damage;
mod golden;
mod golden_objects;
mod limits;
mod limits_objects;
mod round_trip;
