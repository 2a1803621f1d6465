//! What administrators of file systems ask of their own processes: to create, format and delete volumes, to announce a check, and to examine
//! a shard. It is done as `braid fs` does it: volumes by other operations of the same host, a shard by a process that takes it over. It
//! ends with its administrator, and is suspended with it.

use super::administrator_state::{End, Name, OwnQuestion};
use super::servers::{end_process, start_process, store_of, system_of};
use super::store::volume_entry;
use crate::cluster::{ARRAY, Cluster};
use crate::drawn_volume::MoreVolume;
use crate::file_options::ShardOptions;
use crate::file_records::FileSystem;
use crate::prelude::*;
use crate::role::Role;
use crate::swarm::Run;
use braid_base::Ownership;
use braid_control_protocol::{Answer, Creation, Deletion, Error, Operation, Question, Tag, Timing};
use braid_description::{FileSystemEntry, ShardsEntry};
use braid_metadata::{Collected, MetadataService, Purpose, VOLUME_BYTES_MIN, check_together};
use braid_namespace::check::Finding;
use braid_wire::OwnershipRefused;
use std::collections::VecDeque;

/// So many numbers are tried for a new volume.
const NUMBERS_TRIED: u32 = 10;
/// How long the own host may take to know a new volume.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// The pause before something is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// The file systems: one metadata server, or several.
pub(super) const NAMES: [&str; 2] = ["one", "many"];
/// Blocks for the bytes of files.
const BLOCKS: u64 = 600;
/// The memory for the map of a shard.
const MAP_BYTES_MAX: usize = 1 << 30;

/// What is done for an administrator.
#[derive(Clone, Debug)]
struct Work {
    by: Name,
    subject: Subject,
    tag: Tag,
    doing: Doing,
}

#[derive(Clone, Debug)]
enum Doing {
    /// Another operation creates a volume, after so many others.
    Creating { nested: Name, number: usize, tried: u32 },
    /// Another operation deletes a volume.
    Deleting { nested: Name },
    /// A host writes what a new file system consists of.
    Formatting { volume: VolumeId, writes: VecDeque<(u64, Bytes)>, asked: Option<OpId>, at: Time, until: Time },
    /// A host has been asked something.
    Asking(OpId),
    /// A process takes over a shard, and releases it.
    Examining { node: NodeId, shard: FileSystemId, release: Option<OpId> },
}

/// What the processes of administrators do.
#[derive(Clone, Debug)]
pub(super) struct Works {
    works: Vec<Work>,
    /// What checks have found: findings, or the maps of shards.
    found: BTreeMap<Name, (Vec<Finding>, Vec<Collected>)>,
    rng: Rng,
}

/// What file systems are created.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub shards: ShardOptions,
    pub data: Layout,
}

impl Plan {
    pub fn options(&self, entry: &FileSystemEntry) -> ShardOptions {
        if entry.shards.is_some() { self.shards } else { ShardOptions::ONE }
    }

    pub fn entry(&self, name: &str) -> FileSystemEntry {
        let ShardOptions { count, placement, protocol, grouping } = self.shards;
        let shards = ShardsEntry {
            ids: (0..count.into()).collect(),
            placement: format!("{placement:?}").to_lowercase(),
            commit_protocol: protocol.name().into(),
            grouping: grouping.name().into(),
            names_key: String::new(),
        };
        FileSystemEntry::new(name.into(), (name == NAMES[1]).then_some(shards))
    }

    /// The volume of this number: those of the shards, in order, then that for the content of files.
    fn volume(&self, entry: &FileSystemEntry, number: usize, devices: usize) -> MoreVolume {
        let first = (number % devices) as u16;
        let (layout, bytes) = match number < entry.servers().len() {
            true => (Layout::new("raid1:2".parse().expect("a level"), 2, 256).expect("two devices"), VOLUME_BYTES_MIN),
            false => (self.data, BLOCKS * BLOCK_BYTES as u64),
        };
        let stripes = bytes.div_ceil(layout.stripe_blocks() * BLOCK_BYTES as u64);
        MoreVolume { layout, first, ordering: Ordering::Timestamp, stripes }
    }

    pub fn system(&self, cluster: &Cluster, entry: &FileSystemEntry) -> Option<FileSystem> {
        system_of(store_of(cluster), entry, self.options(entry))
    }
}

impl Works {
    pub fn new(rng: Rng) -> Works {
        Works { works: Vec::new(), found: BTreeMap::new(), rng }
    }

    /// Begins what administrators have asked for, and goes on with the rest. These operations have ended since.
    pub fn go_on(&mut self, run: &mut Run, plan: &Plan, ended: &[End]) {
        let asked = run.cluster.control.as_mut().map(|control| control.take_questions());
        for OwnQuestion { by, subject, tag, question } in asked.into_iter().flatten() {
            self.begin(run, plan, (by, subject, tag), question);
        }
        for mut work in std::mem::take(&mut self.works) {
            if run.cluster.slot_of(work.by.host).is_some() {
                match self.next(run, plan, &mut work, ended) {
                    None => self.works.push(work),
                    Some(end) => answer(run, (work.by, work.tag), end),
                }
            } else if let Doing::Examining { node, .. } = work.doing
                && run.cluster.world.is_up(node)
            {
                // The process that examines a shard dies with its administrator.
                run.crash(node);
            }
        }
    }

    fn begin(&mut self, run: &mut Run, plan: &Plan, (by, subject, tag): (Name, Subject, Tag), question: Question) {
        let Some(slot) = run.cluster.slot_of(by.host) else { return };
        let entry = subject.file_system(store_of(&run.cluster).description()).cloned();
        let (work, now) = (|doing| Work { by, subject: subject.clone(), tag, doing }, run.cluster.world.now());
        let system = entry.as_ref().and_then(|entry| plan.system(&run.cluster, entry));
        let doing = match (question, entry) {
            (Question::Ownership { file_system, request }, _) => {
                Some(Doing::Asking(run.cluster.own(slot, file_system, request)))
            }
            (Question::CreateVolume { number }, Some(entry)) => {
                create_volume(run, plan, by, &entry, number).map(|nested| Doing::Creating { nested, number, tried: 1 })
            }
            (Question::Format { file_system, number }, Some(entry)) => {
                let volume = store_of(&run.cluster).volume_named(&entry.metadata_volume(number));
                let nonce = self.rng.next_u64();
                volume.map(|volume| {
                    let writes = braid_metadata::format(ARRAY, file_system, volume.bytes, nonce);
                    let writes = writes.expect("it is large enough").into_iter().collect();
                    let until = now.after(KNOWN_WITHIN);
                    Doing::Formatting { volume: volume.id, writes, asked: None, at: now, until }
                })
            }
            (Question::DeleteVolume { volume }, _) if store_of(&run.cluster).record(volume).is_none() => {
                return answer(run, (by, tag), Answer::Yes);
            }
            (Question::DeleteVolume { volume }, _) => {
                let deletion = Deletion::of(by.host, Timing::default()).into();
                Some(Doing::Deleting { nested: begin_nested(run, by, Subject::Volume(volume, None), deletion) })
            }
            (Question::Announce(announcement), Some(entry)) => {
                let control = run.cluster.control.as_mut().expect("it has asked");
                control.processes.announced.insert((entry.id(), announcement, by.host));
                return answer(run, (by, tag), Answer::Yes);
            }
            (Question::Withdraw(announcement), _) => {
                let control = run.cluster.control.as_mut().expect("it has asked");
                control.processes.announced.retain(|(_, other, host)| (*other, *host) != (announcement, by.host));
                return answer(run, (by, tag), Answer::Yes);
            }
            (Question::Examine { shard }, Some(_)) => system.map(|system| {
                if shard == 0 {
                    self.found.remove(&by);
                }
                let purpose = match system.shards.len() {
                    1 => Purpose::Checks,
                    _ => Purpose::Collects { most: MAP_BYTES_MAX },
                };
                let role = system.process_role(&run.cluster, shard, purpose);
                Doing::Examining { node: start_process(run, role), shard: system.shards[shard].id, release: None }
            }),
            (_, None) => None,
            (other, _) => unreachable!("others answer that: {other:?}"),
        };
        match doing {
            Some(doing) => self.works.push(work(doing)),
            None => answer(run, (by, tag), Answer::Failed),
        }
    }

    /// Goes on with a work. Its answer, if it has ended.
    fn next(&mut self, run: &mut Run, plan: &Plan, work: &mut Work, ended: &[End]) -> Option<Answer> {
        let end_of = |nested: &Name| ended.iter().find(|(name, ..)| name == nested).map(|(.., result)| result.clone());
        let now = run.cluster.world.now();
        match &mut work.doing {
            Doing::Creating { nested, number, tried } => match end_of(nested)? {
                Ok(_) => Some(Answer::Yes),
                // Another volume was created since.
                Err(Error::NumberUsed) if *tried < NUMBERS_TRIED => {
                    let description = store_of(&run.cluster).description();
                    let entry = work.subject.file_system(description).cloned();
                    let again = entry.and_then(|entry| create_volume(run, plan, work.by, &entry, *number));
                    let Some(name) = again else { return Some(Answer::Failed) };
                    (*nested, *tried) = (name, *tried + 1);
                    None
                }
                Err(_) => Some(Answer::Failed),
            },
            Doing::Deleting { nested } => match end_of(nested)? {
                Ok(_) | Err(Error::NotUsable) => Some(Answer::Yes),
                Err(_) => Some(Answer::Failed),
            },
            Doing::Formatting { volume, writes, asked, at, .. } => {
                if asked.is_none() && *at <= now {
                    let Some((offset, data)) = writes.front().cloned() else { return Some(Answer::Yes) };
                    let write = VolumeRequest::Write { volume: *volume, offset, data, patience: Patience::Host };
                    let slot = run.cluster.slot_of(work.by.host).expect("it is up");
                    *asked = Some(run.cluster.ask(slot, write));
                }
                None
            }
            Doing::Asking(_) => None,
            Doing::Examining { node, shard, release } => {
                let (node, shard) = (*node, *shard);
                if run.cluster.world.is_stalled(NodeId::Host(work.by.host)) {
                    run.cluster.world.stall(node, PAUSE);
                    return None;
                }
                let Some(Role::Metadata(machine)) = run.cluster.world.machine(node) else {
                    return Some(Answer::Failed);
                };
                if release.is_some() {
                    return None;
                }
                let server = machine.server();
                let is_unusable = server.is_some_and(|server| matches!(server.service(), MetadataService::Unusable(_)));
                if matches!(machine.state(), NodeState::Ended(_)) || is_unusable {
                    end_process(run, node);
                    return Some(Answer::Failed);
                }
                let (findings, collected) = (server?.findings(), server?.collected());
                let complete = findings.is_some() || collected.is_some();
                let since = machine.owns_since().filter(|_| complete)?;
                let (all, maps) = self.found.entry(work.by).or_default();
                all.extend(findings.into_iter().flat_map(|(findings, _)| findings));
                maps.extend(collected.map(|collected| Collected::clone(&collected)));
                let slot = run.cluster.slot(node).expect("it has a slot");
                *release = Some(run.cluster.own(slot, shard, OwnershipRequest::Release { since }));
                None
            }
        }
    }

    /// A request was answered; true if it is one of these.
    pub fn on_reply(&mut self, run: &mut Run, op: OpId, outcome: &HostOutcome) -> bool {
        let is_of = |work: &Work| match &work.doing {
            Doing::Formatting { asked, .. } => *asked == Some(op),
            Doing::Asking(asked) => *asked == op,
            Doing::Examining { release, .. } => *release == Some(op),
            Doing::Creating { .. } | Doing::Deleting { .. } => false,
        };
        let Some(place) = self.works.iter().position(is_of) else { return false };
        let mut work = self.works.remove(place);
        let now = run.cluster.world.now();
        let end = match &mut work.doing {
            Doing::Formatting { writes, asked, at, until, .. } => {
                *asked = None;
                match outcome {
                    Ok(_) => drop(writes.pop_front()),
                    // It follows the store, and soon knows the volume.
                    Err(HostError::NoSuchVolume) if now < *until => *at = now.after(PAUSE),
                    Err(_) => {
                        answer(run, (work.by, work.tag), Answer::Failed);
                        return true;
                    }
                }
                self.works.push(work);
                return true;
            }
            Doing::Examining { node, .. } => {
                let (node, is_single) = (*node, self.found.get(&work.by).is_none_or(|(_, maps)| maps.is_empty()));
                end_process(run, node);
                // What a single shard contains is known. The next server takes over.
                ownership_of(outcome).or(is_single.then(|| Answer::Ownership(Ownership::default())))
            }
            _ => ownership_of(outcome),
        };
        answer(run, (work.by, work.tag), end.unwrap_or(Answer::Failed));
        true
    }

    /// What the check of this administrator has found.
    pub fn take_findings(&mut self, run: &mut Run, by: Name) -> Vec<Finding> {
        let (mut findings, maps) = self.found.remove(&by).unwrap_or_default();
        if !maps.is_empty() {
            match check_together(maps) {
                Ok((found, _)) => findings.extend(found),
                Err(_) => run.count_fault("check of undecided operations"),
            }
        }
        findings
    }
}

fn answer(run: &mut Run, (to, tag): (Name, Tag), answer: Answer) {
    run.cluster.with_control(|control, cx| control.answer(cx, to, tag, answer));
}

fn ownership_of(outcome: &HostOutcome) -> Option<Answer> {
    match outcome {
        Ok(HostSuccess::Ownership(now)) | Err(HostError::Ownership(OwnershipRefused::Differs(now))) => {
            Some(Answer::Ownership(*now))
        }
        _ => None,
    }
}

/// Begins the operation that creates a volume of a file system, with the next number.
fn create_volume(run: &mut Run, plan: &Plan, by: Name, entry: &FileSystemEntry, number: usize) -> Option<Name> {
    let devices = run.cluster.devices().len();
    let id = store_of(&run.cluster).next_volume();
    let volume = plan.volume(entry, number, devices).describe(id, devices);
    let name = entry.volumes().into_iter().nth(number)?;
    let new = braid_description::VolumeEntry { name, ..volume_entry(&volume) };
    let subject = Subject::Volume(id, Some(Box::new(new)));
    Some(begin_nested(run, by, subject, Creation::of(by.host, volume, Timing::default()).into()))
}

/// Begins another operation of the same host.
fn begin_nested(run: &mut Run, by: Name, subject: Subject, operation: Operation) -> Name {
    let slot = run.cluster.slot_of(by.host).expect("it is up");
    run.cluster.operator(slot).begin_on(subject, operation)
}
