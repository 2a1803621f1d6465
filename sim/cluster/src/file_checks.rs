//! Checks of a file system at the end of a run, when all faults are over:
//!
//! 1. A new host walks through the whole tree and reads all files. The walk is a part of the history, so that the content agrees with it.
//! 2. It writes as many blocks as are free or reserved for hosts that do not use them: no host starves while others, or dead ones, have what
//!    it needs.
//! 3. All hosts unmount the file system, or die, and are fenced. Then the metadata server frees what they have left.
//! 4. The metadata volume is read as a new owner would read it: its map is whole, and nothing is left in it for hosts that are gone.
//! 5. The history of names, and that of the bytes of each file, are linearizable.

use crate::cluster::{ARRAY, Cluster, Failed, HostSlot, failed};
use crate::file_records::{FileCall, FileRecords, FileSystem, FileSystemShard};
use crate::file_workload::{listed, mode};
use crate::files;
use crate::prelude::*;
use crate::role::Role;

use crate::metadata_processes::{MetadataServers, is_one_taking_over};
use crate::swarm::Run;
use braid_base::Clock;
use braid_check::{FileAction, FileOperation, FileValue, FileVerdict, check_bytes, check_names};
use braid_machine::{AdvisoryOwner, Effect, Effects};
use braid_metadata::{STORE_OFFSET, is_undecided, store_config, united};
use braid_namespace::check::{Check, Windows};
use braid_namespace::{Context, evaluate, keys, reclaim};
use braid_objects::{Evaluation, Key, Kind, NotHere, Obstacle, Procedure, View};
use braid_store::{Medium, Storage, Store, StoreEvent};
use braid_wire::{FileCommand, FileSystemStatus, FileTime, FileType, NewInode, Owner};
use braid_world::MemoryDisk;

/// The bytes of one hostread of the metadata volume.
const CHUNK: u64 = 1 << 20;
/// The longest time that a metadata server needs to take over.
const TAKE_OVER_MAX: Duration = Duration::from_secs(120);
/// The process of the final walk.
const WALKER: usize = 1_000;
/// The most blocks that are written to find out whether they can be used: more would take long.
const SPARE_MAX: u64 = 1_024;
/// More than a file has.
const WHOLE_FILE: u64 = 1 << 20;

/// All checks of the file system, which then is not used any more.
pub(crate) fn check_files(run: &mut Run) -> Result<(), Failed> {
    let Some(system) = run.cluster.files.system.clone() else { return Ok(()) };
    let until = run.cluster.world.now().after(TAKE_OVER_MAX);
    while is_one_taking_over(&run.cluster) {
        if run.cluster.world.now() > until {
            return failed("no-owner", "a metadata server takes over and does not end".into());
        }
        run.pass(Duration::from_millis(100))?;
    }
    run.look_after_activities()?;
    let walker = system.add_host(&mut run.cluster);
    run.cluster.files.hosts.insert(walker);
    Walker { cluster: &mut run.cluster, slot: walker }.walk()?;
    use_spare_blocks(&mut run.cluster, walker)?;
    for slot in run.cluster.files.hosts.clone() {
        let node = run.cluster.node(slot);
        if !run.cluster.world.is_up(node) {
            continue;
        }
        if run.rng.chance(3, 4) {
            let op = run.cluster.ask(slot, ArrayRequest::Disconnect);
            // A host may find out now that it is fenced.
            let _ = run.cluster.outcome(op, "a host does not unmount the file system")?;
        }
        run.crash(node);
    }
    run.come_to_rest()?;
    let lease = run.cluster.options.settings.host_lease;
    run.pass(12 * lease + Duration::from_secs(5))?;
    run.with(|servers: &mut MetadataServers, _, _| servers.is_over = true);
    for slot in run.cluster.files.servers.clone().into_flattened() {
        let node = run.cluster.node(slot);
        if run.cluster.world.is_up(node) {
            run.crash(node);
        }
    }
    run.come_to_rest()?;
    system.check_metadata(&mut run.cluster)?;
    if run.cluster.control.is_some() {
        // Its volume may have another ordering now, and locks of the last reads.
        run.come_to_rest()?;
    }
    let judged = run.cluster.files.judge()?;
    run.report.search_steps += judged.steps;
    run.report.files_unjudged += judged.undecided;
    run.report.count("files", judged.outcomes);
    Ok(())
}

/// The judgement of the history of a file system.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The steps of the searches for an order.
    pub steps: u64,
    /// Searches that were abandoned.
    pub undecided: u64,
    /// Operations by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// Locks of processes that have ended are released, so that nobody waits for them for ever.
pub(crate) fn release_advisory_locks(cluster: &mut Cluster) {
    for (node, owner) in cluster.files.lockers() {
        let client = owner as usize;
        let Some(slot) = cluster.slot(node) else { continue };
        if !cluster.world.is_up(node)
            || cluster.requests.asked().any(|asked| (asked.node, asked.client) == (node, client))
        {
            continue;
        }
        for lock in cluster.files.held_locks(node, client) {
            let open = cluster.files.open_files(node, client);
            let Some(file) = open.iter().find(|file| file.inode == lock.inode) else { continue };
            let (handle, range) = (file.handle, lock.range.clone());
            let action = FileAction::Unlock { inode: lock.inode, owner, range: range.clone() };
            let request = FilesRequest::Unlock { handle, owner: AdvisoryOwner(owner), range };
            files::file_operation(cluster, slot, client, (request, action));
        }
    }
}

impl FileRecords {
    /// Checks that the history of names, and that of the bytes of each file, are linearizable.
    pub fn judge(&self) -> Result<Judged, Failed> {
        let mut judged = Judged::default();
        for verdict in [check_names(&self.history), check_bytes(&self.history)] {
            match verdict {
                FileVerdict::Linearizable { steps } => judged.steps += steps,
                FileVerdict::Undecided => judged.undecided += 1,
                FileVerdict::Not(details) => return failed("files-linearizable", details),
            }
        }
        for operation in self.history.operations() {
            let name = match operation.answer() {
                None => "unknown",
                Some(Ok(_)) => "done",
                Some(Err(_)) => "refused",
            };
            *judged.outcomes.entry(name).or_default() += 1;
        }
        Ok(judged)
    }
}

/// A host that walks through a file system at rest.
pub(crate) struct Walker<'a> {
    pub cluster: &'a mut Cluster,
    pub slot: HostSlot,
}

impl Walker<'_> {
    /// Executes an operation while nothing else happens.
    fn call(&mut self, call: FileCall) -> Result<FileOperation, Failed> {
        let op = files::file_operation(self.cluster, self.slot, WALKER, call);
        let number = self.cluster.files.history.operations().len() - 1;
        self.cluster.outcome(op, "an operation on files does not end")?.map_err(|error| Failed {
            check: "no-progress",
            details: format!("an operation on files fails at rest: {error}"),
        })?;
        Ok(self.cluster.files.history.operations()[number].clone())
    }

    /// Reads all directories and files.
    pub fn walk(&mut self) -> Result<(), Failed> {
        let (mut directories, mut seen) = (vec![InodeId::ROOT], BTreeSet::new());
        while let Some(inode) = directories.pop() {
            let command = FileCommand::ReadDirectory { inode, after: 0, most: 1_000 };
            let read = self.call((FilesRequest::Command(command.clone()), FileAction::Command(command)))?;
            let Some(Ok(FileValue::Result(result))) = read.answer() else {
                return failed("files-walk", read.to_string());
            };
            for entry in listed(result).unwrap_or_default() {
                if !seen.insert(entry.inode) {
                    continue;
                }
                match entry.file_type {
                    FileType::Directory => directories.push(entry.inode),
                    FileType::Regular => self.read_whole(entry.inode)?,
                    FileType::Special(_) => {}
                    FileType::SymbolicLink => {
                        let command = FileCommand::ReadLink { inode: entry.inode };
                        self.call((FilesRequest::Command(command.clone()), FileAction::Command(command)))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read_whole(&mut self, inode: InodeId) -> Result<(), Failed> {
        self.call((FilesRequest::Open { inode }, FileAction::Open { inode }))?;
        let open = self.cluster.files.open_files(self.cluster.node(self.slot), WALKER);
        let Some(file) = open.last().filter(|file| file.inode == inode) else {
            return failed("files-walk", format!("{inode} has a name, and can't be opened"));
        };
        let handle = file.handle;
        let length = WHOLE_FILE;
        let read = FilesRequest::Read { handle, offset: 0, length: length as usize };
        self.call((read, FileAction::Read { inode, offset: 0, length }))?;
        // A lock that nobody else has is granted.
        let (owner, range, exclusive) = (AdvisoryOwner(WALKER as u64), 0..u64::MAX, true);
        let lock = FilesRequest::Lock { handle, owner, range: range.clone(), mode: mode(exclusive), wait: true };
        let action = FileAction::Lock { inode, owner: owner.0, range: range.clone(), exclusive, waits: true };
        self.call((lock, action))?;
        let action = FileAction::Unlock { inode, owner: owner.0, range: range.clone() };
        self.call((FilesRequest::Unlock { handle, owner, range }, action))?;
        self.call((FilesRequest::Close { handle }, FileAction::Close { inode }))?;
        Ok(())
    }
}

/// Writes as many blocks as are free, or reserved and idle: that there is no space would need an excuse. The file is not a part of the
/// history.
fn use_spare_blocks(cluster: &mut Cluster, slot: HostSlot) -> Result<(), Failed> {
    let system = cluster.files.mounted().clone();
    let failed = |details: String| Failed { check: "starved", details };
    let create = FileCommand::Create {
        parent: InodeId::ROOT,
        name: Bytes::from_static(b"spare"),
        node: NewInode::Regular,
        exclusive: true,
        owner: Owner::default(),
        mode: 0o600,
    };
    let mut call = |request| -> Result<_, Failed> {
        let op = system.ask(cluster, slot, request);
        let outcome = cluster.outcome(op, "an operation on files does not end")?;
        let idle = cluster.files.hosts.iter().map(|host| cluster.role(*host).map_or(0, Role::idle_blocks));
        Ok((outcome, idle.sum::<u64>()))
    };
    let inode = match call(FilesRequest::Command(create))?.0 {
        Ok(HostSuccess::Files(FilesSuccess::Result(FileResult::Created { attributes, .. }))) => attributes.inode,
        // The metadata volume may be full.
        _ => return Ok(()),
    };
    let handle = match call(FilesRequest::Open { inode })?.0 {
        Ok(HostSuccess::Files(FilesSuccess::Opened { handle, .. })) => handle,
        other => return Err(failed(format!("a new file can't be opened: {other:?}"))),
    };
    let (status, idle) = match call(FilesRequest::Command(FileCommand::StatFileSystem))? {
        (Ok(HostSuccess::Files(FilesSuccess::Result(FileResult::FileSystem(status)))), idle) => (status, idle),
        (other, _) => return Err(failed(format!("no status: {other:?}"))),
    };
    let spare = status.free + idle;
    if spare == 0 || spare > SPARE_MAX {
        return Ok(());
    }
    // In most runs a host that has idle blocks dies: they come back when it is fenced.
    let has_idle = |host: &HostSlot| *host != slot && cluster.role(*host).map_or(0, Role::idle_blocks) > 0;
    let idler = cluster.files.hosts.iter().copied().find(has_idle).filter(|_| spare % 4 > 0);
    if let Some(idler) = idler {
        let node = cluster.node(idler);
        cluster.crash(node);
    }
    let data = Bytes::from(vec![1; spare as usize * BLOCK_BYTES]);
    let op = system.ask(cluster, slot, FilesRequest::Write { handle, offset: 0, data });
    let outcome = cluster.outcome(op, "an operation on files does not end")?;
    let details = || format!("{outcome:?} for {spare} blocks, {idle} of them idle; {idler:?} has died; {status:?}");
    if outcome.is_err() { Err(failed(details())) } else { Ok(()) }
}

fn read_metadata_volume(cluster: &mut Cluster, shard: &FileSystemShard) -> Result<Map, Failed> {
    let (volume, all) = (shard.metadata.id, shard.metadata.bytes);
    let reader = cluster.add_host();
    let mut bytes = Vec::new();
    for offset in (STORE_OFFSET..all).step_by(CHUNK as usize) {
        let length = CHUNK.min(all - offset) as usize;
        let read = VolumeRequest::Read { volume, offset, length, patience: Patience::Host };
        let op = cluster.ask(reader, read);
        match cluster.answer(op, "the metadata volume can't be read")? {
            HostSuccess::Data(parts) => bytes.extend(parts.concat()),
            other => return failed("unexpected-answer", format!("{other:?}")),
        }
    }
    let store = Store::new(store_config(ARRAY, shard.id, all));
    read_map(store, bytes).map_err(|details| Failed { check: "metadata-volume", details })
}

impl FileSystem {
    /// Reads the metadata volumes while no process serves the file system, and checks the maps in them, together.
    pub fn check_metadata(&self, cluster: &mut Cluster) -> Result<(), Failed> {
        let mut maps = Vec::new();
        for shard in &self.shards {
            maps.push(read_metadata_volume(cluster, shard)?);
        }
        let map = &mut united(maps);
        if let Some((key, _)) = map.iter().find(|(key, value)| is_undecided(**key, value)) {
            return failed("undecided-left", format!("{key:?}"));
        }
        let found = inspect(map);
        let Found { findings, omitted, status, unlinked, holders } = &found;
        if !findings.is_empty() || *omitted > 0 {
            return failed("namespace", format!("{findings:?}, and {omitted} more; {status:?}"));
        }
        if !unlinked.is_empty() {
            return failed("orphans-left", format!("{unlinked:?}; {status:?}"));
        }
        if status.allotted > 0 || !holders.is_empty() {
            let details = format!("blocks are allotted to hosts that are gone: {holders:?}; {status:?}");
            return failed("allotments-left", details);
        }
        Ok(())
    }
}

type Map = BTreeMap<Key, Bytes>;

/// What is found in a map.
#[derive(Debug, Default)]
struct Found {
    findings: Vec<String>,
    omitted: u64,
    status: FileSystemStatus,
    /// Inodes that are to be reclaimed.
    unlinked: Vec<InodeId>,
    /// Hosts that have allotments.
    holders: Vec<Generation>,
}

/// Checks the whole map.
fn inspect(map: &mut Map) -> Found {
    let mut check = Check::new(Windows { inodes: 10_000, blocks: 1 << 20 });
    check.step(map, usize::MAX).expect(IN_MEMORY);
    let (findings, omitted) = check.findings();
    let findings = findings.iter().map(|finding| format!("{finding:?}")).collect();
    let context = Context { host: Generation(0), now: FileTime::default(), is_nearly_full: false };
    let status = match evaluate(&FileCommand::StatFileSystem, context, map).expect(IN_MEMORY).answer {
        Ok(FileResult::FileSystem(status)) => status,
        _ => FileSystemStatus::default(),
    };
    let unlinked = reclaim::listed(map, None, 100).expect(IN_MEMORY);
    let holders = reclaim::hosts(map, None, 100).expect(IN_MEMORY);
    Found { findings, omitted, status, unlinked, holders }
}

const IN_MEMORY: &str = "all keys are in memory";

/// Reads a whole map in one evaluation, which the store repeats until it has all keys in memory.
#[derive(Clone, Debug)]
struct ReadAll;

impl Procedure for ReadAll {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let (mut all, mut next) = (Map::new(), Some(Key::FIRST));
        let last = *keys::all(Kind::Transaction).end();
        while let Some(from) = next {
            match map.first(from..=last) {
                Ok(Some((key, value))) => {
                    all.insert(key, value);
                    next = key.after();
                }
                Ok(None) => next = None,
                Err(Obstacle::NotHere) => {
                    map.will_need(from..=last, 1_000);
                    return Err(NotHere);
                }
                Err(Obstacle::Lost) => panic!("the map is damaged at {from:?}"),
            }
        }
        Ok(Evaluation::that_finds(all))
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Opens a store on these bytes, and reads its map.
fn read_map(store: Store, bytes: Vec<u8>) -> Result<Map, String> {
    let mut store = store.on(Medium { physical_sector: 4096, cached: false });
    let (mut disk, mut out) = (MemoryDisk::of(bytes), Effects::new());
    let now = Now { time: Time(0), clock: Clock(0) };
    store.start(&mut out);
    loop {
        while let Some(event) = store.pop_event() {
            match event {
                StoreEvent::Ready(_) => store.read_durable(now, 1, Box::new(ReadAll), &mut out),
                StoreEvent::ObjectsRead { found, .. } => {
                    return found.map(|found| found.take()).ok_or("it is not read".into());
                }
                StoreEvent::Unusable(error) => return Err(error.to_string()),
                _ => {}
            }
        }
        for effect in out.drain() {
            match effect {
                Effect::Disk { tag, command } => disk.submit(tag, command),
                other => return Err(format!("a store sends nothing: {other:?}")),
            }
        }
        let Some((tag, result)) = disk.end_one() else { return Err("the inspection does not end".into()) };
        store.on_disk_done(now, tag, result, &mut out);
    }
}
