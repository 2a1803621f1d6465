//! Operations on file systems as JSON, for checkers outside: `docs/histories.md` describes the format.

use crate::file_history::{FileAction, FileFailure, FileOperation, FileValue, Unit};
use crate::history::{Moment, Outcome};
use crate::prelude::*;
use serde_json::{Value, json};

/// The version of the format.
const SCHEMA: u32 = 1;

pub fn file_line(seed: u64, operation: &FileOperation) -> Value {
    let FileOperation { client, action, invoked, outcome } = operation;
    let (name, result, end, until) = match outcome {
        Outcome::Unknown | Outcome::Never => ("unknown", Value::Null, None, None),
        Outcome::UnknownUntil(until) => ("unknown", Value::Null, None, Some(*until)),
        Outcome::Answered(end, Ok(value)) => ("ok", value_json(value), Some(*end), None),
        Outcome::Answered(end, Err(failure)) => ("failed", failure_json(*failure), Some(*end), None),
    };
    json!({
        "schema": SCHEMA, "seed": seed, "process": format!("h{}/{}", client.host, client.number),
        "operation": action_json(action), "outcome": name, "result": result,
        "start": moment(*invoked), "end": end.map(moment), "until": until.map(moment),
    })
}

fn moment(moment: Moment) -> Value {
    json!({"order": moment.number, "nanoseconds": moment.time.0})
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn action_json(action: &FileAction) -> Value {
    match action {
        FileAction::Command(command) => command_json(command),
        FileAction::Open { inode } => json!({"name": "open", "inode": inode.0}),
        FileAction::Close { inode } => json!({"name": "close", "inode": inode.0}),
        FileAction::Sync { inode } => json!({"name": "sync", "inode": inode.0}),
        FileAction::Read { inode, offset, length } => {
            json!({"name": "read", "inode": inode.0, "offset": offset, "length": length})
        }
        FileAction::Write { inode, offset, length, tag } => {
            json!({"name": "write", "inode": inode.0, "offset": offset, "length": length, "tag": tag.0})
        }
        FileAction::Append { inode, length, tag } => {
            json!({"name": "append", "inode": inode.0, "length": length, "tag": tag.0})
        }
        FileAction::Truncate { inode, size } => json!({"name": "truncate", "inode": inode.0, "size": size}),
        FileAction::Lock { inode, owner, range, exclusive, waits } => {
            json!({"name": "lock", "inode": inode.0, "owner": owner, "from": range.start, "to": range.end,
                   "exclusive": exclusive, "waits": waits})
        }
        FileAction::Unlock { inode, owner, range } => {
            json!({"name": "unlock", "inode": inode.0, "owner": owner, "from": range.start, "to": range.end})
        }
        FileAction::TestLock { inode, owner, range, exclusive } => {
            json!({"name": "test_lock", "inode": inode.0, "owner": owner, "from": range.start, "to": range.end,
                   "exclusive": exclusive})
        }
    }
}

fn command_json(command: &FileCommand) -> Value {
    match command {
        FileCommand::Lookup { parent, name } => json!({"name": "lookup", "parent": parent.0, "entry": text(name)}),
        FileCommand::Stat { inode } => json!({"name": "stat", "inode": inode.0}),
        FileCommand::ReadDirectory { inode, .. } => json!({"name": "read_directory", "inode": inode.0}),
        FileCommand::ReadLink { inode } => json!({"name": "read_link", "inode": inode.0}),
        FileCommand::Create { parent, name, node, exclusive, mode, .. } => {
            let file_type = node.file_type();
            let target = if let NewInode::SymbolicLink { target } = node { Some(text(target)) } else { None };
            json!({"name": "create", "parent": parent.0, "entry": text(name), "type": type_name(file_type),
                   "target": target, "exclusive": exclusive, "mode": mode})
        }
        FileCommand::Link { inode, parent, name } => {
            json!({"name": "link", "inode": inode.0, "parent": parent.0, "entry": text(name)})
        }
        FileCommand::Unlink { parent, name } => json!({"name": "unlink", "parent": parent.0, "entry": text(name)}),
        FileCommand::RemoveDirectory { parent, name } => {
            json!({"name": "remove_directory", "parent": parent.0, "entry": text(name)})
        }
        FileCommand::Rename { parent, name, new_parent, new_name, no_replace } => {
            json!({"name": "rename", "parent": parent.0, "entry": text(name), "new_parent": new_parent.0,
                   "new_entry": text(new_name), "no_replace": no_replace})
        }
        FileCommand::SetAttributes { inode, change } => {
            json!({"name": "set_attributes", "inode": inode.0, "mode": change.mode})
        }
        other => json!({"name": "other", "text": format!("{other:?}")}),
    }
}

fn value_json(value: &FileValue) -> Value {
    match value {
        FileValue::Done | FileValue::Succeeded => Value::Null,
        FileValue::Result(result) => result_json(result),
        FileValue::Opened(attributes) => json!({"attributes": attributes_json(attributes)}),
        FileValue::Data(units) => json!({"units": units_json(units)}),
        FileValue::Written { length } => json!({"length": length}),
        FileValue::Appended { offset, length } => json!({"offset": offset, "length": length}),
        FileValue::Tested { is_locked } => json!({"is_locked": is_locked}),
    }
}

fn result_json(result: &FileResult) -> Value {
    match result {
        FileResult::Attributes(attributes) => json!({"attributes": attributes_json(attributes)}),
        FileResult::Entries { entries, .. } => {
            let entry = |entry: &braid_wire::DirectoryEntry| json!({"entry": text(&entry.name), "inode": entry.inode.0, "type": type_name(entry.file_type)});
            json!({"entries": entries.iter().map(entry).collect::<Vec<_>>()})
        }
        FileResult::Target(target) => json!({"target": text(target)}),
        FileResult::Created { attributes, is_new } => {
            json!({"attributes": attributes_json(attributes), "is_new": is_new})
        }
        FileResult::Removed(attributes) => json!({"attributes": attributes_json(attributes)}),
        FileResult::Renamed { moved, replaced } => {
            json!({"attributes": attributes_json(moved), "replaced": replaced.as_ref().map(attributes_json)})
        }
        other => json!({"text": format!("{other:?}")}),
    }
}

fn attributes_json(attributes: &FileAttributes) -> Value {
    json!({"inode": attributes.inode.0, "type": type_name(attributes.file_type), "mode": attributes.mode,
           "links": attributes.links, "size": attributes.size, "parent": attributes.parent.map(|parent| parent.0)})
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::SymbolicLink => "symbolic_link",
        FileType::Special(_) => "special",
    }
}

/// Runs of units: the tag of a write, the first unit of it, and how many follow each other. Zeros have tag 0.
fn units_json(units: &[Unit]) -> Vec<Value> {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for unit in units {
        let (tag, number) = unit.tag_and_number();
        match runs.last_mut() {
            Some((last, first, count)) if *last == tag && (tag == 0 || *first + *count == number) => *count += 1,
            _ => runs.push((tag, number, 1)),
        }
    }
    runs.into_iter().map(|(tag, first, count)| json!([tag, first, count])).collect()
}

fn failure_json(failure: FileFailure) -> Value {
    let error = match failure {
        FileFailure::NotOpen => "NotOpen".to_string(),
        FileFailure::Locked => "Locked".to_string(),
        FileFailure::Refused(error) => format!("{error:?}"),
    };
    json!({"error": error})
}
