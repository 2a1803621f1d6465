//! Which devices a node runs, the nodes of a machine, and the order in which nodes end.

use braid_admin::failure::Failure;
use braid_base::DeviceId;
use braid_control::{ArrayDescription, ControlPlane, DeviceEntry, WhenUnavailable};
use braid_shell::Address;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use tokio::sync::{mpsc, watch};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// Of the devices that `braid up` runs, those whose number divided by `of` leaves the remainder `index`. So devices that are added or
    /// get another disk later have a place, too.
    Part { index: u16, of: u16 },
    /// These devices, which have fixed addresses.
    These(BTreeSet<DeviceId>),
}

impl Share {
    /// All devices that `braid up` runs.
    pub fn all() -> Share {
        Share::Part { index: 0, of: 1 }
    }

    pub fn has(&self, control: &ControlPlane, entry: &DeviceEntry) -> bool {
        match self {
            Share::Part { index, of } => control.runs(entry) && entry.id % of == *index,
            Share::These(devices) => devices.contains(&DeviceId(entry.id)),
        }
    }

    /// The number of the node among those of its machine.
    pub fn number(&self) -> u16 {
        match self {
            Share::Part { index, .. } => *index,
            Share::These(devices) => devices.first().map_or(0, |device| device.0),
        }
    }

    /// Refuses devices that the array does not have, or that `braid up` runs.
    pub fn check(&self, description: &ArrayDescription) -> Result<(), Failure> {
        let Share::These(devices) = self else { return Ok(()) };
        for id in devices {
            match description.device(id.0) {
                None => {
                    let missing = Failure::unreachable("no-such-device", format!("the array has no device {id}"));
                    return Err(missing.hint("`braid device list` shows its devices"));
                }
                Some(entry) if entry.address.is_none() => {
                    let message = format!("device {id} is run by `braid up`");
                    return Err(Failure::usage("not-elsewhere", message)
                        .hint("this command is for devices that have an `address` in array.json"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Part { index, of } => write!(f, "{index}/{of}"),
            Share::These(devices) => {
                let devices = devices.iter().map(DeviceId::to_string).collect::<Vec<_>>();
                f.write_str(&devices.join(" "))
            }
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let parts = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let part = parts.filter(|(index, of)| index < of);
        part.map(|(index, of)| Share::Part { index, of }).ok_or_else(|| format!("'{text}' is not a share such as 0/2"))
    }
}

#[derive(Clone, Debug)]
pub struct Nodes {
    /// Where the NBD server of each listens.
    pub listen: Vec<Address>,
    /// What requests of their NBD clients do while devices are missing.
    pub unavailable: Option<WhenUnavailable>,
}

impl Nodes {
    /// The share of each node, where it listens, and its part in the order of their ends.
    pub(super) fn begin(self) -> (Vec<(Share, Address, HostsEnd)>, AllHosts) {
        let (hosts_end, all) = HostsEnd::new();
        let of = self.listen.len() as u16;
        let nodes = self.listen.into_iter().zip(0..);
        (nodes.map(|(listen, index)| (Share::Part { index, of }, listen, hosts_end.clone())).collect(), all)
    }
}

/// A node's part in the order of their ends: all hosts end before any device does, because a host needs the devices of other nodes.
#[derive(Clone, Debug)]
pub(super) struct HostsEnd {
    /// Dropped when the node has no host any more.
    has_host: mpsc::Sender<()>,
    all_ended: watch::Receiver<bool>,
}

/// Knows when the hosts of all nodes have ended.
#[derive(Debug)]
pub(super) struct AllHosts {
    hosts: mpsc::Receiver<()>,
    all_ended: watch::Sender<bool>,
}

impl HostsEnd {
    fn new() -> (HostsEnd, AllHosts) {
        let ((has_host, hosts), (ended, all_ended)) = (mpsc::channel(1), watch::channel(false));
        (HostsEnd { has_host, all_ended }, AllHosts { hosts, all_ended: ended })
    }

    /// Says that the host of this node has ended, and returns when those of the others have, too.
    pub async fn await_others(self) {
        let HostsEnd { has_host, mut all_ended } = self;
        drop(has_host);
        let _ = all_ended.wait_for(|ended| *ended).await;
    }
}

impl AllHosts {
    /// Lets devices end once all hosts have.
    pub async fn let_devices_end(mut self) {
        while self.hosts.recv().await.is_some() {}
        self.all_ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for (text, share) in [("0/1", Some(Share::all())), ("1/2", Some(Share::Part { index: 1, of: 2 }))] {
            assert_eq!((text.parse().ok(), share.map(|share| share.to_string())), (share_of(text), Some(text.into())));
        }
        for text in ["2/2", "0/0", "1", "a/b", ""] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    fn share_of(text: &str) -> Option<Share> {
        text.parse().ok()
    }
}
