//! `--guard`: requests that are executed only while an attribute holds a fencing token.

use crate::values::attribute;
use braid_admin::object_operations::TokenGuard;

/// The option of guarded requests.
#[derive(clap::Args)]
pub struct Guarding {
    /// Execute the request only if this attribute of the same object holds this fencing token: 2.1=17. Otherwise the status is 5
    #[arg(long, value_name = "ATTRIBUTE=TOKEN", value_parser = guard)]
    pub guard: Option<TokenGuard>,
}

/// Parses a guard.
fn guard(text: &str) -> Result<TokenGuard, String> {
    let wrong = || format!("'{text}' is not a guard: write ATTRIBUTE=TOKEN, such as 2.1=17");
    let (name, token) = text.split_once('=').ok_or_else(wrong)?;
    // The syntax of values is accepted, too.
    let token = token.strip_prefix("int:").unwrap_or(token);
    Ok(TokenGuard { name: attribute(name)?, token: token.parse().map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_client::AttributeName;

    #[test]
    fn a_guard_is_an_attribute_and_a_token() {
        let name = AttributeName::new(2, 1);
        assert_eq!(guard("2.1=17"), Ok(TokenGuard { name, token: 17 }));
        assert_eq!(guard("2.1=int:17"), Ok(TokenGuard { name, token: 17 }));
        for wrong in ["2.1", "2.1=", "2=17", "2.1=-1", "2.1=x"] {
            assert!(guard(wrong).is_err(), "{wrong}");
        }
    }
}
