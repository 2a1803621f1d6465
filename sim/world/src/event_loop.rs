//! The event loop of every simulation. It owns time, the event queue and the machines, and knows neither network nor disk.
//!
//! ```text
//!   EventLoop::next ── pops the earliest event ──► Due ──► its owner makes an Input of it
//!                                                              │
//!        schedule ◄── the owner performs ◄── Effects ◄── EventLoop::step ──► Machine::step
//! ```
//!
//! The owner of the loop decides how long a message, a disk command and a request take: the attack's [`World`](crate::World) with its
//! lossy network and disks, the measuring engine with models of hardware, or a crate's own test world.

use crate::clock::LocalClock;
use crate::queue::EventQueue;
use braid_base::Time;
use braid_machine::{EffectsOf, InputOf, Machine};
use std::collections::VecDeque;
use std::time::Duration;

/// This many events without any passage of time mean that a machine spins.
const EVENTS_AT_ONCE_MAX: u64 = 1_000_000;

/// The shortest time from setting a deadline to meeting it, in nanoseconds: no machine is woken at the very time at which it asks.
const SOONEST_WAKE: u64 = 1_000;
/// A machine may have so many deadlines that are due at once.
const WAKES_MAX: u32 = 100_000;

/// Machines of type `M` and their future events. `E` is the type of event that the loop's owner schedules.
pub struct EventLoop<M, E> {
    now: Time,
    queue: EventQueue<Event<E>>,
    nodes: Vec<Node<M, E>>,
    /// Events since true time last advanced.
    events_at_once: u64,
}

/// A node's number in its loop, counted from 0 in the order of [`EventLoop::add`].
pub type NodeIndex = usize;

/// An event whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<E> {
    /// An event of the owner that concerns no machine.
    Outside(E),
    /// An event for a machine that is up and not stalled.
    For(NodeIndex, E),
    /// A machine's deadline: it takes [`braid_machine::Input::Wake`].
    Wake(NodeIndex),
}

/// A node, up or down.
struct Node<M, E> {
    /// `None` while the node is down.
    machine: Option<M>,
    clock: LocalClock,
    /// Counts starts.
    life: u64,
    /// When the node is to be woken, at the latest.
    armed: Option<Time>,
    /// How often it was woken since its deadline was last in the future.
    wakes: u32,
    stalled_until: Time,
    /// Events that came while it was stalled, or behind such events, in their order, with the life in which each is valid.
    postponed: VecDeque<(Option<u64>, E)>,
}

impl<M, E> Node<M, E> {
    /// True if it is up, in the life in which an event is valid.
    fn takes(&self, life: Option<u64>) -> bool {
        self.machine.is_some() && life.is_none_or(|life| life == self.life)
    }
}

enum Event<E> {
    /// An event of no node.
    Outside(E),
    /// `life`: the only start of the node in which the event is valid, or any.
    For { node: u32, life: Option<u64>, event: E },
    /// The node has a deadline.
    Wake { node: u32, life: u64 },
    /// The first of the node's postponed events is due.
    Resume { node: u32 },
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
        self.nodes.push(Node {
            machine: None,
            clock,
            life: 0,
            armed: None,
            wakes: 0,
            stalled_until: Time(0),
            postponed: VecDeque::new(),
        });
        self.nodes.len() - 1
    }

    /// Brings up a node. The owner then has it step with [`braid_machine::Input::Start`].
    pub fn start(&mut self, node: NodeIndex, machine: M) {
        let place = &mut self.nodes[node];
        assert!(place.machine.is_none(), "a node that starts is down");
        (place.machine, place.armed, place.stalled_until) = (Some(machine), None, self.now);
        place.life += 1;
        // What its predecessor was too late to take arrives now, except what was for the predecessor alone.
        for (life, event) in std::mem::take(&mut place.postponed) {
            if life.is_none() {
                self.queue.push(self.now, Event::For { node: node as u32, life, event });
            }
        }
    }

    /// Takes down a node: events scheduled for this start only are dropped.
    pub fn end(&mut self, node: NodeIndex) -> Option<M> {
        self.nodes[node].machine.take()
    }

    pub fn machine(&self, node: NodeIndex) -> Option<&M> {
        self.nodes[node].machine.as_ref()
    }

    /// The machine of a node, if it is up, for a scripted machine to be controlled.
    pub fn machine_mut(&mut self, node: NodeIndex) -> Option<&mut M> {
        self.nodes[node].machine.as_mut()
    }

    pub fn clock(&self, node: NodeIndex) -> &LocalClock {
        &self.nodes[node].clock
    }

    /// A node's clock, to be set. A machine that is up must be armed again afterwards.
    pub fn clock_mut(&mut self, node: NodeIndex) -> &mut LocalClock {
        &mut self.nodes[node].clock
    }

    /// Stalls a node until `until`: it takes the inputs of that time afterwards.
    pub fn stall(&mut self, node: NodeIndex, until: Time) {
        let place = &mut self.nodes[node];
        place.stalled_until = place.stalled_until.max(until);
    }

    /// True if the node is up and stalled.
    pub fn is_stalled(&self, node: NodeIndex) -> bool {
        self.nodes[node].machine.is_some() && self.nodes[node].stalled_until > self.now
    }

    /// Schedules an event that concerns no machine.
    pub fn schedule(&mut self, at: Time, event: E) {
        self.queue.push(at, Event::Outside(event));
    }

    /// Schedules an event for the machine that will be up at that node then.
    pub fn schedule_for(&mut self, node: NodeIndex, at: Time, event: E) {
        self.queue.push(at, Event::For { node: node as u32, life: None, event });
    }

    /// Schedules an event for the machine that is at that node now: a machine started later does not see it.
    pub fn schedule_own(&mut self, node: NodeIndex, at: Time, event: E) {
        let life = Some(self.nodes[node].life);
        self.queue.push(at, Event::For { node: node as u32, life, event });
    }

    /// Returns the next event and advances time to it; if there is none up to `until`, advances time to `until`.
    pub fn next(&mut self, until: Time) -> Option<Due<E>> {
        while let Some((time, event)) = self.queue.pop_until(until) {
            self.events_at_once = if time > self.now { 0 } else { self.events_at_once + 1 };
            assert!(
                self.events_at_once < EVENTS_AT_ONCE_MAX,
                "time does not advance: a machine wakes itself without end"
            );
            self.now = time;
            if let Some(due) = self.due(event) {
                return Some(due);
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// The event as it is due now; `None` if it is obsolete or postponed.
    fn due(&mut self, event: Event<E>) -> Option<Due<E>> {
        match event {
            Event::Outside(event) => Some(Due::Outside(event)),
            Event::For { node, life, event } => {
                let place = &mut self.nodes[node as NodeIndex];
                if !place.takes(life) {
                    return None;
                }
                if place.stalled_until <= self.now && place.postponed.is_empty() {
                    return Some(Due::For(node as NodeIndex, event));
                }
                if place.postponed.is_empty() {
                    self.queue.push(place.stalled_until, Event::Resume { node });
                }
                place.postponed.push_back((life, event));
                None
            }
            Event::Resume { node } => self.due_postponed(node),
            Event::Wake { node, life } => self.due_wake(node, life),
        }
    }

    /// The first postponed event of a node, if it is not stalled any more. They are taken in the order in which they came, even if the node
    /// was stalled several times meanwhile: what a machine is sent through one channel is not reordered.
    fn due_postponed(&mut self, node: u32) -> Option<Due<E>> {
        let place = &mut self.nodes[node as NodeIndex];
        if place.stalled_until > self.now {
            self.queue.push(place.stalled_until, Event::Resume { node });
            return None;
        }
        let event = loop {
            let (life, event) = place.postponed.pop_front()?;
            if place.takes(life) {
                break event;
            }
        };
        if !place.postponed.is_empty() {
            self.queue.push(self.now, Event::Resume { node });
        }
        Some(Due::For(node as NodeIndex, event))
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
        // Deadlines mostly move to later times: a wake that comes too early is dropped here and does not disturb the machine.
        if place.clock.when(machine.deadline()?) > self.now {
            self.arm(node as NodeIndex);
            return None;
        }
        place.wakes += 1;
        assert!(place.wakes <= WAKES_MAX, "node {node} wakes itself again and again: its deadline stays in the past");
        Some(Due::Wake(node as NodeIndex))
    }

    /// Makes a machine that is up take an input. The owner performs the effects, then [arms](EventLoop::arm) it.
    pub fn step(&mut self, node: NodeIndex, input: InputOf<M>, effects: &mut EffectsOf<M>) -> &M {
        let place = &mut self.nodes[node];
        let now = place.clock.now(self.now);
        let machine = place.machine.as_mut().expect("the node is up");
        machine.step(now, input, effects);
        machine
    }

    /// Schedules a wake of the machine at its deadline.
    pub fn arm(&mut self, node: NodeIndex) {
        let place = &mut self.nodes[node];
        let Some(deadline) = place.machine.as_ref().and_then(Machine::deadline) else { return };
        let due = place.clock.when(deadline);
        if due > self.now {
            place.wakes = 0;
        }
        let at = due.max(self.now.after(Duration::from_nanos(SOONEST_WAKE)));
        if place.armed.is_none_or(|armed| at < armed) {
            place.armed = Some(at);
            self.queue.push(at, Event::Wake { node: node as u32, life: place.life });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Now;
    use braid_machine::{Never, NoDisk};

    struct Idle;

    impl Machine for Idle {
        type Request = Never;
        type Outcome = Never;
        type Disk = NoDisk;

        fn step(&mut self, _: Now, _: InputOf<Self>, _: &mut EffectsOf<Self>) {}
        fn deadline(&self) -> Option<Time> {
            None
        }
        fn invariants(&self) {}
    }

    #[test]
    fn a_node_that_stalls_again_takes_what_it_was_sent_in_order() {
        let mut events: EventLoop<Idle, char> = EventLoop::default();
        let node = events.add(LocalClock::exact(Time(0)));
        events.start(node, Idle);
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        events.stall(node, at(5));
        events.schedule_for(node, at(1), 'a');
        events.schedule_for(node, at(4), 'b');
        events.schedule_for(node, at(20), 'd');
        assert_eq!(events.next(at(3)), None);
        events.stall(node, at(10));
        events.schedule_for(node, at(4), 'c');
        let taken: Vec<_> = std::iter::from_fn(|| Some((events.next(at(30))?, events.now()))).collect();
        let due = |event, seconds| (Due::For(node, event), at(seconds));
        assert_eq!(taken, [due('a', 10), due('b', 10), due('c', 10), due('d', 20)]);
    }
}
