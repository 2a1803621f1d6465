//! Scenarios of take-overs of a file system. When one is answered, the previous owner can do nothing more at any device: neither by
//! requests that it sends later, nor by those that were under way, whichever devices are cut off from the monitor.

use crate::story::*;
use braid_base::Ownership;
use braid_wire::{OwnershipRefused, OwnershipRequest};

const FS: FileSystemId = FileSystemId(7);
const MOMENT: Duration = Duration::from_millis(20);

/// The layouts, with the devices on which block 0 and its redundancy are.
const LAYOUTS: [(&str, usize, [u16; 2]); 2] = [("raid1:2", 2, [0, 1]), ("raid5:4+1", 5, [0, 4])];

/// An array with three hosts, of which the first owns the file system.
struct Scene {
    array: Cluster,
    owner: HostSlot,
    heir: HostSlot,
    other: HostSlot,
    from: Ownership,
}

impl Scene {
    fn new(layout: &str, devices: usize, ordering: Ordering) -> Scene {
        // Hosts are fenced here.
        let options = ordered(ordering, Options::calm(layout, devices, 1, 3));
        let (mut array, owner, heir) = array_of(options.with_take_overs());
        let other = array.add_host();
        array.run_for(Duration::from_secs(1));
        fill(&mut array, owner);
        let none = ownership(ask(&mut array, owner, OwnershipRequest::Inquire));
        let from = ownership(ask(&mut array, owner, OwnershipRequest::TakeOver { from: none }));
        assert_eq!(from.owner.map(NodeId::Host), Some(array.node(owner)));
        Scene { array, owner, heir, other, from }
    }

    /// The heir asks for the file system.
    fn take_over(&mut self) -> OpId {
        self.array.own(self.heir, FS, OwnershipRequest::TakeOver { from: self.from })
    }

    /// The take-over is answered. Returns what the heir reads.
    fn expect_taken_over(&mut self, op: OpId) -> Vec<u8> {
        let taken = ownership(self.array.finish(op));
        assert_eq!(taken.owner.map(NodeId::Host), Some(self.array.node(self.heir)));
        // The process of a fenced host ends. Elsewhere it goes on here, but a lock server would take it for alive.
        if !self.array.lock_servers().is_empty() {
            self.array.crash(self.array.node(self.owner));
        }
        content(&mut self.array, self.heir, 0, BLOCK)
    }

    /// The owner is taken over from while it writes.
    fn expect_what_was_under_way_before_the_answer_or_never(mut self) {
        self.array.write(self.owner, 0, BLOCK);
        self.array.run_for(MOMENT);
        let asked = self.take_over();
        let seen = self.expect_taken_over(asked);
        self.expect_nothing_more_happens(&seen);
    }

    /// Everything that was under way arrives; the previous owner goes on, and nothing that the heir has read changes.
    fn expect_nothing_more_happens(mut self, seen: &[u8]) {
        let owner = self.array.node(self.owner);
        let is_up = self.array.world.is_up(owner);
        let later = if is_up {
            vec![self.array.write(self.owner, 0, BLOCK), self.array.read(self.owner, 0, BLOCK)]
        } else {
            Vec::new()
        };
        self.array.run_for(A_WHILE);
        self.array.world.network.heal();
        for op in later {
            assert!(matches!(self.array.finish(op), Err(HostError::Fenced | HostError::TimedOut { .. })));
        }
        assert!(content(&mut self.array, self.heir, 0, BLOCK) == seen, "what was read must stay");
        if is_up {
            self.array.crash(owner);
        }
        take_slot(&mut self.array, self.owner);
        all_is_well(self.array);
    }
}

fn ask(array: &mut Cluster, slot: HostSlot, request: OwnershipRequest) -> HostOutcome {
    let op = array.own(slot, FS, request);
    array.finish(op)
}

fn ownership(outcome: HostOutcome) -> Ownership {
    match outcome {
        Ok(HostSuccess::Ownership(ownership)) => ownership,
        other => panic!("no ownership: {other:?}"),
    }
}

fn is_from_monitor(from: NodeId, message: &Message) -> bool {
    from == NodeId::Monitor && matches!(message, Message::MonitorAnswer(_))
}

#[test]
fn a_device_that_the_monitor_cannot_reach_serves_the_previous_owner_until_its_lease_ends_and_the_answer_waits() {
    for (layout, devices, [first, _]) in LAYOUTS {
        let mut scene = Scene::new(layout, devices, Ordering::Timestamp);
        // The owner reaches nobody but this device, and neither of them hears the monitor.
        let owner = scene.array.node(scene.owner);
        scene.array.world.network.drop_if(move |from, to, message| {
            let is_deaf = |node| node == owner || node == device(first);
            let is_lost = is_from_monitor(from, message) && is_deaf(to);
            let is_cut = [from, to].contains(&owner) && ![from, to].contains(&device(first));
            is_lost || is_cut
        });
        let asked = scene.take_over();
        scene.array.run_for(Duration::from_secs(1));
        // That it is still served shows why the answer has to wait.
        assert!(read(&mut scene.array, scene.owner, 0, BLOCK).is_ok(), "{layout}");
        assert!(scene.array.requests.is_open(asked), "{layout}");
        let seen = scene.expect_taken_over(asked);
        scene.expect_nothing_more_happens(&seen);
    }
}

#[test]
fn writes_under_way_take_effect_before_the_take_over_is_answered_or_never() {
    for ordering in KEPT_APART {
        for (layout, devices, both) in LAYOUTS {
            for late in [vec![both[0]], vec![both[1]], both.to_vec()] {
                let mut scene = Scene::new(layout, devices, ordering);
                // Its writes to these devices are under way for longer than any lease, and arrive twice.
                let owner = scene.array.node(scene.owner);
                scene.array.world.network.delay_if(Duration::from_secs(8), move |from, to, message| {
                    from == owner && is_write(message) && late.iter().any(|number| to == device(*number))
                });
                scene.expect_what_was_under_way_before_the_answer_or_never();
            }
        }
    }
}

#[test]
fn a_suspended_device_finds_requests_of_the_previous_owner_when_its_lease_is_over() {
    for (layout, devices, both) in LAYOUTS {
        for number in both {
            // Within the lease, and beyond it.
            for span in [Duration::from_secs(2), Duration::from_secs(8)] {
                let mut scene = Scene::new(layout, devices, Ordering::Timestamp);
                scene.array.world.stall(device(number), span);
                scene.expect_what_was_under_way_before_the_answer_or_never();
            }
        }
    }
}

#[test]
fn the_previous_owner_dies_in_a_write_and_the_heir_reads_what_stays() {
    for (layout, devices, both) in LAYOUTS {
        for lacking in both {
            let mut scene = Scene::new(layout, devices, Ordering::Timestamp);
            let owner = scene.array.node(scene.owner);
            let is_lost =
                move |from, to, message: &Message| from == owner && to == device(lacking) && is_write(message);
            scene.array.world.network.drop_if(is_lost);
            scene.array.write(scene.owner, 0, BLOCK);
            scene.array.run_for(MOMENT);
            scene.array.crash(owner);
            let asked = scene.take_over();
            let seen = scene.expect_taken_over(asked);
            // The device that lacks the write dies: the others must not decide otherwise now.
            lose(&mut scene.array, lacking);
            assert!(content(&mut scene.array, scene.heir, 0, BLOCK) == seen, "{layout} without {lacking}");
            welcome(&mut scene.array, lacking);
            wait_in(&mut scene.array, lacking);
            take_slot(&mut scene.array, scene.owner);
            all_is_well(scene.array);
        }
    }
}

#[test]
fn of_two_heirs_one_takes_over_though_the_monitor_restarts() {
    for pause in (0..20).map(|step| Duration::from_micros(step * 100)) {
        let mut scene = Scene::new("raid1:2", 2, Ordering::Timestamp);
        let from = scene.from;
        let first = scene.take_over();
        let second = scene.array.own(scene.other, FS, OwnershipRequest::TakeOver { from });
        scene.array.run_for(pause);
        scene.array.crash(NodeId::Monitor);
        scene.array.run_for(MOMENT);
        scene.array.restart_monitor();
        let (first, second) = (scene.array.finish(first), scene.array.finish(second));
        let (winner, loser) = if first.is_ok() { (first, second) } else { (second, first) };
        let taken = ownership(winner);
        assert_eq!(loser, Err(HostError::Ownership(OwnershipRefused::Differs(taken))), "after {pause:?}");
        assert_eq!(ownership(ask(&mut scene.array, scene.other, OwnershipRequest::Inquire)), taken);
        replace_host(&mut scene.array, scene.owner);
        all_is_well(scene.array);
    }
}

#[test]
fn an_owner_that_releases_goes_on_as_a_host() {
    let mut scene = Scene::new("raid1:2", 2, Ordering::Timestamp);
    let since = scene.from.since;
    let released = ownership(ask(&mut scene.array, scene.owner, OwnershipRequest::Release { since }));
    assert_eq!(released.owner, None);
    let taken = ownership(ask(&mut scene.array, scene.heir, OwnershipRequest::TakeOver { from: released }));
    write(&mut scene.array, scene.owner, 0, BLOCK);
    let again = ask(&mut scene.array, scene.owner, OwnershipRequest::TakeOver { from: released });
    assert_eq!(again, Err(HostError::Ownership(OwnershipRefused::Differs(taken))));
    all_is_well(scene.array);
}
