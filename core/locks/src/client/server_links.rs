//! A host's links to the lock servers: whether a server's present start knows all locks of this host.

use super::{Ctx, LockClient, LockTimer};
use braid_base::{Generation, LockServerId, NodeId, Time, limits};
use braid_wire::locking::{LockCommand, LockRequest};
use braid_wire::message::Message;

/// The link to one lock server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerLink {
    /// The server's latest start that has answered.
    pub heard: Generation,
    /// The server's start that knows every lock of this host.
    start: Generation,
    /// The number of locks that have to be reasserted to the latest start.
    reasserting: usize,
    pub last_heard: Option<Time>,
    /// The server had no room for this host when it last answered.
    pub crowded: bool,
    /// Dropped locks that the server was not told of.
    pub dropped: Vec<u64>,
}

impl ServerLink {
    /// So many locks have to be reasserted to the latest start. With none, it knows them all.
    pub fn reassert(&mut self, locks: usize) {
        self.reasserting = locks;
        if locks == 0 {
            self.start = self.heard;
        }
    }

    /// True if this is the server's latest start, and it knows every lock of this host.
    pub fn knows_all(&self, start: Generation) -> bool {
        (self.heard, self.start) == (start, start)
    }

    /// One lock less has to be reasserted.
    pub fn heard_again(&mut self) {
        self.reassert(self.reasserting - 1);
    }
}

impl LockClient {
    /// Sends a command to a lock server, with the locks that were dropped meanwhile.
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
