//! `braid locks`: who holds and who awaits locks.

use crate::report;
use braid_admin::lock_survey::{
    LockExtent, LockMode, LockQuestion, LockSurveys, RECOVERING, SILENT, SurveyedLock, survey,
};
use braid_admin::{Exit, Failure};
use braid_base::{BLOCK_BYTES, Generation};
use braid_terminal::arguments::span;
use braid_terminal::output::titled;
use braid_terminal::{Common, tell};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Show which hosts hold and await locks of the lock servers
///
/// Those are locks of ranges, and of volumes whose ordering needs lock servers. A host keeps a range after use until another one wants it:
/// `held` does not mean that a program uses it. Locks are listed server by server; they are not as of one moment.
///
/// Exit status: 0; 3 if a lock server does not answer in time: it is named, and the locks of the others are shown.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only locks of this space
    space: Option<String>,
    /// Only those that wait, and for which hosts
    #[arg(long)]
    waiting: bool,
    /// How long a lock server may take to answer
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "3s")]
    wait: Duration,
    /// The most locks of each lock server
    #[arg(long, short = 'n', default_value_t = 1000)]
    lines: usize,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { space, waiting, wait, lines } = arguments;
    let surveys = survey(&common.control(), &LockQuestion { space, waiting, most: lines, wait }).await?;
    report::print(common.json, as_json(&surveys), || as_text(&surveys));
    let mut status = ExitCode::SUCCESS;
    for server in surveys.servers.iter().filter(|server| server.state == SILENT) {
        tell!("lock server {} does not answer: its locks are not known; `braid doctor` may say why", server.id);
        status = ExitCode::from(Exit::Unreachable as u8);
    }
    Ok(status)
}

fn as_json(surveys: &LockSurveys) -> Value {
    let mut locks = Vec::new();
    for server in &surveys.servers {
        for lock in &server.locks {
            let volume = surveys.volumes.get(&lock.object);
            let range = |extent: &LockExtent| {
                let (device, unit) = volume.map_or((None, 1), |_| (Some(extent.position), BLOCK_BYTES as u64));
                let (offset, length) = (extent.range.start * unit, extent.range.count * unit);
                json!({"device": device, "offset": offset, "length": length, "exclusive": extent.mode == LockMode::Exclusive})
            };
            locks.push(json!({
                "lock_server": server.id.0,
                "host": lock.name.host.0,
                "role": surveys.roles.get(&lock.name.host.0),
                "lock": lock.name.lock_id,
                "space": surveys.spaces.get(&lock.object),
                "volume": volume,
                "object": lock.object.0,
                "held": lock.behind.is_empty(),
                "seconds": lock.millis as f64 / 1000.0,
                "ranges": lock.extents.iter().map(range).collect::<Vec<_>>(),
                "all_ranges": lock.all_extents,
                "behind": lock.behind.iter().map(|host| host.0).collect::<Vec<_>>(),
            }));
        }
    }
    let servers = surveys.servers.iter();
    let servers = servers.map(|server| json!({"id": server.id.0, "state": server.state, "more": server.more}));
    json!({"lock_servers": servers.collect::<Vec<_>>(), "locks": locks})
}

fn as_text(surveys: &LockSurveys) -> String {
    let titles = ["of", "ranges", "state", "for", "host", "role", "behind", "lock server"];
    let mut rows = Vec::new();
    let mut remarks = String::new();
    for server in &surveys.servers {
        for lock in &server.locks {
            let of = match (surveys.spaces.get(&lock.object), surveys.volumes.get(&lock.object)) {
                (Some(space), _) => space.clone(),
                (None, Some(volume)) => format!("volume {volume}"),
                (None, None) => format!("object {:x}", lock.object.0),
            };
            rows.push([
                of,
                ranges(lock, surveys.volumes.contains_key(&lock.object)),
                if lock.behind.is_empty() { "held" } else { "waits" }.to_string(),
                format!("{:.1}s", lock.millis as f64 / 1000.0),
                lock.name.host.to_string(),
                surveys.roles.get(&lock.name.host.0).cloned().unwrap_or_default(),
                lock.behind.iter().map(Generation::to_string).collect::<Vec<_>>().join(", "),
                server.id.to_string(),
            ]);
        }
        if server.more {
            remarks += &format!("lock server {} has more locks: see --lines\n", server.id);
        }
        if server.state == RECOVERING {
            remarks += &format!("lock server {} waits for hosts to report what they hold\n", server.id);
        }
    }
    let table = if rows.is_empty() { "no locks\n".to_string() } else { titled(titles, rows) };
    table + &remarks
}

/// The most ranges that a line shows.
const SHOWN: usize = 4;

fn ranges(lock: &SurveyedLock, of_volume: bool) -> String {
    let range = |extent: &LockExtent| {
        let mode = if extent.mode == LockMode::Exclusive { "exclusive" } else { "shared" };
        let LockExtent { position, range, .. } = extent;
        match of_volume {
            true => format!("d{position}: {}+{} blocks {mode}", range.start, range.count),
            false => format!("{}+{} {mode}", range.start, range.count),
        }
    };
    let more = (lock.all_extents as usize).checked_sub(SHOWN).filter(|more| *more > 0);
    let more = more.map(|more| format!("{more} more"));
    lock.extents.iter().take(SHOWN).map(range).chain(more).collect::<Vec<_>>().join(", ")
}
