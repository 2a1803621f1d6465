//! `braid recipe fence`: fences that refuse late requests of former holders.

use super::{In, attribute_of_user, id};
use crate::report;
use braid_admin::failure::{Exit, Failure};
use braid_admin::held::failure;
use braid_client::recipes::fencing_token::{Fence, RaiseError};
use braid_client::{AttributeName, Object};
use serde_json::json;
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Store a fencing token in an attribute, unless a higher one is stored
    ///
    /// The holder of a lock, a turn or the lead does this in each other object before it reads or writes there. From then on, requests
    /// that are guarded by a lower token are refused (`--guard` of `braid object` and `braid attr`). Ends with status 5 if a higher token
    /// is stored.
    Raise {
        #[command(flatten)]
        place: In,
        /// The attribute: PAGE.NUMBER
        #[arg(value_parser = attribute_of_user)]
        attribute: AttributeName,
        /// The token, such as $BRAID_TOKEN
        token: u64,
    },
}

impl Command {
    /// The object that holds the fence.
    pub fn place(&self) -> &In {
        let Command::Raise { place, .. } = self;
        place
    }

    /// Runs the command.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let Command::Raise { attribute, token, .. } = self;
        let fence = Fence { object: id(object), name: *attribute, token: *token };
        object.space().run(fence.raise()).await?.map_err(|error| match error {
            RaiseError::RequestFailure(inner) => failure(inner),
            RaiseError::TooLate { .. } => {
                Failure { exit: Exit::TooLate, ..Failure::failed("too-late", error.to_string()) }
            }
            RaiseError::NoFence => Failure::usage("not-a-fence", error.to_string()),
        })?;
        report::done(as_json, json!({"token": token}), String::new)
    }
}
