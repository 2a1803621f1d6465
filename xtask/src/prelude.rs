//! What most tasks import.

pub use crate::compare::interrupt::Interrupt;
pub use crate::compare::process::Process;
pub(crate) use crate::packages::{self, Package};
pub(crate) use crate::{cargo, run, target_folder};
pub use anyhow::{Context, Result, bail, ensure};
pub use braid_base::text_table::titled;
pub use braid_base::units::format_size;
pub use braid_benchkit::statistics::{Ratio, median};
pub use clap::ValueEnum;
pub use serde_json::{Value, json};
pub use std::collections::BTreeMap;
pub use std::fs::File;
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Stdio};
pub use std::time::{Duration, Instant};
