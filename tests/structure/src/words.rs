//! Splits a Rust source into code and prose (comments and the content of strings).

use rustc_lexer::LiteralKind::{ByteStr, CStr, RawByteStr, RawCStr, RawStr, Str};
use rustc_lexer::{FrontmatterAllowed, TokenKind};

/// A part of a source; parts are in source order.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text for the compiler.
    Code(&'a str),
    /// Text for readers.
    Prose(&'a str),
}

/// Splits a source that compiles.
pub fn parts(source: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = source;
    rustc_lexer::tokenize(source, FrontmatterAllowed::No).map(move |token| {
        let (text, after) = rest.split_at(token.len as usize);
        rest = after;
        match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => Part::Prose(text),
            TokenKind::Literal { kind, .. } => match kind {
                Str { .. } | ByteStr { .. } | CStr { .. } => Part::Prose(text),
                RawStr { .. } | RawByteStr { .. } | RawCStr { .. } => Part::Prose(text),
                _ => Part::Code(text),
            },
            _ => Part::Code(text),
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_prose_are_distinguished() {
        let source = "let a = \"it's \\\" b\"; // c 'd\nfn e<'f>() { 'g' != '\\'' && r#\"h \" i\"# }";
        let prose = parts(source).filter_map(|part| match part {
            Part::Prose(text) => Some(text),
            Part::Code(_) => None,
        });
        assert!(prose.eq(["\"it's \\\" b\"", "// c 'd", "r#\"h \" i\"#"]));
        let all = parts(source).map(|part| match part {
            Part::Code(text) | Part::Prose(text) => text,
        });
        assert_eq!(all.collect::<String>(), source);
    }

    #[test]
    fn a_phrase_is_found_by_whole_words() {
        assert!(says("It Is brought\n what it missed", "is brought"));
        assert!(!says("it is broughtx", "is brought"));
    }
}
