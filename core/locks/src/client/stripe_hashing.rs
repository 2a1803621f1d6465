//! Which lock server grants the locks of which blocks. All hosts must compute the same.

use braid_base::{BlockRange, LockServerId, ObjectId, RangeDivision};
use braid_wire::locking::LockExtent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The lock servers that have to grant these extents, in the order of their numbers. Each server is responsible for
/// runs of `run` blocks.
pub(super) fn by_server(
    servers: &[LockServerId],
    run: u64,
    object: ObjectId,
    extents: &[LockExtent],
) -> VecDeque<(LockServerId, Vec<LockExtent>)> {
    let [_, _, ..] = servers else {
        return servers.iter().map(|server| (*server, extents.to_vec())).collect();
    };
    let mut parts: BTreeMap<LockServerId, Vec<LockExtent>> = BTreeMap::new();
    for extent in extents {
        let mut start = extent.range.start;
        while start < extent.range.end() {
            let end = extent.range.end().min((start / run + 1) * run);
            let server = servers[((start / run + object.0) % servers.len() as u64) as usize];
            parts.entry(server).or_default().push(LockExtent { range: BlockRange::between(start, end), ..*extent });
            start = end;
        }
    }
    parts.into_iter().collect()
}

/// The same for ranges that are kept in parts: each server that any of them concerns grants all of them.
pub(super) fn by_division(
    servers: &[LockServerId],
    division: RangeDivision,
    object: ObjectId,
    extents: &[LockExtent],
) -> VecDeque<(LockServerId, Vec<LockExtent>)> {
    let concerned = extents.iter().flat_map(|extent| match servers.len() {
        0 | 1 => (0..servers.len()).collect(),
        count => division.servers(object, extent.range, count),
    });
    let concerned: BTreeSet<_> = concerned.map(|server| servers[server]).collect();
    concerned.into_iter().map(|server| (server, extents.to_vec())).collect()
}
