//! Errors of a host: why it can't be started or can't find a volume, and why it can't continue.

use braid_control::{ControlError, FileSystemState, Process};
use braid_description::DescriptionError;
use braid_machine::HostError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a host can't be started, or can't find a volume.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the array in {} is not up", .dir.display())]
    NotUp { dir: PathBuf },
    /// The folder is a copy of that of a running array, and devices are started by hand: they would mistake hosts of the copy.
    #[error("{} is a copy of the folder of an array that is in use ({process}), which has devices at fixed addresses", .dir.display())]
    OfCopy { dir: PathBuf, process: Process },
    #[error("the host has not adopted the array's volumes within {waited:?}")]
    NotFollowed { waited: Duration },
    /// The recording can't be created.
    #[error("{}: {error}", .file.display())]
    Recording { file: PathBuf, error: String },
    /// A volume can't be found, or its entry not be understood.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    #[error("there is no file system '{name}'")]
    NoSuchFileSystem { name: String, others: Vec<String> },
    /// The file system can't be used: it is being created or deleted, or that was interrupted.
    #[error("file system '{name}' can't be used: its state is {}", .state.name())]
    FileSystemNotReady { name: String, state: FileSystemState },
}

/// Why the array refuses a host from now on, or soon will.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Loss {
    /// The host was fenced: a lock server did not hear from it for a lease, or its lease in the folder expired.
    #[error("the array refuses this host: it was presumed dead and fenced")]
    Fenced,
    /// The host's lease was ended by another process.
    #[error("{0}")]
    LeaseLost(Arc<ControlError>),
    #[error("the host's lease could not be renewed: {0}")]
    Unrenewed(Arc<ControlError>),
    /// A bug: the task that renews the lease has ended.
    #[error("the task that renews the host's lease has ended")]
    Unattended,
}
