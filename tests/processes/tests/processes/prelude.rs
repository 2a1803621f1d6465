//! The imports that most of these tests share.

pub use braid_base::Rng;
pub use braid_client::{ArrayOptions, AttributeName, Error, Object, wait};
pub use braid_processes::array::{LEASE, SMALL, SMALL_BYTES, findings, gone, items, number, pid_of, text};
pub use braid_processes::daemon::{Stopped, await_stopped, has_ended_within, signal};
pub use braid_processes::data::{noise, seed};
pub use braid_processes::load::Plan;
pub use braid_processes::nbd::EIO;
pub use braid_processes::program::{braid, braid_bin};
pub use braid_processes::scratch::path_text;
pub use braid_processes::{Array, Client, Daemon, Load, Outcome, Refusal, Scratch};
pub use braid_processes::{keep_doing, rest, run, soak, tool, wait_until};
pub use rustix::fs::{FlockOperation, flock};
pub use rustix::io::Errno;
pub use rustix::process::Signal;
pub use serde_json::{Value, json};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs;
pub use std::fs::File;
pub use std::io::Write;
pub use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};
pub use std::sync::Mutex;
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use std::time::{Duration, Instant};
