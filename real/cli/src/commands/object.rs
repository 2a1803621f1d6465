//! `braid object`: objects with bytes and attributes.

use crate::report;
use crate::values::{self, As, ObjectName, ObjectSpace, attribute, next_part, text, to_json};
use braid_admin::Failure;
use braid_admin::object_operations::{self, Listed, TokenGuard, WriteFailure, Written};
use braid_base::units::format_size;
use braid_client::{Array, ArrayOptions, Object, Value};
use braid_terminal::arguments::{size, span};
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Create, list, read, write and remove objects with bytes and attributes
///
/// An object lies on one device, and has a number there: `2:17` is object 17 on device 2. It holds bytes, and attributes that are changed
/// atomically (`braid attr`). Attribute volumes hold attributes only, and all their objects exist from the beginning.
///
/// A VALUE is text, except in these forms: `int:N` is a number in eight bytes, `hex:DIGITS` gives bytes in hexadecimal, `file:PATH` is the
/// content of that file, and `-` is standard input. After `text:` all the rest is text.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// How long to wait for an answer of the device: 5s, 1m
    #[arg(long, global = true, value_name = "SPAN", value_parser = span, default_value = "30s")]
    timeout: Duration,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create an empty object, and print its name
    Create {
        /// The device, such as 2; or the device and the object's number, such as 2:17
        #[arg(value_name = "PLACE[:NUMBER]", value_parser = new_object)]
        new: (ObjectSpace, Option<u64>),
    },
    /// Remove objects with their content
    Remove {
        /// The objects: DEVICE:NUMBER
        #[arg(value_name = "OBJECT", required = true)]
        objects: Vec<ObjectName>,
    },
    /// List the objects of a device
    List(List),
    /// Read an object's bytes
    ///
    /// Writes the bytes to standard output, up to the object's end. `--as` and `--json` print up to 4 MiB in another form.
    Read(Read),
    /// Write bytes into an object
    ///
    /// The object grows if necessary, and a gap is filled with zeros. Up to 256 KiB are written atomically. Longer values are written in parts
    /// of that size; each part is atomic and guarded.
    Write {
        /// The object: DEVICE:NUMBER
        object: ObjectName,
        /// The bytes: text, int:N, hex:DIGITS, file:PATH, or - for standard input
        value: values::Written,
        /// The offset of the first byte
        #[arg(long, value_name = "BYTES", value_parser = size, default_value = "0")]
        offset: u64,
        #[command(flatten)]
        guarding: Guarding,
    },
    /// Write bytes at an object's end, and print their offset
    ///
    /// Up to 512 KiB are appended atomically, at the object's end. Longer values are appended in parts of that size; other programs may append
    /// between two parts. With --guard a part has 256 KiB.
    Append {
        /// The object: DEVICE:NUMBER
        object: ObjectName,
        /// The bytes: text, int:N, hex:DIGITS, file:PATH, or - for standard input
        value: values::Written,
        #[command(flatten)]
        guarding: Guarding,
    },
    /// Truncate an object, or extend it with zeros that take no space
    Truncate {
        /// The object: DEVICE:NUMBER
        object: ObjectName,
        /// The new length, such as 0 or 64KiB
        #[arg(value_parser = size)]
        length: u64,
    },
    /// Show the lengths of objects
    Stat {
        /// The objects: DEVICE:NUMBER
        #[arg(value_name = "OBJECT", required = true)]
        objects: Vec<ObjectName>,
    },
    /// Do nothing: acknowledged writes are already durable
    ///
    /// The command exists for compatibility with other object stores. It fails if the object does not exist, or its device does not answer.
    Flush {
        /// The object: DEVICE:NUMBER
        object: ObjectName,
    },
}

const EXAMPLES: &str = "\
Examples:
  braid object create 2                      prints 2:1, the new object
  braid object write 2:1 'hello, array'
  braid object append 2:1 file:more.txt      prints the offset of the new bytes
  braid object read 2:1
  braid object list 2
  braid object append 2:11 'copied' --guard 2.1=$BRAID_TOKEN      in a command that `braid recipe lock run 2:11 1.1` runs
  braid object remove 2:1

Exit status: 3 if the object or the device does not exist, or the device does not answer; 4 if the content is damaged; 5 if the
attribute of a --guard holds another token: then nothing was done.";

/// The time limit of a command.
#[derive(clap::Args)]
pub struct Trying {
    /// How long to wait for an answer of the device: 5s, 1m
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30s")]
    pub timeout: Duration,
}

#[derive(clap::Args)]
struct List {
    /// The device, such as 2
    place: ObjectSpace,
    /// Only objects after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,
    /// The maximal number of objects
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
}

#[derive(clap::Args)]
struct Read {
    /// The object: DEVICE:NUMBER
    object: ObjectName,
    /// The offset of the first byte
    #[arg(long, value_name = "BYTES", value_parser = size, default_value = "0")]
    offset: u64,
    /// The maximal number of bytes [default: all]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    length: Option<u64>,
    /// The form of output
    #[arg(long = "as", value_name = "KIND", default_value = "raw")]
    shown: As,
}

/// The most bytes that are printed in another form than raw.
const SHOWN_MAX: u64 = 4 << 20;

pub async fn run(Arguments { timeout, command }: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Trying { timeout }.connect("object", common).await?;
    let outcome = execute(command, &array, common).await;
    array.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

impl Trying {
    /// A host for this command.
    pub async fn connect(&self, what: &str, common: &Common) -> Result<Array, Failure> {
        Ok(Array::connect(ArrayOptions::at(&common.array).name(what).deadline(self.timeout)).await?)
    }
}

async fn execute(command: Command, array: &Array, common: &Common) -> Result<(), Failure> {
    let as_json = common.json;
    match command {
        Command::Create { new: (place, number) } => {
            let space = place.find(array, common).await?;
            let created = match number {
                None => space.create().await,
                Some(number) => space.create_as(number).await,
            };
            let number = created.map_err(|error| Failure::from(error).of(&place))?.number();
            let name = ObjectName { place, number };
            report::print(as_json, json!({"object": name.to_string()}), || format!("{name}\n"));
        }
        Command::Remove { objects } => {
            for name in &objects {
                name.find(array, common).await?.remove().await.map_err(|error| Failure::from(error).of(name))?;
            }
            let names: Vec<String> = objects.iter().map(ObjectName::to_string).collect();
            report::print(as_json, json!({"removed": names}), String::new);
        }
        Command::List(arguments) => list(arguments, array, common).await?,
        Command::Read(arguments) => {
            let object = arguments.object.find(array, common).await?;
            read(&object, &arguments, as_json).await.map_err(|failure| failure.of(&arguments.object))?;
        }
        Command::Write { object: name, value, offset, guarding } => {
            let object = name.find(array, common).await?;
            let mut from = value.open()?;
            let next = |most: usize| next_part(&mut *from, most);
            let written = object_operations::write(&object, guarding.guard, offset, next).await;
            let Written { offset, bytes } = written.map_err(|failure| beyond(&name, failure))?;
            let json = json!({"object": name.to_string(), "offset": offset, "written": bytes});
            report::print(as_json, json, String::new);
        }
        Command::Append { object: name, value, guarding } => {
            let object = name.find(array, common).await?;
            let mut from = value.open()?;
            let next = |most: usize| next_part(&mut *from, most);
            let appended = object_operations::append(&object, guarding.guard, next).await;
            let Written { offset, bytes } = appended.map_err(|failure| beyond(&name, failure))?;
            let json = json!({"object": name.to_string(), "offset": offset, "written": bytes});
            report::print(as_json, json, || format!("{offset}\n"));
        }
        Command::Truncate { object: name, length } => {
            let object = name.find(array, common).await?;
            object.truncate(length).await.map_err(|error| Failure::from(error).of(&name))?;
            report::print(as_json, json!({"object": name.to_string(), "length": length}), String::new);
        }
        Command::Stat { objects } => {
            let mut found = Vec::new();
            for name in &objects {
                let stat =
                    name.find(array, common).await?.stat().await.map_err(|error| Failure::from(error).of(name))?;
                found.push((name, stat));
            }
            let objects = found.iter().map(
                |(name, stat)| json!({"object": name.to_string(), "length": stat.length, "incarnation": stat.incarnation}),
            );
            report::print(as_json, json!({"objects": objects.collect::<Vec<_>>()}), || {
                let row = |(name, stat): &(&ObjectName, braid_client::Stat)| {
                    vec![name.to_string(), format!("{} bytes", stat.length), format_size(stat.length)]
                };
                output::table(&found.iter().map(row).collect::<Vec<_>>())
            });
        }
        Command::Flush { object: name } => {
            name.find(array, common).await?.flush().await.map_err(|error| Failure::from(error).of(&name))?;
            report::print(as_json, json!({"object": name.to_string()}), String::new);
        }
    }
    Ok(())
}

/// The failure to write to an object, which says how much was written before.
fn beyond(name: &ObjectName, WriteFailure { written, failure }: WriteFailure) -> Failure {
    match written {
        0 => failure.of(name),
        _ => failure.of(format!("{name}, after {written} bytes were written")),
    }
}

async fn list(arguments: List, array: &Array, common: &Common) -> Result<(), Failure> {
    let as_json = common.json;
    let List { place, after, limit } = arguments;
    let space = place.find(array, common).await?;
    let listed = object_operations::objects(&space, after, limit).await;
    let Listed { found: all, more } = listed.map_err(|failure| failure.of(&place))?;
    let names: Vec<String> = all.iter().map(|number| format!("{place}:{number}")).collect();
    report::print(as_json, json!({"objects": names, "more": more}), || {
        names.iter().map(|name| format!("{name}\n")).collect()
    });
    Ok(())
}

async fn read(object: &Object, arguments: &Read, as_json: bool) -> Result<(), Failure> {
    let Read { offset, length, shown, .. } = *arguments;
    let left = length.unwrap_or(u64::MAX);
    if shown == As::Raw && !as_json {
        object_operations::read(object, offset, left, output::write).await?;
        return Ok(());
    }
    let data = object.read(offset, left.min(SHOWN_MAX + 1)).await?;
    if data.len() as u64 > SHOWN_MAX {
        let message = "more than 4 MiB can't be printed in this form";
        return Err(Failure::usage("too-large", message)
            .hint("read a part with --length; without --as and --json there is no limit"));
    }
    let value = Value::from(data);
    let shown = if as_json { String::new() } else { text(&value, Some(shown))? };
    report::print(as_json, json!({"offset": offset, "data": to_json(&value)}), || format!("{shown}\n"));
    Ok(())
}

fn new_object(text: &str) -> Result<(ObjectSpace, Option<u64>), String> {
    match text.contains(':') {
        true => text.parse().map(|ObjectName { place, number }| (place, Some(number))),
        false => Ok((text.parse()?, None)),
    }
}

/// The option of guarded requests.
#[derive(clap::Args)]
pub struct Guarding {
    /// Execute the request only if this attribute of the same object holds this fencing token: 2.1=17. Otherwise the status is 5
    #[arg(long, value_name = "ATTRIBUTE=TOKEN", value_parser = guard)]
    pub guard: Option<TokenGuard>,
}

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
