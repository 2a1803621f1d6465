//! The URIs by which clients name exports.

use braid_shell::Address;

/// The URI of the export `name` at `address`, as nbdinfo, nbdcopy, qemu and fio accept it.
pub fn uri(address: &Address, name: &str) -> String {
    match address {
        Address::Tcp { .. } => format!("nbd://{address}/{}", escaped(name)),
        Address::Unix(path) => format!("nbd+unix:///{}?socket={}", escaped(name), escaped(&path.to_string_lossy())),
    }
}

/// Percent-encodes characters with a meaning in URIs.
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
    fn a_uri_escapes_what_would_mean_something_else() {
        let tcp: Address = "127.0.0.1:10809".parse().unwrap();
        assert_eq!(uri(&tcp, "vol0"), "nbd://127.0.0.1:10809/vol0");
        let unix: Address = "unix:/a b/s".parse().unwrap();
        assert_eq!(uri(&unix, "v?"), "nbd+unix:///v%3F?socket=/a%20b/s");
    }
}
