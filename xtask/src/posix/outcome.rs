//! The outcome of a case, and on how many mounts it ran.

use clap::ValueEnum;
use std::fmt;

/// On how many mounts a tool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    One,
    Two,
}

/// What a tool says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    Ok,
    Skipped,
    Failed,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub tool: &'static str,
    pub kind: Kind,
    pub name: String,
    pub case: Case,
    /// What the tool says to it.
    pub text: String,
}

/// The words for both are those of the command line and of `exceptions.txt`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

/// The name of a value on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
