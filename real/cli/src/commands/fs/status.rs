//! `braid fs status` and `check`: the file systems of an array, who serves them and who uses them; and whether their metadata is sound.

use crate::commands::status::{file_system_table, pid_text, within};
use crate::report;
use braid_admin::file_system_check::FileSystemFindings;
use braid_admin::file_system_operations::FileSystemContent;
use braid_admin::file_system_status::{ClientStatus, FileSystemStatus, ServerStatus};
use braid_admin::health::FileSystemHealth;
use braid_admin::metadata_room::MetadataRoom;
use braid_admin::{Array, Exit, Failure, file_systems};
use braid_base::Generation;
use braid_base::units::format_size;
use braid_control::ArrayDescription;
use braid_terminal::{Common, output};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Show the file systems of the array: their metadata servers, what they contain, and the hosts that use them
#[derive(clap::Args)]
pub struct StatusArgs {
    /// The name of the file system [default: all]
    name: Option<String>,
}

pub async fn status(arguments: StatusArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let description = array.control().describe().await?;
    if let Some(name) = &arguments.name {
        file_systems::any(&description, name)?;
    }
    let status = array.status().await?;
    let is_asked = |status: &FileSystemStatus| arguments.name.is_none() || status.name == arguments.name;
    let mut shown = Vec::new();
    for status in status.file_systems.into_iter().filter(is_asked) {
        let serves = status.service.health == FileSystemHealth::Serving;
        let content = match status.name.as_deref().filter(|_| serves) {
            // The server may have died just now.
            Some(name) => array.content_of_file_system(name).await.ok(),
            None => None,
        };
        shown.push((status, content));
    }
    report::done(common.json, json(&shown, &description), || text(&shown, &common.control().local().absolute()))
}

fn json(shown: &[(FileSystemStatus, Option<FileSystemContent>)], description: &ArrayDescription) -> Value {
    let shown = shown.iter().map(|(status, content)| {
        let mut shown = serde_json::to_value(status).expect("our own types have a JSON form");
        let entry = status.name.as_deref().and_then(|name| description.file_system(name));
        shown["unavailable"] = entry.map(|entry| entry.unavailable().to_string()).into();
        shown["content"] = serde_json::to_value(content).expect("our own types have a JSON form");
        shown
    });
    json!({"file_systems": shown.collect::<Vec<_>>()})
}

fn text(shown: &[(FileSystemStatus, Option<FileSystemContent>)], dir: &Path) -> String {
    if shown.is_empty() {
        return "there are no file systems: create one with `braid fs create`\n".to_string();
    }
    let status: Vec<FileSystemStatus> = shown.iter().map(|(status, _)| status.clone()).collect();
    let mut text = file_system_table(&status, dir);
    for (status, content) in shown {
        let name = status.name.as_deref().unwrap_or_default();
        if let Some(content) = content {
            let [used, reserved, free] =
                [content.used_bytes, content.reserved_bytes, content.free_bytes].map(format_size);
            let inodes = content.inodes;
            let room = status.metadata_room_used_bytes.zip(status.metadata_room_bytes);
            let room = room.map(|(used_bytes, bytes)| MetadataRoom { used_bytes, bytes });
            text += &format!(
                "\n{name}: {inodes} files, directories and links; {used} used, {reserved} reserved by hosts, {free} free\n"
            );
            if let Some(room) = room {
                let (used, bytes) = (format_size(room.used_bytes), format_size(room.bytes));
                let more = room.free_inodes(inodes);
                text += &format!("names and inodes use {used} of {bytes}: room for about {more} more\n");
            }
        }
        match status.servers.as_slice() {
            [] => {}
            [only] => {
                text += "one metadata server serves it\n";
                if let (Some(used), Some(bytes)) = (only.service.journal_used_bytes, only.service.journal_bytes) {
                    text += &format!("its journal uses {} of {}\n", format_size(used), format_size(bytes));
                }
            }
            servers => {
                let [placement, protocol, grouping] = [&status.placement, &status.commit_protocol, &status.grouping]
                    .map(|it| it.as_deref().unwrap_or_default());
                let count = servers.len();
                text += &format!(
                    "{count} metadata servers serve it: placement {placement}, commit protocol {protocol}, grouping {grouping}\n\n"
                );
                text += &server_table(servers, content.as_ref(), dir);
            }
        }
        if !status.clients.is_empty() {
            text += "\n";
            text += &client_table(&status.clients);
        }
    }
    text
}

fn server_table(servers: &[ServerStatus], content: Option<&FileSystemContent>, dir: &Path) -> String {
    let titles = ["shard", "state", "owner", "pid", "address", "journal", "free"];
    let of_server = |ServerStatus { shard, service: server, .. }: &ServerStatus| {
        let journal = server.journal_used_bytes.zip(server.journal_bytes);
        let journal = journal.map(|(used, bytes)| format!("{} of {}", format_size(used), format_size(bytes)));
        let content = content.and_then(|content| content.shards.get(*shard));
        [
            shard.to_string(),
            server.text.clone(),
            server.owner.map(|owner| Generation(owner).to_string()).unwrap_or_default(),
            server.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            within(dir, server.address.as_deref()),
            journal.unwrap_or_default(),
            content.map(|shard| format_size(shard.free_bytes)).unwrap_or_default(),
        ]
    };
    output::titled(titles, servers.iter().map(of_server))
}

fn client_table(clients: &[ClientStatus]) -> String {
    let of_client = |client: &ClientStatus| {
        let ClientStatus { host, pid, elsewhere, role, locks_held, locks_awaited, .. } = client;
        let (host, pid) = (Generation(*host).to_string(), pid_text(*pid, *elsewhere));
        [host, pid, locks_held.to_string(), locks_awaited.to_string(), role.clone()]
    };
    output::titled(["host", "pid", "locks", "waits for", "role"], clients.iter().map(of_client))
}

/// Verify the metadata of a file system
///
/// Checks that each block belongs to one file, to one host, or is free; that names lead to inodes, and inodes have as many names as they
/// count; that every directory is reachable; and that the counters are right. Nothing is changed. The file system is not served meanwhile:
/// its users wait for the length of the check and some seconds. Ends with status 4 if anything is wrong.
///
/// A file system with several metadata servers is checked as a whole. All of them must run: first they end the operations under way.
///
/// Example: `braid fs check home`
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The name of the file system
    name: String,
}

pub async fn check(arguments: CheckArgs, common: &Common) -> Result<ExitCode, Failure> {
    let name = &arguments.name;
    let found = Array::of(common.control()).check_file_system(name).await?;
    report::print(common.json, json_of_check(name, &found), || text_of_check(name, &found));
    let is_sound = found.findings.is_empty();
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

fn json_of_check(name: &str, found: &FileSystemFindings) -> Value {
    let findings: Vec<String> = found.findings.iter().map(ToString::to_string).collect();
    json!({
        "file_system": name,
        "sound": found.findings.is_empty(),
        "findings": findings,
        "omitted": found.omitted,
    })
}

fn text_of_check(name: &str, found: &FileSystemFindings) -> String {
    let mut text: String = found.findings.iter().map(|finding| format!("{finding}\n")).collect();
    let count = found.findings.len() as u64 + found.omitted;
    if found.omitted > 0 {
        text += &format!("and {} more\n", found.omitted);
    }
    match count {
        0 => text + &format!("file system {name} is sound\n"),
        count => text + &format!("file system {name} is damaged: {count} contradictions\n"),
    }
}
