//! A combinator that runs machines on windows of volumes: it connects their disk commands to a host machine, and is one machine itself.
//! So a participant whose state is small, such as a metadata server, survives the loss of its computer and of devices without a store of
//! its own. The host's generation fences the participant's writes together with all others.
//!
//! ```text
//!                 ┌───────────────────── OnVolume ─────────────────────┐
//!   messages,     │  guest 0 ─┐ disk commands     reads, writes        │
//!   requests ────►│  guest 1 ─┼──────────────► flights ─────────► host │◄────► devices, monitor, lock servers
//!                 │           ◄─────────────────────────────────┘      │
//!                 └────────────────────────────────────────────────────┘
//! ```
//!
//! * All requests to the host have [endless patience](Patience::Endless). So a guest sees a disk that is sometimes slow, and never one
//!   whose writes have an unknown outcome.
//! * Every hostwrite is durable when it is answered, so a `Sync` is answered at once: it covers the writes whose completion the guest has
//!   received.
//! * `Reserve` writes zeros to the bytes in blocks without content, because overwriting content needs no space. It takes one step after
//!   the other. The guest's writes into the blocks of a step wait for its end, and the step for theirs.
//! * Commands longer than a transaction are cut. A write of up to `limits::TRANSACTION_BYTES_MAX` is one transaction: whole or absent if
//!   the volume has atomicity `implied`, and never torn.
//! * If the host is fenced, or refuses a request for another reason than the state of the array, the guests have *ended*: they get no
//!   further input, and requests to them are answered by that error. The host continues, so that its other users are answered.
//!
//! The operations are numbered from 2^61 to 2^62. Front ends number theirs from 0; from 2^62 on is the range of file clients.

mod flights;

use crate::{Effect, Effects, HostError, HostOutcome, HostRequest, Ignored, Input, Machine, OpId, Patience};
use braid_base::{BLOCK_BYTES, Now, Time, VolumeId};
use flights::{Flights, Landed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// The numbers of the operations.
const OPS: Range<u64> = 1 << 61..1 << 62;
/// When operations for which the host had no room are repeated.
const AGAIN: Duration = Duration::from_millis(10);

/// The part of a volume that a guest takes for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The host must know the volume, or learn of it before the start.
    pub volume: VolumeId,
    /// The first byte, a multiple of the block size.
    pub offset: u64,
    /// In bytes, a multiple of the block size.
    pub length: u64,
}

/// The machine that an input from outside is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    Host,
    /// The guest with this index. If there is none, the input is ignored.
    Guest(usize),
    /// The host and all guests. Only for messages.
    Everyone,
}

/// Decides which machine gets a message or a request.
pub trait Route {
    /// `input` is an [`Input::Message`] or an [`Input::Request`].
    fn receiver(&self, input: &Input) -> Receiver;
}

impl<F: Fn(&Input) -> Receiver> Route for F {
    fn receiver(&self, input: &Input) -> Receiver {
        self(input)
    }
}

/// Machines on windows of volumes; see the module.
#[derive(Debug)]
pub struct OnVolume<M, H, R> {
    host: H,
    guests: Vec<M>,
    route: R,
    flights: Flights,
    /// The operations at the host.
    asked: BTreeMap<OpId, Asked>,
    next_op: u64,
    /// Operations for which the host had no room, and when they are repeated.
    refused: Vec<OpId>,
    again_at: Option<Time>,
    ended: Option<Ended>,
    /// Requests to guests that are not answered.
    open: BTreeSet<OpId>,
    /// Inputs of this step that are still to be processed.
    inputs: VecDeque<(Receiver, Input)>,
    /// The effects of the machine that processes one.
    effects: Effects,
}

/// Guests that have ended.
#[derive(Clone, Debug)]
struct Ended {
    why: HostError,
    /// Operations of guests that have retired, which the host has not answered.
    unfinished: BTreeSet<OpId>,
    /// Why an operation failed.
    failed: Option<HostError>,
}

/// An operation at the host.
#[derive(Clone, Debug)]
struct Asked {
    flight: u64,
    /// Which part of the flight.
    part: usize,
    /// To repeat it.
    request: HostRequest,
}

impl<M: Machine, H: Machine, R: Route> OnVolume<M, H, R> {
    /// Guests that have not started, with their windows, over a host that has not started.
    pub fn new(host: H, guests: Vec<(Window, M)>, route: R) -> OnVolume<M, H, R> {
        let (windows, guests): (Vec<_>, Vec<_>) = guests.into_iter().unzip();
        let block = BLOCK_BYTES as u64;
        for (index, one) in windows.iter().enumerate() {
            assert!(one.offset.is_multiple_of(block) && one.length.is_multiple_of(block), "whole blocks: {one:?}");
            let meets = |other: &Window| {
                one.volume == other.volume
                    && one.offset < other.offset + other.length
                    && other.offset < one.offset + one.length
            };
            assert!(!windows[..index].iter().any(meets), "windows don't overlap: {windows:?}");
        }
        OnVolume {
            host,
            guests,
            route,
            flights: Flights::new(windows),
            asked: BTreeMap::new(),
            next_op: OPS.start,
            refused: Vec::new(),
            again_at: None,
            ended: None,
            open: BTreeSet::new(),
            inputs: VecDeque::new(),
            effects: Effects::new(),
        }
    }

    pub fn host(&self) -> &H {
        &self.host
    }

    pub fn guests(&self) -> &[M] {
        &self.guests
    }

    /// The guests, to change their settings.
    pub fn guests_mut(&mut self) -> &mut [M] {
        &mut self.guests
    }

    /// Why the guests have ended, if they have.
    pub fn ended(&self) -> Option<&HostError> {
        self.ended.as_ref().map(|ended| &ended.why)
    }

    /// Ends the guests for this reason: they get no further input, and give no further command. What the host does for them already, it
    /// finishes: see [`OnVolume::is_settled`].
    pub fn retire(&mut self, why: HostError, out: &mut Effects) {
        if self.ended.is_some() {
            return;
        }
        let at_host = self.asked.keys().filter(|op| !self.refused.contains(op)).copied();
        let unfinished = at_host.collect();
        self.end(Ended { why, unfinished, failed: None }, out);
    }

    /// True if the host does nothing for guests any more, because they have ended.
    pub fn is_settled(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.unfinished.is_empty())
    }

    /// Why the guests ended before they could retire, or why an operation failed that they had left unfinished: then the outcome of
    /// a write may be unknown.
    pub fn failed(&self) -> Option<&HostError> {
        self.ended.as_ref()?.failed.as_ref()
    }

    /// True if a guest has been told that its host is fenced. It learns that from its next disk command at the latest.
    pub fn is_fenced(&self) -> bool {
        self.ended() == Some(&HostError::Fenced)
    }

    /// Gives an input from outside to its machine.
    fn route(&mut self, input: Input, out: &mut Effects) {
        let guest = match self.route.receiver(&input) {
            Receiver::Guest(guest) => guest,
            Receiver::Host => return self.inputs.push_back((Receiver::Host, input)),
            Receiver::Everyone => {
                let guests = (0..self.guests.len()).filter(|_| self.ended.is_none()).map(Receiver::Guest);
                let all = [Receiver::Host].into_iter().chain(guests);
                return self.inputs.extend(all.map(|to| (to, input.clone())));
            }
        };
        let error = match &self.ended {
            Some(ended) => ended.why.clone(),
            None if guest < self.guests.len() => {
                if let Input::Request { op, .. } = &input {
                    self.open.insert(*op);
                }
                return self.inputs.push_back((Receiver::Guest(guest), input));
            }
            None => HostError::NoSuchVolume,
        };
        match input {
            Input::Request { op, .. } => out.reply(op, Err(error)),
            _ => out.ignore(Ignored::NotForUs),
        }
    }

    /// Lets one machine process an input, and handles the effects.
    fn process(&mut self, now: Now, to: Receiver, input: Input, out: &mut Effects) {
        let mut effects = std::mem::take(&mut self.effects);
        match to {
            Receiver::Host => self.host.step(now, input, &mut effects),
            Receiver::Guest(_) if self.ended.is_some() => {}
            Receiver::Guest(guest) => self.guests[guest].step(now, input, &mut effects),
            Receiver::Everyone => unreachable!("an input for all is given to each"),
        }
        effects.drain_ignored().for_each(|why| out.ignore(why));
        for effect in effects.drain() {
            match (to, effect) {
                (_, Effect::Send { to, message }) => out.send(to, message),
                (Receiver::Guest(guest), Effect::Disk { tag, command }) => {
                    self.flights.command(guest, tag, command);
                    self.take_off();
                }
                (_, Effect::Disk { .. }) => panic!("a host has no disk"),
                (Receiver::Host, Effect::Reply { op, outcome }) if OPS.contains(&op.0) => {
                    self.on_outcome(now, op, outcome, out);
                }
                (_, Effect::Reply { op, outcome }) => {
                    self.open.remove(&op);
                    out.reply(op, outcome);
                }
            }
        }
        self.effects = effects;
    }

    /// The host has answered an operation.
    fn on_outcome(&mut self, now: Now, op: OpId, outcome: HostOutcome, out: &mut Effects) {
        let Some(asked) = self.asked.get(&op) else {
            let ended = self.ended.as_mut().expect("an operation is answered once");
            if ended.unfinished.remove(&op)
                && let Err(error) = outcome
                && error != HostError::Busy
            {
                ended.failed = Some(error);
            }
            return;
        };
        if outcome == Err(HostError::Busy) {
            self.refused.push(op);
            self.again_at.get_or_insert(now.time.after(AGAIN));
            return;
        }
        let (flight, part) = (asked.flight, asked.part);
        self.asked.remove(&op);
        if let Err(error) = self.flights.answered(flight, part, outcome) {
            let ended = Ended { why: error.clone(), unfinished: BTreeSet::new(), failed: Some(error) };
            return self.end(ended, out);
        }
        self.take_off();
    }

    /// Sends the host what flights ask for, and gives guests the results of those that have landed.
    fn take_off(&mut self) {
        for (flight, part, request) in self.flights.pop_requests() {
            let op = OpId(self.next_op);
            self.next_op += 1;
            assert!(OPS.contains(&op.0), "a host does not live that long");
            self.asked.insert(op, Asked { flight, part, request: request.clone() });
            self.inputs.push_back((Receiver::Host, Input::Request { op, request }));
        }
        for Landed { guest, tag, result } in self.flights.pop_landed() {
            self.inputs.push_back((Receiver::Guest(guest), Input::DiskDone { tag, result }));
        }
    }

    /// Repeats the operations for which the host had no room.
    fn repeat(&mut self) {
        self.again_at = None;
        for op in std::mem::take(&mut self.refused) {
            self.inputs.push_back((Receiver::Host, Input::Request { op, request: self.asked[&op].request.clone() }));
        }
    }

    /// The guests' disk is gone for good.
    fn end(&mut self, ended: Ended, out: &mut Effects) {
        std::mem::take(&mut self.open).into_iter().for_each(|op| out.reply(op, Err(ended.why.clone())));
        self.ended = Some(ended);
        self.flights.clear();
        self.asked.clear();
        self.refused.clear();
        self.again_at = None;
        self.inputs.retain(|(to, input)| match (to, input) {
            (Receiver::Guest(_), _) => false,
            (Receiver::Host, Input::Request { op, .. }) => !OPS.contains(&op.0),
            (_, _) => true,
        });
    }

    fn wake(&mut self, now: Now) {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now.time);
        if is_due(self.again_at) {
            self.repeat();
        }
        if is_due(self.host.deadline()) {
            self.inputs.push_back((Receiver::Host, Input::Wake));
        }
        let due = (0..self.guests.len()).filter(|guest| is_due(self.guests[*guest].deadline()));
        self.inputs.extend(due.map(|guest| (Receiver::Guest(guest), Input::Wake)));
    }
}

impl<M: Machine, H: Machine, R: Route> Machine for OnVolume<M, H, R> {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => {
                let guests = (0..self.guests.len()).map(Receiver::Guest);
                self.inputs.extend([Receiver::Host].into_iter().chain(guests).map(|to| (to, Input::Start)));
            }
            Input::Request { op, .. } if OPS.contains(&op.0) => panic!("{op:?} is not a number of front ends"),
            Input::Message { .. } | Input::Request { .. } => self.route(input, out),
            Input::DiskDone { .. } => panic!("a machine on a volume has no other disk"),
            Input::Wake => self.wake(now),
        }
        while let Some((to, input)) = self.inputs.pop_front() {
            self.process(now, to, input, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let guests = self.guests.iter().filter(|_| self.ended.is_none()).filter_map(Machine::deadline);
        guests.chain(self.host.deadline()).chain(self.again_at).min()
    }

    fn invariants(&self) {
        self.host.invariants();
        self.guests.iter().filter(|_| self.ended.is_none()).for_each(Machine::invariants);
        assert!(self.inputs.is_empty(), "a step processes all its inputs");
        assert_eq!(self.refused.is_empty(), self.again_at.is_none(), "what was refused is repeated");
        self.flights.invariants(self.asked.values().map(|asked| asked.flight));
    }
}

/// A read of a volume, with endless patience.
fn read(volume: VolumeId, range: Range<u64>) -> HostRequest {
    let length = (range.end - range.start) as usize;
    HostRequest::Read { volume, offset: range.start, length, patience: Patience::Endless }
}
