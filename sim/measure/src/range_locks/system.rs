//! Clients that lock sections of files. In each step, every client locks a section, uses it, and unlocks it; its node keeps the lock until
//! another node wants it. In the next step, the client goes on to the section of its neighbour.
//!
//! ```text
//!   client      node                      lock server                 the node that keeps the section
//!     ├─ Lock ──▶│ kept here? Locked          │                                    │
//!     │          ├── LockRange ──────────────▶│ free, or shared: GrantedRange      │
//!     │          │                            ├── Recall ─────────────────────────▶│ in use? waits; dirty? writes back
//!     │          │                            │◀── Shrink ─────────────────────────┤
//!     │◀ Locked ─┤◀── GrantedRange ───────────┤                                    │
//! ```
//!
//! What clients read and write is not modelled, except as the time that a client uses a section, and as the time that a node writes back.

use super::parameters::{RangeParameters, Sections, Start, Step};
use crate::engine::{Engine, EngineResult, Role, fixed_host, fixed_lock_server, without_timeouts};
use crate::parameters::milliseconds;
use crate::prelude::*;
use crate::sampler::Sampler;
use crate::tally::{Latencies, Measured};
use braid_base::limits::Settings;
use braid_base::{BlockRange, LockServerId, RangeDivision};
use braid_locks::LockServer;
use braid_machine::{HostError, HostSuccess, RangesRequest};
use braid_wire::{LockExtent, LockMode};
use std::ops::RangeInclusive;

/// Clients, their nodes, and the lock servers.
pub struct RangeSystem {
    parameters: RangeParameters,
    engine: Engine<Event>,
    clients: Vec<Client>,
    /// Clients that have not ended the present step, or all of their steps if they go on alone.
    running: usize,
    last_step: u64,
    file: ObjectId,
    /// Requests to nodes that were not answered yet.
    asked: BTreeMap<u64, Asked>,
    last_op: u64,
    sampler: Sampler,
    latencies: Latencies,
    phase: Phase,
    /// Promoted locks that no other host had a share of.
    kept: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// The clients acquire the shared locks that they are to promote.
    Sharing,
    /// They lock what they leave to others.
    Before,
    Measured,
}

#[derive(Clone, Default)]
struct Client {
    step: u64,
    piece: u64,
    since: Time,
    /// What it promotes.
    shared: Option<u64>,
    /// Locks over what the client has written and its node has not written back.
    dirty: Vec<u64>,
}

enum Asked {
    Lock {
        client: usize,
    },
    Unlock,
    /// Whether another node wants what the client has written.
    Recall {
        client: usize,
        lock: u64,
    },
}

enum Event {
    /// A client wants its next piece.
    Begun { client: usize },
    /// The processor of its node has taken in the request.
    Taken { client: usize },
    /// A client has used what it has locked.
    Used { client: usize, lock: u64 },
    /// A node has written back what a client has written under a lock.
    Flushed { client: usize, lock: u64 },
}

braid_base::counters! {
    /// Counts of all nodes since the start.
    pub struct Counts;
    messages,
    /// Recalls of parts of locks.
    callbacks,
    /// Requests that had to wait at a lock server.
    waits,
    lock_servers_busy_ns,
    time_ns,
}

impl RangeSystem {
    /// Creates the nodes that the parameters describe, idle. The seed determines the run completely.
    pub fn new(parameters: &RangeParameters, seed: u64) -> RangeSystem {
        let mut seeds = Rng::new(seed);
        let system = &parameters.system;
        let nodes = (system.clients / system.clients_per_node) as usize;
        let hardware = (&parameters.network, &parameters.processor);
        let mut engine = Engine::new(nodes, 0, hardware, Sampler::new(seeds.next_u64()));
        let lock_servers: Vec<_> = (0..system.lock_servers as u16).map(LockServerId).collect();
        // Each section has one lock server, and neighbouring sections have different ones.
        let range_division = RangeDivision::RoundRobin(parameters.section_bytes());
        let settings = Settings { range_division, callbacks: system.callbacks, ..without_timeouts() };
        let clock = || LocalClock::exact(Time(0));
        for generation in (1..=nodes as u32).map(Generation) {
            let host = Host::new(fixed_host(generation, &[], &lock_servers, &settings, seeds.next_u64()));
            engine.add(NodeId::Host(generation), Role::Host(Box::new(host)), None, clock());
        }
        for id in lock_servers {
            let server = LockServer::new(fixed_lock_server(id, nodes, &settings));
            engine.add(NodeId::LockServer(id), Role::LockServer(Box::new(server)), None, clock());
        }
        engine.delay_acks(milliseconds(parameters.tcp.delayed_ack_ms));
        RangeSystem {
            parameters: parameters.clone(),
            engine,
            clients: vec![Client::default(); system.clients as usize],
            running: 0,
            last_step: 0,
            file: ObjectId(0),
            asked: BTreeMap::new(),
            last_op: 0,
            sampler: Sampler::new(seeds.next_u64()),
            latencies: Latencies::default(),
            phase: Phase::Before,
            kept: 0.0,
        }
    }

    /// Runs through all files; returns the results.
    pub fn run(mut self) -> Measured {
        let shifts = self.parameters.workload.shifts;
        // Sums over the files.
        let (mut before, mut after) = (Counts::default(), Counts::default());
        // Nodes and lock servers get to know each other.
        for file in 0..2 {
            self.file = ObjectId(file);
            self.take_steps(0..=0);
        }
        for file in 2..self.parameters.run.files + 2 {
            self.file = ObjectId(file);
            if self.parameters.workload.step == Step::Promote {
                self.phase = Phase::Sharing;
            }
            if shifts > 0 || self.phase == Phase::Sharing {
                self.take_steps(0..=0);
            }
            before.add(&self.count());
            self.phase = Phase::Measured;
            self.take_steps(shifts.min(1)..=shifts);
            self.phase = Phase::Before;
            after.add(&self.count());
            self.forget_writes();
        }
        let accesses = self.latencies.count();
        let time = (after.time_ns - before.time_ns) as f64;
        let busy = (after.lock_servers_busy_ns - before.lock_servers_busy_ns) as f64;
        Measured {
            messages_per_op: (after.messages - before.messages) as f64 / accesses,
            callbacks_per_op: Some((after.callbacks - before.callbacks) as f64 / accesses),
            kept_fraction: (self.parameters.workload.step == Step::Promote).then_some(self.kept / accesses),
            delayed_fraction: (after.waits - before.waits) as f64 / accesses,
            lock_server_utilization: busy / time / self.parameters.system.lock_servers as f64,
            events: self.engine.events(),
            ..self.latencies.measured(time / 1e9)
        }
    }

    /// Has all clients take these steps.
    fn take_steps(&mut self, steps: RangeInclusive<u64>) {
        let groups = match self.parameters.workload.start {
            Start::Alone => vec![steps],
            Start::Together => steps.map(|step| step..=step).collect(),
        };
        for group in groups {
            self.running = self.clients.len();
            self.last_step = *group.end();
            for client in 0..self.clients.len() {
                (self.clients[client].step, self.clients[client].piece) = (*group.start(), 0);
                let later = milliseconds(self.sampler.between(0.0, self.parameters.workload.spread_ms));
                self.engine.foresee(self.engine.now().after(later), Event::Begun { client });
            }
            while self.running > 0 {
                if let Some(event) = self.engine.advance() {
                    self.on_event(event);
                }
                while let Some(result) = self.engine.next_result() {
                    let EngineResult::Outcome { op, outcome } = result else {
                        unreachable!("nodes talk to their lock servers themselves")
                    };
                    self.on_outcome(op, outcome);
                }
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Begun { client } => {
                self.clients[client].since = self.engine.now();
                let taken = self.engine.take_in(self.node_of(client));
                self.engine.foresee(taken, Event::Taken { client });
            }
            Event::Taken { client } => {
                let (object, extents) = (self.file, vec![self.piece_of(client)]);
                let width = self.parameters.workload.widen_kib * 1024;
                let over = self.clients[client].shared.take();
                let request = RangesRequest::Lock { object, extents, over, width, wait: None };
                self.ask(client, Asked::Lock { client }, request);
            }
            Event::Used { client, lock } => {
                let workload = &self.parameters.workload;
                if workload.flush_ms > 0.0 && workload.mode == LockMode::Exclusive {
                    self.clients[client].dirty.push(lock);
                    self.ask(client, Asked::Recall { client, lock }, RangesRequest::AwaitRecall { lock });
                } else {
                    self.ask(client, Asked::Unlock, RangesRequest::Unlock { lock });
                }
                self.go_on(client);
            }
            Event::Flushed { client, lock } => {
                self.clients[client].dirty.retain(|dirty| *dirty != lock);
                self.ask(client, Asked::Unlock, RangesRequest::Unlock { lock });
            }
        }
    }

    fn ask(&mut self, client: usize, asked: Asked, request: RangesRequest) {
        self.last_op += 1;
        self.asked.insert(self.last_op, asked);
        self.engine.ask(self.node_of(client), OpId::front_end(self.last_op), request);
    }

    fn on_outcome(&mut self, op: OpId, outcome: HostOutcome) {
        match (self.asked.remove(&op.number).expect("nodes answer once"), outcome) {
            (Asked::Lock { client }, Ok(HostSuccess::RangeLocked { lock, .. })) if self.phase == Phase::Sharing => {
                self.clients[client].shared = Some(lock);
                self.go_on(client);
            }
            (Asked::Lock { client }, Ok(HostSuccess::RangeLocked { lock, kept })) => {
                let (now, workload) = (self.engine.now(), &self.parameters.workload);
                if self.phase == Phase::Measured {
                    self.latencies.record(now.since(self.clients[client].since));
                    self.kept += f64::from(u8::from(kept));
                }
                let takes = self.sampler.normal(workload.use_ms, workload.use_deviation_ms);
                self.engine.foresee(now.after(milliseconds(takes)), Event::Used { client, lock });
            }
            (Asked::Recall { client, lock }, Ok(HostSuccess::Done)) => {
                let written = self.engine.now().after(milliseconds(self.parameters.workload.flush_ms));
                self.engine.foresee(written, Event::Flushed { client, lock });
            }
            (Asked::Unlock | Asked::Recall { .. }, Ok(HostSuccess::Done) | Err(HostError::NoSuchLock)) => {}
            (_, outcome) => panic!("no request fails in this model: {outcome:?}"),
        }
    }

    /// A client has used a piece.
    fn go_on(&mut self, client: usize) {
        let Client { step, piece, .. } = &mut self.clients[client];
        *piece += 1;
        if *piece == self.parameters.workload.pieces {
            (*step, *piece) = (*step + 1, 0);
        }
        if *step > self.last_step {
            self.running -= 1;
        } else {
            self.engine.foresee(self.engine.now(), Event::Begun { client });
        }
    }

    /// The piece that a client locks next.
    fn piece_of(&self, client: usize) -> LockExtent {
        let workload = &self.parameters.workload;
        let (clients, Client { step, piece, .. }) = (self.clients.len() as u64, &self.clients[client]);
        let section = (client as u64 + step) % clients;
        let count = self.parameters.section_bytes() / workload.pieces;
        let index = match workload.layout {
            Sections::Apart => section * workload.pieces + piece,
            Sections::Interleaved => piece * clients + section,
            Sections::Same => *piece,
        };
        let mode = if self.phase == Phase::Sharing { LockMode::Shared } else { workload.mode };
        LockExtent { position: 0, range: BlockRange { start: index * count, count }, mode }
    }

    fn node_of(&self, client: usize) -> usize {
        client / self.parameters.system.clients_per_node as usize
    }

    /// No node has anything to write back to the next file.
    fn forget_writes(&mut self) {
        for client in 0..self.clients.len() {
            for lock in std::mem::take(&mut self.clients[client].dirty) {
                self.ask(client, Asked::Unlock, RangesRequest::Unlock { lock });
            }
        }
    }

    fn count(&self) -> Counts {
        let now = self.engine.now();
        let mut counts = Counts { messages: self.engine.messages(), time_ns: now.0, ..Counts::default() };
        for (role, node) in self.engine.nodes() {
            if let Role::LockServer(server) = role {
                counts.callbacks += server.counters().recalls;
                counts.waits += server.counters().waits;
                counts.lock_servers_busy_ns += node.processor_busy(now).as_nanos() as u64;
            }
        }
        counts
    }
}
