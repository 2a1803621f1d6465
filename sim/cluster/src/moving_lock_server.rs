//! A lock server that moves from machine to machine, for scenarios. Each start is a node of its own, so that several are up at once. The leader
//! is a table of leases here, as it is for a registrar; what hosts say to it is late, and renewals and their answers are lost.
//!
//! What is checked at any moment: no two starts may grant locks. The usual checks see hosts with locks that conflict.

use crate::control::context::lease_time;
use crate::prelude::*;
use crate::role::{Role, RoleRequest, is_served};
use crate::{Cluster, HostSlot, hosts};
use braid_host_leases::{Heartbeat, Lease, LeaseEnd, LeaseTable, Version};
use braid_leadership::times::longer;
use braid_locks::leased::{Kind, LeasedLockServer, Renewed, Seen, earlier, holders, idle};
use braid_locks::{LockServerConfig, empty_list};
use braid_world::DiskOptions;

const SERVICE: NodeId = NodeId::LockServer(LockServerId(0));
/// Starts have the numbers from this on, as nodes.
const FIRST_NODE: u16 = 1_000;
/// The leader hears starts and hosts so often.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Clocks differ by less than a tenth.
const DRIFT_PPM: u64 = 45_000;

/// Lock server 0 of an array.
pub struct MovingLockServer {
    table: LeaseTable<()>,
    starts: Vec<Start>,
    /// The revision that each host had seen when it last spoke to the leader, and how often it had asked lock servers.
    said: BTreeMap<Generation, (u64, u64)>,
    revision: u64,
    rng: Rng,
    next: Time,
}

struct Start {
    node: NodeId,
    start: Generation,
    /// The revision since which hosts say that they hold nothing; none while it waits for earlier starts.
    since: Option<u64>,
    /// Nothing that it sends reaches the leader.
    is_cut: bool,
    /// When an answer of the leader arrives, and what it says.
    answer: Option<(Time, Renewed)>,
}

impl MovingLockServer {
    /// In place of the one that the array was built with.
    pub fn begin(array: &mut Cluster, seed: u64) -> MovingLockServer {
        array.crash(SERVICE);
        let (table, rng, next) = (LeaseTable::new(Generation(0)), Rng::new(seed), array.world.now());
        MovingLockServer { table, starts: Vec::new(), said: BTreeMap::new(), revision: 1, rng, next }
    }

    /// Another process is started.
    pub fn start(&mut self, array: &mut Cluster) {
        let (start, heartbeat) = (hosts::fresh_generation(array), heartbeat(array));
        self.table.insert(start, Lease { is_over: false, is_renewed: false, heartbeat }, None);
        let node = NodeId::LockServer(LockServerId(FIRST_NODE + self.starts.len() as u16));
        self.starts.push(Start { node, start, since: None, is_cut: false, answer: None });
    }

    /// What the latest start that is or was up sends to the leader is lost, or not any more. Returns its node.
    pub fn cut(&mut self, is_cut: bool) -> NodeId {
        let latest = self.starts.iter_mut().rev().find(|start| start.since.is_some()).expect("one has begun");
        latest.is_cut = is_cut;
        latest.node
    }

    pub fn serves(&self, array: &Cluster) -> bool {
        self.starts.iter().any(|start| serves(array, start.node))
    }

    /// Lets time pass. Another start is begun when the leader has not heard the last one for a lease.
    pub fn pass(&mut self, array: &mut Cluster, span: Duration) {
        let (until, lease) = (array.world.now().after(span), array.options.settings.host_lease);
        while array.world.now() < until {
            while array.pass(until.min(self.next)) {
                let count = self.starts.iter().filter(|start| serves(array, start.node)).count();
                assert!(count <= 1, "{count} starts of one lock server serve");
            }
            let now = lease_time(array.world.now());
            if self.starts.last().is_none_or(|last| !self.table.is_live(last.start, &now, lease)) {
                self.start(array);
            }
            if self.next <= array.world.now() {
                self.look(array);
                self.next = array.world.now().after(HEARTBEAT / 5);
            }
        }
    }

    /// The scenario is over: what serves goes on for good, and the others end.
    pub fn end(self, array: &mut Cluster) {
        array.world.end_detours(SERVICE);
        for Start { node, .. } in self.starts {
            if serves(array, node) {
                tell(array, node, Renewed { until: Time(u64::MAX), idle: Vec::new() });
            } else if array.world.is_up(node) {
                array.world.crash(node);
            }
        }
    }

    /// Hosts and starts speak to the leader.
    fn look(&mut self, array: &mut Cluster) {
        let now = array.world.now();
        for slot in (0..array.hosts.len()).map(HostSlot) {
            let speaks = self.rng.chance(1, 5) && !array.world.is_stalled(array.node(slot));
            if let Some(host) = array.role(slot).and_then(Role::host).filter(|_| speaks) {
                self.said.insert(array.generation(slot), (self.revision, host.locks().counters().requests));
            }
        }
        // Those who looked for the server at an earlier start find it.
        if self.rng.chance(1, 8) {
            array.world.end_detours(SERVICE);
        }
        for number in 0..self.starts.len() {
            let Start { node, start, since, is_cut, .. } = self.starts[number];
            if since.is_some() && (!array.world.is_up(node) || array.world.is_stalled(node)) {
                continue;
            }
            if let Some((_, renewed)) = self.starts[number].answer.take_if(|(at, _)| *at <= now) {
                tell(array, node, renewed);
            }
            if is_cut || !self.rng.chance(1, 5) {
                continue;
            }
            match (self.table.renew(start, heartbeat(array)), since) {
                (Err(_), Some(_)) => drop(array.world.crash(node)),
                (Err(_), None) => {}
                (Ok(_), None) => self.succeed(array, number),
                (Ok(_), Some(since)) => {
                    let sent = array.world.local(node).expect("it is in the world").time;
                    let until = sent.after(array.options.settings.host_lease);
                    let renewed = Renewed { until, idle: idle(since, &self.seen(array)) };
                    let late = Duration::from_millis(if self.rng.chance(1, 4) { self.rng.below(1_500) } else { 1 });
                    // An earlier answer that is still under way is lost.
                    self.starts[number].answer = Some((now.after(late), renewed));
                }
            }
        }
    }

    /// A start that waits ends the leases of earlier ones, or begins to serve.
    fn succeed(&mut self, array: &mut Cluster, number: usize) {
        let Start { node, start, .. } = self.starts[number];
        let settings = array.options.settings.clone();
        while let Some(before) = earlier(start, &self.seen(array)) {
            let now = lease_time(array.world.now());
            if self.table.expire_one(before, &now, longer(settings.host_lease)).0 == LeaseEnd::Lives {
                return;
            }
        }
        self.revision += 1;
        self.starts[number].since = Some(self.revision);
        let config = LockServerConfig::of_volumes(LockServerId(0), start, holders(&self.seen(array)), settings);
        let drift = self.rng.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64;
        let clock = LocalClock::exact(Time(self.rng.below(1 << 40))).drifting(drift);
        let mut disk = Disk::new(DiskOptions::default(), self.rng.fork());
        disk.preload(0, &empty_list());
        let machine = Role::LockServer(Box::new(LeasedLockServer::new(config)));
        let before = array.world.serving(SERVICE);
        array.world.add(node, machine, Some(disk), clock);
        array.world.set_service(SERVICE, node);
        for host in array.hosts.iter().filter(|_| self.rng.chance(1, 2)) {
            array.world.detour(*host, SERVICE, before);
        }
    }

    /// What the leader has of all that have leases.
    fn seen(&self, array: &Cluster) -> Vec<Seen> {
        let seen = |host, kind, is_over, (revision, requests)| Seen { host, kind, is_over, revision, requests };
        let starts = self.table.leases().map(|(host, lease)| seen(host, Kind::Start, lease.is_over, (0, None)));
        let is_gone = |host: &Generation| {
            let is_refused = array.membership().is_some_and(|membership| membership.fence.refuses(*host));
            // One that is being fenced may still be served.
            is_refused && !is_served(&array.world, &array.devices(), *host)
        };
        let hosts = array.generations.all.iter().copied().filter(|host| !is_gone(host)).map(|host| {
            let said = self.said.get(&host).map_or((0, None), |(revision, asked)| (*revision, Some(*asked)));
            seen(host, Kind::Host, false, said)
        });
        starts.chain(hosts).collect()
    }
}

fn heartbeat(array: &Cluster) -> Heartbeat<()> {
    Heartbeat { renewed: Some(lease_time(array.world.now())), confirmed: Version(0), report: () }
}

fn tell(array: &mut Cluster, node: NodeId, renewed: Renewed) {
    let op = array.requests.next_number();
    array.world.request(node, op, RoleRequest::Renewed(renewed));
}

/// True if this start is up and may grant locks.
fn serves(array: &Cluster, node: NodeId) -> bool {
    let serves = |now: Now| match array.world.machine(node) {
        Some(Role::LockServer(machine)) => machine.serves(now.time),
        _ => false,
    };
    array.world.local(node).is_some_and(serves)
}
