//! Why a host can't be started or told something, and why it can't go on.

use braid_control::ControlError;
use braid_layout::{LayoutError, SchemeError, VolumeError};
use braid_machine::HostError;
use braid_wire::{UnknownAtomicity, UnknownOrdering};
use std::path::PathBuf;
use std::sync::Arc;

/// Why a host can't be started, or does not find what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The array's folder.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The host itself.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Nobody runs the array's devices.
    #[error("the array in {} is not up", .dir.display())]
    NotUp {
        /// Its folder.
        dir: PathBuf,
    },
    /// The array has no volume of this name.
    #[error("there is no volume '{name}'")]
    NoSuchVolume {
        /// As asked.
        name: String,
        /// Those that there are.
        others: Vec<String>,
    },
    /// It can't be used yet, or creating it was cut short.
    #[error("volume '{name}' is not wholly made")]
    VolumeCreating {
        /// Which.
        name: String,
    },
    /// It can't be used any more.
    #[error("volume '{name}' is being deleted")]
    VolumeDeleting {
        /// Which.
        name: String,
    },
    /// No stripe unit can have so many bytes.
    #[error("a stripe unit can't have {bytes} bytes: choose a power of two from 4 KiB to 1 MiB, such as 64KiB")]
    Unit {
        /// So many.
        bytes: u64,
    },
    /// A layout that nobody knows.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// One that can't be had on these devices.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A volume that can't be.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The description names an ordering that nobody knows.
    #[error(transparent)]
    Ordering(#[from] UnknownOrdering),
    /// The description names an atomicity that nobody knows.
    #[error(transparent)]
    Atomicity(#[from] UnknownAtomicity),
    /// The description names a way to get locks that nobody knows.
    #[error("the array's lock_acquisition is '{found}', not ordered or timeout")]
    Acquisition {
        /// As it stands there.
        found: String,
    },
}

/// Why a host is refused by its array from now on, or soon will be.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Loss {
    /// By a lock server, which did not hear it for a lease, or with its lease in the folder.
    #[error("the array serves this host no more: it was taken for dead")]
    Fenced,
    /// Its lease was taken away.
    #[error("{0}")]
    LeaseLost(Arc<ControlError>),
    /// Its lease has run out, since it can't be written.
    #[error("the host's lease could not be renewed: {0}")]
    Unrenewed(Arc<ControlError>),
    /// A mistake of ours.
    #[error("nobody looks after the host's lease any more")]
    Unattended,
}
