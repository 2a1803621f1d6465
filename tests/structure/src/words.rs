//! Splits a Rust source into code and prose (comments and the content of strings).

/// A part of a source; parts are in source order.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text for the compiler.
    Code(&'a str),
    /// Text for readers.
    Prose(&'a str),
}

/// Splits a source. The lexer serves this purpose alone: it is correct for sources that compile.
pub fn parts(source: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut code_from, mut at) = (0, 0);
    while at < source.len() {
        let rest = &source[at..];
        let length = match rest.as_bytes()[0] {
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'"' => string_length(rest),
            b'r' if raw_hashes(rest).is_some() && !follows_word(source, at) => raw_length(rest),
            b'\'' => {
                at += char_length(rest);
                continue;
            }
            _ => {
                at += rest.chars().next().map_or(1, char::len_utf8);
                continue;
            }
        };
        parts.push(Part::Code(&source[code_from..at]));
        parts.push(Part::Prose(&rest[..length]));
        at += length;
        code_from = at;
    }
    parts.push(Part::Code(&source[code_from..]));
    parts
}

/// The words of a text: sequences of letters, digits and underscores.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// True if `text` contains the words of `phrase` in sequence, ignoring case.
pub fn says(text: &str, phrase: &str) -> bool {
    let wanted: Vec<String> = words(phrase).map(str::to_lowercase).collect();
    let found: Vec<String> = words(text).map(str::to_lowercase).collect();
    found.windows(wanted.len()).any(|window| window == wanted)
}

fn follows_word(source: &str, at: usize) -> bool {
    source[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The number of `#` of a raw string, if `rest` begins with one.
fn raw_hashes(rest: &str) -> Option<usize> {
    let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    (rest.as_bytes().get(1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_length(rest: &str) -> usize {
    let hashes = raw_hashes(rest).unwrap_or_default();
    let (begin, end) = (hashes + 2, format!("\"{}", "#".repeat(hashes)));
    rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
}

/// The length of a character literal; distinguishes it from a lifetime.
fn char_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 3)
        }
        Some((at, c)) if rest[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_prose_are_distinguished() {
        let source = "let a = \"it's \\\" b\"; // c 'd\nfn e<'f>() { 'g' != '\\'' && r#\"h \" i\"# }";
        let prose: Vec<_> = parts(source)
            .into_iter()
            .filter_map(|part| match part {
                Part::Prose(text) => Some(text),
                Part::Code(_) => None,
            })
            .collect();
        assert_eq!(prose, ["\"it's \\\" b\"", "// c 'd", "r#\"h \" i\"#"]);
        let all: String = parts(source)
            .into_iter()
            .map(|part| match part {
                Part::Code(text) | Part::Prose(text) => text,
            })
            .collect();
        assert_eq!(all, source);
    }

    #[test]
    fn a_phrase_is_found_by_whole_words() {
        assert!(says("It Is brought\n what it missed", "is brought"));
        assert!(!says("it is broughtx", "is brought"));
    }
}
