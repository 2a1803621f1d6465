//! Arbitrary message descriptions in a frame with a valid header and checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_wire::fuzzing::wire_message(data));
