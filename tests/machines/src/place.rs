//! Where the processes of a machine run: in its network, with its own mounts and its own boot clock.
//!
//! The boot clocks of machines differ by hours, and so do the names of their boots: no process takes one of another machine for its own, though
//! all have numbers of one kernel. A process holds the namespaces; all others enter them by `nsenter`. Each machine has its own
//! `/var/lib`, so commands find arrays there by their names. A bare root has the program, its libraries and devices, and nothing else.

use braid_processes::network::Namespace;
use braid_processes::program::{Outcome, braid_bin, run};
use braid_processes::scratch::path_text;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The boot clock of each machine is so much later than that of the one before.
const HOURS_APART: u64 = 57;
/// What the monitors log besides warnings: their grants.
const LOG: &str = "RUST_LOG=warn,braid_leader::grants=debug";

/// The namespaces, which are gone when this is dropped and no process is there any more.
#[derive(Debug)]
pub struct Place {
    /// It ends with its standard input.
    keeper: Child,
    /// The words before the command line of a process that is to run there.
    enter: Vec<String>,
}

impl Place {
    /// Processes see `lib` as `/var/lib`. None, with a message, where the system does not permit it.
    pub fn new(id: u8, net: &Namespace, lib: &Path) -> Option<Place> {
        std::fs::create_dir_all(lib).expect("it can be made");
        let seconds = (u64::from(id) * HOURS_APART * 3600).to_string();
        let script = r#"set -e; mount --bind "$0" /var/lib; cat /proc/sys/kernel/random/uuid > /var/lib/boot
            mount --bind /var/lib/boot /proc/sys/kernel/random/boot_id; echo ready; exec cat"#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--time", "--boottime", &seconds, "--monotonic", &seconds, "sh", "-c", script]);
        command.arg(lib).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().expect("unshare is part of every Debian");
        let mut ready = String::new();
        let said = BufReader::new(keeper.stdout.as_mut().expect("it is a pipe")).read_line(&mut ready);
        if said.is_err() || ready != "ready\n" {
            eprintln!("SKIPPED: mount and time namespaces can't be created here");
            let _ = keeper.wait();
            return None;
        }
        let of = |kind: &str| format!("/proc/{}/ns/{kind}", keeper.id());
        let spaces = [format!("--mount={}", of("mnt")), format!("--time={}", of("time"))];
        let enter = ["env", LOG, "nsenter", &format!("--net=/run/netns/{}", net.name())].map(String::from);
        let enter = enter.into_iter().chain(spaces);
        Some(Place { enter: enter.collect(), keeper })
    }

    /// Its processes have this folder as the root from now on: with the program, what that needs of the system, and nothing else.
    pub fn make_bare(&mut self, root: &Path) {
        let script = r#"set -e; mkdir -p "$0/tmp" "$0/mnt" "$0$(dirname "$1")"; touch "$0$1"; mount --bind "$1" "$0$1"
            for what in dev proc sys var/lib; do mkdir -p "$0/$what"; mount --rbind "/$what" "$0/$what"; done
            for lib in $(ldd "$1" | grep -o '/[^ ]*'); do mkdir -p "$0$(dirname "$lib")"; cp "$lib" "$0$lib"; done"#;
        self.run(&["sh", "-c", script, path_text(root), path_text(&braid_bin())]).done();
        self.enter.push(format!("--root={}", path_text(&self.seen(root))));
    }

    /// The words before the command line of a process.
    pub fn launcher(&self) -> Vec<&str> {
        self.enter.iter().map(String::as_str).collect()
    }

    /// Runs a command line there.
    pub fn run(&self, words: &[&str]) -> Outcome {
        let all = [&self.launcher(), words].concat();
        run(all[0], &all[1..])
    }

    /// A path of its mounts, as this process finds it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.keeper.id(), path_text(path)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
