//! The array as a service of systemd (`contrib/braid@.service`): it is told when the array serves, by `sd_notify(3)`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager that started this process, if there is one, that the array serves.
pub fn tell_ready() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        // Without an answer the service manager ends the array after a while, and says why.
        let _ = tell(&socket, b"READY=1");
    }
}

fn tell(socket: &OsStr, what: &[u8]) -> std::io::Result<usize> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what, &address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const UNIT: &str = include_str!("../../../../contrib/braid@.service");

    #[test]
    fn a_service_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("braid-notify-{}", std::process::id()));
        let named = format!("@braid-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(named.trim_start_matches('@')).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), OsStr::new(&named)),
        ] {
            tell(name, b"READY=1").unwrap();
            let mut told = [0; 20];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_unit_is_sound_and_its_command_is_understood() {
        let value = |key: &str| UNIT.lines().find_map(|line| line.strip_prefix(key)).expect("the unit has it");
        let command = value("ExecStart=");
        let words = command.split_whitespace().filter(|word| !word.starts_with('$')).map(|word| word.replace('%', ""));
        assert!(crate::commands::parse(&words.map(Into::into).collect::<Vec<_>>()).is_ok(), "{command}");
        assert_eq!(value("Type="), "notify");
        // The command of the unit must exist for this check.
        let dir = std::env::temp_dir().join(format!("braid-unit-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let copy = dir.join("braid@test.service");
        std::fs::write(&copy, UNIT.replace("/usr/local/bin/braid", "/bin/true")).unwrap();
        match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output() {
            Ok(said) => {
                let text = String::from_utf8_lossy(&said.stderr);
                assert!(said.status.success() && !text.contains("braid@"), "{text}");
            }
            Err(error) => println!("systemd-analyze is not installed: {error}"),
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
