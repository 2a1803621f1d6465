//! File systems with several metadata servers: their operations take effect on all shards or on none, whichever server is killed.

use braid_client::{ArrayOptions, Files, FilesError, wait};
use braid_processes::array::{Array, number, text};
use braid_processes::daemon::{has_ended_within, signal};
use braid_processes::scratch::path_text;
use braid_processes::{Daemon, soak, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "home";
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the array may take to recover from the death of a process.
const RECOVERY: Duration = Duration::from_secs(60);
/// The longest pause with the default lease, as with one metadata server. Only the long forms of the tests check it.
const PAUSE_MAX: Duration = Duration::from_secs(7);

/// An array whose file system has two shards, and in which no inode is in the shard of its name.
fn array() -> Array {
    let up = if soak() { Array::patient_up } else { Array::up };
    let array = up(&["--size", "512MiB", "--volume", "vol0:1MiB"]);
    array.braid(&["fs", "create", NAME, "--size", "256MiB", "--servers", "2", "--placement", "spread"]).done();
    array
}

fn mount(array: &Array) -> Files {
    let options = ArrayOptions::at(array.dir()).name("test").deadline(DEADLINE);
    wait(Files::mount(options, NAME)).expect("the file system can be mounted")
}

fn status(array: &Array) -> Value {
    array.braid(&["fs", "status", NAME]).done().json()["file_systems"][0].clone()
}

/// The process that serves a shard.
fn server(array: &Array, shard: usize) -> Option<u32> {
    let server = status(array)["servers"][shard].clone();
    (server["state"] == "serving").then(|| number(&server["pid"]) as u32)
}

fn check(array: &Array) {
    let found = array.braid(&["fs", "check", NAME]).done().json();
    assert_eq!(found["sound"], true, "{found}");
}

async fn list(files: &Files, path: &str) -> BTreeSet<String> {
    let mut entries = files.read_dir(path).await.expect("it can be read");
    let mut names = BTreeSet::new();
    while let Some(entry) = entries.next().await.expect("it can be read") {
        names.insert(entry.file_name().to_string_lossy().into_owned());
    }
    names
}

#[test]
fn two_mounts_see_one_file_system_on_two_servers() {
    let array = array();
    let shown = status(&array);
    assert_eq!((&shown["state"], &shown["placement"]), (&json!("serving"), &json!("spread")), "{shown}");
    let servers = shown["servers"].as_array().expect("a list");
    assert_eq!(servers.iter().map(|server| number(&server["id"])).collect::<Vec<_>>(), [1, 2], "{shown}");
    assert_ne!(servers[0]["pid"], servers[1]["pid"]);
    let (files, other) = (mount(&array), mount(&array));
    for protocol in ["1pc", "ep", "prc", "prn"] {
        array.braid(&["fs", "set-commit-protocol", NAME, protocol]).done();
        assert_eq!(text(&status(&array)["commit_protocol"]), protocol);
        // The servers look twice a second.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            wait(use_both(&files, &other)).expect(protocol);
        }
    }
    // Each server takes its shard over again, one after the other.
    array.braid(&["fs", "set-commit-protocol", NAME, "--grouping", "none"]).done();
    let shown = status(&array);
    assert_eq!((text(&shown["commit_protocol"]), text(&shown["grouping"])), ("prn".into(), "none".into()));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        wait(use_both(&files, &other)).expect("programs wait meanwhile");
    }
    wait(async {
        files.write("/kept", "kept").await.expect("it works");
        files.close().await;
        assert_eq!(other.read("/kept").await.expect("it is there"), "kept");
        other.close().await;
    });
    check(&array);
    array.braid(&["fs", "delete", NAME, "--yes"]).done();
    // A server that began after the check may have taken over meanwhile, and releases what is deleted.
    let rest = array.await_status("nobody owns it", |status| status["file_systems"] == json!([]));
    assert_eq!(rest["volumes"].as_array().map(Vec::len), Some(1), "{rest:#}");
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
    assert!(list(files, "/").await.is_empty() && list(other, "/").await.is_empty());
    Ok(())
}

/// What a program has made, and what it saw.
struct Made {
    names: BTreeSet<String>,
    longest: Duration,
}

/// Creates files, gives some a second name or a name in another directory, and removes some, until it is told to end.
fn make(files: &Files, writer: usize, done: &AtomicBool, acknowledged: &AtomicU64) -> Made {
    let (mut names, mut longest) = (BTreeSet::new(), Duration::ZERO);
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("/left/{writer}-{number}");
        // Between two steps, another server may be killed.
        let mut begun = Instant::now();
        wait(async {
            files.write(&name, name.clone()).await.expect("it goes on after a pause");
            longest = longest.max(begun.elapsed());
            begun = Instant::now();
            match number % 4 {
                0 => {
                    let moved = format!("/right/{writer}-{number}");
                    files.rename(&name, &moved).await.expect("it is moved once");
                    names.insert(moved);
                }
                1 => {
                    let linked = format!("/right/{writer}-{number}");
                    files.hard_link(&name, &linked).await.expect("the name is new");
                    names.extend([name, linked]);
                }
                2 => files.remove_file(&name).await.expect("it is removed once"),
                _ => drop(names.insert(name)),
            }
        });
        acknowledged.fetch_add(1, Ordering::Relaxed);
        longest = longest.max(begun.elapsed());
    }
    Made { names, longest }
}

#[test]
fn nothing_acknowledged_is_lost_when_one_of_two_servers_is_killed() {
    let array = array();
    let (mounts, done) = ([mount(&array), mount(&array)], AtomicBool::new(false));
    for directory in ["/left", "/right"] {
        wait(mounts[0].create_dir(directory)).expect("it is new");
    }
    let acknowledged = AtomicU64::new(0);
    let more = |what: &str| {
        let before = acknowledged.load(Ordering::Relaxed);
        wait_until(what, RECOVERY, || acknowledged.load(Ordering::Relaxed) > before + 40);
    };
    let made = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (files, done, acknowledged) = (mounts[writer % 2].clone(), &done, &acknowledged);
                scope.spawn(move || make(&files, writer, done, acknowledged))
            })
            .collect();
        for kill in 0..if soak() { 10 } else { 2 } {
            more("work under way");
            let shard = kill % 2;
            let pid = server(&array, shard).expect("it is served");
            signal(pid, Signal::KILL);
            wait_until("another server", RECOVERY, || server(&array, shard).is_some_and(|other| other != pid));
            more("work after the pause");
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("it sees no error")).collect::<Vec<_>>()
    });
    let longest = made.iter().map(|made| made.longest).max().expect("there are some");
    println!("the longest pause was {longest:?}, with {} operations", acknowledged.load(Ordering::Relaxed));
    assert!(!soak() || longest < PAUSE_MAX, "{longest:?}");
    let kept: BTreeSet<String> = made.into_iter().flat_map(|made| made.names).collect();
    wait(async {
        for files in &mounts {
            files.close().await;
        }
    });
    let files = mount(&array);
    wait(async {
        let mut found = BTreeSet::new();
        for directory in ["/left", "/right"] {
            found.extend(list(&files, directory).await.into_iter().map(|name| format!("{directory}/{name}")));
        }
        assert_eq!(found, kept, "what was acknowledged is there, and nothing else");
        for name in kept {
            let content = files.read(&name).await.expect("it exists");
            assert_eq!(content, name.replace("/right/", "/left/"));
        }
        files.close().await;
    });
    check(&array);
}

#[test]
fn a_check_waits_for_operations_under_way() {
    let array = array();
    let (files, done, acknowledged) = (mount(&array), AtomicBool::new(false), AtomicU64::new(0));
    for directory in ["/left", "/right"] {
        wait(files.create_dir(directory)).expect("it is new");
    }
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (files, done, acknowledged) = (files.clone(), &done, &acknowledged);
            scope.spawn(move || make(&files, writer, done, acknowledged));
        }
        for _ in 0..3 {
            let before = acknowledged.load(Ordering::Relaxed);
            wait_until("work under way", RECOVERY, || acknowledged.load(Ordering::Relaxed) > before + 20);
            check(&array);
        }
        done.store(true, Ordering::Relaxed);
    });
    wait(files.close());
}

#[test]
fn a_server_of_a_shard_that_is_started_by_hand_is_found_at_its_address() {
    let array = array();
    let files = mount(&array);
    wait(files.create_dir("/a")).expect("it works");
    let usage = array.braid(&["mds", NAME]).refused(2, "no-shard");
    assert!(usage.contains("braid mds home --shard 1"), "{usage}");
    array.braid(&["mds", NAME, "--shard", "2"]).refused(2, "no-such-shard");
    let before = server(&array, 1).expect("it is served");
    let arguments = ["mds", NAME, "--shard", "1", "--array", path_text(array.dir()), "--json"];
    let log = array.scratch().path("mds.log");
    let other = Daemon::start(&[&arguments[..], &["--listen", "127.0.0.1:0"]].concat(), &log).expect("it begins");
    wait_until("the end of the one before", RECOVERY, || has_ended_within(before, Duration::ZERO));
    wait(async {
        for number in 0..20 {
            files.create_file(format!("/a/{number}")).await.expect("it goes on after a pause");
        }
        files.close().await;
    });
    // The supervised server takes the shard back; the one that was started by hand ends.
    assert_eq!(other.ended(), Some(1), "it has lost the shard");
    check(&array);
}

#[test]
fn what_needs_several_servers_is_refused_with_one() {
    let array = Array::up(&["--size", "256MiB", "--volume", "vol0:1MiB"]);
    array.braid(&["fs", "create", NAME, "--placement", "spread"]).refused(2, "one-server");
    array.braid(&["fs", "create", NAME, "--servers", "9"]).refused(2, "bad-servers");
    array.braid(&["fs", "create", NAME, "--size", "64MiB"]).done();
    let told = array.braid(&["fs", "set-commit-protocol", NAME, "prn"]).refused(2, "one-server");
    assert!(told.contains("--servers"), "{told}");
    let shown = status(&array);
    assert_eq!((&shown["commit_protocol"], shown["servers"].as_array().map(Vec::len)), (&Value::Null, Some(1)));
    let description = std::fs::read_to_string(array.dir().join("array.json")).expect("it can be read");
    assert!(!description.contains("shards"), "earlier builds can read it: {description}");
}
