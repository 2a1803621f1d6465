//! The process of a metadata server: a host of the array that takes over a file system, and then serves it.
//!
//! ```text
//!   start ─► who owns it? ─► take over ─► read the journal, while the lease of the last owner passes ─► serve ─► fenced: ended
//!              (monitor)      (monitor)
//! ```
//!
//! The take-over names the ownership that was found, so that of several processes that begin at a time one succeeds. The others end. A
//! process that dies is followed by another one, which takes over likewise: it can't know whether the last one is dead.
//!
//! A process that is to end may *release* the file system, so that the next one neither fences it nor waits for a lease. A request of the
//! front end for [`OwnershipRequest::Release`] ends the server first: it answers nothing from then on, and all its writes are done before
//! the monitor gets the request. Requests to the server itself ([`ServerRequest`](braid_machine::ServerRequest)) are answered at once.

use crate::check::Purpose;
use crate::server::{MetadataServer, MetadataServerConfig};
use braid_base::{Epoch, FileSystemId, Generation, Level, Membership, NodeId, Now, Ownership, Time, VolumeId};
use braid_machine::on_volume::{OnVolume, OnVolumeOutcome, OnVolumeRequest, Window};
use braid_machine::{
    ArrayRequest, Effect, Effects, EffectsOf, FilesError, HostEffects, HostError, HostInput, HostMachine, HostOutcome,
    HostRequest, HostSuccess, Input, InputOf, Machine, MountRequest, Never, NoDisk, OpId, Part,
};
use braid_wire::{Message, OwnershipRefused, OwnershipRequest};
use std::time::Duration;

/// The process's own request to its host.
const OP: OpId = OpId { part: Part::SERVER, number: 0 };
/// When the monitor is asked again after it was silent for a request's time-out.
const AGAIN: Duration = Duration::from_secs(1);

/// The process of a metadata server, over its host.
#[derive(Clone, Debug)]
pub struct MetadataNode<H> {
    config: MetadataServerConfig,
    volume: VolumeId,
    /// What it does once it owns the file system.
    purpose: Purpose,
    stage: Stage<H>,
    /// The request by which the process gives up the file system, until its host gets it.
    release: Option<(OpId, OwnershipRequest)>,
    /// The latest membership that the monitor sent before the process owned the file system.
    membership: Option<Membership>,
    /// The effects of the owner, on their way out.
    effects: Effects<OnVolumeOutcome<Never>, NoDisk>,
}

/// What the process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It asks who owns the file system, or takes over.
    TakesOver,
    /// It owns the file system.
    Owns,
    /// It does not own the file system, or not any more.
    Ended(HostError),
}

#[derive(Clone, Debug)]
enum Stage<H> {
    TakesOver {
        host: H,
        request: OwnershipRequest,
        /// When the request is made again.
        again_at: Option<Time>,
    },
    Owns(Box<Owner<H>>),
    Ended {
        host: H,
        error: HostError,
    },
    /// Only while the stage changes.
    Between,
}

/// A host that was started before.
#[derive(Clone, Debug)]
struct Started<H>(H);

type Owner<H> = OnVolume<MetadataServer, Started<H>>;

impl<H: HostMachine> MetadataNode<H> {
    /// A process that has not started. `host` is its host, which knows `volume`. `config.start` and `config.serve_from` are set by the
    /// take-over.
    pub fn new(host: H, volume: VolumeId, config: MetadataServerConfig) -> MetadataNode<H> {
        let stage = Stage::TakesOver { host, request: OwnershipRequest::Inquire, again_at: None };
        MetadataNode {
            config,
            volume,
            purpose: Purpose::Serves,
            stage,
            release: None,
            membership: None,
            effects: Effects::new(),
        }
    }

    /// The same process, which takes over the file system to check it, and does not serve it.
    pub fn for_check(self) -> MetadataNode<H> {
        MetadataNode { purpose: Purpose::Checks, ..self }
    }

    /// The same process, which takes over a shard to read its map, up to so many bytes of memory.
    pub fn for_export(self, max_bytes: usize) -> MetadataNode<H> {
        MetadataNode { purpose: Purpose::Collects { most: max_bytes }, ..self }
    }

    pub fn host(&self) -> &H {
        match &self.stage {
            Stage::TakesOver { host, .. } | Stage::Ended { host, .. } => host,
            Stage::Owns(on_volume) => &on_volume.host().0,
            Stage::Between => unreachable!("a step ends with a stage"),
        }
    }

    /// The server, once the process owns the file system.
    pub fn server(&self) -> Option<&MetadataServer> {
        match &self.stage {
            Stage::Owns(on_volume) => on_volume.guests().first(),
            _ => None,
        }
    }

    /// The file system, or the shard of it.
    pub fn file_system(&self) -> FileSystemId {
        self.config.file_system
    }

    /// Since when the process owns the file system, if it does.
    pub fn owns_since(&self) -> Option<Epoch> {
        self.server().map(|_| Epoch(self.config.start.0))
    }

    pub fn state(&self) -> NodeState {
        match &self.stage {
            Stage::Owns(on_volume) => on_volume.ended().cloned().map_or(NodeState::Owns, NodeState::Ended),
            Stage::Ended { error, .. } => NodeState::Ended(error.clone()),
            Stage::TakesOver { .. } | Stage::Between => NodeState::TakesOver,
        }
    }

    fn on_request(&mut self, request: MountRequest) -> HostOutcome {
        match (&mut self.stage, request) {
            (Stage::Owns(on_volume), MountRequest::Server(request)) if on_volume.ended().is_none() => {
                on_volume.guests_mut()[0].on_server_request(request);
                Ok(HostSuccess::Done)
            }
            _ => Err(HostError::Files(FilesError::NotMounted)),
        }
    }

    /// Asks the monitor, through the host.
    fn ask(&mut self, now: Now, out: &mut HostEffects) {
        let Stage::TakesOver { host, request, again_at } = &mut self.stage else { return };
        *again_at = None;
        let request = ArrayRequest::Ownership { file_system: self.config.file_system, request: *request };
        host.step(now, Input::Request { op: OP, request: request.into() }, out);
    }

    /// Takes the answer to the process's own request out of the effects of its host.
    fn take_answer(&mut self, now: Now, out: &mut HostEffects) {
        let mut answer = None;
        let effects: Vec<_> = out.drain().collect();
        for effect in effects {
            match effect {
                Effect::Reply { op: OP, outcome } => answer = Some(outcome),
                effect => out.push(effect),
            }
        }
        if let Some(outcome) = answer {
            self.on_answer(now, outcome, out);
        }
    }

    fn on_answer(&mut self, now: Now, outcome: HostOutcome, out: &mut HostEffects) {
        let Stage::TakesOver { host, request, .. } = std::mem::replace(&mut self.stage, Stage::Between) else {
            panic!("the process asks only until it owns the file system");
        };
        match (request, outcome) {
            (OwnershipRequest::Inquire, Ok(HostSuccess::Ownership(from))) => self.take_over(now, host, from, out),
            // Nobody was faster: a release of another file system has changed when this one was last without an owner.
            (_, Err(HostError::Ownership(OwnershipRefused::Differs(from)))) if from.owner.is_none() => {
                self.take_over(now, host, from, out);
            }
            (OwnershipRequest::TakeOver { from }, Ok(HostSuccess::Ownership(own))) if host.knows(self.volume) => {
                self.begin(now, host, from, own, out);
            }
            // The file system is being deleted: without a release, the monitor could keep this process as its owner.
            (OwnershipRequest::TakeOver { .. }, Ok(HostSuccess::Ownership(Ownership { since, .. }))) => {
                self.request(now, host, OwnershipRequest::Release { since }, out);
            }
            (OwnershipRequest::Release { .. }, Ok(HostSuccess::Ownership(_))) => {
                self.stage = Stage::Ended { host, error: HostError::NoSuchVolume };
            }
            // The take-over may have happened: the same request, made again, tells.
            (request, Err(HostError::MonitorSilent { .. } | HostError::Busy)) => {
                self.stage = Stage::TakesOver { host, request, again_at: Some(now.time.after(AGAIN)) };
            }
            (_, Err(error)) => self.stage = Stage::Ended { host, error },
            (_, Ok(other)) => panic!("not an answer about ownership: {other:?}"),
        }
    }

    /// Gives up the file system, once all that the server has asked of its host is done: the next owner fences nobody. If the outcome of a
    /// write is unknown, the file system is not released, and the next owner takes over.
    fn release_when_quiescent(&mut self, now: Now, out: &mut HostEffects) {
        let Stage::Owns(on_volume) = &mut self.stage else { return };
        if !on_volume.is_quiescent() {
            return;
        }
        let Some((op, request)) = self.release.take() else { return };
        match on_volume.failed() {
            Some(error) => out.reply(op, Err(error.clone())),
            None => {
                let request = ArrayRequest::Ownership { file_system: self.config.file_system, request };
                self.step_owner(now, Input::Request { op, request: request.into() }, out);
            }
        }
    }

    /// Lets the owner of the file system process an input. Requests are for its host.
    fn step_owner(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let Stage::Owns(owner) = &mut self.stage else { unreachable!("only an owner is stepped so") };
        owner.step(now, input.convert(OnVolumeRequest::Host, |never| never), &mut self.effects);
        let outcome = |outcome| match outcome {
            OnVolumeOutcome::Host(outcome) => outcome,
            OnVolumeOutcome::Guest(Err(error)) => Err(error),
        };
        out.absorb(&mut self.effects, outcome, |never| never);
    }

    /// Keeps the latest membership for the server: it names hosts that earlier owners had fenced.
    fn note_membership(&mut self, input: &HostInput) {
        if let Stage::TakesOver { .. } = self.stage
            && let Input::Message { from: NodeId::Monitor, message: Message::MonitorAnswer(answer), .. } = input
            && let Some(membership) = &answer.membership
        {
            self.membership = Some(membership.clone());
        }
    }

    /// Takes over, unless the host does not know the volume any more.
    fn take_over(&mut self, now: Now, host: H, from: Ownership, out: &mut HostEffects) {
        match host.knows(self.volume) {
            true => self.request(now, host, OwnershipRequest::TakeOver { from }, out),
            false => self.stage = Stage::Ended { host, error: HostError::NoSuchVolume },
        }
    }

    fn request(&mut self, now: Now, host: H, request: OwnershipRequest, out: &mut HostEffects) {
        self.stage = Stage::TakesOver { host, request, again_at: None };
        self.ask(now, out);
        self.take_answer(now, out);
    }

    /// The process owns the file system.
    fn begin(&mut self, now: Now, host: H, from: Ownership, own: Ownership, out: &mut HostEffects) {
        // Epochs order the owners of a file system; generations don't.
        self.config.start = Generation(own.since.0);
        if from.owner.is_some() {
            self.config.serve_from = now.time.after(self.config.settings.host_lease);
        }
        let window = Window { volume: self.volume, offset: 0, length: self.config.volume_bytes };
        let mut server = MetadataServer::new(self.config.clone()).with_purpose(self.purpose);
        if let Some(membership) = &self.membership {
            server.hear(membership);
        }
        let on_volume = OnVolume::new(Started(host), vec![(server.name(), window, server)]);
        self.stage = Stage::Owns(Box::new(on_volume));
        self.step_owner(now, Input::Start, out);
    }
}

impl<H: HostMachine> Machine for MetadataNode<H> {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        let input = match input.for_host() {
            Ok(input) => input,
            Err((op, request)) => return out.reply(op, self.on_request(request)),
        };
        let is_start = matches!(input, Input::Start);
        self.note_membership(&input);
        match &mut self.stage {
            Stage::Owns(on_volume) => {
                match input {
                    Input::Request {
                        op,
                        request: HostRequest::Array(ArrayRequest::Ownership { file_system, request }),
                    } if file_system == self.config.file_system
                        && matches!(request, OwnershipRequest::Release { .. }) =>
                    {
                        on_volume.retire(HostError::Disconnecting, &mut self.effects);
                        self.release = Some((op, request));
                    }
                    input => self.step_owner(now, input, out),
                }
                return self.release_when_quiescent(now, out);
            }
            Stage::TakesOver { host, again_at, .. } => {
                let is_due = again_at.is_some_and(|at| at <= now.time);
                // Hosts, and the other servers, ask the owner again until it serves.
                if !matches!(input, Input::Message { to: NodeId::MetadataServer(_), .. }) {
                    host.step(now, input, out);
                }
                if is_start || is_due {
                    self.ask(now, out);
                }
            }
            Stage::Ended { host, .. } => host.step(now, input, out),
            Stage::Between => unreachable!("a step ends with a stage"),
        }
        self.take_answer(now, out);
    }

    fn level(&self) -> Level {
        self.host().level()
    }

    fn deadline(&self) -> Option<Time> {
        match &self.stage {
            Stage::TakesOver { host, again_at, .. } => host.deadline().into_iter().chain(*again_at).min(),
            Stage::Owns(on_volume) => on_volume.deadline(),
            Stage::Ended { host, .. } => host.deadline(),
            Stage::Between => unreachable!("a step ends with a stage"),
        }
    }

    fn invariants(&self) {
        match &self.stage {
            Stage::TakesOver { host, .. } | Stage::Ended { host, .. } => host.invariants(),
            Stage::Owns(on_volume) => on_volume.invariants(),
            Stage::Between => unreachable!("a step ends with a stage"),
        }
    }
}

impl<H: Machine> Machine for Started<H> {
    type Request = H::Request;
    type Outcome = H::Outcome;
    type Disk = H::Disk;

    fn step(&mut self, now: Now, input: InputOf<H>, out: &mut EffectsOf<H>) {
        if !matches!(input, Input::Start) {
            self.0.step(now, input, out);
        }
    }

    braid_machine::held_machine!(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::limits::Settings;
    use braid_base::{ArrayId, Clock, ShardId};
    use braid_commit::{Grouping, Protocol};
    use braid_namespace::{Parameters, Placement, Shards};
    use braid_wire::Owner;

    /// A host that is answered at once: there is no owner. It may forget the volume when it is asked to take over.
    struct Ready {
        knows: bool,
        forgets: bool,
        asked: Vec<OwnershipRequest>,
    }

    impl Machine for Ready {
        type Request = HostRequest;
        type Outcome = HostOutcome;
        type Disk = NoDisk;

        fn step(&mut self, _: Now, input: HostInput, out: &mut HostEffects) {
            match input {
                Input::Request { op, request: HostRequest::Array(ArrayRequest::Ownership { request, .. }) } => {
                    let takes_over = matches!(request, OwnershipRequest::TakeOver { .. });
                    self.knows &= !(takes_over && self.forgets);
                    self.asked.push(request);
                    let owner = takes_over.then_some(Generation(7));
                    out.reply(op, Ok(HostSuccess::Ownership(Ownership { since: Epoch(1), owner })));
                }
                Input::Request { op, .. } => out.reply(op, Err(HostError::NoSuchVolume)),
                _ => {}
            }
        }

        fn deadline(&self) -> Option<Time> {
            None
        }

        fn invariants(&self) {}
    }

    impl HostMachine for Ready {
        fn knows(&self, _: VolumeId) -> bool {
            self.knows
        }
    }

    fn started(knows: bool, forgets: bool) -> MetadataNode<Ready> {
        let shards = Shards { own: ShardId(0), count: 1, placement: Placement::Parent };
        let hash_bits = Parameters::HASH_BITS_MAX;
        let config = MetadataServerConfig {
            array: ArrayId([0; 16]),
            file_system: FileSystemId(1),
            generation: Generation(7),
            start: Generation(7),
            volume_bytes: crate::VOLUME_BYTES_MIN,
            peers: vec![FileSystemId(1)],
            commit_protocol: Protocol::OnePhase,
            grouping: Grouping::Log,
            parameters: Parameters { blocks: 1_000, stripe_blocks: 10, hash_key: [3; 16], hash_bits, shards },
            root: Owner::default(),
            serve_from: Time(0),
            settings: Settings::default(),
        };
        let mut node = MetadataNode::new(Ready { knows, forgets, asked: Vec::new() }, VolumeId(4), config);
        node.step(Now { time: Time(0), clock: Clock(0) }, Input::Start, &mut HostEffects::new());
        node
    }

    #[test]
    fn a_process_owns_nothing_when_its_host_does_not_know_the_volume_any_more() {
        let inquire = OwnershipRequest::Inquire;
        let take_over = OwnershipRequest::TakeOver { from: Ownership { since: Epoch(1), owner: None } };
        let release = OwnershipRequest::Release { since: Epoch(1) };
        assert_eq!(started(true, false).host().asked, [inquire, take_over]);
        let gone = NodeState::Ended(HostError::NoSuchVolume);
        for (knows, forgets, asked) in [(false, false, &[inquire][..]), (true, true, &[inquire, take_over, release])] {
            let node = started(knows, forgets);
            assert_eq!((node.host().asked.as_slice(), node.state()), (asked, gone.clone()));
        }
    }
}
