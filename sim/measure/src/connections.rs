//! TCP between nodes, as far as it holds small messages back: a node sends nothing more while the other end has not acknowledged what it sent
//! before (Nagle's algorithm), and the other end acknowledges with its next message, or after a delay.

use crate::prelude::*;
use braid_wire::Message;
use std::mem::take;

/// The connections of all nodes, in both directions.
#[derive(Default)]
pub struct Connections {
    /// How long an acknowledgement waits for a message that can carry it. Zero: acknowledgements are not modelled.
    pub delay: Duration,
    ways: BTreeMap<Way, Sent>,
}

/// From one node to another one.
pub type Way = (u32, u32);

/// What a node has sent to another one, in messages.
#[derive(Default)]
struct Sent {
    sent: u64,
    arrived: u64,
    acknowledged: u64,
    waiting: Vec<Message>,
}

impl Connections {
    /// A node sends a message. None if it has to wait.
    pub fn send(&mut self, way: Way, message: Message) -> Option<Message> {
        if self.delay.is_zero() {
            return Some(message);
        }
        let own = self.ways.entry(way).or_default();
        if own.acknowledged < own.sent {
            own.waiting.push(message);
            return None;
        }
        own.sent += 1;
        Some(message)
    }

    /// How many messages of the other node a message acknowledges that leaves now.
    pub fn acknowledges(&self, (from, to): Way) -> u64 {
        self.ways.get(&(to, from)).map_or(0, |other| other.arrived)
    }

    /// A message has arrived. Returns when it is acknowledged at the latest, and the number of messages that are then.
    pub fn arrive(&mut self, now: Time, way: Way) -> Option<(Time, u64)> {
        if self.delay.is_zero() {
            return None;
        }
        let own = self.ways.entry(way).or_default();
        own.arrived += 1;
        Some((now.after(self.delay), own.arrived))
    }

    /// So many messages are acknowledged. Returns those that waited for that.
    pub fn acknowledge(&mut self, way: Way, count: u64) -> Vec<Message> {
        let Some(own) = self.ways.get_mut(&way) else { return Vec::new() };
        own.acknowledged = own.acknowledged.max(count);
        if own.acknowledged < own.sent {
            return Vec::new();
        }
        own.sent += own.waiting.len() as u64;
        take(&mut own.waiting)
    }
}
