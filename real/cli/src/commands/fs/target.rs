//! The names of files in commands: `NAME:PATH` is a path in a file system of the array.

use braid_admin::Failure;
use braid_base::quoting;
use braid_client::{ArrayOptions, Files};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// A path in a file system of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub file_system: String,
    pub path: PathBuf,
}

/// A path in a file system of the array, or on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anywhere {
    Mounted(Target),
    Local(PathBuf),
}

/// The time limit of a command's steps.
#[derive(clap::Args)]
pub struct Trying {
    /// How long to wait for each step: 5s, 1m
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30s")]
    timeout: Duration,
}

impl Trying {
    pub async fn mount(&self, file_system: &str, common: &Common) -> Result<Files, Failure> {
        let options = ArrayOptions::at(&common.array).name(format!("files {file_system}")).deadline(self.timeout);
        Ok(Files::mount(options, file_system).await?)
    }
}

impl Anywhere {
    /// Parses an argument. What has a slash before its first colon, or no colon, is on this machine.
    pub fn parse(text: OsString) -> Result<Anywhere, String> {
        let bytes = text.as_bytes();
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return Ok(Anywhere::Local(text.into())) };
        let (name, path) = (&bytes[..colon], &bytes[colon + 1..]);
        if name.is_empty() || name.contains(&b'/') {
            return Ok(Anywhere::Local(text.into()));
        }
        let file_system = String::from_utf8(name.to_vec()).map_err(|_| "the name is not UTF-8".to_string())?;
        Ok(Anywhere::Mounted(Target { file_system, path: OsString::from_vec(path.to_vec()).into() }))
    }
}

/// The parser of the name of a file in a file system of the array. Names are any bytes.
pub fn target() -> impl TypedValueParser<Value = Target> {
    OsStringValueParser::new().try_map(read_target)
}

/// The parser of the name of a file in a file system of the array, or on this machine.
pub fn anywhere() -> impl TypedValueParser<Value = Anywhere> {
    OsStringValueParser::new().try_map(Anywhere::parse)
}

fn read_target(text: OsString) -> Result<Target, String> {
    match Anywhere::parse(text)? {
        Anywhere::Mounted(target) => Ok(target),
        Anywhere::Local(_) => {
            Err("name it as NAME:PATH: the file system, a colon, and a path in it, such as home:/a/b".to_string())
        }
    }
}

impl Target {
    /// The exact name: also of a path that is not UTF-8.
    pub fn bytes(&self) -> Vec<u8> {
        [self.file_system.as_bytes(), b":", self.path.as_os_str().as_bytes()].concat()
    }
}

/// Puts a name into JSON: as text, and if it is not UTF-8, also its bytes in hexadecimal digits (`KEY_bytes`).
pub fn put_name(json: &mut serde_json::Value, key: &str, name: &[u8]) {
    json[key] = String::from_utf8_lossy(name).into();
    if std::str::from_utf8(name).is_err() {
        json[format!("{key}_bytes")] = quoting::digits(name).into();
    }
}

/// A list of names alone. The exact bytes are given for all of them, if one is not UTF-8.
pub fn put_names(key: &str, names: Vec<Vec<u8>>) -> serde_json::Value {
    let mut json = serde_json::json!({});
    json[key] = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    if names.iter().any(|name| std::str::from_utf8(name).is_err()) {
        json[format!("{key}_bytes")] = names.iter().map(|name| quoting::digits(name)).collect();
    }
    json
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoting::shown(&self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_colon_is_that_of_a_file_system() {
        let at = |text: &str| read_target(text.into()).map(|target| (target.file_system, target.path));
        assert_eq!(at("home:/a:b"), Ok(("home".into(), "/a:b".into())));
        assert_eq!(at("home:"), Ok(("home".into(), "".into())));
        for local in ["a/b:c", "./home:x", "/x", "x", ":x"] {
            assert_eq!(Anywhere::parse(local.into()), Ok(Anywhere::Local(local.into())), "{local}");
            assert!(read_target(local.into()).is_err());
        }
    }
}
