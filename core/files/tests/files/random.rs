//! Random operations of several clients on a few files, while messages are lost, doubled, delayed and reordered, hostwrites end with
//! unknown outcomes, the server restarts, and hosts die. Bytes are linearizable, everything ends, and nothing is left behind.

use crate::bench::*;
use crate::history::{Action, Entry, check};

const FILES: usize = 2;
const LONGEST: u64 = 40_000;

struct Run {
    seed: u64,
    bench: Bench,
    rng: Rng,
    inodes: Vec<InodeId>,
    handles: BTreeMap<(Generation, usize), FileHandle>,
    pending: BTreeMap<OpId, Pending>,
    entries: Vec<Vec<Entry>>,
    /// Writes stay within a block, so that a host's death does not tear them.
    is_small: bool,
}

struct Pending {
    host: Generation,
    file: usize,
    start: Time,
    action: Action,
}

impl Run {
    fn new(seed: u64, hosts: u32, network: Network, is_small: bool) -> Run {
        let mut bench = Bench::new(seed, hosts, 8192, GOOD);
        let first = *bench.clients.keys().next().expect("there are hosts");
        let inodes = (0..FILES).map(|number| bench.create(first, &number.to_string())).collect();
        bench.network = network;
        let (handles, pending, entries) = (BTreeMap::new(), BTreeMap::new(), vec![Vec::new(); FILES]);
        Run { seed, bench, rng: Rng::new(seed), inodes, handles, pending, entries, is_small }
    }

    /// A run whose files are created and opened by one host, while the others look for their names and use them at once.
    fn of_new_files(seed: u64) -> Run {
        let mut run = Run::new(seed, 3, BAD, false);
        run.inodes.clear();
        for file in 0..FILES {
            let (creator, name) = (run.host(), format!("new {file}"));
            let op = run.bench.ask(creator, creation(&name));
            let restarts = run.rng.chance(1, 4);
            loop {
                let looks = Generation(run.rng.between(1, 3) as u32);
                let (parent, name) = (InodeId::ROOT, Bytes::copy_from_slice(name.as_bytes()));
                let found = run.bench.call(looks, FilesRequest::Command(FileCommand::Lookup { parent, name }));
                if let Ok(FilesSuccess::Result(FileResult::Attributes(attributes))) = found {
                    run.inodes.push(attributes.inode);
                    break;
                }
            }
            if restarts {
                run.bench.restart_server();
            }
            for _ in 0..run.rng.below(3) {
                run.go_with(file + 1, 1);
            }
            match run.bench.finish(op) {
                Ok(HostSuccess::Files(FilesSuccess::Opened { handle, .. })) => {
                    // It may have opened the file by its inode, too.
                    run.handles.insert((creator, file), handle);
                }
                Ok(HostSuccess::Files(FilesSuccess::Result(FileResult::Created { .. }))) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        run
    }

    fn host(&mut self) -> Generation {
        let hosts: Vec<_> = self.bench.clients.keys().copied().collect();
        hosts[self.rng.below(hosts.len() as u64) as usize]
    }

    fn handle(&mut self, host: Generation, file: usize) -> FileHandle {
        if let Some(handle) = self.handles.get(&(host, file)) {
            return *handle;
        }
        let handle = self.bench.open(host, self.inodes[file]);
        self.handles.insert((host, file), handle);
        handle
    }

    /// Begins a random operation on one of the first files.
    fn begin(&mut self, files: usize) {
        let (host, file) = (self.host(), self.rng.below(files as u64) as usize);
        let handle = self.handle(host, file);
        let mut offset = self.rng.below(LONGEST) & if self.rng.chance(1, 4) { !0xfff } else { !0 };
        let longest = if self.rng.chance(1, 3) { 20_000 } else { 300 };
        let mut length = self.rng.between(1, longest);
        if self.is_small {
            offset = self.rng.below(LONGEST);
            length = length.min(4096 - offset % 4096);
        }
        let data: Vec<u8> = (0..length).map(|_| self.rng.next_u64() as u8).collect();
        let bytes = Bytes::copy_from_slice(&data);
        let (request, action) = match self.rng.below(13) {
            12 => {
                let action = Action::Read { offset: offset as usize, length: 0, data: Vec::new() };
                (FilesRequest::NextData { handle, offset }, action)
            }
            0..5 => {
                let (offset, length) = (offset as usize, self.rng.between(1, LONGEST) as usize);
                let request = FilesRequest::Read { handle, offset: offset as u64, length };
                (request, Action::Read { offset, length, data: Vec::new() })
            }
            5 | 6 if !self.is_small => {
                (FilesRequest::Append { handle, data: bytes }, Action::Append { offset: None, data })
            }
            7 => (FilesRequest::Truncate { inode: self.inodes[file], size: offset }, Action::Truncate(offset as usize)),
            // The last handle keeps a file without a name.
            8 if self.handles.keys().filter(|(_, of)| *of == file).count() > 2 => {
                // Operations under way go on.
                self.handles.remove(&(host, file));
                self.bench.ask(host, FilesRequest::Close { handle });
                return;
            }
            _ => {
                let request = FilesRequest::Write { handle, offset, data: bytes };
                (request, Action::Write { offset: offset as usize, data })
            }
        };
        let start = self.bench.now.time;
        let op = self.bench.ask(host, request);
        self.pending.insert(op, Pending { host, file, start, action });
        if self.rng.chance(1, 30) {
            self.bench.ask_host(host, ArrayRequest::Abandon { ops: vec![op] });
        }
    }

    /// Notes the operations that have ended.
    fn collect(&mut self) {
        let ended: Vec<_> = self.pending.keys().filter(|op| self.bench.ended.contains_key(op)).copied().collect();
        for op in ended {
            let Pending { file, start, mut action, .. } = self.pending.remove(&op).expect("just seen");
            let (end, outcome) = self.bench.ended[&op].clone();
            let success = match outcome {
                Ok(HostSuccess::Files(success)) => success,
                Err(HostError::Abandoned) => continue,
                other => panic!("seed {}: {action:?}: {other:?}", self.seed),
            };
            match (&mut action, success) {
                (Action::Read { data, .. }, FilesSuccess::Data(read)) => *data = read.concat(),
                (Action::Read { offset, length, data }, FilesSuccess::NextData(found)) => {
                    // As if the hole before it had been read, up to there or to the end of the file.
                    *data = vec![0; (found.start as usize).saturating_sub(*offset)];
                    *length = if found.is_empty() { 4 * LONGEST as usize } else { data.len() };
                }
                (Action::Append { offset, data }, FilesSuccess::Appended { offset: at, length }) => {
                    assert_eq!(length, data.len() as u64);
                    *offset = Some(at as usize);
                }
                (Action::Write { data, .. }, FilesSuccess::Written { length }) => assert_eq!(length, data.len() as u64),
                (Action::Truncate(_), FilesSuccess::Done) => {}
                (action, success) => panic!("{action:?}: {success:?}"),
            }
            self.entries[file].push(Entry { start, end: Some(end), action });
        }
    }

    /// A host is gone. What it was doing has an unknown outcome.
    fn crash(&mut self, host: Generation) {
        self.bench.crash(host);
        self.handles.retain(|(of, _), _| *of != host);
        let (gone, kept) = std::mem::take(&mut self.pending).into_iter().partition(|(_, pending)| pending.host == host);
        self.pending = kept;
        let gone: BTreeMap<OpId, Pending> = gone;
        for Pending { file, start, action, .. } in gone.into_values() {
            if !matches!(action, Action::Read { .. }) {
                self.entries[file].push(Entry { start, end: None, action });
            }
        }
        self.bench.add();
    }

    fn go(&mut self, steps: usize) {
        self.go_with(FILES, steps);
    }

    fn go_with(&mut self, files: usize, steps: usize) {
        for _ in 0..steps {
            if self.pending.len() < 2 * self.bench.clients.len() {
                self.begin(files);
            }
            let wait = Duration::from_micros(self.rng.below(30_000));
            self.bench.pass(wait);
            self.collect();
        }
    }

    /// Lets everything end, reads the files, and checks all that was read.
    fn end(mut self) {
        self.bench.network = GOOD;
        self.bench.volume.borrow_mut().busy = 0;
        for _ in 0..120 {
            self.bench.pass(Duration::from_secs(1));
            self.collect();
        }
        let waiting: Vec<_> = self.pending.values().map(|pending| (pending.host, &pending.action)).collect();
        assert!(waiting.is_empty(), "seed {}: operations never end: {waiting:?}", self.seed);
        let host = self.host();
        for file in 0..FILES {
            let handle = self.handle(host, file);
            let start = self.bench.now.time;
            let length = 4 * LONGEST as usize;
            let data = self.bench.read(host, handle, 0, length);
            let end = Some(self.bench.now.time);
            self.entries[file].push(Entry { start, end, action: Action::Read { offset: 0, length, data } });
            check(self.seed, &self.entries[file]);
        }
        self.bench.unmount_all();
    }
}

#[test]
fn bytes_of_files_that_others_find_at_once_are_linearizable() {
    for seed in 0..100 {
        let mut run = Run::of_new_files(seed);
        run.go(20);
        run.end();
    }
}

#[test]
fn bytes_are_linearizable_over_a_bad_network() {
    for seed in 0..60 {
        let mut run = Run::new(seed, 3, BAD, false);
        run.bench.volume.borrow_mut().busy = 10;
        run.go(60);
        if seed % 2 == 0 {
            run.bench.restart_server();
            run.go(30);
        }
        if seed % 3 == 0 {
            // Those who have it open keep it.
            (0..3).for_each(|host| {
                run.handle(Generation(host + 1), 0);
            });
            let (parent, name) = (InodeId::ROOT, Bytes::from_static(b"0"));
            run.bench.command(Generation(1), FileCommand::Unlink { parent, name });
            run.go(30);
        }
        run.end();
    }
}

#[test]
fn bytes_are_linearizable_on_a_fast_network() {
    for seed in 100..140 {
        let mut run = Run::new(seed, 2, GOOD, false);
        for _ in 0..40 {
            while run.pending.len() < 5 {
                run.begin(FILES);
            }
            run.bench.pass(Duration::from_micros(run.rng.below(600)));
            run.collect();
        }
        run.end();
    }
}

#[test]
fn hosts_that_die_leave_whole_writes_and_nothing_else() {
    for seed in 200..260 {
        let mut run = Run::new(seed, 3, BAD, true);
        for _ in 0..3 {
            run.go(20);
            let host = run.host();
            run.crash(host);
        }
        run.go(20);
        run.end();
        // The dead are fenced, or held nothing.
    }
}
