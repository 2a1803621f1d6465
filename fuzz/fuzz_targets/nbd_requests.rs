//! Arbitrary bytes from an NBD client after the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_nbd::fuzz::fuzz_requests(data));
