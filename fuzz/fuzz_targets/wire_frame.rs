//! Arbitrary bytes as a frame between nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_wire::fuzzing::wire_frame(data));
