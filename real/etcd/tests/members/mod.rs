//! A real etcd of several members, which tests kill, stop and start again.

#![allow(dead_code, reason = "each test program uses a part of it")]

use braid_base::{ArrayId, Generation};
use braid_description::{ArrayDescription, Creation, DeviceEntry};
use braid_etcd::Registry;
use braid_registrar::Content;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

pub const ARRAY: ArrayId = ArrayId([9; 16]);
/// Longer than everything takes.
pub const LONG: Duration = Duration::from_secs(60);

/// That of a new array of three devices.
pub fn content() -> Content {
    let devices = (0..3).map(|id| DeviceEntry::new(id, 1 << 30)).collect();
    Content::new(ArrayDescription::new(ARRAY, devices, Creation::default()), Generation(100))
}

/// The members of an etcd, on loopback, in a folder that is removed at the end.
pub struct Etcd {
    pub folder: PathBuf,
    pub ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
}

impl Etcd {
    pub async fn start(name: &str, members: usize) -> Etcd {
        let folder = std::env::temp_dir().join(format!("braid-etcd-{name}-{}", std::process::id()));
        let held: Vec<_> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<_> = held.iter().map(|port| port.local_addr().expect("bound").port()).collect();
        drop(held);
        let ports = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let mut etcd = Etcd { folder, ports, members: (0..members).map(|_| None).collect() };
        (0..members).for_each(|index| etcd.run(index));
        let registry = etcd.registry();
        wait_until(async || registry.head().await.is_ok()).await;
        etcd
    }

    pub fn data(&self, index: usize) -> PathBuf {
        self.folder.join(index.to_string())
    }

    pub fn run(&mut self, index: usize) {
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let log = std::fs::File::create(self.folder.join(format!("{index}.log"))).expect("a log");
        let (client, peer) = self.ports[index];
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<_> =
            self.ports.iter().enumerate().map(|(other, (_, peer))| format!("m{other}={}", url(*peer))).collect();
        let mut command = Command::new("etcd");
        command.arg("--name").arg(format!("m{index}")).arg("--data-dir").arg(self.data(index));
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args([
            "--initial-cluster",
            &cluster.join(","),
            "--initial-cluster-token",
            &format!("t{}", self.ports[0].0),
        ]);
        let member = command.stdout(Stdio::null()).stderr(log).spawn().expect("the package etcd-server is installed");
        self.members[index] = Some(member);
    }

    pub fn kill(&mut self, index: usize) {
        let mut member = self.members[index].take().expect("it runs");
        member.kill().expect("killed");
        member.wait().expect("it has ended");
    }

    /// Returns once the process has stopped.
    pub fn stop(&self, index: usize) {
        let member = Pid::from_child(self.members[index].as_ref().expect("it runs"));
        kill_process(member, Signal::STOP).expect("signalled");
        let stopped = waitpid(Some(member), WaitOptions::UNTRACED).expect("a child").expect("waited for").1;
        assert!(stopped.stopped());
    }

    pub fn go_on(&self, index: usize) {
        let member = Pid::from_child(self.members[index].as_ref().expect("it runs"));
        kill_process(member, Signal::CONT).expect("signalled");
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.ports.iter().map(|(client, _)| format!("http://127.0.0.1:{client}")).collect()
    }

    /// Asks all members, from the first on.
    pub fn registry(&self) -> Registry {
        self.registry_of(&(0..self.ports.len()).collect::<Vec<_>>())
    }

    pub fn registry_of(&self, members: &[usize]) -> Registry {
        let endpoints: Vec<_> = members.iter().map(|index| self.endpoints()[*index].clone()).collect();
        Registry::new(&endpoints, ARRAY).expect("endpoints")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for mut member in self.members.iter_mut().filter_map(Option::take) {
            let _ = (member.kill(), member.wait());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub async fn wait_until(mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.expect("in time");
}
