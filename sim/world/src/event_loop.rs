//! The event loop of every simulation: it owns time, the event queue and the machines, and knows neither network nor disk.
//!
//! ```text
//!   EventLoop::next ── pops the earliest event ──► Due ──► its owner makes an Input of it
//!                                                              │
//!        schedule ◄── the owner performs ◄── Effects ◄── EventLoop::step ──► Machine::step
//! ```
//!
//! Its owner says what a message, a disk command and a request cost: the attack's [`World`](crate::World) with networks that lose and disks
//! that forget, the measuring engine with models of hardware, a crate's own swarm run with whatever it needs.

use crate::clock::LocalClock;
use crate::queue::EventQueue;
use braid_base::Time;
use braid_machine::{Effects, Input, Machine};
use std::time::Duration;

/// So many events without time passing are a machine that spins.
const EVENTS_AT_ONCE_MAX: u64 = 1_000_000;

/// A deadline is met this long after it was set at the earliest: no machine is woken in the instant in which it asks.
const SOONEST_WAKE: u64 = 1_000;

/// Machines of type `M`, and what is going to happen to them. `E` is what the loop's owner schedules.
pub struct EventLoop<M, E> {
    now: Time,
    queue: EventQueue<Event<E>>,
    nodes: Vec<Node<M>>,
    /// Events since time last passed.
    events_at_once: u64,
}

/// A node's number in its loop, counted from 0 in the order of [`EventLoop::add`].
pub type NodeIndex = usize;

/// An event whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<E> {
    /// One of the owner's that concerns no machine.
    Outside(E),
    /// One for a machine that is up and does not stall.
    For(NodeIndex, E),
    /// A machine's deadline: it takes [`Input::Wake`].
    Wake(NodeIndex),
}

/// Where a machine runs.
struct Node<M> {
    /// None while it is down.
    machine: Option<M>,
    clock: LocalClock,
    /// Counts starts.
    life: u64,
    /// When it is to be woken, at the latest.
    armed: Option<Time>,
    stalled_until: Time,
}

enum Event<E> {
    Outside(E),
    /// `life`: only in that one, or in any.
    For {
        node: u32,
        life: Option<u64>,
        event: E,
    },
    Wake {
        node: u32,
        life: u64,
    },
}

impl<M: Machine, E> Default for EventLoop<M, E> {
    fn default() -> Self {
        EventLoop { now: Time(0), queue: EventQueue::default(), nodes: Vec::new(), events_at_once: 0 }
    }
}

impl<M: Machine, E> EventLoop<M, E> {
    /// True time, which no machine sees.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Adds a node that is down.
    pub fn add(&mut self, clock: LocalClock) -> NodeIndex {
        self.nodes.push(Node { machine: None, clock, life: 0, armed: None, stalled_until: Time(0) });
        self.nodes.len() - 1
    }

    /// Brings up a node. Its owner has it step with [`Input::Start`].
    pub fn start(&mut self, node: NodeIndex, machine: M) {
        let place = &mut self.nodes[node];
        assert!(place.machine.is_none(), "a node that starts is down");
        (place.machine, place.armed, place.stalled_until) = (Some(machine), None, self.now);
        place.life += 1;
    }

    /// Takes down a node: its own events of this life will not happen.
    pub fn end(&mut self, node: NodeIndex) -> Option<M> {
        self.nodes[node].machine.take()
    }

    /// The machine of a node, if it is up.
    pub fn machine(&self, node: NodeIndex) -> Option<&M> {
        self.nodes[node].machine.as_ref()
    }

    /// The same, to play a part in a machine that is scripted.
    pub fn machine_mut(&mut self, node: NodeIndex) -> Option<&mut M> {
        self.nodes[node].machine.as_mut()
    }

    /// A node's clock.
    pub fn clock(&self, node: NodeIndex) -> &LocalClock {
        &self.nodes[node].clock
    }

    /// A node's clock, to set it. A machine that is up has to be armed again.
    pub fn clock_mut(&mut self, node: NodeIndex) -> &mut LocalClock {
        &mut self.nodes[node].clock
    }

    /// Lets a node do nothing until then; what comes meanwhile, it finds afterwards.
    pub fn stall(&mut self, node: NodeIndex, until: Time) {
        let place = &mut self.nodes[node];
        place.stalled_until = place.stalled_until.max(until);
    }

    /// True if the node is up and does nothing at present.
    pub fn is_stalled(&self, node: NodeIndex) -> bool {
        self.nodes[node].machine.is_some() && self.nodes[node].stalled_until > self.now
    }

    /// Schedules an event that concerns no machine.
    pub fn schedule(&mut self, at: Time, event: E) {
        self.queue.push(at, Event::Outside(event));
    }

    /// Schedules an event for whatever machine is up at that node then.
    pub fn schedule_for(&mut self, node: NodeIndex, at: Time, event: E) {
        self.queue.push(at, Event::For { node: node as u32, life: None, event });
    }

    /// Schedules an event for the machine that is at that node now: one that is started later does not see it.
    pub fn schedule_own(&mut self, node: NodeIndex, at: Time, event: E) {
        let life = Some(self.nodes[node].life);
        self.queue.push(at, Event::For { node: node as u32, life, event });
    }

    /// Lets the next event happen, unless it comes after `until`: then it is `until`.
    pub fn next(&mut self, until: Time) -> Option<Due<E>> {
        while let Some((time, event)) = self.queue.pop_until(until) {
            self.events_at_once = if time > self.now { 0 } else { self.events_at_once + 1 };
            assert!(self.events_at_once < EVENTS_AT_ONCE_MAX, "time stands still: a machine wakes itself for ever");
            self.now = time;
            if let Some(due) = self.due(event) {
                return Some(due);
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// What the event is now; nothing, if it is overtaken or put off.
    fn due(&mut self, event: Event<E>) -> Option<Due<E>> {
        match event {
            Event::Outside(event) => Some(Due::Outside(event)),
            Event::For { node, life, event } => {
                let place = &self.nodes[node as NodeIndex];
                if place.machine.is_none() || life.is_some_and(|life| life != place.life) {
                    return None;
                }
                if place.stalled_until > self.now {
                    self.queue.push(place.stalled_until, Event::For { node, life, event });
                    return None;
                }
                Some(Due::For(node as NodeIndex, event))
            }
            Event::Wake { node, life } => self.due_wake(node, life),
        }
    }

    fn due_wake(&mut self, node: u32, life: u64) -> Option<Due<E>> {
        let place = &mut self.nodes[node as NodeIndex];
        let machine = place.machine.as_ref().filter(|_| life == place.life && place.armed == Some(self.now))?;
        if place.stalled_until > self.now {
            place.armed = Some(place.stalled_until);
            self.queue.push(place.stalled_until, Event::Wake { node, life });
            return None;
        }
        place.armed = None;
        // Deadlines mostly move away: a wake that comes too early finds that out here, and disturbs no machine.
        if place.clock.when(machine.deadline()?) > self.now {
            self.arm(node as NodeIndex);
            return None;
        }
        Some(Due::Wake(node as NodeIndex))
    }

    /// Lets a machine that is up take an input. Its owner performs the effects, then [arms](EventLoop::arm) it.
    pub fn step(&mut self, node: NodeIndex, input: Input, effects: &mut Effects) -> &M {
        let place = &mut self.nodes[node];
        let now = place.clock.now(self.now);
        let machine = place.machine.as_mut().expect("it is up");
        machine.step(now, input, effects);
        machine
    }

    /// Sees to it that the machine is woken at its deadline.
    pub fn arm(&mut self, node: NodeIndex) {
        let place = &mut self.nodes[node];
        let Some(deadline) = place.machine.as_ref().and_then(Machine::deadline) else { return };
        let at = place.clock.when(deadline).max(self.now.after(Duration::from_nanos(SOONEST_WAKE)));
        if place.armed.is_none_or(|armed| at < armed) {
            place.armed = Some(at);
            self.queue.push(at, Event::Wake { node: node as u32, life: place.life });
        }
    }
}
