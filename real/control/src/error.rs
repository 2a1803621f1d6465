//! What can go wrong with the array's folder, and what to do about it.

use braid_base::Generation;
use std::path::{Path, PathBuf};

/// Why the control plane could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No array there.
    #[error("there is no array in {}", .dir.display())]
    NoArray {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// An array is there already.
    #[error("there is an array in {} already", .dir.display())]
    ArrayExists {
        /// Where.
        dir: PathBuf,
    },
    /// Written by a later release.
    #[error("{} has schema {found}, this release knows up to {known}: use a newer release", .file.display())]
    NewerSchema {
        /// Which file.
        file: PathBuf,
        /// What it says.
        found: u64,
        /// What we know.
        known: u64,
    },
    /// Not what we wrote.
    #[error("{} can't be understood ({reason}); it was left as it is: put it right, or bring back a copy", .file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What the parser says.
        reason: String,
    },
    /// The counter of generations is gone. To begin again would give two hosts the same name.
    #[error(
        "{} is missing: `braid monitor recover` makes it anew, above every generation that the devices know of",
        .file.display()
    )]
    GenerationsMissing {
        /// Which file.
        file: PathBuf,
    },
    /// Every generation has been used.
    #[error("all host generations of this array have been used")]
    GenerationsExhausted,
    /// Another process holds the folder's lock too long.
    #[error("{} has held {} for more than {seconds} s", holder_name(*.holder), .file.display())]
    Locked {
        /// Which file.
        file: PathBuf,
        /// Who holds it, as far as the system says.
        holder: Option<u32>,
        /// How long we waited.
        seconds: u64,
    },
    /// `braid up` runs on this folder already.
    #[error("the array in {} is up already{}", .dir.display(), .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    AlreadyUp {
        /// Which folder.
        dir: PathBuf,
        /// Whose process it is, as far as it has said.
        pid: Option<u32>,
    },
    /// The host was taken for dead, and its lease removed.
    #[error("the lease of host {generation} had run out, and the host was shut out: start it again")]
    LeaseLost {
        /// Which host.
        generation: Generation,
    },
    /// The description says something that can't be.
    #[error("{}: {reason}", .file.display())]
    Inconsistent {
        /// Which file.
        file: PathBuf,
        /// What.
        reason: String,
    },
    /// The file system said no.
    #[error("can't {doing} {}: {source}", .path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn holder_name(holder: Option<u32>) -> String {
    holder.map_or("another process".to_string(), |pid| format!("process {pid}"))
}

impl ControlError {
    pub(crate) fn file<E: Into<std::io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ControlError {
        let path = path.to_path_buf();
        move |source| ControlError::File { doing, path, source: source.into() }
    }
}
