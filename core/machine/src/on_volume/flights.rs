//! The disk commands of guests that are under way: what they ask of the host, and their results.

use super::{Window, read};
use crate::{
    DiskCommand, DiskError, DiskResult, DiskTag, HostError, HostOutcome, HostSuccess, Patience, VolumeRequest,
};
use braid_base::{BLOCK_BYTES, BlockRange, limits};
use braid_wire::Failure;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// The bytes of one hostread or hostwrite at most, and of one step of a reservation.
const PART_BYTES: u64 = limits::TRANSACTION_BYTES_MAX as u64;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// The disk commands under way.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    windows: Vec<Window>,
    /// In the order in which they began.
    under_way: BTreeMap<u64, Flight>,
    next: u64,
    /// What the host is to be asked: the flight, the part of it, and the request.
    requests: Vec<(u64, usize, VolumeRequest)>,
    landed: Vec<Landed>,
}

/// The result of a disk command.
#[derive(Clone, Debug)]
pub(super) struct Landed {
    pub guest: usize,
    pub tag: DiskTag,
    pub result: DiskResult,
}

#[derive(Clone, Debug)]
struct Flight {
    guest: usize,
    tag: DiskTag,
    /// The bytes of the volume.
    range: Range<u64>,
    kind: Kind,
    /// The parts that the host has not answered.
    open: BTreeSet<usize>,
    failed: Option<DiskError>,
}

#[derive(Clone, Debug)]
enum Kind {
    Read {
        parts: BTreeMap<usize, Vec<Bytes>>,
    },
    /// `waits`: its data, as long as a step of a reservation is under way in its blocks.
    Write {
        waits: Option<Bytes>,
    },
    Reserve {
        /// The bytes before are reserved.
        done: u64,
        /// The bytes of the step under way. None while writes are under way in its blocks.
        step: Option<Range<u64>>,
        /// The bytes in blocks without content that are left to be written in this step.
        holes: VecDeque<Range<u64>>,
    },
}

impl Flights {
    pub fn new(windows: Vec<Window>) -> Flights {
        Flights { windows, under_way: BTreeMap::new(), next: 0, requests: Vec::new(), landed: Vec::new() }
    }

    pub fn command(&mut self, guest: usize, tag: DiskTag, command: DiskCommand) {
        let done = DiskResult::Done(Ok(()));
        let window = self.windows[guest];
        let place = |offset: u64, length: u64| {
            let end = offset.checked_add(length).filter(|end| *end <= window.length);
            let end = end.unwrap_or_else(|| panic!("{length} bytes at {offset} are not in {window:?}"));
            window.offset + offset..window.offset + end
        };
        let (range, kind) = match command {
            DiskCommand::Sync => return self.landed.push(Landed { guest, tag, result: done }),
            DiskCommand::Read { offset, length } => {
                (place(offset, length as u64), Kind::Read { parts: BTreeMap::new() })
            }
            DiskCommand::Write { offset, data, .. } => {
                let data = joined(data);
                (place(offset, data.len() as u64), Kind::Write { waits: Some(data) })
            }
            DiskCommand::Reserve { offset, length } => {
                let range = place(offset, length);
                let done = range.start;
                (range, Kind::Reserve { done, step: None, holes: VecDeque::new() })
            }
        };
        let is_same = |other: &Flight| (other.guest, other.tag) == (guest, tag);
        assert!(!self.under_way.values().any(is_same), "disk commands under way have different tags: {tag:?}");
        let flight = Flight { guest, tag, range, kind, open: BTreeSet::new(), failed: None };
        let meets = |other: &Flight| self.overlap(&flight, other) && flight.excludes(other);
        assert!(!self.under_way.values().any(meets), "a command overlaps another one, and one of them writes: {tag:?}");
        let name = self.next;
        self.next += 1;
        self.under_way.insert(name, flight);
        self.go_on(name);
    }

    /// The host has answered a part. An error means that the guests' disk is gone.
    pub fn answered(&mut self, name: u64, part: usize, outcome: HostOutcome) -> Result<(), HostError> {
        let flight = self.under_way.get_mut(&name).expect("a flight lands when all its parts are answered");
        assert!(flight.open.remove(&part), "a part is answered once");
        match (outcome, &mut flight.kind) {
            (Ok(HostSuccess::Data(data)), Kind::Read { parts }) => drop(parts.insert(part, data)),
            (Ok(HostSuccess::Done), Kind::Write { .. } | Kind::Reserve { .. }) => {}
            (Ok(HostSuccess::Allocation(runs)), Kind::Reserve { step: Some(step), holes, .. }) => {
                (step.end, *holes) = holes_in(step.clone(), &runs);
            }
            (Ok(other), kind) => unreachable!("{other:?} answers another request than that of {kind:?}"),
            (Err(HostError::Device { failure: Failure::NoSpace, .. }), _) => flight.failed = Some(DiskError::NoSpace),
            (Err(HostError::Device { failure: Failure::Lost { .. }, .. }), _) => {
                flight.failed.get_or_insert(DiskError::Failed);
            }
            (Err(error), _) => return Err(error),
        }
        if self.under_way[&name].open.is_empty() {
            self.go_on(name);
            let waiting: Vec<u64> =
                self.under_way.iter().filter(|(_, flight)| flight.waits()).map(|(name, _)| *name).collect();
            waiting.into_iter().for_each(|name| self.go_on(name));
        }
        Ok(())
    }

    /// What the host is to be asked.
    pub fn pop_requests(&mut self) -> Vec<(u64, usize, VolumeRequest)> {
        std::mem::take(&mut self.requests)
    }

    /// The commands that have ended.
    pub fn pop_landed(&mut self) -> Vec<Landed> {
        std::mem::take(&mut self.landed)
    }

    /// Forgets all commands.
    pub fn clear(&mut self) {
        self.under_way.clear();
        self.requests.clear();
        self.landed.clear();
    }

    /// Asks for what a flight needs next, or ends it. None of its parts is open.
    fn go_on(&mut self, name: u64) {
        let flight = &self.under_way[&name];
        let volume = self.windows[flight.guest].volume;
        let patience = Patience::Endless;
        let mut asks = Vec::new();
        match &flight.kind {
            _ if flight.failed.is_some() => {}
            Kind::Read { parts } if parts.is_empty() => {
                asks = parts_of(&flight.range).map(|part| read(volume, part)).collect();
            }
            Kind::Write { waits: Some(_) } if self.is_blocked(name, &flight.range) => return,
            Kind::Write { waits: Some(data) } => {
                let start = flight.range.start;
                let write = |part: Range<u64>| {
                    let data = data.slice((part.start - start) as usize..(part.end - start) as usize);
                    VolumeRequest::Write { volume, offset: part.start, data, patience }
                };
                asks = parts_of(&flight.range).map(write).collect();
            }
            Kind::Reserve { holes, .. } if !holes.is_empty() => {
                let hole = holes[0].clone();
                let data = Bytes::from(vec![0; (hole.end - hole.start) as usize]);
                asks.push(VolumeRequest::Write { volume, offset: hole.start, data, patience });
            }
            Kind::Reserve { done, step, .. } => {
                let from = step.as_ref().map_or(*done, |step| step.end);
                let next = from..flight.range.end.min((from / BLOCK * BLOCK).saturating_add(PART_BYTES));
                if !next.is_empty() {
                    if self.is_blocked(name, &next) {
                        return self.pause(name, from);
                    }
                    asks.push(VolumeRequest::Allocation { volume, range: blocks(&next), patience });
                }
            }
            Kind::Read { .. } | Kind::Write { .. } => {}
        }
        if asks.is_empty() {
            return self.land(name);
        }
        let flight = self.under_way.get_mut(&name).expect("just seen");
        match &mut flight.kind {
            Kind::Read { .. } => {}
            Kind::Write { waits } => *waits = None,
            Kind::Reserve { done, step, holes } => {
                if holes.pop_front().is_none() {
                    *done = step.as_ref().map_or(*done, |step| step.end);
                    let VolumeRequest::Allocation { range, .. } = &asks[0] else { unreachable!("a step begins so") };
                    *step = Some(*done..flight.range.end.min(range.end() * BLOCK));
                }
            }
        }
        flight.open = (0..asks.len()).collect();
        self.requests.extend(asks.into_iter().enumerate().map(|(part, request)| (name, part, request)));
    }

    /// A reservation waits for writes into the blocks of its next step.
    fn pause(&mut self, name: u64, from: u64) {
        if let Kind::Reserve { done, step, .. } = &mut self.under_way.get_mut(&name).expect("it is under way").kind {
            (*done, *step) = (from, None);
        }
    }

    /// True if a write of these bytes would meet a step of a reservation, or such a step would meet a write.
    fn is_blocked(&self, name: u64, range: &Range<u64>) -> bool {
        let this = &self.under_way[&name];
        let meets = |other: &Flight| match (&this.kind, &other.kind) {
            (Kind::Write { .. }, Kind::Reserve { step: Some(step), .. }) => overlap(step, range),
            (Kind::Reserve { .. }, Kind::Write { waits: None }) => overlap(&other.range, range),
            // Two of them would only do the same twice.
            _ => false,
        };
        let same = |other: &Flight| self.windows[other.guest].volume == self.windows[this.guest].volume;
        self.under_way.values().any(|other| same(other) && meets(other))
    }

    fn land(&mut self, name: u64) {
        let Flight { guest, tag, kind, failed, .. } = self.under_way.remove(&name).expect("it is under way");
        let result = match (kind, failed) {
            (Kind::Read { .. }, Some(error)) => DiskResult::Read(Err(error)),
            (Kind::Read { parts }, None) => DiskResult::Read(Ok(joined(parts.into_values().flatten().collect()))),
            (_, Some(error)) => DiskResult::Done(Err(error)),
            (_, None) => DiskResult::Done(Ok(())),
        };
        self.landed.push(Landed { guest, tag, result });
    }

    fn overlap(&self, one: &Flight, other: &Flight) -> bool {
        one.guest == other.guest && overlap(&one.range, &other.range)
    }

    /// Asserts that each flight waits for the host or for other flights. `asked`: the flight of each operation at the host.
    pub fn invariants(&self, asked: impl Iterator<Item = u64>) {
        assert!(self.requests.is_empty() && self.landed.is_empty(), "what a step began is passed on in it");
        let mut count: BTreeMap<u64, usize> = BTreeMap::new();
        asked.for_each(|name| *count.entry(name).or_default() += 1);
        for (name, flight) in &self.under_way {
            let asked = count.remove(name).unwrap_or(0);
            assert_eq!(asked, flight.open.len(), "each part that is open is asked for: {name}");
            assert!(asked > 0 || flight.waits(), "a command waits for something: {name}");
        }
        assert!(count.is_empty(), "a command ends when all its parts are answered");
    }
}

impl Flight {
    /// True if it waits for other flights.
    fn waits(&self) -> bool {
        match &self.kind {
            Kind::Read { .. } => false,
            Kind::Write { waits } => waits.is_some(),
            Kind::Reserve { step, .. } => step.is_none(),
        }
    }

    /// True if both must not be under way in the same bytes.
    fn excludes(&self, other: &Flight) -> bool {
        let writes = |flight: &Flight| matches!(flight.kind, Kind::Write { .. });
        let reserves = |flight: &Flight| matches!(flight.kind, Kind::Reserve { .. });
        (writes(self) || writes(other)) && !reserves(self) && !reserves(other)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The parts of a long range.
fn parts_of(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    (range.start..end).step_by(PART_BYTES as usize).map(move |start| start..end.min(start + PART_BYTES))
}

/// The blocks in which these bytes lie.
fn blocks(range: &Range<u64>) -> BlockRange {
    BlockRange::between(range.start / BLOCK, range.end.div_ceil(BLOCK))
}

/// How far the host has told the allocation of a step, and the bytes until there in blocks without content. `runs` begin with the step's
/// first block.
fn holes_in(step: Range<u64>, runs: &[(u64, bool)]) -> (u64, VecDeque<Range<u64>>) {
    let mut at = step.start / BLOCK * BLOCK;
    let mut holes = VecDeque::new();
    for (count, has_content) in runs {
        let end = at + count * BLOCK;
        if !has_content {
            holes.push_back(at.max(step.start)..end.min(step.end));
        }
        at = end;
    }
    assert!(at > step.start, "a list of allocation begins with the first block");
    (at.min(step.end), holes)
}

fn joined(mut buffers: Vec<Bytes>) -> Bytes {
    if buffers.len() == 1 {
        return buffers.remove(0);
    }
    let mut all = BytesMut::with_capacity(buffers.iter().map(Bytes::len).sum());
    buffers.iter().for_each(|buffer| all.extend_from_slice(buffer));
    all.freeze()
}
