//! A host's links to the lock servers: whether a server's present start knows all locks of this host.

use super::{Ctx, LockClient, LockTimer};
use braid_base::limits::{self, Settings};
use braid_base::{Generation, LockServerId, NodeId, Now, Time};
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
    /// When the host sent the latest message that the server is known to have heard. The server may have heard later ones.
    pub reached: Option<Time>,
    /// When the host sent its first message.
    began: Time,
    /// It was told that the server is in doubt.
    pub doubted: bool,
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

    /// The server has answered a heartbeat that was sent at `sent`, or with 0 another message.
    pub fn on_heard(&mut self, now: Time, sent: Time) {
        self.last_heard = Some(now);
        let reached = Some(self.began.max(sent.min(now)));
        if reached > self.reached {
            (self.reached, self.doubted) = (reached, false);
        }
    }

    /// True if the server has not answered for a lease, or, if it never has, not within the time after which a request is sent again.
    pub fn is_silent(&self, now: Time, settings: &Settings) -> bool {
        let never = now.since(self.began) > settings.resend_min;
        self.last_heard.map_or(never, |heard| now.since(heard) > settings.host_lease)
    }

    /// When it is so long since the server is known to have heard this host that it may presume it dead.
    pub fn in_doubt_at(&self, settings: &Settings) -> Option<Time> {
        self.reached.map(|reached| reached.after(settings.host_lease * 7 / 8))
    }

    pub fn is_in_doubt(&self, now: Now, settings: &Settings) -> bool {
        self.in_doubt_at(settings).is_some_and(|doubt| doubt <= now.time)
    }

    /// One lock less has to be reasserted.
    pub fn heard_again(&mut self) {
        self.reassert(self.reasserting - 1);
    }
}

impl LockClient {
    /// Sends a command to a lock server, with the locks that were dropped meanwhile.
    pub(super) fn tell(&mut self, cx: &mut Ctx, server: LockServerId, command: LockCommand) {
        let began = cx.now.time;
        let link = self.links.entry(server).or_insert_with(|| ServerLink { began, ..ServerLink::default() });
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
