//! What many modules of `braid bench` use of other crates.

pub use braid_admin::failure::Failure;
pub use braid_base::{BLOCK_BYTES, Rng};
pub use braid_benchkit::statistics::Ratio;
pub use braid_layout::{RaidLevel, SitePolicy};
pub use braid_ordering::Ordering;
pub use braid_session::Session;
pub use braid_shell::HostClient;
pub use braid_terminal::Common;
pub use braid_terminal::arguments::size;
pub use braid_terminal::output::{table, titled};
pub use bytes::Bytes;
pub use hdrhistogram::Histogram;
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};
pub use std::path::{Path, PathBuf};
pub use std::process::ExitCode;
pub use std::time::{Duration, Instant};
