//! How the answers that clients and scenarios get are recorded and judged.

use crate::cluster::{Cluster, Failed, PATIENCE, PendingOperation, Record, VOLUME, failed, first_byte};
use crate::object_requests;
use crate::prelude::*;
use braid_check::history::CELL_BYTES;
use braid_check::{Cells, Run, Tag};

impl Cluster {
    /// Records an answer in the history. Some errors are effects of faults; any other error is a failure.
    pub fn on_reply(&mut self, op: OpId, outcome: &HostOutcome) -> Result<Option<PendingOperation>, Failed> {
        let Some(asked) = self.requests.pending.remove(&op) else { return Ok(None) };
        let now = self.world.now();
        if let (Record::Read(..) | Record::Write(_), Ok(_)) = (&asked.record, outcome) {
            self.ownership.check_is_owner_still(asked.node, asked.since)?;
        }
        match (asked.record.clone(), outcome) {
            (Record::Ownership(file_system, request), outcome) => {
                let taken_over = self.ownership.on_reply(now, asked.node, (file_system, request), outcome)?;
                taken_over.into_iter().for_each(|host| note_fence(self, host, asked.since));
            }
            (record @ (Record::Objects(_) | Record::Change(..)), outcome) => {
                object_requests::on_object_reply(self, &record, outcome)?
            }
            (Record::AttributeVolume(id), outcome) => object_requests::on_bucket_reply(self, id, outcome)?,
            (Record::Write(id), Ok(HostSuccess::Done)) => self.history.wrote(id, now),
            (Record::Read(id, cells), Ok(HostSuccess::Data(parts))) => {
                let bytes = parts.concat();
                if (bytes.len() / CELL_BYTES) as u64 != cells.count() {
                    return failed("short-read", format!("{} bytes for {cells:?}", bytes.len()));
                }
                match Tag::parse(cells.start, &bytes) {
                    Ok(runs) => self.history.saw(id, now, runs),
                    Err(garbage) => return failed("garbage-read", format!("{} saw: {garbage}", asked.node)),
                }
            }
            (Record::Allocation(id, range), Ok(HostSuccess::Allocation(runs))) => {
                let mut at = range.start;
                let mut holes = Vec::new();
                for (count, data) in runs {
                    if !data {
                        let block = BLOCK_BYTES as u64;
                        holes.push(Run { cells: Cells::of_bytes(at * block, count * block), tag: Tag::ZEROS });
                    }
                    at += count;
                }
                if at > range.end() || at == range.start {
                    return failed("allocation-shape", format!("{runs:?} for {range}"));
                }
                self.history.saw(id, now, holes);
            }
            (Record::Files(id), outcome) => {
                let is_excused = outcome.as_ref().is_err_and(|error| self.options.excuses(error));
                self.files.on_reply(&self.world, (asked.node, asked.client), id, outcome, is_excused)?;
            }
            (Record::Nothing | Record::Fence(_), Err(_)) | (Record::Nothing | Record::Ranges, _) => {}
            (Record::Fence(host), Ok(HostSuccess::Done)) => note_fence(self, host, asked.since),
            (record, Err(HostError::NoSuchVolume)) if may_be_deleted(self, &record) => {}
            (_, Err(HostError::OutOfRange)) if lags_behind_growth(self, asked.node) => {}
            (_, Err(error)) if self.options.excuses(error) => {}
            (record, outcome) => return failed("unexpected-answer", format!("{record:?}: {outcome:?}")),
        }
        Ok(Some(asked))
    }

    pub(crate) fn answer(&mut self, op: OpId, otherwise: &str) -> Result<HostSuccess, Failed> {
        let outcome = self.outcome(op, otherwise)?;
        outcome.map_err(|error| Failed { check: "no-progress", details: format!("{otherwise}: {error}") })
    }

    /// The outcome of a request, which may be an error.
    pub(crate) fn outcome(&mut self, op: OpId, otherwise: &str) -> Result<HostOutcome, Failed> {
        let until = self.world.now().after(PATIENCE);
        while let Some(event) = self.next(until) {
            match event {
                WorldEvent::Reply { op: answered, outcome, .. } => {
                    self.on_reply(answered, &outcome)?;
                    self.on_control_reply(answered, &outcome);
                    if answered == op {
                        return Ok(outcome);
                    }
                }
                WorldEvent::Alarm(token) => drop(self.on_control_alarm(token)),
                _ => {}
            }
        }
        failed("no-progress", format!("{otherwise}: no answer at all"))
    }
}

/// True for an operation on a volume that is created or deleted during the run: its host may not know it.
fn may_be_deleted(cluster: &Cluster, record: &Record) -> bool {
    let first = match record {
        Record::Read(_, cells) => cells.start * CELL_BYTES as u64,
        Record::Write(id) => cluster.history.operation(*id).runs[0].cells.start * CELL_BYTES as u64,
        Record::Allocation(_, range) => range.start * BLOCK_BYTES as u64,
        _ => return false,
    };
    cluster.options.activities.has("create-delete") && first >= first_byte(VolumeId(VOLUME.0 + 1))
}

/// A request to fence a host, which was made at `asked`, is answered now.
pub(crate) fn note_fence(cluster: &mut Cluster, host: Generation, asked: Time) {
    // A device that was unavailable, while no other device of its stripes could be, may still have a part of a write.
    if cluster.observed.last_unavailable.is_none_or(|unavailable| unavailable < asked) {
        cluster.history.fenced(host.0, cluster.world.now());
    }
}

/// True if a host does not know yet that the volume has grown: it was suspended, or can't reach the record.
fn lags_behind_growth(cluster: &Cluster, node: NodeId) -> bool {
    let known = cluster.world.machine(node).and_then(|role| role.host()?.volume(cluster.volume.id));
    known.is_some_and(|known| known.bytes < cluster.volume.bytes)
}
