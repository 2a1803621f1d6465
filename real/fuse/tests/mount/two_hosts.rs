//! Two hosts and a metadata server as one machine, so that one driver runs them. Each host is asked under a number of its own for the file
//! system.

use crate::server::{FILE_SYSTEM, SERVER, Server};
use crate::volume::{Volume, VolumeHost};
use braid_base::limits::Settings;
use braid_base::{FileSystemId, Generation, NodeId, Now, Time, VolumeId};
use braid_files::{FileClient, FileClientConfig};
use braid_machine::{
    Effect, FilesError, FilesRequest, HostEffects, HostError, HostOutcome, Input, Machine, MountRequest, NoDisk, OpId,
};
use braid_wire::{FileCommand, FileError, MonitorReply};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BLOCKS: u64 = 4096;
const STRIPE_BYTES: usize = 16 * 4096;

/// What tests read and set.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// The first host is to be fenced.
    pub fence: Arc<AtomicBool>,
    /// Requests for locks so far.
    pub lock_requests: Arc<AtomicUsize>,
    /// So many times, a name that is looked up is not there yet: as if another host created it just after.
    pub late: Arc<AtomicUsize>,
}

pub struct TwoHosts {
    clients: Vec<FileClient<VolumeHost>>,
    server: Server,
    controls: Controls,
    /// Requests of which one host has reported the end: both are told to abandon something.
    ended: BTreeSet<OpId>,
}

enum Event {
    Client(usize, Input<MountRequest, NoDisk>),
    Server(usize, braid_wire::Message),
}

impl TwoHosts {
    pub fn new(controls: Controls) -> TwoHosts {
        let volume = Volume::new(BLOCKS);
        let client = |number: u32| {
            let host = Generation(number);
            let inner = VolumeHost::new(volume.clone(), host, u64::from(number), Duration::from_micros(100));
            let config = FileClientConfig {
                file_system: FILE_SYSTEM,
                shards: vec![FILE_SYSTEM],
                host,
                volume: VolumeId(1),
                stripe_bytes: STRIPE_BYTES,
                settings: Settings::default(),
            };
            FileClient::new(inner, config)
        };
        let clients = vec![client(1), client(2)];
        TwoHosts { clients, server: Server::new(volume, BLOCKS), controls, ended: BTreeSet::new() }
    }

    /// The number under which a host is asked for the file system.
    pub fn file_system(host: usize) -> FileSystemId {
        FileSystemId(host as u16)
    }

    fn events(&mut self, now: Now, input: Input<MountRequest, NoDisk>) -> VecDeque<Event> {
        let both = |input: Input<MountRequest, NoDisk>| (0..2).map(|host| Event::Client(host, input.clone())).collect();
        match input {
            Input::Start => {
                self.server.restart(now);
                both(Input::Start)
            }
            Input::Request { op, request: MountRequest::Files { file_system, request } } => {
                if matches!(request, FilesRequest::Lock { .. }) {
                    self.controls.lock_requests.fetch_add(1, Ordering::SeqCst);
                }
                let request = MountRequest::Files { file_system: FILE_SYSTEM, request };
                VecDeque::from([Event::Client(usize::from(file_system.0), Input::Request { op, request })])
            }
            Input::Wake => {
                self.server.take(now, Input::Wake);
                both(Input::Wake)
            }
            input => both(input),
        }
    }
}

impl Machine for TwoHosts {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        if self.controls.fence.swap(false, Ordering::SeqCst) {
            self.server.fence([Generation(1)], MonitorReply::Changed);
        }
        if let Input::Request { op, request: MountRequest::Files { request, .. } } = &input
            && matches!(request, FilesRequest::Command(FileCommand::Lookup { .. }))
            && self.controls.late.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return out.reply(*op, Err(HostError::Files(FilesError::Refused(FileError::NoSuchName))));
        }
        let mut events = self.events(now, input);
        loop {
            for (host, message) in std::mem::take(&mut self.server.outbox) {
                events.push_back(Event::Client(
                    host.0 as usize - 1,
                    Input::Message { to: NodeId::Host(host), from: SERVER, message },
                ));
            }
            let mut effects = HostEffects::new();
            let host = match events.pop_front() {
                None => return,
                Some(Event::Server(host, message)) => {
                    self.server.on_message(now, Generation(host as u32 + 1), message);
                    continue;
                }
                Some(Event::Client(host, input)) => {
                    self.clients[host].step(now, input, &mut effects);
                    host
                }
            };
            for effect in effects.drain() {
                match effect {
                    Effect::Send { message, .. } => events.push_back(Event::Server(host, message)),
                    // Only `Abandon` goes to both.
                    Effect::Reply { op, outcome: Ok(braid_machine::HostSuccess::Done) } if self.ended.insert(op) => {}
                    Effect::Reply { op, outcome } => {
                        self.ended.remove(&op);
                        out.reply(op, outcome);
                    }
                }
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.clients.iter().filter_map(Machine::deadline).chain(self.server.deadline()).min()
    }

    fn invariants(&self) {
        self.clients.iter().for_each(Machine::invariants);
    }
}
