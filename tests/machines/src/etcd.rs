//! The member of etcd on a machine. Its programs are those of `cargo xtask etcd`, where `cargo xtask machines` says so; otherwise, those of the
//! distribution.

use crate::Machine;
use braid_processes::program::Outcome;
use braid_processes::scratch::path_text;
use std::fs::File;
use std::process::{Command, Stdio};

/// The folder of its programs.
const PROGRAMS: &str = "BRAID_ETCD";
/// The ports for clients and for other members.
pub const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

/// A program of etcd.
fn program(name: &str) -> String {
    std::env::var(PROGRAMS).map_or_else(|_| name.to_string(), |folder| format!("{folder}/{name}"))
}

impl Machine {
    fn at(&self, port: u16) -> String {
        format!("http://{}:{port}", self.address)
    }

    /// What its member is told of all members, also when it is restored.
    fn members(&self) -> Vec<String> {
        let all: Vec<_> = (1..=3).map(|id| format!("m{id}=http://10.77.0.{id}:{PEERS}")).collect();
        let words = ["--name", &self.name, "--data-dir", path_text(&self.data), "--initial-cluster", &all.join(",")];
        words.into_iter().chain(["--initial-advertise-peer-urls", &self.at(PEERS)]).map(String::from).collect()
    }

    /// Starts its member of etcd.
    pub fn start_etcd(&mut self) {
        self.start_etcd_with(&[]);
    }

    /// The same, with further arguments.
    pub fn start_etcd_with(&mut self, more: &[&str]) {
        let (launcher, clients) = (self.place.launcher(), self.at(CLIENTS));
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).arg(program("etcd")).args(self.members()).args(more);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &self.at(PEERS)]);
        let log = File::create(self.data.with_extension("log")).expect("a log can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.etcd = Some(command.spawn().expect("env is part of every Debian"));
    }

    pub fn kill_etcd(&mut self) {
        let mut member = self.etcd.take().expect("it runs");
        member.kill().expect("it can be killed");
        member.wait().expect("it can be waited for");
    }

    /// The process of its member of etcd.
    pub fn etcd_pid(&self) -> u32 {
        self.etcd.as_ref().expect("it runs").id()
    }

    /// Runs `etcdctl`.
    pub fn etcdctl(&self, arguments: &[&str]) -> Outcome {
        self.place.run(&[&[&program("etcdctl"), "--endpoints", &self.at(CLIENTS)], arguments].concat())
    }

    /// Replaces the data of its member, which does not run, by a snapshot, and starts it.
    pub fn restore_etcd(&mut self, snapshot: &str) {
        std::fs::remove_dir_all(&self.data).expect("it can be removed");
        let (tool, members) = (program("etcdutl"), self.members());
        let words: Vec<&str> = members.iter().map(String::as_str).collect();
        self.place.run(&[&[&tool, "snapshot", "restore", snapshot], &words[..]].concat()).done();
        self.start_etcd();
    }
}
