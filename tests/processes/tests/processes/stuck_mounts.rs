//! A mount that answers its metadata server and does not give back a lock: its link to the devices is cut while a program writes.
//!
//! The monitor and the metadata server listen on sockets in the file system, which the cut does not concern.

use crate::mounts::{NAME, RECOVERY, errno, open};
use crate::prelude::*;
use braid_processes::network::{Cut, Link};

/// After how long a host that keeps locks is fenced here.
const LIMIT: Duration = Duration::from_secs(5);

/// An array without a supervisor, and two mounts. The second one is at the far end of a link.
struct Apart {
    // Fields are dropped in this order.
    directories: [PathBuf; 2],
    mounts: Vec<Daemon>,
    _daemons: Vec<Daemon>,
    array: Array,
    link: Link,
}

impl Apart {
    /// None where the system does not permit it. From here on this thread is at the near end.
    fn start() -> Option<Apart> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let link = Link::new()?;
        link.near.enter();
        let mut array = Array::up(&["--devices", "3", "--size", "512MiB", "--volume", "vol0:1MiB", "--fs", NAME]);
        array.braid(&["fs", "set-eviction", NAME, &format!("{}s", LIMIT.as_secs())]).done();
        array.down();
        let addresses: Vec<String> = (0..3).map(|device| format!("{}:700{device}", Link::NEAR)).collect();
        addresses.iter().enumerate().for_each(|(device, address)| array.set_address(device, address));
        let [monitor, server] = ["monitor", "server"].map(|name| format!("unix:{}", array.scratch().text(name)));
        let start = |arguments: &[&str]| array.daemon(arguments[0], arguments);
        let mut daemons = vec![start(&["monitord", "--listen", &monitor])];
        daemons.extend((0..3).map(|device| array.serve_device(device, &addresses[device], &[])));
        daemons.push(start(&["mds", NAME, "--listen", &server]));
        let directories = ["near", "far"].map(|name| array.scratch().path(name));
        directories.iter().for_each(|directory| fs::create_dir(directory).expect("it is new"));
        let mount = |directory: &Path| start(&["fs", "mount", NAME, path_text(directory), "--foreground"]);
        let near = mount(&directories[0]);
        let far = link.far.within(|| mount(&directories[1]));
        Some(Apart { directories, mounts: vec![near, far], _daemons: daemons, array, link })
    }

    fn client(&self, mount: usize) -> Option<Value> {
        let status = self.array.braid(&["fs", "status", NAME]).done().json();
        let clients = items(&status["file_systems"][0]["clients"]).to_vec();
        clients.into_iter().find(|client| client["directory"] == path_text(&self.directories[mount]))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let pids: Vec<u32> = self.mounts.iter().map(Daemon::pid).collect();
        self.mounts.drain(..).for_each(Daemon::kill);
        gone(&pids);
        self.directories.iter().for_each(|directory| drop(run("umount", &["--lazy", path_text(directory)])));
    }
}

#[test]
fn a_mount_that_answers_and_keeps_a_lock_is_fenced() {
    let Some(apart) = Apart::start() else { return };
    let [near, far] = apart.directories.each_ref().map(|directory| directory.join("file"));
    let held = open(&far);
    held.write_all_at(&[b'o'; 8192], 0).expect("it is written");
    // The server reports its clients from time to time.
    wait_until("it is listed", Duration::from_secs(20), || apart.client(1).is_some());
    let before = number(&apart.client(1).expect("it is listed")["host"]);

    apart.link.cut(Cut::Whole);
    let (has_written, begun) = (AtomicBool::new(false), Instant::now());
    let waited = std::thread::scope(|scope| {
        let stuck = scope.spawn(|| held.write_all_at(&[b'x'; 8192], 0));
        // The lock is kept for the write that is under way.
        std::thread::sleep(Duration::from_secs(1));
        scope.spawn(|| {
            open(&near).write_all_at(b"new", 0).expect("the lock is released");
            has_written.store(true, Ordering::Relaxed);
        });
        wait_until("somebody waits for the lock", LIMIT, || {
            let waits = |mount| apart.client(mount).is_some_and(|client| number(&client["locks_awaited"]) > 0);
            waits(0) || has_written.load(Ordering::Relaxed)
        });
        wait_until("the lock is released", RECOVERY, || has_written.load(Ordering::Relaxed));
        let waited = begun.elapsed();
        apart.link.heal();
        let error = stuck.join().expect("it does not panic").expect_err("its host is fenced");
        assert_eq!(errno(&error), Some(Errno::IO));
        waited
    });
    println!("the lock of a mount that answers was released after {waited:?}");
    assert!(waited >= LIMIT && waited < LIMIT * 4, "{waited:?}");

    // The mount goes on; the file that was open does not.
    wait_until("the mount goes on", RECOVERY, || fs::read(&far).is_ok_and(|content| content.starts_with(b"new")));
    assert_eq!(errno(&held.read_at(&mut [0; 3], 0).expect_err("it is dead")), Some(Errno::IO));
    wait_until("the next host in the status", RECOVERY, || {
        apart.client(1).is_some_and(|client| number(&client["host"]) > before)
    });
    let fences = || {
        let mut fences = apart.array.events("host-fenced");
        fences.retain(|event| number(&event["figures"]["host"]) == before);
        fences
    };
    wait_until("the fence in the log of events", RECOVERY, || !fences().is_empty());
    let fences = fences();
    assert!(fences.len() == 1 && text(&fences[0]["text"]).contains("did not give back"), "{fences:?}");
}
