//! Tests of the wire format: it is as documented, and everything else is refused.

mod any;
mod damage;
mod golden;
mod hello;
mod limits;
mod limits_files;
mod limits_objects;
mod round_trip;
