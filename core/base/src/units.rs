//! Sizes and times as text: `64KiB`, `10G`, `1.5TiB`; `90s`, `5m`. Units of sizes are powers of two, as is customary for storage commands.

use std::fmt;
use std::time::Duration;

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    text: String,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a number of bytes: write a number and a unit, such as 4096, 64KiB, 512M or 10GiB",
            self.text
        )
    }
}

impl std::error::Error for SizeError {}

/// Parses a size in bytes. `K`, `KB` and `KiB` all mean 1024.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let error = || SizeError { text: text.to_string() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(error()),
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).ok_or_else(error),
        Some(_) => {
            let value = number.parse::<f64>().map_err(|_| error())? * (1u64 << shift) as f64;
            // A fraction of a byte would be cut off silently.
            if value >= u64::MAX as f64 || value.fract() != 0.0 { Err(error()) } else { Ok(value as u64) }
        }
    }
}

/// Parses a time such as 90s, 5m or 1h; a number alone is seconds.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        other => return Err(format!("'{other}' is no unit of time: use s, m or h")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no span: write 90s, 5m or 1h"))?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| "that is too long".to_string())
}

/// Formats a size for people: `1.5 GiB`.
pub fn format_size(bytes: u64) -> String {
    let mut unit = 0;
    while unit < 5 && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    let name = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
    if value.fract() == 0.0 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_size("2t"), Ok(2 << 40));
        for wrong in ["", "x", "12q", "-1", "1e3", "99999999P", "1..2", "1.5", "1.0001KiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_short() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(1 << 30), "1 GiB");
        assert_eq!(format_size(3 << 29), "1.5 GiB");
    }
}
