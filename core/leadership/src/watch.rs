//! The reads of `head`. A standby counts by them how long the leader has been silent: only the time between two successful reads that
//! follow each other closely counts. So if the registry can't be read, or the standby was suspended, no time passes, and an outage of the
//! registry changes no leader.

use crate::times::{PATIENCE, POLL, READS_APART};
use crate::{CallId, Head};
use braid_base::Time;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// The read under way, and when it was sent.
    read: Option<(CallId, Time)>,
    next: Time,
    /// When it last read something, or began to watch.
    last: Time,
    /// What the last read showed, in this watch.
    pub head: Option<Head>,
    /// For how long `head` was the same.
    pub silence: Duration,
    /// For how long it has read without gaps.
    pub followed: Duration,
}

impl Watch {
    pub fn new(now: Time) -> Watch {
        let (silence, followed) = (Duration::ZERO, Duration::ZERO);
        Watch { read: None, next: now, last: now, head: None, silence, followed }
    }

    /// When the next read is due, or the one under way is given up.
    pub fn deadline(&self) -> Time {
        self.read.map_or(self.next, |(_, sent)| sent.after(PATIENCE))
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.deadline() <= now
    }

    /// A read is sent. An answer to the one before it comes too late.
    pub fn begin(&mut self, now: Time, call: CallId) {
        self.read = Some((call, now));
        self.next = now.after(POLL);
    }

    /// If this is the read under way, it has ended. Returns when it was sent.
    pub fn ends(&mut self, call: CallId) -> Option<Time> {
        self.read.take_if(|(read, _)| *read == call).map(|(_, sent)| sent)
    }

    /// What a read shows that was sent before now may be older than what a swap shows: it is not awaited.
    pub fn give_up(&mut self) {
        self.read = None;
    }

    /// A read has shown this.
    pub fn see(&mut self, now: Time, found: Head) {
        let passed = now.since(self.last);
        let counts = self.head.is_some() && passed <= READS_APART;
        let is_same = self.head.as_ref() == Some(&found);
        self.silence =
            if is_same { self.silence + if counts { passed } else { Duration::ZERO } } else { Duration::ZERO };
        self.followed = if counts { self.followed + passed } else { Duration::ZERO };
        self.last = now;
        self.head = Some(found);
    }

    /// For how long it has read nothing.
    pub fn unread(&self, now: Time) -> Duration {
        now.since(self.last)
    }
}
