//! `braid recipe list`: a linked list, from a shell.

use super::{In, bytes, id};
use crate::report;
use crate::values::{Written, text, to_json};
use braid_admin::failure::Failure;
use braid_admin::held::failure;
use braid_client::recipes::list::{Cursor, Inserted, List, ListPosition, Node, Removed};
use braid_client::{Object, Value};
use braid_terminal::output;
use serde_json::json;
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Insert an item, and print the number of its node
    Insert {
        #[command(flatten)]
        place: In,
        /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
        item: Written,
        /// Before the first greater item [default: at the beginning]
        #[arg(long, conflicts_with = "behind")]
        in_order: bool,
        /// Directly after this node
        #[arg(long, value_name = "NODE")]
        behind: Option<u64>,
    },
    /// Remove a node
    ///
    /// Ends with status 1 if it was not in the list.
    Remove {
        #[command(flatten)]
        place: In,
        /// The number of the node, as printed by `show` and `insert`
        node: u64,
    },
    /// Print the items in order, with their nodes
    Show(In),
}

/// Items per request.
const PART: usize = 256;

impl Command {
    /// The object that holds the list.
    pub fn place(&self) -> &In {
        match self {
            Command::Insert { place, .. } | Command::Remove { place, .. } | Command::Show(place) => place,
        }
    }

    /// Runs the command.
    pub async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let (space, list) = (object.space(), List::new(id(object)));
        match self {
            Command::Insert { item, in_order, behind, .. } => {
                let place = match behind {
                    Some(node) => ListPosition::Behind(Node(*node)),
                    None if *in_order => ListPosition::InOrder,
                    None => ListPosition::First,
                };
                match space.run(list.insert(place, bytes(item)?)).await?.map_err(failure)? {
                    Inserted::Inserted(Node(node)) => {
                        report::done(as_json, json!({"node": node}), || format!("{node}\n"))
                    }
                    Inserted::PlaceGone => Err(Failure::unreachable("no-such-node", "that node is not in the list")),
                }
            }
            Command::Remove { node, .. } => match space.run(list.remove(Node(*node), None)).await?.map_err(failure)? {
                Removed::Removed => report::done(as_json, json!({"removed": node}), String::new),
                Removed::Gone => Err(Failure::unreachable("no-such-node", "that node is not in the list")),
            },
            Command::Show(_) => {
                let (mut items, mut cursor) = (Vec::new(), Some(Cursor::default()));
                while let Some(from) = cursor {
                    let walked = space.run(list.walk(from, PART)).await?.map_err(failure)?;
                    items.extend(walked.items.into_iter().map(|(Node(node), item)| (node, Value::from(item))));
                    cursor = walked.more;
                }
                let rows = items.iter().map(|(node, item)| Ok(vec![node.to_string(), text(item, None)?]));
                let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
                let items = items.iter().map(|(node, item)| json!({"node": node, "item": to_json(item)}));
                report::done(as_json, json!({"items": items.collect::<Vec<_>>()}), || output::table(&rows))
            }
        }
    }
}
