//! Users of the file systems that are created during a run: each mounts one, finds what others have left there, makes a file, writes it, and
//! unmounts.

use super::servers::{end_process, start_process};
use crate::cluster::{Cluster, Failed, failed};
use crate::file_records::FileSystem;
use crate::prelude::*;
use crate::swarm::Run;
use braid_machine::FileHandle;
use braid_wire::{FileCommand, Owner};

const FILE_BYTES: usize = 9_000;

/// A file that somebody makes.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// Since when it surely is there.
    inode: Option<(InodeId, Time)>,
    is_written: bool,
}

#[derive(Clone, Debug)]
struct User {
    node: NodeId,
    system: FileSystem,
    since: Time,
    op: OpId,
    step: Step,
    /// The number of its file.
    own: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Lists,
    /// A file of this number.
    Opens(u64),
    Reads(u64),
    Creates,
    OpensOwn,
    Writes(FileHandle),
    Unmounts,
}

/// The users of a run, and the files that they have made.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    users: Vec<User>,
    files: BTreeMap<FileSystemId, BTreeMap<u64, File>>,
    last: u64,
}

impl Users {
    pub fn begin(&mut self, run: &mut Run, system: FileSystem) {
        self.last += 1;
        let role = system.host_role(&run.cluster);
        let node = start_process(run, role);
        let list = FileCommand::ReadDirectory { inode: InodeId::ROOT, after: 0, most: 1_000 };
        let op = ask(&mut run.cluster, node, &system, FilesRequest::Command(list));
        let since = run.cluster.world.now();
        self.users.push(User { node, system, since, op, step: Step::Lists, own: self.last });
    }

    /// True if somebody has it mounted.
    pub fn has(&self, file_system: FileSystemId) -> bool {
        self.users.iter().any(|user| user.system.id == file_system)
    }

    pub fn have_made_files(&self, file_system: FileSystemId) -> bool {
        self.files.get(&file_system).is_some_and(|files| files.values().any(|file| file.inode.is_some()))
    }

    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Forgets those that have died, and ends those whose file system is being deleted.
    pub fn look(&mut self, run: &mut Run, is_ready: impl Fn(&Cluster, FileSystemId) -> bool) {
        self.users.retain(|user| {
            let is_up = run.cluster.world.is_up(user.node);
            if is_up && !is_ready(&run.cluster, user.system.id) {
                run.crash(user.node);
            }
            is_up && run.cluster.world.is_up(user.node)
        });
    }

    /// A request was answered; true if it was one of a user. Only then may one fail when its file system is deleted, or its host is fenced.
    pub fn on_reply(
        &mut self,
        run: &mut Run,
        op: OpId,
        outcome: &HostOutcome,
        is_ready: impl Fn(&Cluster, FileSystemId) -> bool,
    ) -> Result<bool, Failed> {
        let Some(place) = self.users.iter().position(|user| user.op == op) else { return Ok(false) };
        let mut user = self.users.remove(place);
        let id = user.system.id;
        let success = match outcome {
            Ok(success) => success,
            Err(error) => {
                let is_excused = *error == HostError::Fenced || !is_ready(&run.cluster, id);
                run.count_fault("user of a file system ends");
                run.crash(user.node);
                let details = || format!("{id}: {:?} of {:?}: {error}", user.step, user.since);
                return if is_excused { Ok(true) } else { failed("file-system-unusable", details()) };
            }
        };
        let now = run.cluster.world.now();
        match self.next(now, &mut user, success).map_err(|details| Failed { check: "file-system-content", details })? {
            Some(request) => {
                user.op = ask(&mut run.cluster, user.node, &user.system, request);
                user.since = now;
                self.users.push(user);
            }
            None if user.step == Step::Unmounts => {
                run.count_fault("file system used");
                end_process(run, user.node);
            }
            None => {
                user.step = Step::Unmounts;
                let slot = run.cluster.slot(user.node).expect("it has a slot");
                user.op = run.cluster.ask(slot, ArrayRequest::Disconnect);
                self.users.push(user);
            }
        }
        Ok(true)
    }

    /// What a user asks for next; none if it is done.
    fn next(&mut self, now: Time, user: &mut User, success: &HostSuccess) -> Result<Option<FilesRequest>, String> {
        let files = self.files.entry(user.system.id).or_default();
        let name = |number: u64| Bytes::from(format!("f{number}"));
        let (step, all) = (user.step, success);
        let unexpected = || Err(format!("{step:?}: {all:?}"));
        let create = |user: &mut User, files: &mut BTreeMap<u64, File>| -> Result<Option<FilesRequest>, String> {
            user.step = Step::Creates;
            files.insert(user.own, File::default());
            let (parent, owner) = (InodeId::ROOT, Owner::default());
            Ok(Some(FilesRequest::Create { parent, name: name(user.own), owner, mode: 0o600 }))
        };
        let write = |user: &mut User, handle| {
            user.step = Step::Writes(handle);
            Ok(Some(FilesRequest::Write { handle, offset: 0, data: content(user.own) }))
        };
        let HostSuccess::Files(success) = success else {
            return if user.step == Step::Unmounts { Ok(None) } else { unexpected() };
        };
        match (user.step, success) {
            (Step::Lists, FilesSuccess::Result(FileResult::Entries { entries, .. })) => {
                let there: Vec<&Bytes> = entries.iter().map(|entry| &entry.name).collect();
                let begun: Vec<Bytes> = files.keys().map(|number| name(*number)).collect();
                let was_there = |file: &File| file.inode.is_some_and(|(_, since)| since < user.since);
                let is_lost = |number: u64, file: &File| was_there(file) && !there.contains(&&name(number));
                if let Some(lost) = files.iter().find(|(number, file)| is_lost(**number, file)) {
                    return Err(format!("{} lacks {lost:?}", user.system.id));
                }
                if let Some(foreign) = there.iter().find(|name| !begun.contains(**name)) {
                    return Err(format!("{} has {foreign:?}, which nobody has made there", user.system.id));
                }
                match files.iter().rfind(|(_, file)| file.is_written) {
                    Some((number, File { inode: Some((inode, _)), .. })) => {
                        user.step = Step::Opens(*number);
                        Ok(Some(FilesRequest::Open { inode: *inode }))
                    }
                    _ => create(user, files),
                }
            }
            (Step::Opens(number), FilesSuccess::Opened { handle, .. }) => {
                user.step = Step::Reads(number);
                Ok(Some(FilesRequest::Read { handle: *handle, offset: 0, length: 2 * FILE_BYTES }))
            }
            (Step::Reads(number), FilesSuccess::Data(parts)) => match parts.concat() == content(number) {
                true => create(user, files),
                false => Err(format!("{}: another content of file {number}", user.system.id)),
            },
            (Step::Creates, FilesSuccess::Opened { handle, attributes }) => {
                files.insert(user.own, File { inode: Some((attributes.inode, now)), is_written: false });
                write(user, *handle)
            }
            (Step::Creates, FilesSuccess::Result(FileResult::Created { attributes, .. })) => {
                files.insert(user.own, File { inode: Some((attributes.inode, now)), is_written: false });
                user.step = Step::OpensOwn;
                Ok(Some(FilesRequest::Open { inode: attributes.inode }))
            }
            (Step::OpensOwn, FilesSuccess::Opened { handle, .. }) => write(user, *handle),
            (Step::Writes(_), FilesSuccess::Written { length }) if *length as usize == FILE_BYTES => {
                files.get_mut(&user.own).expect("it was created").is_written = true;
                Ok(None)
            }
            _ => unexpected(),
        }
    }
}

fn content(number: u64) -> Bytes {
    number.to_le_bytes().into_iter().cycle().take(FILE_BYTES).collect()
}

fn ask(cluster: &mut Cluster, node: NodeId, system: &FileSystem, request: FilesRequest) -> OpId {
    let slot = cluster.slot(node).expect("it has a slot");
    cluster.ask(slot, MountRequest::Files { file_system: system.id, request })
}
