//! Parameters that are read from a file and set by name as KEY=VALUE, where KEY is SECTION.NAME.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Parameters in sections. Every number has limits.
pub trait Named: Clone + Serialize + DeserializeOwned {
    /// The limits of each number: the first that covers it.
    const LIMITS: &'static [&'static [Limit]];

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
        let bounds = || bounds::<Self>(key);
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

/// The limits of some numbers.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// SECTION.NAME, or *.NAME for the numbers of any section.
    pub keys: &'static [&'static str],
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

/// The limits of the number with this name; none for a word.
pub fn limit_of<P: Named>(key: &str) -> Option<&'static Limit> {
    P::LIMITS.iter().copied().flatten().find(|limit| limit.covers(key))
}

impl Limit {
    fn covers(&self, key: &str) -> bool {
        let (_, name) = key.split_once('.').unwrap_or_default();
        self.keys.iter().any(|own| *own == key || own.strip_prefix("*.") == Some(name))
    }
}

pub const fn limit(keys: &'static [&'static str], least: f64, most: f64) -> Limit {
    Limit { keys, least, most }
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
            let limit = limit_of::<P>(&key).expect("every number has limits");
            if !(limit.least..=limit.most).contains(&value) {
                let allowed = format!("choose a number {}", bounds::<P>(&key));
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

fn bounds<P: Named>(key: &str) -> String {
    let limit = limit_of::<P>(key).expect("every number has limits");
    format!("from {} to {}", limit.least, limit.most)
}
