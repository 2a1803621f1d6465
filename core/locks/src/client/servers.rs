//! Lock servers, as a host sees them: which starts of them know what the host holds, and which of them grants what.

use super::{Ctx, LockClient, LockTimer};
use braid_base::{BlockRange, Generation, LockServerId, NodeId, ObjectId, Time, limits};
use braid_wire::locking::{LockCommand, LockExtent, LockRequest};
use braid_wire::message::Message;
use std::collections::{BTreeMap, VecDeque};

/// One lock server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerLink {
    /// Its start, as it last answered.
    pub heard: Generation,
    /// Its start that knows every lock held of it.
    start: Generation,
    /// Locks of which that start has yet to hear again.
    reasserting: usize,
    pub last_heard: Option<Time>,
    /// It had no room for this host when it last answered.
    pub crowded: bool,
    /// Requests let go that it has not been told of.
    pub dropped: Vec<u64>,
}

impl ServerLink {
    /// Its present start has to hear again of so many locks; of none, and it knows them all.
    pub fn reassert(&mut self, locks: usize) {
        self.reasserting = locks;
        if locks == 0 {
            self.start = self.heard;
        }
    }

    /// It has heard of one more, or need not hear of it.
    pub fn heard_again(&mut self) {
        self.reassert(self.reasserting - 1);
    }
}

impl LockClient {
    /// Sends to a lock server, with what was dropped meanwhile.
    pub(super) fn tell(&mut self, cx: &mut Ctx, server: LockServerId, command: LockCommand) {
        let link = self.links.entry(server).or_default();
        let rest = link.dropped.len().saturating_sub(limits::COMMITS_PER_REQUEST_MAX);
        let dropped = link.dropped.split_off(rest);
        let (host, start) = (self.config.host, link.start);
        if self.timers.deadline_of(LockTimer::Heartbeat(server)).is_none() {
            self.timers.set(LockTimer::Heartbeat(server), cx.now.time.after(cx.settings.heartbeat));
        }
        self.counters.requests += 1;
        let request = LockRequest { host, start, dropped, command };
        cx.out.send(NodeId::LockServer(server), Message::LockRequest(request));
    }
}

/// Which server has to grant what, in the order of their numbers, if each gets `run` blocks at a time.
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
