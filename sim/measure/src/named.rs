//! Parameters that are read from a file and set by name as KEY=VALUE, where KEY is SECTION.NAME.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::RangeInclusive;
use toml::{Table, Value};

/// The values that a number may have.
pub type Limits = RangeInclusive<f64>;

/// Declares parameters: all of a run (`parameters`) in their sections (`section`), and the words that some of them may be (`words`). Each
/// number has its limits, as `name: type => limits`.
macro_rules! parameters {
    () => {};
    ($(#[$about:meta])* parameters $parameters:ident { $($(#[$what:meta])* $name:ident: $section:ty,)* } $($rest:tt)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $parameters { $($(#[$what])* pub $name: $section,)* }

        impl $crate::named::Sections for $parameters {
            fn limits_in(section: &str) -> &'static [(&'static str, $crate::named::Limits)] {
                match section {
                    $(stringify!($name) => <$section>::LIMITS,)*
                    _ => &[],
                }
            }
        }
        parameters! { $($rest)* }
    };
    ($(#[$about:meta])* section $section:ident {
        $($(#[$what:meta])* $name:ident: $type:ty $(=> $limits:expr)?,)*
    } $($rest:tt)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $section { $($(#[$what])* pub $name: $type,)* }

        impl $section {
            pub(crate) const LIMITS: &[(&str, $crate::named::Limits)] =
                &[$($((stringify!($name), $limits),)?)*];
        }
        parameters! { $($rest)* }
    };
    ($(#[$about:meta])* words $words:ident { $($(#[$what:meta])* $word:ident,)* } $($rest:tt)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        $(#[$about])*
        pub enum $words { $($(#[$what])* $word,)* }
        parameters! { $($rest)* }
    };
}

pub(crate) use parameters;

/// Parameters in sections.
pub trait Sections {
    /// The limits of each number in a section.
    fn limits_in(section: &str) -> &'static [(&'static str, Limits)];

    /// The limits of the number with this name; none for a word.
    fn limits_of(&self, key: &str) -> Option<&'static Limits> {
        let (section, name) = key.split_once('.')?;
        Self::limits_in(section).iter().find(|(own, _)| *own == name).map(|(_, limits)| limits)
    }
}

/// Parameters that have names. Every number has limits.
pub trait Named: Sections + Clone + Serialize + DeserializeOwned {
    /// Rejects values that are incompatible with each other.
    fn check_together(&self) -> Result<(), ParameterError>;

    /// Parses the text of a file. It must contain every parameter, and nothing else.
    fn parse(text: &str) -> Result<Self, ParameterError> {
        let table: Table = text.parse().map_err(|error| ParameterError::Unreadable(format!("{error}")))?;
        checked(table)
    }

    /// The same parameters with one of them changed: `assignment` is KEY=VALUE.
    fn set(&self, assignment: &str) -> Result<Self, ParameterError> {
        let not = || ParameterError::NotAnAssignment { text: assignment.to_string() };
        let (key, text) = assignment.split_once('=').ok_or_else(not)?;
        let (key, text) = (key.trim(), text.trim());
        let mut table = table_of(self);
        let known = lookup(&mut table, key);
        let Some(place) = known else {
            let names = self.list().into_iter().map(|(name, _)| name).collect();
            return Err(ParameterError::Unknown { key: key.to_string(), names });
        };
        let bounds = || bounds(self, key);
        let wrong = |allowed: String| ParameterError::Value { key: key.to_string(), value: text.to_string(), allowed };
        *place = match place {
            Value::Integer(_) => {
                let number = text.parse().ok().filter(|number: &i64| *number >= 0);
                Value::Integer(number.ok_or_else(|| wrong(format!("choose a whole number {}", bounds())))?)
            }
            Value::Float(_) => {
                let number = text.parse().ok().filter(|number: &f64| number.is_finite());
                Value::Float(number.ok_or_else(|| wrong(format!("choose a number {}", bounds())))?)
            }
            _ => Value::String(text.to_string()),
        };
        // Words are checked by their types, whose error messages list all choices.
        let choice = matches!(place, Value::String(_));
        checked(table).map_err(|error| match error {
            ParameterError::Unreadable(message) if choice => {
                wrong(message.split('\n').next().unwrap_or_default().to_string())
            }
            error => error,
        })
    }

    /// Names and values, in the order of the files.
    fn list(&self) -> Vec<(String, String)> {
        let mut list = Vec::new();
        for (section, values) in table_of(self) {
            let Value::Table(values) = values else { unreachable!("all sections are tables") };
            for (name, value) in values {
                let text = if let Value::String(text) = value { text } else { value.to_string() };
                list.push((format!("{section}.{name}"), text));
            }
        }
        list
    }
}

/// An error in parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// Unknown name.
    #[error("there is no parameter '{key}'; choose one of {}", names.join(", "))]
    Unknown { key: String, names: Vec<String> },
    /// The text does not have the form KEY=VALUE.
    #[error("'{text}' is not an assignment; write KEY=VALUE, such as system.hosts=32")]
    NotAnAssignment { text: String },
    /// The value is not allowed.
    #[error("{key} can't be {value}: {allowed}")]
    Value { key: String, value: String, allowed: String },
    /// The file can't be parsed.
    #[error("the parameters can't be read: {0}")]
    Unreadable(String),
    /// Two values are incompatible.
    #[error("{0}")]
    Together(String),
}

fn checked<P: Named>(table: Table) -> Result<P, ParameterError> {
    let text = |error: toml::de::Error| ParameterError::Unreadable(error.message().to_string());
    let parameters: P = table.try_into().map_err(text)?;
    for (section, values) in table_of(&parameters) {
        for (name, value) in values.as_table().expect("all sections are tables") {
            let number = value.as_integer().map(|number| number as f64).or(value.as_float());
            let Some(value) = number else { continue };
            let key = format!("{section}.{name}");
            let limits = parameters.limits_of(&key).expect("every number has limits");
            if !limits.contains(&value) {
                let allowed = format!("choose a number {}", bounds(&parameters, &key));
                return Err(ParameterError::Value { key, value: value.to_string(), allowed });
            }
        }
    }
    parameters.check_together()?;
    Ok(parameters)
}

fn table_of(parameters: &impl Serialize) -> Table {
    Table::try_from(parameters).expect("parameters are tables of numbers and words")
}

fn lookup<'t>(table: &'t mut Table, key: &str) -> Option<&'t mut Value> {
    let (section, name) = key.split_once('.')?;
    table.get_mut(section)?.as_table_mut()?.get_mut(name)
}

fn bounds(parameters: &impl Sections, key: &str) -> String {
    let limits = parameters.limits_of(key).expect("every number has limits");
    format!("from {} to {}", limits.start(), limits.end())
}
