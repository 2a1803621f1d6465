//! Where a server listens, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Of a TCP port; port 0 lets the system choose one.
    Tcp {
        /// A name or number; IPv6 numbers without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Of a Unix socket.
    Unix(PathBuf),
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an address: write HOST:PORT, such as 127.0.0.1:10809, or unix:PATH")]
pub struct AddressError {
    text: String,
}

impl Address {
    /// How clients name the export `name` at this address.
    pub fn uri(&self, name: &str) -> String {
        match self {
            Address::Tcp { .. } => format!("nbd://{self}/{}", escaped(name)),
            Address::Unix(path) => format!("nbd+unix:///{}?socket={}", escaped(name), escaped(&path.to_string_lossy())),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError { text: text.to_string() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(error()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| error())?;
        if bare.is_empty() || (bare.contains(':') && bare == host) {
            return Err(error());
        }
        Ok(Address::Tcp { host: bare.to_string(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Percent-encodes what has a meaning in URIs.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["127.0.0.1:10809", "localhost:0", "[::1]:10809", "unix:/run/braid/nbd.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for wrong in ["", "localhost", ":1", "::1:10809", "host:70000", "host:", "unix:"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_uri_escapes_what_would_mean_something_else() {
        let tcp: Address = "127.0.0.1:10809".parse().unwrap();
        assert_eq!(tcp.uri("vol0"), "nbd://127.0.0.1:10809/vol0");
        let unix: Address = "unix:/a b/s".parse().unwrap();
        assert_eq!(unix.uri("v?"), "nbd+unix:///v%3F?socket=/a%20b/s");
    }
}
