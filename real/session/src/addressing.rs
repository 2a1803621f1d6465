//! Where the daemons of an array listen, and how their addresses are written in the array's folder.
//!
//! A daemon listens on a Unix socket in the folder, in a directory that no other user may enter, unless it is told to listen at another
//! address. The address of such a socket is written relative to the folder, so that processes find it by whatever path they know the folder.
//! And how other processes find them there, and pass on what has changed.

use braid_base::{DeviceId, FileSystemId, LockServerId, NodeId};
use braid_control::{ControlError, ControlPlane, LocalFolder, Overview, serving};
use braid_shell::{Address, Addresses};
use std::path::Path;
use tokio::sync::watch;

/// The socket of NBD clients, beside those of the daemons.
const NBD: &str = "nbd";

/// The address of a node's socket in the array's folder. The directory of sockets is created if it is missing.
pub fn socket(control: &ControlPlane, node: NodeId) -> Result<Address, ControlError> {
    let name = match node {
        NodeId::Monitor => "monitor".to_string(),
        NodeId::Device(id) => format!("device-{}", id.0),
        NodeId::LockServer(id) => format!("lock-server-{}", id.0),
        NodeId::MetadataServer(id) => format!("metadata-server-{}", id.0),
        NodeId::Host(generation) => format!("host-{}", generation.0),
    };
    Ok(Address::Unix(control.local().sockets()?.join(name)))
}

/// The address of the socket of NBD clients in the array's folder, created like [`socket`].
pub fn nbd_socket(control: &ControlPlane) -> Result<Address, ControlError> {
    Ok(Address::Unix(control.local().sockets()?.join(NBD)))
}

/// The address of the socket of NBD clients, by the absolute path of the folder, if `braid up` listens there.
pub fn served_nbd_socket(folder: &LocalFolder) -> Option<Address> {
    let path = folder.absolute().join(braid_control::SOCKETS).join(NBD);
    path.exists().then_some(Address::Unix(path))
}

/// An address as it is written in the folder.
pub fn published(control: &ControlPlane, address: &Address) -> String {
    let Address::Unix(path) = address else { return address.to_string() };
    let within = path.strip_prefix(control.local().dir()).map(Path::to_path_buf);
    let path = within.or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.clone());
    Address::Unix(path).to_string()
}

/// The address that is written as `text` in the folder.
pub fn located(folder: &LocalFolder, text: &str) -> Option<Address> {
    match text.parse().ok()? {
        // An absolute path stays as it is.
        Address::Unix(path) => Some(Address::Unix(folder.dir().join(path))),
        tcp => Some(tcp),
    }
}

/// The address that is written as `text` in the folder, for programs that do not know the folder.
pub fn absolute(folder: &LocalFolder, text: &str) -> String {
    let folder = LocalFolder::at(&folder.absolute());
    located(&folder, text).map_or_else(|| text.to_string(), |address| address.to_string())
}

/// The addresses of the monitor, the devices, the lock servers and the metadata servers, as far as known.
pub async fn addresses(control: &ControlPlane) -> Result<Addresses, ControlError> {
    Ok(listed(control, &control.overview().await?))
}

/// The same, of what was read.
pub(crate) fn listed(control: &ControlPlane, read: &Overview) -> Addresses {
    let devices = read.description.devices.iter().filter_map(|device| {
        let id = DeviceId(device.id);
        let running = read.running.as_ref();
        let started = running.and_then(|running| running.device(id)).map(|device| device.address.clone());
        Some((NodeId::Device(id), located(control.local(), &started.or_else(|| device.address.clone())?)?))
    });
    let mut found: Addresses = devices.collect();
    // A monitor that was suspended or killed is included: it is, or will be, at the same address.
    if let Some(monitor) = &read.monitor
        && let Some(address) = located(control.local(), &monitor.report.address)
    {
        found.insert(NodeId::Monitor, address);
    }
    // In the order of generations: the later start of a server replaces the earlier one.
    for host in serving(&read.hosts) {
        if let Some(service) = &host.report.lock_server
            && let Some(address) = located(control.local(), &service.address)
        {
            found.insert(NodeId::LockServer(LockServerId(service.id)), address);
        }
        if let Some(service) = &host.report.metadata_server
            && let Some(address) = located(control.local(), &service.address)
        {
            found.insert(NodeId::MetadataServer(FileSystemId(service.file_system)), address);
        }
    }
    found
}

/// The addresses that a host needs: of the metadata servers, these alone.
pub(crate) fn listed_for_host(control: &ControlPlane, read: &Overview, servers: &[FileSystemId]) -> Addresses {
    let mut found = listed(control, read);
    found.retain(|node, _| !matches!(node, NodeId::MetadataServer(id) if !servers.contains(id)));
    found
}

/// Passes addresses on to the tasks that keep connections, if they have changed.
pub fn tell(follow: &watch::Sender<Addresses>, found: Addresses) {
    follow.send_if_modified(|known| {
        let changed = *known != found;
        *known = found;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_in_the_folder_is_found_by_whatever_path_the_folder_is_known() {
        let dir = std::env::temp_dir().join(format!("braid-addressing-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (control, folder) = (ControlPlane::at(&dir), LocalFolder::at(&dir));
        let address = socket(&control, NodeId::Device(DeviceId(3))).unwrap();
        let text = published(&control, &address);
        assert_eq!(text, "unix:run/device-3");
        let elsewhere = LocalFolder::at(Path::new("some/where"));
        assert_eq!(located(&elsewhere, &text), Some(Address::Unix("some/where/run/device-3".into())));
        assert_eq!(located(&folder, &text), Some(address));
        for text in ["127.0.0.1:7000", "unix:/run/other"] {
            let address = located(&folder, text).unwrap();
            assert_eq!((address.to_string(), published(&control, &address)), (text.to_string(), text.to_string()));
        }
        assert_eq!(located(&folder, "nonsense"), None);
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join("run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
