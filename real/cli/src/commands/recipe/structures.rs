//! `braid recipe list`, `queue`, `directory` and `fence`: structures that many processes change, from a shell.

use super::hold::{ITSELF, status_of_signal};
use super::{In, OnObject, attribute_of_user, bytes, lease};
use crate::report;
use crate::values::{Written, text, to_json};
use braid_admin::held::consumer::{Consumed, Consumer};
use braid_admin::held::failure;
use braid_admin::held::running::HeldCommand;
use braid_admin::{Exit, Failure};
use braid_base::ObjectId;
use braid_client::recipes::directory::{Changed, Directory, Expected};
use braid_client::recipes::fencing_token::{Fence, RaiseError};
use braid_client::recipes::list::{Cursor, Inserted, List, ListPosition, Node, Removed};
use braid_client::recipes::queue::{Queue, STATES_PAGE};
use braid_client::{AttributeName, Object, Value};
use braid_terminal::arguments::span;
use braid_terminal::{Signals, output};
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Subcommand)]
pub enum ListCommand {
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
const ITEMS: usize = 256;

impl OnObject for ListCommand {
    fn place(&self) -> &In {
        match self {
            ListCommand::Insert { place, .. } | ListCommand::Remove { place, .. } | ListCommand::Show(place) => place,
        }
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let (space, list) = (object.space(), List::new(object.id()));
        match self {
            ListCommand::Insert { item, in_order, behind, .. } => {
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
            ListCommand::Remove { node, .. } => {
                match space.run(list.remove(Node(*node), None)).await?.map_err(failure)? {
                    Removed::Removed => report::done(as_json, json!({"removed": node}), String::new),
                    Removed::Gone => Err(Failure::unreachable("no-such-node", "that node is not in the list")),
                }
            }
            ListCommand::Show(_) => {
                let (mut items, mut cursor) = (Vec::new(), Some(Cursor::default()));
                while let Some(from) = cursor {
                    let walked = space.run(list.walk(from, ITEMS)).await?.map_err(failure)?;
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

#[derive(clap::Subcommand)]
pub enum QueueCommand {
    /// Put an item into the queue, and print its number
    Put {
        #[command(flatten)]
        place: In,
        /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
        item: Written,
    },
    /// Take items one after the other, and run a command for each
    ///
    /// The item is the command's standard input, its number is in BRAID_ITEM, and the number of claims so far in BRAID_TOKEN. If the
    /// command ends with status 0, the item is finished; otherwise it is returned to the queue. While the command runs, the claim is
    /// renewed. If this fails, the command is ended before others can claim the item. If this program is killed, the command is killed,
    /// too, and others claim the item after the lease.
    #[command(after_long_help = STATUS)]
    Work(Work),
    /// Print the number of items
    Count(In),
}

#[derive(clap::Args)]
pub struct Work {
    #[command(flatten)]
    place: In,
    /// The lease, such as 30s, at least 500ms, the same for all consumers: a consumer that is silent for longer loses its item
    #[arg(long, value_name = "SPAN", value_parser = lease, default_value = "30s")]
    lease: Duration,
    /// The number of items to work on [default: until no item comes for --patience]
    #[arg(long, value_name = "COUNT")]
    items: Option<u64>,
    /// How long to wait for an item
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1m")]
    patience: Duration,
    /// The command to run for each item, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

const STATUS: &str = "\
Exit status: 0 if all items were finished, 1 if some were returned or lost to others; 2 or 3, with an error message, if the queue
can't be used. When this program is asked to end (Ctrl-C, SIGTERM), it ends the command, returns the item, and ends with 130 or 143.";

impl OnObject for QueueCommand {
    fn place(&self) -> &In {
        match self {
            QueueCommand::Put { place, .. } | QueueCommand::Work(Work { place, .. }) | QueueCommand::Count(place) => {
                place
            }
        }
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            QueueCommand::Put { item, .. } => {
                let queue = Queue::new(object.id(), Duration::ZERO);
                let item = object.space().run(queue.put(bytes(item)?)).await?.map_err(failure)?.0;
                report::done(as_json, json!({"item": item}), || format!("{item}\n"))
            }
            QueueCommand::Work(work) => work.work(object, as_json).await,
            QueueCommand::Count(_) => {
                let count = object.attributes(Some(STATES_PAGE)).await?.len();
                report::done(as_json, json!({"items": count}), || format!("{count}\n"))
            }
        }
    }
}

impl Work {
    async fn work(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let Work { lease, items, patience, ref command, .. } = *self;
        let command = HeldCommand { words: command, itself: ITSELF };
        let consumer = Consumer { queue: Queue::new(object.id(), lease), items, patience, command };
        let mut signals = Signals::catch()?;
        let Consumed { finished, returned, lost, asked } =
            consumer.work(object, &mut async || signals.which().await).await?;
        report::print(as_json, json!({"finished": finished, "given_back": returned, "lost": lost}), || {
            format!("{finished} finished, {returned} returned, {lost} lost to others\n")
        });
        Ok(match asked {
            Some(signal) => status_of_signal(signal),
            None if returned + lost == 0 => ExitCode::SUCCESS,
            None => ExitCode::FAILURE,
        })
    }
}

#[derive(clap::Subcommand)]
pub enum DirectoryCommand {
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
const NAMES: u32 = 256;

impl OnObject for DirectoryCommand {
    fn place(&self) -> &In {
        match self {
            DirectoryCommand::Insert { place, .. }
            | DirectoryCommand::Remove { place, .. }
            | DirectoryCommand::LookUp { place, .. }
            | DirectoryCommand::Names(place) => place,
        }
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let (space, directory) = (object.space(), Directory::new(object.id()));
        let absent = |name: &str| Failure::unreachable("no-such-name", format!("there is no name '{name}'"));
        match self {
            DirectoryCommand::Insert { name, target, .. } => {
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
            DirectoryCommand::Remove { name, expect, .. } => {
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
            DirectoryCommand::LookUp { name, .. } => {
                let entry = space.run(directory.look_up(name.clone().into())).await?.map_err(failure)?;
                let ObjectId(target) = entry.ok_or_else(|| absent(name))?.object;
                report::done(as_json, json!({"target": target}), || format!("{target}\n"))
            }
            DirectoryCommand::Names(_) => {
                let (mut names, mut after) = (Vec::new(), None);
                loop {
                    let page = space.run(directory.names(after, NAMES)).await?.map_err(failure)?;
                    let named = page.names.iter();
                    names.extend(named.map(|(name, target)| (String::from_utf8_lossy(name).into_owned(), target.0)));
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

#[derive(clap::Subcommand)]
pub enum FenceCommand {
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

impl OnObject for FenceCommand {
    fn place(&self) -> &In {
        let FenceCommand::Raise { place, .. } = self;
        place
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        let FenceCommand::Raise { attribute, token, .. } = self;
        let fence = Fence { object: object.id(), name: *attribute, token: *token };
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
