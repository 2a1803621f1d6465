//! `--guard`: requests that are executed only while an attribute holds a fencing token.

use crate::values::{attribute, name};
use braid_admin::failure::{Exit, Failure};
use braid_client::{Answers, AttributeName, Object, Request, RequestError, Value};

/// A token, and the attribute that must hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    name: AttributeName,
    token: u64,
}

/// The option of guarded requests.
#[derive(clap::Args)]
pub struct Guarding {
    /// Execute the request only if this attribute of the same object holds this fencing token: 2.1=17. Otherwise the status is 5
    #[arg(long, value_name = "ATTRIBUTE=TOKEN", value_parser = guard)]
    guard: Option<Guard>,
}

impl Guarding {
    /// True if a guard is given.
    pub fn any(&self) -> bool {
        self.guard.is_some()
    }

    /// Sends a request with one command, and the guard if there is one. The answer of the command is at [`Done::command`].
    pub async fn send(&self, object: &Object, command: impl FnOnce(Request) -> Request) -> Result<Done, Failure> {
        let Some(Guard { name, token }) = self.guard else {
            return Ok(Done { answers: command(object.request()).send().await.map_err(of)?, command: 0 });
        };
        let value = Value::from(token as i64);
        let request = object.request().compare_and_swap_exact(name, value.clone(), value);
        let answers = command(request).if_swapped().send().await.map_err(of)?;
        match answers.swapped(0) {
            Some(found) if !found.swapped => Err(self.too_late(&found.original)),
            _ => Ok(Done { answers, command: 1 }),
        }
    }

    fn too_late(&self, found: &Value) -> Failure {
        let Some(Guard { name: attribute, token }) = self.guard else { unreachable!("there is a guard") };
        let holds = match found.as_i64() {
            Some(other) => format!("{}", other as u64),
            None if found.is_undefined() => "no token: it is not held".to_string(),
            None => "a value that is not a token".to_string(),
        };
        let message = format!("too late, nothing was done: attribute {} holds {holds}, not {token}", name(attribute));
        Failure { exit: Exit::TooLate, ..Failure::failed("too-late", message) }
    }
}

/// The result of a guarded request.
pub struct Done {
    /// All answers.
    pub answers: Answers,
    /// The index of the command's answer.
    pub command: usize,
}

/// The error without the number of the command, because there is only one.
fn of(RequestError { error, .. }: RequestError) -> Failure {
    error.into()
}

/// Parses a guard.
fn guard(text: &str) -> Result<Guard, String> {
    let wrong = || format!("'{text}' is not a guard: write ATTRIBUTE=TOKEN, such as 2.1=17");
    let (name, token) = text.split_once('=').ok_or_else(wrong)?;
    // The syntax of values is accepted, too.
    let token = token.strip_prefix("int:").unwrap_or(token);
    Ok(Guard { name: attribute(name)?, token: token.parse().map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_an_attribute_and_a_token() {
        let name = AttributeName::new(2, 1);
        assert_eq!(guard("2.1=17"), Ok(Guard { name, token: 17 }));
        assert_eq!(guard("2.1=int:17"), Ok(Guard { name, token: 17 }));
        for wrong in ["2.1", "2.1=", "2=17", "2.1=-1", "2.1=x"] {
            assert!(guard(wrong).is_err(), "{wrong}");
        }
    }
}
