//! `braid attr`: attributes of objects, and what is done to them atomically.

use crate::commands::guard::Guarding;
use crate::commands::object::Trying;
use crate::values::{As, ObjectName, Written, attribute, name, page, text, to_json};
use braid_admin::failure::Failure;
use braid_client::{AttributeName, Error as ClientError, Object, RequestError, Value};
use braid_terminal::Common;
use braid_terminal::arguments::span;
use braid_terminal::output;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Get, set and change attributes of objects atomically, and wait for them to change
///
/// The object is one on a device, such as 2:17 (`braid object create`), or one on an attribute volume, such as locks:17: an attribute volume is a volume of its own that
/// keeps attributes on several devices (`braid volume create locks --attributes --size 64MiB --layout raid1:2 --unit 128KiB`), and all its objects are there.
///
/// An attribute is named PAGE.NUMBER, such as 1.1 or 0x10.7, and has a value of up to 64 KiB. One that has none is undefined. Pages from
/// 0xf0000000 on belong to the device: 0xf0000001.1 is the object's length, 0xf0000001.2 its number among all that the device ever had.
///
/// A VALUE is text, unless it begins with `int:` (a number, in eight bytes), `hex:`, `file:` (what is in that file), or is `-` (standard
/// input). `text:` in front keeps a text that begins like one of these. Values are printed in the same way, unless --as says how.
#[derive(clap::Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub enum Command {
    /// Print the value of an attribute
    ///
    /// Ends with status 3 if it is undefined.
    Get(Get),
    /// Give an attribute a value
    Set(Set),
    /// Make an attribute undefined
    Delete(Delete),
    /// List the attributes of an object that have values
    List(List),
    /// Compare and swap: give an attribute a value, if it has the one that you think
    ///
    /// Prints the value that it had. Ends with status 1 if that was another one; then nothing has changed. An undefined attribute equals
    /// everything, so that nobody needs to set it first, unless --exact is said. What --set says happens in the same moment, and only if it
    /// has swapped.
    Cas(Cas),
    /// Fetch and add: add to a number of eight bytes, and print what it was before
    ///
    /// An undefined attribute counts as zero. However often the command's messages are lost and sent again, it adds once.
    Add(Add),
    /// Wait until an attribute has another value, and print it
    ///
    /// Ends with status 1 if that does not happen in time, and with 3 if the device was silent in the end, so that nobody knows.
    Wait(Wait),
}

const EXAMPLES: &str = "\
Examples:
  braid attr set 2:1 1.1 hello
  braid attr get 2:1 1.1
  braid attr add 2:1 1.2 5                   prints 0; then 1.2 is 5
  braid attr cas 2:1 1.3 '' me --exact       take a lock that nobody has
  braid attr cas 2:1 1.3 me ''               give it back
  braid attr cas 2:1 1.4 red green --set 1.5=why --set 1.6=int:7      all three, or nothing
  braid attr set 2:11 5.1 done --guard 2.1=$BRAID_TOKEN               in a command that `braid recipe lock run 2:11 1.1` runs
  braid attr wait 2:1 1.2 --seen int:5 --timeout 1m
  braid attr list 2:1 --page 1
  braid attr cas locks:7 1.1 '' me --exact   the same on an attribute volume, which outlives a device

Exit status: 1 if `cas` did not swap, or nothing changed while `wait` waited; 3 if object, attribute or device is not there;
5 if the attribute of a --guard holds another token, so that nothing was done.";

/// An attribute of an object.
#[derive(clap::Args)]
pub struct Of {
    /// Which object: DEVICE:NUMBER or MIRROR:NUMBER
    object: ObjectName,
    /// Which attribute: PAGE.NUMBER
    #[arg(value_name = "ATTRIBUTE", value_parser = attribute)]
    name: AttributeName,
}

#[derive(clap::Args)]
pub struct Get {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    trying: Trying,
}

/// How values are shown.
#[derive(clap::Args)]
pub struct Showing {
    /// How to show it [default: as it could be written]
    #[arg(long = "as", value_name = "KIND")]
    shown: Option<As>,
}

#[derive(clap::Args)]
pub struct Set {
    #[command(flatten)]
    of: Of,
    /// text, int:N, hex:DIGITS, file:PATH, or - for standard input
    value: Written,
    #[command(flatten)]
    guarding: Guarding,
    #[command(flatten)]
    trying: Trying,
}

#[derive(clap::Args)]
pub struct Delete {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    trying: Trying,
}

#[derive(clap::Args)]
pub struct List {
    /// Of which object: DEVICE:NUMBER or MIRROR:NUMBER
    object: ObjectName,
    /// Only those of this page
    #[arg(long, value_parser = page)]
    page: Option<u32>,
    /// Only those behind this one
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute)]
    after: Option<AttributeName>,
    /// So many at most
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    #[command(flatten)]
    trying: Trying,
}

#[derive(clap::Args)]
pub struct Cas {
    #[command(flatten)]
    of: Of,
    /// What it is to have: text, int:N, hex:DIGITS, file:PATH; '' for no value
    compare: Written,
    /// What it is to get; '' for no value
    swap: Written,
    /// An undefined attribute equals only ''
    #[arg(long)]
    exact: bool,
    /// Also give this attribute of the object a value, if it has swapped; may be repeated
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = assignment)]
    set: Vec<(AttributeName, Written)>,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    trying: Trying,
}

#[derive(clap::Args)]
pub struct Add {
    #[command(flatten)]
    of: Of,
    /// So much; may be negative
    #[arg(allow_negative_numbers = true, default_value_t = 1)]
    add: i64,
    #[command(flatten)]
    trying: Trying,
}

#[derive(clap::Args)]
pub struct Wait {
    #[command(flatten)]
    of: Of,
    /// The value that you know [default: what it has now]
    #[arg(long, value_name = "VALUE")]
    seen: Option<Written>,
    /// How long to wait: 90s, 5m; 0s: only look
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30s")]
    timeout: Duration,
    #[command(flatten)]
    showing: Showing,
}

/// Runs one of them.
pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let waiting = Trying::default();
    let (trying, object, attribute) = match &command {
        Command::Get(Get { of, trying, .. })
        | Command::Set(Set { of, trying, .. })
        | Command::Delete(Delete { of, trying })
        | Command::Cas(Cas { of, trying, .. })
        | Command::Add(Add { of, trying, .. }) => (trying, &of.object, Some(of.name)),
        Command::Wait(Wait { of, .. }) => (&waiting, &of.object, Some(of.name)),
        Command::List(List { object, trying, .. }) => (trying, object, None),
    };
    let what = match attribute {
        Some(attribute) => format!("{object} {}", name(attribute)),
        None => object.to_string(),
    };
    let array = trying.connect("attr", common).await?;
    let outcome = async {
        let object = object.find(&array).await?;
        execute(&command, &object, common.json).await
    };
    let outcome = outcome.await.map_err(|failure| failure.of(what));
    array.close().await;
    outcome
}

async fn execute(command: &Command, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
    match command {
        Command::Get(Get { of, showing, .. }) => {
            let value = object.get(of.name).await?;
            if value.is_undefined() {
                return Err(Failure::unreachable("undefined", "the attribute is undefined"));
            }
            showing.print(&value, as_json, || json!({"schema": 2, "value": to_json(&value)}))?;
        }
        Command::Set(Set { of, value, guarding, .. }) => {
            let value = value.value()?;
            guarding.send(object, |request| request.set(of.name, &value)).await?;
            output::print(as_json, || json!({"schema": 2, "value": to_json(&value)}), String::new);
        }
        Command::Delete(Delete { of, .. }) => {
            object.delete(of.name).await?;
            output::print(as_json, || json!({"schema": 2, "deleted": name(of.name)}), String::new);
        }
        Command::List(arguments) => list(arguments, object, as_json).await?,
        Command::Cas(Cas { of, compare, swap, exact, set, showing, .. }) => {
            let (compare, swap) = (compare.value()?, swap.value()?);
            let mut request = match exact {
                true => object.request().compare_and_swap_exact(of.name, compare, swap),
                false => object.request().compare_and_swap(of.name, compare, swap),
            };
            for (name, value) in set {
                request = request.set(*name, value.value()?).if_swapped();
            }
            let answers = request.send().await.map_err(|RequestError { error, .. }| error)?;
            let swapped = answers.swapped(0).ok_or(ClientError::ProtocolError)?;
            let json = || json!({"schema": 2, "swapped": swapped.swapped, "original": to_json(&swapped.original)});
            showing.print(&swapped.original, as_json, json)?;
            return Ok(if swapped.swapped { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Add(Add { of, add, .. }) => {
            let original = object.fetch_and_add(of.name, *add).await?;
            output::print(as_json, || json!({"schema": 2, "original": original}), || format!("{original}\n"));
        }
        Command::Wait(Wait { of, seen, timeout, showing }) => {
            let begun = Instant::now();
            // Who does not want to wait has a look, which may take its time.
            let most = Trying::default().timeout;
            let object = object.within(if timeout.is_zero() { most } else { most.min(*timeout) });
            let seen = match seen {
                Some(seen) => seen.value()?,
                None => object.get(of.name).await?,
            };
            let left = timeout.saturating_sub(begun.elapsed());
            let Some(value) = object.wait_for_change(of.name, seen, left).await? else {
                return Err(Failure::failed("unchanged", format!("the value is what it was after {timeout:?}")));
            };
            showing.print(&value, as_json, || json!({"schema": 2, "value": to_json(&value)}))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Showing {
    fn print(&self, value: &Value, as_json: bool, json: impl FnOnce() -> serde_json::Value) -> Result<(), Failure> {
        if self.shown == Some(As::Raw) && !as_json {
            let mut out = std::io::stdout().lock();
            // A reader that has gone away is no failure.
            let _ = out.write_all(value).and_then(|()| out.flush());
            return Ok(());
        }
        // What is not shown need not be what it would be shown as.
        let text = if as_json { String::new() } else { text(value, self.shown)? };
        output::print(as_json, json, || format!("{text}\n"));
        Ok(())
    }
}

async fn list(arguments: &List, object: &Object, as_json: bool) -> Result<(), Failure> {
    let (mut all, mut left) = (Vec::new(), arguments.limit.unwrap_or(u32::MAX));
    let mut after = arguments.after;
    let more = loop {
        let most = left.min(braid_base::limits::OBJECT_LIST_MAX as u32);
        let (found, more) = object.attributes_after(arguments.page, after, most).await?;
        left -= (found.len() as u32).min(left);
        after = found.last().map(|(name, _)| *name).or(after);
        let ends = !more || left == 0 || found.is_empty();
        all.extend(found);
        if ends {
            break more;
        }
    };
    output::print(
        as_json,
        || {
            let attributes = all.iter().map(|(attribute, length)| json!({"name": name(*attribute), "length": length}));
            json!({"schema": 2, "attributes": attributes.collect::<Vec<_>>(), "more": more})
        },
        || {
            let rows = all.iter().map(|(attribute, length)| vec![name(*attribute), format!("{length} bytes")]);
            output::table(&rows.collect::<Vec<_>>())
        },
    );
    Ok(())
}

/// Reads an attribute and its value.
fn assignment(text: &str) -> Result<(AttributeName, Written), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' gives nothing a value: write ATTRIBUTE=VALUE, such as 1.2=int:5"))?;
    Ok((attribute(name)?, value.parse()?))
}
