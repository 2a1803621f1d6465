//! Hostile messages against every machine, and lying devices against hosts.
//!
//! What comes off the wire is hostile: whoever reaches a node may send it any frame, in any name. No frame may crash a node, now or at its
//! next start, or break one of its invariants. A [`Bench`] gives one machine thousands of such frames, each composed by one [`Grammar`],
//! with a disk that answers, time that passes, and restarts; after each input it asserts the machine's invariants.
//!
//! A device may lie in every answer. It may lose its own data by that. [`lying_devices`] says what it must not do.
//!
//! The choices come from a seed (property tests, the long form) or from a fuzzer (`fuzz/`).
//!
//! | module | what |
//! | --- | --- |
//! | [`choices`] | choices, from a seed or from a fuzzer's bytes |
//! | `prelude` | imports that most modules share |
//! | `known` | what a hostile node knows of a machine |
//! | [`grammar`] | composes messages |
//! | [`mod@bench`] | one machine under hostile messages |
//! | `subject` | the machines |
//! | [`lying_devices`] | a host among devices of which one lies |

pub mod bench;
pub mod choices;
pub mod grammar;
mod known;
pub mod lying_devices;
mod prelude;
mod subject;

use lying_devices::{Lies, LyingDevice};

pub use bench::Bench;
pub use choices::Choices;
pub use grammar::Grammar;
pub use subject::Role;

/// The most messages, and the most operations, for which one input of a fuzzer makes the choices.
const INPUT_MAX: u64 = 2_000;

/// The first byte chooses the machine, the others what happens to it.
pub fn machine_messages(data: &[u8]) {
    let [role, choices @ ..] = data else { return };
    let role = Role::ALL[usize::from(*role) % Role::ALL.len()];
    Bench::new(role, Choices::of_bytes(choices)).run(INPUT_MAX);
}

/// A host among devices of which one lies, but for the outcomes of its transactions.
pub fn lying_device(data: &[u8]) {
    LyingDevice::new(Choices::of_bytes(data), Lies::ButOutcomes).run(INPUT_MAX);
}
