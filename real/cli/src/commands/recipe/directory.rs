//! `braid recipe directory`: a directory, from a shell.

use super::{In, id};
use crate::report;
use braid_admin::failure::Failure;
use braid_admin::held::failure;
use braid_base::ObjectId;
use braid_client::Object;
use braid_client::recipes::directory::{Changed, Directory, Expected};
use braid_terminal::output;
use serde_json::json;
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Insert a name for an object
    ///
    /// Ends with status 1 if the name exists already.
    Insert {
        #[command(flatten)]
        place: In,
        /// The name: up to 255 bytes
        name: String,
        /// The number of its object
        target: u64,
    },
    /// Remove a name
    ///
    /// Ends with status 3 if the name does not exist.
    Remove {
        #[command(flatten)]
        place: In,
        /// The name
        name: String,
        /// Only if this is its object
        #[arg(long, value_name = "TARGET")]
        expect: Option<u64>,
    },
    /// Look up a name
    ///
    /// Ends with status 3 if the name does not exist.
    LookUp {
        #[command(flatten)]
        place: In,
        /// The name
        name: String,
    },
    /// Print all names and their objects
    Names(In),
}

/// Names per request.
const PART: u32 = 256;

impl Command {
    /// The object that holds the directory.
    pub fn place(&self) -> &In {
        match self {
            Command::Insert { place, .. }
            | Command::Remove { place, .. }
            | Command::LookUp { place, .. }
            | Command::Names(place) => place,
        }
    }

    /// Runs the command.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let (space, directory) = (object.space(), Directory::new(id(object)));
        let absent = |name: &str| Failure::unreachable("no-such-name", format!("there is no name '{name}'"));
        match self {
            Command::Insert { name, target, .. } => {
                let insert = directory.insert(name.clone().into(), ObjectId(*target));
                match space.run(insert).await?.map_err(failure)? {
                    Changed::Inserted => report::done(as_json, json!({"inserted": name}), String::new),
                    Changed::Exists(ObjectId(other)) => {
                        let message = format!("the name '{name}' exists, with object {other}");
                        Err(Failure::failed("name-exists", message))
                    }
                    Changed::Full => Err(Failure::failed("directory-full", "too many names have the same hash")),
                    other => unreachable!("an insertion does not end with {other:?}"),
                }
            }
            Command::Remove { name, expect, .. } => {
                let expected = expect.map_or(Expected::Anything, |target| Expected::Object(ObjectId(target)));
                match space.run(directory.remove(name.clone().into(), expected)).await?.map_err(failure)? {
                    Changed::Removed(ObjectId(target)) => {
                        report::done(as_json, json!({"removed": name, "target": target}), String::new)
                    }
                    Changed::Absent => Err(absent(name)),
                    Changed::Other(ObjectId(other)) => {
                        Err(Failure::failed("other-target", format!("the name '{name}' has object {other}")))
                    }
                    other => unreachable!("a removal does not end with {other:?}"),
                }
            }
            Command::LookUp { name, .. } => {
                let entry = space.run(directory.look_up(name.clone().into())).await?.map_err(failure)?;
                let ObjectId(target) = entry.ok_or_else(|| absent(name))?.object;
                report::done(as_json, json!({"target": target}), || format!("{target}\n"))
            }
            Command::Names(_) => {
                let (mut names, mut after) = (Vec::new(), None);
                loop {
                    let page = space.run(directory.names(after, PART)).await?.map_err(failure)?;
                    let readable = |(name, ObjectId(target)): (_, ObjectId)| {
                        let name: braid_client::Bytes = name;
                        (String::from_utf8_lossy(&name).into_owned(), target)
                    };
                    names.extend(page.names.into_iter().map(readable));
                    after = page.more;
                    if after.is_none() {
                        break;
                    }
                }
                names.sort();
                let all = names.iter().map(|(name, target)| json!({"name": name, "target": target}));
                report::done(as_json, json!({"names": all.collect::<Vec<_>>()}), || {
                    let rows = names.iter().map(|(name, target)| vec![name.clone(), target.to_string()]);
                    output::table(&rows.collect::<Vec<_>>())
                })
            }
        }
    }
}
