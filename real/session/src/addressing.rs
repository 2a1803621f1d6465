//! Where the daemons of an array listen, and how their addresses are written in the array's folder.
//!
//! A daemon listens on a Unix socket in the folder, in a directory that no other user may enter, unless it is told to listen at another
//! address. The address of such a socket is written relative to the folder, so that processes find it by whatever path they know the folder.

use braid_base::NodeId;
use braid_control::{ArrayFolder, ControlError};
use braid_shell::Address;
use std::path::Path;

/// The socket of NBD clients, beside those of the daemons.
const NBD: &str = "nbd";

/// The address of a node's socket in the array's folder. The directory of sockets is created if it is missing.
pub fn socket(folder: &ArrayFolder, node: NodeId) -> Result<Address, ControlError> {
    let name = match node {
        NodeId::Monitor => "monitor".to_string(),
        NodeId::Device(id) => format!("device-{}", id.0),
        NodeId::LockServer(id) => format!("lock-server-{}", id.0),
        NodeId::MetadataServer(id) => format!("metadata-server-{}", id.0),
        NodeId::Host(generation) => format!("host-{}", generation.0),
    };
    Ok(Address::Unix(folder.sockets()?.join(name)))
}

/// The address of the socket of NBD clients in the array's folder, created like [`socket`].
pub fn nbd_socket(folder: &ArrayFolder) -> Result<Address, ControlError> {
    Ok(Address::Unix(folder.sockets()?.join(NBD)))
}

/// The address of the socket of NBD clients, by the absolute path of the folder, if `braid up` listens there.
pub fn served_nbd_socket(folder: &ArrayFolder) -> Option<Address> {
    let path = folder.absolute().join(braid_control::SOCKETS).join(NBD);
    path.exists().then_some(Address::Unix(path))
}

/// An address as it is written in the folder.
pub fn published(folder: &ArrayFolder, address: &Address) -> String {
    let Address::Unix(path) = address else { return address.to_string() };
    let within = path.strip_prefix(folder.dir()).map(Path::to_path_buf);
    let path = within.or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.clone());
    Address::Unix(path).to_string()
}

/// The address that is written as `text` in the folder.
pub fn located(folder: &ArrayFolder, text: &str) -> Option<Address> {
    match text.parse().ok()? {
        // An absolute path stays as it is.
        Address::Unix(path) => Some(Address::Unix(folder.dir().join(path))),
        tcp => Some(tcp),
    }
}

/// The address that is written as `text` in the folder, for programs that do not know the folder.
pub fn absolute(folder: &ArrayFolder, text: &str) -> String {
    let folder = ArrayFolder::at(&folder.absolute());
    located(&folder, text).map_or_else(|| text.to_string(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::DeviceId;

    #[test]
    fn a_socket_in_the_folder_is_found_by_whatever_path_the_folder_is_known() {
        let dir = std::env::temp_dir().join(format!("braid-addressing-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let folder = ArrayFolder::at(&dir);
        let address = socket(&folder, NodeId::Device(DeviceId(3))).unwrap();
        let text = published(&folder, &address);
        assert_eq!(text, "unix:run/device-3");
        let elsewhere = ArrayFolder::at(Path::new("some/where"));
        assert_eq!(located(&elsewhere, &text), Some(Address::Unix("some/where/run/device-3".into())));
        assert_eq!(located(&folder, &text), Some(address));
        for text in ["127.0.0.1:7000", "unix:/run/other"] {
            let address = located(&folder, text).unwrap();
            assert_eq!((address.to_string(), published(&folder, &address)), (text.to_string(), text.to_string()));
        }
        assert_eq!(located(&folder, "nonsense"), None);
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join("run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
