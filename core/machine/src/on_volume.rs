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
//! * A message goes to the guest that it addresses, and otherwise to the host. The monitor knows the process by its host alone: what it
//!   says is for the guests, too.
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

mod flights;

use crate::{
    Effect, Effects, HostEffects, HostError, HostInput, HostOutcome, HostRequest, Ignored, Input, Machine, NoDisk,
    OneDisk, OpId, Part, Patience, VolumeRequest,
};
use braid_base::{BLOCK_BYTES, Level, NodeId, Now, Time, VolumeId};
use braid_wire::Message;
use flights::{Flights, Landed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnVolumeRequest<R> {
    Host(HostRequest),
    Guest {
        /// Its index.
        guest: usize,
        request: R,
    },
}

/// The outcome of such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnVolumeOutcome<O> {
    Host(HostOutcome),
    /// An error means that the guest did not get the request, or has ended: see [`OnVolume::ended`].
    Guest(Result<O, HostError>),
}

/// Machines on windows of volumes; see the module.
#[derive(Clone, Debug)]
pub struct OnVolume<M: Machine, H> {
    host: H,
    guests: Vec<M>,
    /// The nodes that the guests are.
    names: Vec<NodeId>,
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
    inputs: VecDeque<Next<M::Request>>,
    /// The effects of a step of the host, and of a guest.
    effects: (HostEffects, Effects<M::Outcome>),
}

/// An input that is still to be processed.
#[derive(Clone, Debug)]
enum Next<R> {
    Host(HostInput),
    Guest(usize, Input<R>),
}

/// What this combinator gives its environment.
type Out<M> = Effects<OnVolumeOutcome<<M as Machine>::Outcome>, NoDisk>;

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
    request: VolumeRequest,
}

impl<M, H> OnVolume<M, H>
where
    M: Machine<Request: Clone, Disk = OneDisk>,
    H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>,
{
    /// Guests that have not started, with their names and windows, over a host that has not started.
    pub fn new(host: H, guests: Vec<(NodeId, Window, M)>) -> OnVolume<M, H> {
        let (mut names, mut windows, mut machines) = (Vec::new(), Vec::new(), Vec::new());
        for (name, window, machine) in guests {
            names.push(name);
            windows.push(window);
            machines.push(machine);
        }
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
            guests: machines,
            names,
            flights: Flights::new(windows),
            asked: BTreeMap::new(),
            next_op: 0,
            refused: Vec::new(),
            again_at: None,
            ended: None,
            open: BTreeSet::new(),
            inputs: VecDeque::new(),
            effects: Default::default(),
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
    /// finishes: see [`OnVolume::is_quiescent`].
    pub fn retire(&mut self, why: HostError, out: &mut Out<M>) {
        if self.ended.is_some() {
            return;
        }
        let at_host = self.asked.keys().filter(|op| !self.refused.contains(op)).copied();
        let unfinished = at_host.collect();
        self.end(Ended { why, unfinished, failed: None }, out);
    }

    /// True if the host does nothing for guests any more, because they have ended.
    pub fn is_quiescent(&self) -> bool {
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

    fn on_message(&mut self, (to, from): (NodeId, NodeId), message: Message, out: &mut Out<M>) {
        let guest = self.names.iter().position(|name| *name == to);
        match (guest, &self.ended) {
            (Some(guest), None) => self.inputs.push_back(Next::Guest(guest, Input::Message { to, from, message })),
            (Some(_), Some(_)) => out.ignore(Ignored::NotForUs),
            (None, None) if matches!(message, Message::MonitorAnswer(_)) => {
                self.inputs.push_back(Next::Host(Input::Message { to, from, message: message.clone() }));
                let copy = |(guest, to): (usize, &NodeId)| {
                    Next::Guest(guest, Input::Message { to: *to, from, message: message.clone() })
                };
                self.inputs.extend(self.names.iter().enumerate().map(copy));
            }
            (None, _) => self.inputs.push_back(Next::Host(Input::Message { to, from, message })),
        }
    }

    fn on_request(&mut self, op: OpId, request: OnVolumeRequest<M::Request>, out: &mut Out<M>) {
        assert_ne!(op.part, Part::ON_VOLUME, "machines on volumes have no other requests than those made here");
        match (request, &self.ended) {
            (OnVolumeRequest::Host(request), _) => self.inputs.push_back(Next::Host(Input::Request { op, request })),
            (OnVolumeRequest::Guest { guest, request }, None) if guest < self.guests.len() => {
                self.open.insert(op);
                self.inputs.push_back(Next::Guest(guest, Input::Request { op, request }));
            }
            (OnVolumeRequest::Guest { .. }, ended) => {
                let error = ended.as_ref().map_or(HostError::NoSuchVolume, |ended| ended.why.clone());
                out.reply(op, OnVolumeOutcome::Guest(Err(error)));
            }
        }
    }

    /// Lets one machine process an input, and handles the effects.
    fn process(&mut self, now: Now, next: Next<M::Request>, out: &mut Out<M>) {
        match next {
            Next::Host(input) => self.step_host(now, input, out),
            Next::Guest(_, _) if self.ended.is_some() => {}
            Next::Guest(guest, input) => self.step_guest(now, guest, input, out),
        }
    }

    fn step_host(&mut self, now: Now, input: HostInput, out: &mut Out<M>) {
        let mut effects = std::mem::take(&mut self.effects.0);
        self.host.step(now, input, &mut effects);
        effects.drain_ignored().for_each(|why| out.ignore(why));
        effects.drain_notes().for_each(|note| out.note(note));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => out.send(to, message),
                Effect::Reply { op, outcome } if op.part == Part::ON_VOLUME => self.on_outcome(now, op, outcome, out),
                Effect::Reply { op, outcome } => out.reply(op, OnVolumeOutcome::Host(outcome)),
            }
        }
        self.effects.0 = effects;
    }

    fn step_guest(&mut self, now: Now, guest: usize, input: Input<M::Request>, out: &mut Out<M>) {
        let mut effects = std::mem::take(&mut self.effects.1);
        self.guests[guest].step(now, input, &mut effects);
        effects.drain_ignored().for_each(|why| out.ignore(why));
        effects.drain_notes().for_each(|note| out.note(note));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => out.send(to, message),
                Effect::Disk { tag, command } => {
                    self.flights.command(guest, tag, command);
                    self.take_off();
                }
                Effect::Reply { op, outcome } => {
                    self.open.remove(&op);
                    out.reply(op, OnVolumeOutcome::Guest(Ok(outcome)));
                }
            }
        }
        self.effects.1 = effects;
    }

    /// The host has answered an operation.
    fn on_outcome(&mut self, now: Now, op: OpId, outcome: HostOutcome, out: &mut Out<M>) {
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
            let op = OpId { part: Part::ON_VOLUME, number: self.next_op };
            self.next_op += 1;
            self.asked.insert(op, Asked { flight, part, request: request.clone() });
            self.inputs.push_back(Next::Host(Input::Request { op, request: request.into() }));
        }
        for Landed { guest, tag, result } in self.flights.pop_landed() {
            self.inputs.push_back(Next::Guest(guest, Input::DiskDone { tag, result }));
        }
    }

    /// Repeats the operations for which the host had no room.
    fn repeat(&mut self) {
        self.again_at = None;
        for op in std::mem::take(&mut self.refused) {
            let request = self.asked[&op].request.clone().into();
            self.inputs.push_back(Next::Host(Input::Request { op, request }));
        }
    }

    /// The guests' disk is gone for good.
    fn end(&mut self, ended: Ended, out: &mut Out<M>) {
        std::mem::take(&mut self.open).into_iter().for_each(|op| {
            out.reply(op, OnVolumeOutcome::Guest(Err(ended.why.clone())));
        });
        self.ended = Some(ended);
        self.flights.clear();
        self.asked.clear();
        self.refused.clear();
        self.again_at = None;
        self.inputs.retain(|next| match next {
            Next::Guest(_, _) => false,
            Next::Host(Input::Request { op, .. }) => op.part != Part::ON_VOLUME,
            Next::Host(_) => true,
        });
    }

    fn wake(&mut self, now: Now) {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now.time);
        if is_due(self.again_at) {
            self.repeat();
        }
        if is_due(self.host.deadline()) {
            self.inputs.push_back(Next::Host(Input::Wake));
        }
        let due = (0..self.guests.len()).filter(|guest| is_due(self.guests[*guest].deadline()));
        self.inputs.extend(due.map(|guest| Next::Guest(guest, Input::Wake)));
    }
}

impl<M, H> Machine for OnVolume<M, H>
where
    M: Machine<Request: Clone, Disk = OneDisk>,
    H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>,
{
    type Request = OnVolumeRequest<M::Request>;
    type Outcome = OnVolumeOutcome<M::Outcome>;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<Self::Request, NoDisk>, out: &mut Out<M>) {
        match input {
            Input::Start => {
                self.inputs.push_back(Next::Host(Input::Start));
                self.inputs.extend((0..self.guests.len()).map(|guest| Next::Guest(guest, Input::Start)));
            }
            Input::Request { op, request } => self.on_request(op, request, out),
            Input::Message { to, from, message } => self.on_message((to, from), message, out),
            Input::Wake => self.wake(now),
        }
        while let Some(next) = self.inputs.pop_front() {
            self.process(now, next, out);
        }
    }

    fn level(&self) -> Level {
        self.host.level()
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
fn read(volume: VolumeId, range: Range<u64>) -> VolumeRequest {
    let length = (range.end - range.start) as usize;
    VolumeRequest::Read { volume, offset: range.start, length, patience: Patience::Endless }
}
