//! The syntax of objects, attributes and values on the command line, and the output of values.

use braid_admin::Failure;
pub use braid_admin::object_operations::attribute as name;
use braid_admin::object_operations::require_device;
use braid_base::quoting::digits;
use braid_client::{Array, AttributeName, Bytes, Error, Object, Space, Value};
use braid_terminal::Common;
use serde_json::json;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSpace {
    Device(u16),
    /// The attribute volume of this name.
    AttributeVolume(String),
}

/// An object as written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    pub place: ObjectSpace,
    pub number: u64,
}

/// A value as written on the command line: the value itself, or where to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Bytes(Vec<u8>),
    File(PathBuf),
    /// Standard input.
    Input,
}

/// The form in which a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum As {
    /// As a text
    Text,
    /// As a signed number of eight bytes, most significant byte first
    Int,
    /// In hexadecimal digits
    Hex,
    /// The bytes themselves, without a newline
    Raw,
}

impl ObjectSpace {
    /// The handle for the objects there.
    pub async fn find(&self, array: &Array, common: &Common) -> Result<Space, Failure> {
        match self {
            ObjectSpace::Device(device) => {
                require_device(&common.control(), *device).await?;
                Ok(array.device(*device))
            }
            ObjectSpace::AttributeVolume(name) => {
                let found = array.attribute_volume(name).await;
                // `d3` is a device, unless a volume has that name.
                if let (Err(Error::Array(_) | Error::NoSuchVolume), Ok(device)) =
                    (&found, braid_terminal::arguments::device(name))
                {
                    require_device(&common.control(), device).await?;
                    return Ok(array.device(device));
                }
                found.map_err(|error| Failure::from(error).of(name))
            }
        }
    }
}

impl ObjectName {
    pub async fn find(&self, array: &Array, common: &Common) -> Result<Object, Failure> {
        Ok(self.place.find(array, common).await?.object(self.number))
    }
}

impl FromStr for ObjectSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<ObjectSpace, String> {
        match text.parse() {
            Ok(device) => Ok(ObjectSpace::Device(device)),
            Err(_) if text.is_empty() || text.contains(':') || text.bytes().all(|byte| byte.is_ascii_digit()) => Err(
                format!("'{text}' is neither the number of a device, such as 2, nor the name of an attribute volume"),
            ),
            Err(_) => Ok(ObjectSpace::AttributeVolume(text.to_string())),
        }
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<ObjectName, String> {
        let wrong = || format!("'{text}' is not an object: write DEVICE:NUMBER, such as 2:17, or VOLUME:NUMBER");
        let (place, number) = text.split_once(':').ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
        Ok(ObjectName { place: place.parse()?, number })
    }
}

impl fmt::Display for ObjectSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectSpace::Device(device) => write!(f, "{device}"),
            ObjectSpace::AttributeVolume(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.place, self.number)
    }
}

pub fn attribute(text: &str) -> Result<AttributeName, String> {
    let both = text.split_once('.').and_then(|(page, within)| Some((number(page)?, number(within)?)));
    let (page, within) =
        both.ok_or_else(|| format!("'{text}' is not an attribute: write PAGE.NUMBER, such as 1.1 or 0x10.7"))?;
    Ok(AttributeName::new(page, within))
}

pub fn page(text: &str) -> Result<u32, String> {
    number(text).ok_or_else(|| format!("'{text}' is not a page: write a number, such as 1 or 0xf0000001"))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        // `from_str_radix` accepts a sign, which is not allowed here.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok().filter(|_| !text.starts_with('+')),
    }
}

impl FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Written, String> {
        if text == "-" {
            return Ok(Written::Input);
        }
        match text.split_once(':') {
            Some(("text", rest)) => Ok(Written::Bytes(rest.into())),
            Some(("int", rest)) => match rest.parse::<i64>() {
                Ok(number) => Ok(Written::Bytes(number.to_be_bytes().into())),
                Err(_) => Err(format!("'{rest}' is not a signed 64-bit number")),
            },
            Some(("hex", rest)) => bytes(rest).map(Written::Bytes).ok_or_else(|| {
                format!("'{rest}' does not consist of hexadecimal digits, two for each byte; to set this text, write text:{text}")
            }),
            Some(("file", rest)) => Ok(Written::File(rest.into())),
            _ => Ok(Written::Bytes(text.into())),
        }
    }
}

impl Written {
    pub fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match self {
            Written::Bytes(bytes) => Ok(Box::new(std::io::Cursor::new(bytes.clone()))),
            Written::Input => Ok(Box::new(std::io::stdin().lock())),
            Written::File(path) => {
                let opened = std::fs::File::open(path);
                Ok(Box::new(opened.map_err(|error| Failure::from(error).of(format!("can't read {}", path.display())))?))
            }
        }
    }

    /// The whole value of an attribute; of a longer one only so much that it is refused for its length.
    pub fn value(&self) -> Result<Value, Failure> {
        let most = braid_base::limits::ATTRIBUTE_BYTES_MAX as u64 + 1;
        let mut bytes = Vec::new();
        self.open()?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads up to `most` bytes; fewer only at the end of the input.
pub fn next_part(from: &mut dyn Read, most: usize) -> Result<Bytes, Failure> {
    let mut part = Vec::new();
    from.take(most as u64).read_to_end(&mut part)?;
    Ok(part.into())
}

/// Formats a value as text: as it could be written on the command line, or in the requested form.
pub fn text(value: &Value, wanted: Option<As>) -> Result<String, Failure> {
    let unfit = |what: &str| {
        let message = format!("the value has {} bytes, and is not a {what}", value.len());
        Err(Failure::failed("other-kind", message).hint("--as hex prints any value"))
    };
    match wanted {
        None => Ok(written(value)),
        Some(As::Hex) => Ok(digits(value)),
        Some(As::Text | As::Raw) => value.as_str().map_or_else(|| unfit("text"), |text| Ok(text.to_string())),
        Some(As::Int) => value.as_i64().map_or_else(|| unfit("number of 8"), |number| Ok(number.to_string())),
    }
}

pub fn to_json(value: &Value) -> serde_json::Value {
    json!({
        "length": value.len(),
        "hex": digits(value),
        "text": value.as_str(),
        "int": value.as_i64(),
    })
}

fn written(value: &Value) -> String {
    let shown = |text: &&str| text.chars().all(|c| !c.is_control());
    match (value.as_str().filter(shown), value.as_i64()) {
        (Some(text), _) if text.parse() == Ok(Written::Bytes(text.into())) => text.to_string(),
        (Some(text), _) => format!("text:{text}"),
        (None, Some(number)) => format!("int:{number}"),
        (None, None) => format!("hex:{}", digits(value)),
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(value(*pair.first()?)? << 4 | value(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_written_with_their_place() {
        let object = |text: &str| text.parse::<ObjectName>();
        assert_eq!(object("2:17"), Ok(ObjectName { place: ObjectSpace::Device(2), number: 17 }));
        assert_eq!(object("m-1:3").map(|object| object.place), Ok(ObjectSpace::AttributeVolume("m-1".into())));
        for wrong in ["2", "2:", ":2", "2:0", "2:-1", "70000:1", "a:b", ""] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn attributes_are_written_in_two_ways() {
        assert_eq!(attribute("1.2"), Ok(AttributeName::new(1, 2)));
        assert_eq!(attribute("0xf0000001.0x2"), Ok(AttributeName::OBJECT_LIFE));
        assert_eq!(name(AttributeName::OBJECT_LIFE), "0xf0000001.2");
        for wrong in ["1", "1.", ".1", "1.x", "0x.1", "0x+1.1", "+1.1", "4294967296.1", "1.1.1"] {
            assert!(attribute(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_shown_as_they_could_be_written() {
        for (written, shown) in [
            ("hello", "hello"),
            ("a:b", "a:b"),
            ("text:int:x", "text:int:x"),
            ("text:int:5", "text:int:5"),
            ("text:-", "text:-"),
            ("int:-42", "int:-42"),
            ("int:42", "int:42"),
            ("hex:00ff", "hex:00ff"),
            ("hex:", ""),
            ("text:12345678", "12345678"),
        ] {
            let value = written.parse::<Written>().expect(written).value().expect(written);
            assert_eq!(text(&value, None).expect(written), shown);
            assert_eq!(shown.parse::<Written>().expect(shown).value().expect(shown), value, "{written}");
        }
        for wrong in ["int:", "int:1.5", "int:9223372036854775808", "hex:0", "hex:0g", "hex:+1"] {
            assert!(wrong.parse::<Written>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_that_is_not_what_it_is_to_be_shown_as_is_not_shown() {
        let value = Value::from(&[0xff]);
        assert_eq!(text(&value, Some(As::Hex)).expect("it is bytes"), "ff");
        for wanted in [As::Int, As::Text] {
            assert_eq!(text(&value, Some(wanted)).map_err(|failure| failure.code), Err("other-kind".to_string()));
        }
    }
}
