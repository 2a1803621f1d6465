//! The bytes of a description, and of the other small files of an array: JSON with the number of a schema.

use braid_base::Level;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The schema of every file of an array, as this release writes it.
pub const SCHEMA: u64 = 2;
/// The schema of a description while a volume grows. The release before does not know that change: it says that a newer release is needed,
/// instead of that the file is damaged.
pub const SCHEMA_OF_GROWTH: u64 = 3;

/// The newest schema that this release knows.
pub const SCHEMA_KNOWN: u64 = schema_of(Level::KNOWN);

/// The schema of a description at a level. A release that does not know the level does not read it.
pub(crate) const fn schema_of(level: Level) -> u64 {
    SCHEMA_OF_GROWTH + level.0.saturating_sub(Level::FIRST.0) as u64
}

/// Why bytes can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("{0}")]
    Damaged(String),
    #[error("its schema is {found}, and this release knows {SCHEMA_KNOWN}")]
    Newer { found: u64 },
}

/// The value in these bytes.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormatError> {
    let damaged = |error: serde_json::Error| FormatError::Damaged(error.to_string());
    // The schema is checked first, because this release may not be able to parse what a later release wrote.
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(damaged)?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        None => Err(FormatError::Damaged("it has no schema number".to_string())),
        Some(found) if found > SCHEMA_KNOWN => Err(FormatError::Newer { found }),
        Some(_) => serde_json::from_value(value).map_err(damaged),
    }
}

/// The bytes of a value. It fails for paths that are not UTF-8.
pub fn format<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}
