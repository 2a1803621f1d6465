//! A volume in memory, and a host that does nothing but read and write it. A request takes effect at one moment, and is answered later.

use braid_base::{Generation, Now, Rng, Time};
use braid_machine::{
    ArrayRequest, HostEffects, HostError, HostInput, HostOutcome, HostRequest, HostSuccess, Input, Machine, NoDisk,
    OpId, VolumeRequest,
};
use braid_wire::Failure;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The content of blocks that no file has written: it must never show.
pub const STALE: u8 = 0xee;

#[derive(Default)]
pub struct Volume {
    pub bytes: Vec<u8>,
    pub fenced: BTreeSet<Generation>,
    /// Hostwrites so far: their offsets and lengths.
    pub writes: Vec<(u64, usize)>,
    /// All hostwrites fail without effect.
    pub fails: bool,
    /// Requests wait for as long as this is set.
    pub is_held: bool,
    /// The requests that were abandoned.
    pub abandoned: usize,
}

impl Volume {
    pub fn new(blocks: u64) -> Rc<RefCell<Volume>> {
        Rc::new(RefCell::new(Volume { bytes: vec![STALE; (blocks * 4096) as usize], ..Default::default() }))
    }
}

pub struct VolumeHost {
    volume: Rc<RefCell<Volume>>,
    host: Generation,
    rng: Rng,
    /// Requests that have not taken effect, and outcomes to report.
    pending: BTreeMap<(Time, u64), Event>,
    next: u64,
    longest: Duration,
}

enum Event {
    Effect(OpId, HostRequest),
    Answer(OpId, Result<HostSuccess, HostError>),
}

impl VolumeHost {
    pub fn new(volume: Rc<RefCell<Volume>>, host: Generation, seed: u64, longest: Duration) -> VolumeHost {
        VolumeHost { volume, host, rng: Rng::new(seed), pending: BTreeMap::new(), next: 0, longest }
    }

    fn later(&mut self, now: Time, event: Event) {
        let wait = self.rng.between(1, self.longest.as_nanos() as u64);
        self.next += 1;
        self.pending.insert((now.after(Duration::from_nanos(wait)), self.next), event);
    }

    fn take_effect(&mut self, request: HostRequest) -> Result<HostSuccess, HostError> {
        let mut volume = self.volume.borrow_mut();
        if volume.fenced.contains(&self.host) {
            return Err(HostError::Fenced);
        }
        let range = |offset: u64, length: usize| offset as usize..offset as usize + length;
        match request {
            HostRequest::Volume(VolumeRequest::Read { offset, length, .. }) => {
                assert!(length > 0 && length <= 4 << 20, "a hostread has at most a transaction's bytes");
                Ok(HostSuccess::Data(vec![Bytes::copy_from_slice(&volume.bytes[range(offset, length)])]))
            }
            HostRequest::Volume(VolumeRequest::Write { .. }) if volume.fails => {
                Err(HostError::Device { device: braid_base::DeviceId(0), failure: Failure::NoSpace })
            }
            HostRequest::Volume(VolumeRequest::Write { offset, data, .. }) => {
                assert!(!data.is_empty() && data.len() <= 4 << 20, "a hostwrite has at most a transaction's bytes");
                volume.bytes[range(offset, data.len())].copy_from_slice(&data);
                volume.writes.push((offset, data.len()));
                Ok(HostSuccess::Done)
            }
            HostRequest::Array(ArrayRequest::Disconnect) | HostRequest::Array(ArrayRequest::Abandon { .. }) => {
                Ok(HostSuccess::Done)
            }
            other => panic!("not a request of a file system: {other:?}"),
        }
    }
}

impl Machine for VolumeHost {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        if let Input::Request { op, request } = input {
            if let HostRequest::Array(ArrayRequest::Abandon { ops }) = &request {
                self.volume.borrow_mut().abandoned += ops.len();
            }
            self.later(now.time, Event::Effect(op, request));
        }
        while let Some(entry) = self.pending.first_entry()
            && entry.key().0 <= now.time
            && !self.volume.borrow().is_held
        {
            match entry.remove() {
                Event::Effect(op, request) => {
                    let outcome = self.take_effect(request);
                    self.later(now.time, Event::Answer(op, outcome));
                }
                Event::Answer(op, outcome) => out.reply(op, outcome),
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let first = self.pending.first_key_value().map(|((time, _), _)| *time);
        first.filter(|_| !self.volume.borrow().is_held)
    }
}
