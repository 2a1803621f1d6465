//! Arbitrary bytes from an NBD client during the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_nbd::fuzz::fuzz_handshake(data));
