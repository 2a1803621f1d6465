//! Any description in a frame whose header and checksum are in order.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_wire::fuzzing::wire_message(data));
