//! What a keeper keeps running: a daemon or a node, with all that its start needs.

use super::contract::{Kept, Tuning};
use super::nodes::{HostsEnd, Share};
use braid_admin::failure::Failure;
use braid_base::{ArrayId, DeviceId, FileSystemId, LockServerId, NodeId};
use braid_control::event_texts::Crash;
use braid_control::{ControlPlane, WhenUnavailable};
use braid_session::addressing;
use braid_shell::Address;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The code of the failure if the file of a device is missing.
pub const NO_FILE: &str = "no-such-file";
/// The wait before checking again whether the missing file of a device is there.
const FILE_PAUSE: Duration = Duration::from_secs(1);

/// What a keeper keeps running, and with what.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub control: ControlPlane,
    pub tuning: Tuning,
    pub what: What,
}

/// A daemon or a node.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// There is one.
    Monitor,
    /// It listens at `listen`, or on its socket in the folder.
    Device { array: ArrayId, id: DeviceId, file: PathBuf, listen: Option<Address> },
    /// One of those of the array.
    LockServer(LockServerId),
    /// `shard` is given if there are several.
    MetadataServer { id: FileSystemId, name: String, shard: Option<usize> },
    /// Its NBD server listens at `listen`.
    Node { share: Share, listen: Address, unavailable: Option<WhenUnavailable>, hosts_end: HostsEnd },
}

/// A keeper's assignment; none tells the keeper to end.
pub(super) type Wanted = Option<Assignment>;

/// The end of a daemon that was not asked to end.
#[derive(Debug)]
pub(super) struct Ended {
    pub failure: Failure,
    pub crash: Option<Box<Crash>>,
    /// The devices of a node, which have ended with it.
    pub down: BTreeSet<DeviceId>,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended { failure, crash: None, down: BTreeSet::new() }
    }
}

impl Assignment {
    pub fn kept(&self) -> Kept {
        Kept::Daemon(match &self.what {
            What::Monitor => NodeId::Monitor,
            What::Device { id, .. } => NodeId::Device(*id),
            What::LockServer(id) => NodeId::LockServer(*id),
            What::MetadataServer { id, .. } => NodeId::MetadataServer(*id),
            What::Node { share, .. } => return Kept::Node(share.number()),
        })
    }

    /// Where it listens; `port` was its address at an earlier start.
    pub fn listen(&self, port: &Address) -> Result<Address, Failure> {
        match (&self.what, self.kept()) {
            (What::Device { listen: Some(listen), .. } | What::Node { listen, .. }, _) => Ok(listen.clone()),
            (_, Kept::Daemon(node)) if let Some(cluster) = self.control.cluster() => {
                let own = cluster.file()?.own();
                match (node, port) {
                    (NodeId::Monitor, _) => {
                        own.wire().parse().map_err(|error| Failure::usage("bad-address", format!("{error}")))
                    }
                    (_, Address::Tcp { port, .. }) => Ok(Address::Tcp { host: own.host.clone(), port: *port }),
                    _ => Ok(port.clone()),
                }
            }
            (_, Kept::Daemon(node)) if !self.tuning.tcp => Ok(addressing::socket(&self.control, node)?),
            _ => Ok(port.clone()),
        }
    }

    /// The file or disk of a device, if it does not exist.
    pub fn lacks_file(&self) -> Option<&Path> {
        match &self.what {
            What::Device { file, .. } if matches!(file.try_exists(), Ok(false)) => Some(file),
            _ => None,
        }
    }

    /// Why it is down. If its file is gone, nothing else matters: it may have been killed, but it can't be started again.
    pub fn explain(&self, failure: Failure) -> Failure {
        match self.lacks_file() {
            Some(file) => Failure::unreachable(NO_FILE, format!("its file {} is gone", file.display())),
            None => failure,
        }
    }

    /// Returns when the file exists.
    pub async fn await_file(&self) {
        while self.lacks_file().is_some() {
            tokio::time::sleep(FILE_PAUSE).await;
        }
    }
}
