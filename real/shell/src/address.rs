//! Addresses of nodes: `HOST:PORT` or `unix:PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A TCP port. A listener on port 0 lets the system choose the port.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without its brackets.
        host: String,
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address that can't be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not an address: write HOST:PORT, such as 127.0.0.1:7000, or unix:PATH, such as unix:/run/braid/d0"
)]
pub struct AddressError {
    text: String,
}

impl Address {
    /// A TCP port of this machine that is unreachable from other machines.
    pub fn loopback(port: u16) -> Address {
        Address::Tcp { host: "127.0.0.1".into(), port }
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
        let port = port.parse().map_err(|_| error())?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let valid = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', '/', '[', ']', ' ']),
        };
        if !valid {
            return Err(error());
        }
        Ok(Address::Tcp { host: bracketed.unwrap_or(host).to_string(), port })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:7000", "storage-1.example:0", "[::1]:7000", "unix:/run/braid/d0", "unix:d0"] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.to_string()));
        }
    }

    #[test]
    fn a_wrong_address_is_answered_with_what_is_allowed() {
        for text in ["", ":", ":7000", "7000", "host", "host:", "host:70000", "unix:", "::1:7000", "[x]:1", "/a:1"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("HOST:PORT") && error.contains("unix:PATH"), "{error}");
        }
    }
}
