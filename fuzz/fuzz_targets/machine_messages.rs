//! Hostile messages against a machine: the first byte chooses the machine, the others what happens to it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| braid_hostile::machine_messages(data));
