//! The failure of a check.

/// The failure of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The name of the check.
    pub check: &'static str,
    pub details: String,
}

/// Fails a check.
pub(crate) fn failed<T>(check: &'static str, details: String) -> Result<T, Failed> {
    Err(Failed { check, details })
}
