//! `braid attr`: attributes of objects, and atomic operations on them.

use crate::commands::object::{Guarding, Trying};
use crate::report;
use crate::values::{As, ObjectName, Written, attribute, name, page, text, to_json};
use braid_admin::Failure;
use braid_admin::object_operations::{self, Listed};
use braid_client::{AttributeName, Error as ClientError, Object, RequestError, Value};
use braid_terminal::arguments::span;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Get, set and change attributes of objects atomically, and wait for them to change
///
/// The object lies on a device, such as 2:17 (`braid object create`), or on an attribute volume, such as locks:17. An attribute volume
/// stores attributes on several devices (`braid volume create locks --attributes --size 64MiB --layout raid1:2 --unit 128KiB`); all its
/// objects exist from the beginning.
///
/// An attribute is named PAGE.NUMBER, such as 1.1 or 0x10.7, and has a value of up to 64 KiB. An attribute without a value is undefined.
/// Pages from 0xf0000000 on belong to the device: 0xf0000001.1 is the object's length, 0xf0000001.2 its incarnation, a number that no
/// other object of the device has or had.
///
/// A VALUE is text, except in these forms: `int:N` is a number in eight bytes, `hex:DIGITS` gives bytes in hexadecimal, `file:PATH` is the
/// content of that file, and `-` is standard input. After `text:` all the rest is text. Values are printed in the same syntax, unless --as
/// is given.
#[derive(clap::Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub enum Command {
    /// Print the value of an attribute
    ///
    /// Ends with status 3 if it is undefined.
    Get {
        #[command(flatten)]
        attribute: AttributeArgs,
        #[command(flatten)]
        showing: Showing,
        #[command(flatten)]
        trying: Trying,
    },
    /// Set an attribute to a value
    Set {
        #[command(flatten)]
        attribute: AttributeArgs,
        /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
        value: Written,
        #[command(flatten)]
        guarding: Guarding,
        #[command(flatten)]
        trying: Trying,
    },
    /// Make an attribute undefined
    Delete {
        #[command(flatten)]
        attribute: AttributeArgs,
        #[command(flatten)]
        trying: Trying,
    },
    /// List the attributes of an object that have values
    List(List),
    /// Compare and swap: set an attribute to a value if it has an expected value
    ///
    /// Prints the original value; nothing if it was undefined. Ends with status 1 if it was not the expected value; then nothing was changed. Unless --exact is given, an
    /// undefined attribute is equal to every value, so that it need not be set first. Attributes given with --set are set in the same
    /// atomic operation, and only if the swap succeeds.
    Cas {
        #[command(flatten)]
        attribute: AttributeArgs,
        /// The expected value: text, int:N, hex:DIGITS, file:PATH; '' for undefined
        compare: Written,
        /// The new value; '' for undefined
        swap: Written,
        /// An undefined attribute is equal only to ''
        #[arg(long)]
        exact: bool,
        /// Also set this attribute of the object if the swap succeeds; may be repeated
        #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = assignment)]
        set: Vec<(AttributeName, Written)>,
        #[command(flatten)]
        showing: Showing,
        #[command(flatten)]
        trying: Trying,
    },
    /// Fetch and add: add to a number of eight bytes, and print the original value
    ///
    /// Prints digits alone: 6, where `braid attr get` prints int:6. An undefined attribute counts as zero. The addition is executed exactly once, even if messages are lost and resent.
    Add {
        #[command(flatten)]
        attribute: AttributeArgs,
        /// The number to add; may be negative
        #[arg(allow_negative_numbers = true, default_value_t = 1)]
        add: i64,
        #[command(flatten)]
        trying: Trying,
    },
    /// Wait until an attribute has another value, and print it
    ///
    /// Ends with status 1 if the value does not change within the time limit. Ends with status 3 if the device was silent at the end, so that
    /// the outcome is unknown.
    Wait {
        #[command(flatten)]
        attribute: AttributeArgs,
        /// The known value [default: the current one]
        #[arg(long, value_name = "VALUE")]
        seen: Option<Written>,
        /// How long to wait, such as 90s or 5m; 0s: check once
        #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30s")]
        timeout: Duration,
        #[command(flatten)]
        showing: Showing,
    },
}

const EXAMPLES: &str = "\
Examples:
  braid attr set 2:1 1.1 hello
  braid attr get 2:1 1.1
  braid attr add 2:1 1.2 5                   prints 0; then 1.2 is 5
  braid attr cas 2:1 1.3 '' me --exact       take a free lock
  braid attr cas 2:1 1.3 me ''               release it
  braid attr cas 2:1 1.4 red green --set 1.5=why --set 1.6=int:7      all three, or none
  braid attr set 2:11 5.1 done --guard 2.1=$BRAID_TOKEN               in a command that `braid recipe lock run 2:11 1.1` runs
  braid attr wait 2:1 1.2 --seen int:5 --timeout 1m
  braid attr list 2:1 --page 1
  braid attr cas locks:7 1.1 '' me --exact   the same on an attribute volume, which survives a device failure

Exit status: 1 if `cas` did not swap, or the value did not change during `wait`; 3 if object, attribute or device does not exist;
5 if the attribute of a --guard holds another token: then nothing was done.";

/// An attribute of an object.
#[derive(clap::Args)]
pub struct AttributeArgs {
    /// The object: DEVICE:NUMBER or VOLUME:NUMBER
    object: ObjectName,
    /// The attribute: PAGE.NUMBER
    #[arg(value_name = "ATTRIBUTE", value_parser = attribute)]
    name: AttributeName,
}

/// How to print values.
#[derive(clap::Args)]
pub struct Showing {
    /// The form of output [default: the syntax of VALUE]
    #[arg(long = "as", value_name = "KIND")]
    shown: Option<As>,
}

#[derive(clap::Args)]
pub struct List {
    /// The object: DEVICE:NUMBER or VOLUME:NUMBER
    object: ObjectName,
    /// Only attributes of this page
    #[arg(long, value_parser = page)]
    page: Option<u32>,
    /// Only attributes after this one
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute)]
    after: Option<AttributeName>,
    /// The maximal number of attributes
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    #[command(flatten)]
    trying: Trying,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let waiting = Trying { timeout: Duration::from_secs(30) };
    let (trying, object, attribute) = match &command {
        Command::Get { attribute, trying, .. }
        | Command::Set { attribute, trying, .. }
        | Command::Delete { attribute, trying }
        | Command::Cas { attribute, trying, .. }
        | Command::Add { attribute, trying, .. } => (trying, &attribute.object, Some(attribute.name)),
        Command::Wait { attribute, .. } => (&waiting, &attribute.object, Some(attribute.name)),
        Command::List(List { object, trying, .. }) => (trying, object, None),
    };
    let what = match attribute {
        Some(attribute) => format!("{object} {}", name(attribute)),
        None => object.to_string(),
    };
    let array = trying.connect("attr", common).await?;
    let outcome = async {
        let object = object.find(&array, common).await?;
        execute(&command, &object, common.json).await
    };
    let outcome = outcome.await.map_err(|failure| failure.of(what));
    array.close().await;
    outcome
}

async fn execute(command: &Command, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
    match command {
        Command::Get { attribute, showing, .. } => {
            let value = object.get(attribute.name).await?;
            if value.is_undefined() {
                return Err(Failure::unreachable("undefined", "the attribute is undefined"));
            }
            showing.print(&value, as_json, json!({"value": to_json(&value)}))?;
        }
        Command::Set { attribute, value, guarding, .. } => {
            let value = value.value()?;
            object_operations::set(object, guarding.guard, attribute.name, &value).await?;
            report::print(as_json, json!({"value": to_json(&value)}), String::new);
        }
        Command::Delete { attribute, .. } => {
            object.delete(attribute.name).await?;
            report::print(as_json, json!({"deleted": name(attribute.name)}), String::new);
        }
        Command::List(arguments) => list(arguments, object, as_json).await?,
        Command::Cas { attribute, compare, swap, exact, set, showing, .. } => {
            let (compare, swap) = (compare.value()?, swap.value()?);
            let mut request = match exact {
                true => object.request().compare_and_swap_exact(attribute.name, compare, swap),
                false => object.request().compare_and_swap(attribute.name, compare, swap),
            };
            for (name, value) in set {
                request = request.set(*name, value.value()?).if_swapped();
            }
            let answers = request.send().await.map_err(|RequestError { error, .. }| error)?;
            let swapped = answers.swapped(0).ok_or(ClientError::ProtocolError)?;
            let json = json!({"swapped": swapped.swapped, "original": to_json(&swapped.original)});
            showing.print(&swapped.original, as_json, json)?;
            return Ok(if swapped.swapped { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Add { attribute, add, .. } => {
            let original = object.fetch_and_add(attribute.name, *add).await?;
            report::print(as_json, json!({"original": original}), || format!("{original}\n"));
        }
        Command::Wait { attribute, seen, timeout, showing } => {
            let seen = seen.as_ref().map(Written::value).transpose()?;
            let Some(value) = object_operations::wait_for_change(object, attribute.name, seen, *timeout).await? else {
                return Err(Failure::failed("unchanged", format!("the value did not change within {timeout:?}")));
            };
            showing.print(&value, as_json, json!({"value": to_json(&value)}))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Showing {
    fn print(&self, value: &Value, as_json: bool, json: serde_json::Value) -> Result<(), Failure> {
        if self.shown == Some(As::Raw) && !as_json {
            output::write(value);
            return Ok(());
        }
        // With JSON, the value need not be valid in the requested form.
        let text = if as_json { String::new() } else { text(value, self.shown)? };
        // An undefined value takes no line: programs that read the output see the same as for an empty one.
        report::print(as_json, json, || if value.is_undefined() { String::new() } else { format!("{text}\n") });
        Ok(())
    }
}

async fn list(arguments: &List, object: &Object, as_json: bool) -> Result<(), Failure> {
    let List { page, after, limit, .. } = arguments;
    let Listed { found: all, more } = object_operations::attributes(object, *page, *after, *limit).await?;
    let attributes = all.iter().map(|(attribute, length)| json!({"name": name(*attribute), "length": length}));
    report::print(as_json, json!({"attributes": attributes.collect::<Vec<_>>(), "more": more}), || {
        let rows = all.iter().map(|(attribute, length)| vec![name(*attribute), format!("{length} bytes")]);
        output::table(&rows.collect::<Vec<_>>())
    });
    Ok(())
}

fn assignment(text: &str) -> Result<(AttributeName, Written), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not an assignment: write ATTRIBUTE=VALUE, such as 1.2=int:5"))?;
    Ok((attribute(name)?, value.parse()?))
}
