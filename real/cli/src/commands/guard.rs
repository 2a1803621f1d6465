//! `--guard`: requests that are done only while a token is in an attribute.

use crate::values::{attribute, name};
use braid_admin::failure::{Exit, Failure};
use braid_client::{Answers, AttributeName, Object, Request, RequestError, Value};

/// A token, and the attribute that must hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    name: AttributeName,
    token: u64,
}

/// What a request may be guarded by.
#[derive(clap::Args)]
pub struct Guarding {
    /// Only if this attribute of the same object holds this fencing token: 2.1=17. Else nothing is done, and the status is 5
    #[arg(long, value_name = "ATTRIBUTE=TOKEN", value_parser = guard)]
    guard: Option<Guard>,
}

impl Guarding {
    /// Whether there is a guard.
    pub fn any(&self) -> bool {
        self.guard.is_some()
    }

    /// Has a request done of one command, if the guard lets it. Its answer is [`Done::command`] of the answers.
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
        let Some(Guard { name: attribute, token }) = self.guard else { unreachable!("it is guarded") };
        let holds = match found.as_i64() {
            Some(other) => format!("{}", other as u64),
            None if found.is_undefined() => "no token: nobody holds it".to_string(),
            None => "something else than a token".to_string(),
        };
        let message = format!("too late, nothing was done: attribute {} holds {holds}, not {token}", name(attribute));
        Failure { exit: Exit::TooLate, ..Failure::failed("too-late", message) }
    }
}

/// What a guarded request brought.
pub struct Done {
    /// All answers.
    pub answers: Answers,
    /// Which is the command's own.
    pub command: usize,
}

/// It was one command that was asked for: it needs no number.
fn of(RequestError { error, .. }: RequestError) -> Failure {
    error.into()
}

/// Reads a guard.
fn guard(text: &str) -> Result<Guard, String> {
    let wrong = || format!("'{text}' is no guard: write ATTRIBUTE=TOKEN, such as 2.1=17");
    let (name, token) = text.split_once('=').ok_or_else(wrong)?;
    // As values are written, too.
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
