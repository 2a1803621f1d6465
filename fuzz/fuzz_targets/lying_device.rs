//! A host among devices of which one lies.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_hostile::lying_device(data));
