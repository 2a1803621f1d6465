//! Values of attributes.

use bytes::Bytes;
use std::fmt;
use std::ops::Deref;

/// The value of an attribute: up to 64 KiB. The value of an undefined attribute has no bytes.
///
/// Numbers are eight bytes, big-endian, so that the order of their bytes is that of the numbers (negative ones excepted), and
/// [`Object::fetch_and_add`](crate::Object::fetch_and_add) accepts them.
///
/// ```
/// use braid_client::Value;
/// assert_eq!(Value::from(42).as_i64(), Some(42));
/// assert_eq!(Value::from("hello").as_str(), Some("hello"));
/// assert!(Value::undefined().is_undefined());
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

impl Value {
    /// The value of no bytes, which undefined attributes have. Setting an attribute to it makes the attribute undefined.
    pub const fn undefined() -> Value {
        Value(Bytes::new())
    }

    /// True if the value has no bytes.
    pub fn is_undefined(&self) -> bool {
        self.0.is_empty()
    }

    /// The value as a number; none if it has not eight bytes.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.as_ref().try_into().ok().map(i64::from_be_bytes)
    }

    /// The value as text; none if it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The bytes of the value.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_i64() {
            Some(number) if self.0[0] == 0 || self.0[0] == 0xff => write!(f, "Value({number})"),
            _ => write!(f, "Value({:?})", self.0),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value(Bytes::copy_from_slice(&number.to_be_bytes()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value(text.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Value {
        Value(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(bytes.into())
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Value {
        Value(bytes)
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Bytes {
        value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_eight_bytes_the_highest_first() {
        assert_eq!(&*Value::from(258), [0, 0, 0, 0, 0, 0, 1, 2]);
        for number in [0, 1, -1, i64::MIN, i64::MAX] {
            assert_eq!(Value::from(number).as_i64(), Some(number));
        }
        assert_eq!(Value::from("1234567").as_i64(), None);
        assert_eq!(Value::undefined().as_i64(), None);
        assert_eq!(Value::from(&[0xff, 0xfe]).as_str(), None);
    }
}
