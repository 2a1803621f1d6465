//! The level of an array: a number that says which formats and fields its programs may use. It rises by one with each release that changes
//! a format on a disk, or a field that a third party passes on, and only when an operator asks for it (`docs/upgrades.md`).
//!
//! Until then every program writes what the release before can read. So each of them can be exchanged alone, and put back again.

use serde::{Deserialize, Serialize};

/// A level. Arrays begin with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u16);

impl Level {
    /// The level of arrays that name none.
    pub const FIRST: Level = Level(1);
    /// The highest level that this release knows. The feature invents one, so that two releases can be tested together.
    pub const KNOWN: Level = Level(if cfg!(feature = "next-level") { 2 } else { 1 });
    /// The lowest level that this release serves: that of the release before.
    pub const LOWEST: Level = Level(if Level::KNOWN.0 > 1 { Level::KNOWN.0 - 1 } else { 1 });

    /// The level after this one.
    pub fn next(self) -> Level {
        Level(self.0.saturating_add(1))
    }

    /// True for the first level, which is not written down.
    pub fn is_first(&self) -> bool {
        *self == Level::FIRST
    }
}

impl Default for Level {
    fn default() -> Level {
        Level::FIRST
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
