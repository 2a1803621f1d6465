//! Arbitrary bytes from the kernel's FUSE device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    braid_fuse::fuzz::fuzz_request(data);
    braid_fuse::fuzz::fuzz_directory(data);
});
