//! The outcome of a case, and on how many mounts it ran.

use std::fmt;

/// On how many mounts a tool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    One,
    Two,
}

/// What a tool says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::One => "one",
            Kind::Two => "two",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Case::Ok => "ok",
            Case::Skipped => "skipped",
            Case::Failed => "failed",
        })
    }
}
