//! The wire format: kept as it is written down, and closed to everything else.

mod any;
mod damage;
mod golden;
mod limits;
mod round_trip;
