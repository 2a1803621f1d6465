//! Hostile messages against every machine, and lying devices against hosts. The long form (`BRAID_SOAK`, as in `cargo xtask soak`) gives
//! each machine a million messages.

use braid_hostile::lying_devices::{Lies, LyingDevice};
use braid_hostile::{Bench, Choices, Role};
use proptest::prelude::*;

/// The messages of one run.
const MESSAGES: u64 = 400;

/// The runs of a machine: seconds in all, or a million messages.
fn runs() -> u32 {
    if is_long() { (1_000_000 / MESSAGES) as u32 } else { 60 }
}

/// The runs of an array with a device that lies.
fn arrays() -> u32 {
    if is_long() { 1_000 } else { 20 }
}

fn is_long() -> bool {
    std::env::var_os("BRAID_SOAK").is_some()
}

fn attack(role: Role, seed: u64) {
    Bench::new(role, Choices::of_seed(seed)).run(MESSAGES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(runs()))]

    #[test]
    fn no_message_crashes_a_device_or_breaks_an_invariant(seed: u64) {
        attack(Role::Device, seed);
    }

    #[test]
    fn no_message_crashes_the_monitor_or_breaks_an_invariant(seed: u64) {
        attack(Role::Monitor, seed);
    }

    #[test]
    fn no_message_crashes_a_lock_server_or_breaks_an_invariant(seed: u64) {
        attack(Role::LockServer, seed);
    }

    #[test]
    fn no_message_crashes_a_metadata_server_or_breaks_an_invariant(seed: u64) {
        attack(Role::MetadataServer, seed);
    }

    #[test]
    fn no_message_crashes_a_host_or_breaks_an_invariant(seed: u64) {
        attack(Role::Host, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(arrays()))]

    #[test]
    fn a_device_that_lies_changes_nothing_on_other_devices(seed: u64) {
        LyingDevice::new(Choices::of_seed(seed), Lies::ButOutcomes).run(40);
    }

    /// As a fuzzer calls them.
    #[test]
    fn choices_may_come_from_bytes(data in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        braid_hostile::machine_messages(&data);
        braid_hostile::lying_device(&data);
    }

    #[test]
    fn a_device_that_lies_about_everything_crashes_no_host(seed: u64) {
        LyingDevice::new(Choices::of_seed(seed), Lies::All).run(40);
    }
}

/// Otherwise the tests above would say nothing.
#[test]
fn devices_lie_and_writes_succeed_all_the_same() {
    let (mut lied, mut acknowledged) = (0, 0);
    for seed in 0..10 {
        let mut array = LyingDevice::new(Choices::of_seed(seed), Lies::ButOutcomes);
        array.run(40);
        (lied, acknowledged) = (lied + array.lied, acknowledged + array.acknowledged);
    }
    assert!(lied > 60 && acknowledged > 50, "{lied} lies, {acknowledged} writes");
}
