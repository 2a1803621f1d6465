//! What most tasks import.

pub use crate::compare::interrupt::Interrupt;
pub use anyhow::{Context, Result, bail};
pub use serde_json::Value;
pub use std::path::{Path, PathBuf};
pub use std::process::Command;
pub use std::time::{Duration, Instant};
