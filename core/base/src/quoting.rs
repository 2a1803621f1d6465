//! Names and paths in text. They are any bytes; a terminal and a reader need characters, and a shell needs the name back.

use std::fmt::Write;

/// A name as a line of text: itself if all of it can be seen, otherwise as `$'…'`, which shells read as the same bytes.
pub fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if text.chars().all(is_visible) && !text.starts_with("$'") => text.to_string(),
        _ => escaped(name),
    }
}

/// A name as a word of a shell's command.
pub fn word(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.,/:@%+=".contains(byte);
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| is_plain(&byte)) => text.to_string(),
        Ok(text) if text.chars().all(is_visible) && !text.contains('\'') => format!("'{text}'"),
        _ => escaped(name),
    }
}

fn escaped(name: &[u8]) -> String {
    let mut text = String::from("$'");
    for chunk in name.utf8_chunks() {
        for sign in chunk.valid().chars() {
            match sign {
                '\n' => text += "\\n",
                '\t' => text += "\\t",
                '\'' | '\\' => text.extend(['\\', sign]),
                sign if is_visible(sign) => text.push(sign),
                sign => octal(&mut text, sign.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text + "'"
}

/// Three digits always: what follows can't be taken for a part of the number.
fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "\\{byte:03o}").expect("a string takes any text");
    }
}

/// Text in which names of others neither control the terminal nor change what is beside them: signs that can't be seen are shown as
/// `\u{1b}`, but for tabs and the ends of lines.
pub fn harmless(text: &str) -> String {
    let keeps = |sign: char| is_visible(sign) || matches!(sign, '\n' | '\t');
    text.chars().map(|sign| if keeps(sign) { sign.to_string() } else { sign.escape_unicode().to_string() }).collect()
}

/// The same in one line: tabs and the ends of lines are shown as `\t` and `\n`.
pub fn in_a_line(text: &str) -> String {
    harmless(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Bytes in hexadecimal digits.
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// False for control characters, and for those that change or hide what is beside them.
fn is_visible(sign: char) -> bool {
    let hides =
        matches!(sign, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !sign.is_control() && !hides
}

/// The output of a `Debug` in which each string of bytes that is long, or not plain text, is replaced by its length.
pub fn without_bytes(text: &str) -> String {
    let (mut short, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("b\"") {
        let (before, from) = rest.split_at(at);
        let (mut count, mut is_plain, mut end) = (0, true, from.len());
        let mut letters = from.char_indices().skip(2);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => {
                    is_plain = false;
                    count += 1;
                    if let Some((_, 'x')) = letters.next() {
                        letters.nth(1);
                    }
                }
                _ => count += 1,
            }
        }
        short.push_str(before);
        match is_plain && count <= PLAIN_BYTES_MAX {
            true => short.push_str(&from[..end]),
            false => short.push_str(&format!("[{count} bytes]")),
        }
        rest = &from[end..];
    }
    short + rest
}

/// So many bytes of plain text are shown.
const PLAIN_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_so_that_a_shell_reads_them_back() {
        for (name, as_line, as_word) in [
            (&b"plain-1.txt"[..], "plain-1.txt", "plain-1.txt"),
            (b"two words", "two words", "'two words'"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n", "'gr\u{fc}n'"),
            (b"it's", "it's", r"$'it\'s'"),
            (b"", "", "''"),
            (b"$'x'", r"$'$\'x\''", r"$'$\'x\''"),
            (b"$HOME", "$HOME", "'$HOME'"),
            (b"a\nb\tc\\\x1b[0m", r"$'a\nb\tc\\\033[0m'", r"$'a\nb\tc\\\033[0m'"),
            (b"\xff1", r"$'\3771'", r"$'\3771'"),
            ("\u{202e}x".as_bytes(), r"$'\342\200\256x'", r"$'\342\200\256x'"),
        ] {
            assert_eq!((shown(name).as_str(), word(name).as_str()), (as_line, as_word), "{name:?}");
        }
    }

    #[test]
    fn content_is_replaced_by_its_length() {
        let shown = |value: &dyn std::fmt::Debug| without_bytes(&format!("{value:?}"));
        assert_eq!(shown(&(1, bytes::Bytes::from(vec![0; 4096]), "x")), "(1, [4096 bytes], \"x\")");
        assert_eq!(
            shown(&[&bytes::Bytes::from("file.txt"), &bytes::Bytes::from("a\"\\\n")]),
            "[b\"file.txt\", [4 bytes]]"
        );
        assert_eq!(shown(&bytes::Bytes::from("y".repeat(65))), "[65 bytes]");
        assert_eq!(without_bytes("cut: b\"\\x00\\x0"), "cut: [2 bytes]");
    }
}
