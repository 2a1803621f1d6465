//! File systems with several metadata servers: their operations take effect on all shards or on none, whichever server is killed.

use crate::prelude::*;
use braid_client::{Files, FilesError};

pub const NAME: &str = "home";
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the array may take to recover from the death of a process.
pub const RECOVERY: Duration = Duration::from_secs(60);
/// The longest pauses with the default lease: if a server is killed, if more is killed with it, and after all have started again. Only the
/// long forms of the tests check them.
const PAUSE_MAX: Duration = Duration::from_secs(7);
const LONG_PAUSE_MAX: Duration = Duration::from_secs(9);

/// An array whose file system has two shards, and in which no inode is in the shard of its name.
fn array() -> Array {
    let up = if soak() { Array::patient_up } else { Array::up };
    let array = up(&["--size", "512MiB", "--volume", "vol0:1MiB"]);
    array.braid(&["fs", "create", NAME, "--size", "256MiB", "--servers", "2", "--placement", "spread"]).done();
    array
}

pub fn mount(array: &Array) -> Files {
    let options = ArrayOptions::at(array.dir()).name("test").deadline(DEADLINE);
    wait(Files::mount(options, NAME)).expect("the file system can be mounted")
}

fn status(array: &Array) -> Value {
    array.braid(&["fs", "status", NAME]).done().json()["file_systems"][0].clone()
}

pub async fn list(files: &Files, path: &str) -> Result<BTreeSet<String>, FilesError> {
    let mut entries = files.read_dir(path).await?;
    let mut names = BTreeSet::new();
    while let Some(entry) = entries.next().await? {
        names.insert(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

#[test]
fn two_mounts_see_one_file_system_on_two_servers() {
    let array = array();
    let shown = status(&array);
    assert_eq!((&shown["state"], &shown["placement"]), (&json!("serving"), &json!("spread")), "{shown}");
    let servers = items(&shown["servers"]);
    assert_eq!(servers.iter().map(|server| number(&server["id"])).collect::<Vec<_>>(), [1, 2], "{shown}");
    assert_ne!(servers[0]["pid"], servers[1]["pid"]);
    let (files, other) = (mount(&array), mount(&array));
    for protocol in ["1pc", "ep", "prc", "prn"] {
        array.braid(&["fs", "set-commit-protocol", NAME, protocol]).done();
        assert_eq!(text(&status(&array)["commit_protocol"]), protocol);
        // The servers look twice a second.
        let span = Duration::from_millis(if soak() { 2000 } else { 1200 });
        keep_doing(span, || wait(use_both(&files, &other)).expect(protocol));
    }
    // Each server takes its shard over again, one after the other.
    array.braid(&["fs", "set-commit-protocol", NAME, "--grouping", "none"]).done();
    let shown = status(&array);
    assert_eq!((text(&shown["commit_protocol"]), text(&shown["grouping"])), ("prn".into(), "none".into()));
    keep_doing(Duration::from_secs(3), || wait(use_both(&files, &other)).expect("programs wait meanwhile"));
    wait(async {
        files.write("/kept", "kept").await.expect("it works");
        files.close().await;
        assert_eq!(other.read("/kept").await.expect("it is there"), "kept");
        other.close().await;
    });
    array.assert_files_sound(NAME);
    array.braid(&["fs", "delete", NAME, "--yes"]).done();
    // A server that began after the check may have taken over meanwhile, and releases what is deleted.
    let rest = array.await_status("nobody owns it", |status| status["file_systems"] == json!([]));
    assert_eq!(items(&rest["volumes"]).len(), 1, "{rest:#}");
}

/// Makes directories and files through one mount, links, renames and removes them, and looks from the other mount.
async fn use_both(files: &Files, other: &Files) -> Result<(), FilesError> {
    files.create_dir("/a").await?;
    other.create_dir("/a/b").await?;
    files.write("/a/b/file", "content").await?;
    let (parent, inode) = (files.metadata("/a/b").await?.inode(), other.metadata("/a/b/file").await?.inode());
    assert_ne!(parent >> 48, inode >> 48, "the file is in the shard of its directory");
    other.hard_link("/a/b/file", "/linked").await?;
    assert_eq!(files.metadata("/linked").await?.links(), 2);
    files.rename("/a/b/file", "/a/moved").await?;
    other.write("/old", "old").await?;
    other.rename("/a/moved", "/old").await?;
    assert_eq!(files.read("/old").await?, "content");
    assert!(matches!(other.metadata("/a/moved").await, Err(FilesError::NotFound)));
    other.rename("/a/b", "/c").await?;
    assert!(matches!(files.rename("/a", "/a/d").await, Err(FilesError::IntoItself)));
    files.symlink("/old", "/a/link").await?;
    assert_eq!(other.read("/a/link").await?, "content");
    files.remove_file("/a/link").await?;
    for name in ["/linked", "/old"] {
        other.remove_file(name).await?;
    }
    files.remove_dir("/a").await?;
    other.remove_dir("/c").await?;
    assert!(list(files, "/").await?.is_empty() && list(other, "/").await?.is_empty());
    Ok(())
}

/// A program that creates files, gives some a second name or a name in another directory, and removes some.
#[derive(Debug, Default)]
struct Program {
    is_done: AtomicBool,
    acknowledged: AtomicU64,
    /// The longest operation since this was read last, in microseconds.
    longest: AtomicU64,
}

impl Program {
    /// Runs until it is told to end. Returns the names that there must be then.
    fn run(&self, files: &Files, writer: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for number in 0.. {
            if self.is_done.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("/left/{writer}-{number}");
            let other = format!("/right/{writer}-{number}");
            // Between two steps, another server may be killed.
            self.step(files.write(&name, name.clone()));
            match number % 4 {
                0 => {
                    self.step(files.rename(&name, &other));
                    names.insert(other);
                }
                1 => {
                    self.step(files.hard_link(&name, &other));
                    names.extend([name, other]);
                }
                2 => self.step(files.remove_file(&name)),
                _ => drop(names.insert(name)),
            }
        }
        names
    }

    fn step<T>(&self, operation: impl Future<Output = Result<T, FilesError>>) {
        let begun = Instant::now();
        wait(operation).unwrap_or_else(|error| panic!("it goes on after a pause of {:?}: {error}", begun.elapsed()));
        self.longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Server(usize),
    Servers,
    /// As when the machine of a server fails.
    ServerWithDevice(usize),
    Everything,
}

impl Kill {
    fn servers(self) -> &'static [usize] {
        match self {
            Kill::Server(0) | Kill::ServerWithDevice(0) => &[0],
            Kill::Server(_) | Kill::ServerWithDevice(_) => &[1],
            Kill::Servers | Kill::Everything => &[0, 1],
        }
    }

    /// The longest pause, counted from when everything has started again if it was killed.
    fn limit(self) -> Duration {
        if matches!(self, Kill::Server(_)) { PAUSE_MAX } else { LONG_PAUSE_MAX }
    }

    fn kill(self, array: &mut Array) {
        for shard in self.servers() {
            signal(array.metadata_server(NAME, *shard).expect("it is served"), Signal::KILL);
        }
        match self {
            Kill::ServerWithDevice(device) => signal(array.device_pid(device), Signal::KILL),
            Kill::Everything => array.kill(),
            Kill::Server(_) | Kill::Servers => {}
        }
    }
}

#[test]
fn acknowledged_changes_survive_kills_of_two_metadata_servers() {
    let of_all = [Kill::Server(0), Kill::Server(1), Kill::Servers, Kill::ServerWithDevice(0), Kill::Everything];
    let kills = if soak() { of_all.repeat(3) } else { vec![Kill::Server(0), Kill::Servers] };
    let mut array = array();
    let mounts = [mount(&array), mount(&array)];
    for directory in ["/left", "/right"] {
        wait(mounts[0].create_dir(directory)).expect("it is new");
    }
    let programs: [Program; 4] = Default::default();
    let all_go_on = |what: &str| {
        let before = programs.each_ref().map(|program| program.acknowledged.load(Ordering::Relaxed));
        let has_gone_on =
            |(program, before): (&Program, u64)| program.acknowledged.load(Ordering::Relaxed) > before + 10;
        wait_until(what, RECOVERY, || programs.iter().zip(before).all(has_gone_on));
    };
    let longest =
        || programs.iter().map(|program| program.longest.swap(0, Ordering::Relaxed)).max().unwrap_or_default();
    let kept: BTreeSet<String> = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (writer, program) in programs.iter().enumerate() {
            let files = mounts[writer % 2].clone();
            running.push(scope.spawn(move || program.run(&files, writer)));
        }
        for kill in kills {
            all_go_on("work under way");
            longest();
            let killed = Instant::now();
            kill.kill(&mut array);
            let (mut pause, mut restart) = (None, Duration::ZERO);
            if matches!(kill, Kill::Everything) {
                array.start(&[]);
                let ready = Instant::now();
                restart = ready - killed;
                all_go_on("work after the restart");
                pause = Some(ready.elapsed());
            }
            all_go_on("work after the pause");
            let pause = pause.unwrap_or_else(|| Duration::from_micros(longest()));
            println!("{kill:?}: a pause of {pause:.1?} (limit {:?}) after a restart of {restart:.1?}", kill.limit());
            assert!(!soak() || pause < kill.limit(), "{kill:?}: {pause:?}");
            wait_until("all shards served", RECOVERY, || {
                (0..2).all(|shard| array.metadata_server(NAME, shard).is_some())
            });
            array.await_all_in();
        }
        programs.iter().for_each(|program| program.is_done.store(true, Ordering::Relaxed));
        running.into_iter().flat_map(|writer| writer.join().expect("it sees no error")).collect()
    });
    wait(async {
        for files in &mounts {
            files.close().await;
        }
    });
    let files = mount(&array);
    wait(async {
        let mut found = BTreeSet::new();
        for directory in ["/left", "/right"] {
            let names = list(&files, directory).await.expect("it can be read");
            found.extend(names.into_iter().map(|name| format!("{directory}/{name}")));
        }
        assert_eq!(found, kept, "what was acknowledged is there, and nothing else");
        for name in kept {
            let content = files.read(&name).await.expect("it exists");
            assert_eq!(content, name.replace("/right/", "/left/"));
        }
        files.close().await;
    });
    array.assert_files_sound(NAME);
}

#[test]
fn a_check_waits_for_operations_under_way_and_a_server_that_is_started_by_hand_is_found() {
    let array = array();
    let (files, programs) = (mount(&array), <[Program; 4]>::default());
    for directory in ["/left", "/right"] {
        wait(files.create_dir(directory)).expect("it is new");
    }
    std::thread::scope(|scope| {
        for (writer, program) in programs.iter().enumerate() {
            let files = &files;
            scope.spawn(move || program.run(files, writer));
        }
        for _ in 0..3 {
            let done = || programs.iter().map(|program| program.acknowledged.load(Ordering::Relaxed)).sum::<u64>();
            let before = done();
            wait_until("work under way", RECOVERY, || done() > before + 40);
            array.assert_files_sound(NAME);
        }
        programs.iter().for_each(|program| program.is_done.store(true, Ordering::Relaxed));
    });

    // A server of a shard that is started by hand is found at its address.
    assert!(array.braid(&["mds", NAME]).refused(2, "no-shard").contains("braid mds home --shard 1"));
    array.braid(&["mds", NAME, "--shard", "2"]).refused(3, "no-such-shard");
    let before = array.metadata_server(NAME, 1).expect("it is served");
    let other = array.daemon("mds", &["mds", NAME, "--shard", "1", "--listen", "127.0.0.1:0"]);
    wait_until("the end of the one before", RECOVERY, || has_ended_within(before, Duration::ZERO));
    wait(async {
        for number in 0..20 {
            files.create_file(format!("/left/more-{number}")).await.expect("it goes on after a pause");
        }
        files.close().await;
    });
    // The supervised server takes the shard back; the one that was started by hand ends.
    assert_eq!(other.ended(), Some(1), "it has lost the shard");
    array.assert_files_sound(NAME);
}
