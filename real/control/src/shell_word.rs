//! A path as a word of a shell: commands that people are told to run are copied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The path as a shell reads it as one word, quoted if it must be. Bytes that are not UTF-8, and control characters, are written as
/// `$'\xff'`, which bash, zsh and ksh read.
pub fn shell_word(path: impl AsRef<OsStr>) -> String {
    let bytes = path.as_ref().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:@%+=,".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.is_empty() && bytes.iter().all(is_plain) => text.to_string(),
        Ok(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let escaped = |byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            };
            format!("$'{}'", bytes.iter().map(escaped).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let of = |bytes: &[u8]| shell_word(OsStr::from_bytes(bytes));
        assert_eq!(of(b"/srv/a-1_b.c"), "/srv/a-1_b.c");
        assert_eq!(of("/srv/ärger".as_bytes()), "'/srv/ärger'");
        assert_eq!(of(b""), "''");
        let awkward: [&[u8]; 6] =
            [b"/my array", b"it's", b"a;b$(c)`d`", b"-\\\n\x7f", b"\xff\xfe'", "x\u{85}y".as_bytes()];
        for path in awkward {
            let script = format!("printf %s {}", of(path));
            let printed = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash is there");
            assert_eq!(printed.stdout, path, "{script}");
        }
    }
}
