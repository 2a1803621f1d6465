//! Routes: which connection is used for which node, if several claim to lead to it.
//!
//! Nodes are not authenticated, so a connection's first frame is a claim. The first claimant owns the route, and keeps it while it is heard:
//! whoever claims the same node later waits, and nothing that it sends reaches the machine. A host whose connection was lost makes another
//! one before its old one has ended here. So the newest waiting claimant gets the route when the owner's connection ends, or has been silent
//! for longer than a living node ever is.
//!
//! Connections that we made and connections that we accepted have separate routes: of two devices, each makes a connection to the other.

use braid_base::NodeId;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// An owner that is silent for so long loses its route to a claimant that waits. Hosts and devices send something twice a second, and connect
/// anew when they have had no answer for so long. Nodes that we connect to may be silent for longer.
const OWNER_SILENCE: Duration = Duration::from_secs(5);
/// The most that counts as silence between two looks: if more time has passed, this process did not run.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The most claimants that wait for one route. A further one replaces the oldest.
const CLAIMANTS_MAX: usize = 4;

/// By whom a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// By this node.
    Made,
    /// By the node at its other end.
    Accepted,
}

/// The routes of one transport. Connections are named by their numbers.
#[derive(Default)]
pub(crate) struct Routes {
    routes: HashMap<(NodeId, Side), Route>,
    looked: Option<Instant>,
}

struct Route {
    owner: u64,
    /// For how long the owner has not been heard, at the last look.
    silence: Duration,
    /// Oldest first.
    claimants: Vec<u64>,
}

/// What a connection may do that has received something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The connection owns the route.
    Owner,
    /// It waits. This other claimant waits no longer, if there is one.
    Waits { instead_of: Option<u64> },
}

impl Routes {
    /// The connection to send to a node on.
    pub fn owner(&self, node: NodeId, side: Side) -> Option<u64> {
        Some(self.routes.get(&(node, side))?.owner)
    }

    /// A connection has received something from the node at its other end.
    pub fn heard(&mut self, node: NodeId, side: Side, number: u64) -> Admission {
        let fresh = || Route { owner: number, silence: Duration::ZERO, claimants: Vec::new() };
        let route = self.routes.entry((node, side)).or_insert_with(fresh);
        if route.owner != number && side == Side::Accepted && route.silence >= OWNER_SILENCE {
            route.pass_to(number);
        }
        if route.owner == number {
            route.silence = Duration::ZERO;
            return Admission::Owner;
        }
        if route.claimants.contains(&number) {
            return Admission::Waits { instead_of: None };
        }
        route.claimants.push(number);
        let surplus = route.claimants.len() > CLAIMANTS_MAX;
        Admission::Waits { instead_of: surplus.then(|| route.claimants.remove(0)) }
    }

    /// To be called now and then, after everything that had arrived was read: otherwise owners would seem silent whom this process has not
    /// listened to.
    pub fn look(&mut self, now: Instant) {
        let since = self.looked.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.routes.values_mut().for_each(|route| route.silence += since.min(LOOK_MAX));
    }

    /// We have connected to a node: the newest connection is used.
    pub fn made(&mut self, node: NodeId, number: u64) {
        let fresh = || Route { owner: number, silence: Duration::ZERO, claimants: Vec::new() };
        let route = self.routes.entry((node, Side::Made)).or_insert_with(fresh);
        if route.owner != number {
            route.pass_to(number);
            route.silence = Duration::ZERO;
        }
    }

    /// A connection has ended. Returns the connection that gets its route: the newest that claims it.
    pub fn end(&mut self, node: NodeId, side: Side, number: u64) -> Option<u64> {
        let route = self.routes.get_mut(&(node, side))?;
        route.claimants.retain(|claimant| *claimant != number);
        if route.owner != number {
            return None;
        }
        let Some(next) = route.claimants.pop() else {
            self.routes.remove(&(node, side));
            return None;
        };
        (route.owner, route.silence) = (next, Duration::ZERO);
        Some(next)
    }
}

impl Route {
    fn pass_to(&mut self, number: u64) {
        self.claimants.retain(|claimant| *claimant != number);
        // The previous owner comes first: any other claimant is newer.
        self.claimants.insert(0, std::mem::replace(&mut self.owner, number));
        if self.claimants.len() > CLAIMANTS_MAX {
            // It claims the route again when it is heard.
            self.claimants.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, Generation};

    const HOST: NodeId = NodeId::Host(Generation(7));
    const WAITS: Admission = Admission::Waits { instead_of: None };

    /// Time passes, in steps of half a second.
    fn pass(routes: &mut Routes, now: &mut Instant, seconds: u64) {
        for _ in 0..2 * seconds {
            *now += Duration::from_millis(500);
            routes.look(*now);
        }
    }

    #[test]
    fn a_newcomer_waits_while_the_owner_is_heard_and_gets_the_route_when_it_ends() {
        let (mut routes, mut now) = (Routes::default(), Instant::now());
        assert_eq!(routes.heard(HOST, Side::Accepted, 1), Admission::Owner);
        for _ in 0..10 {
            pass(&mut routes, &mut now, 1);
            assert_eq!(routes.heard(HOST, Side::Accepted, 2), WAITS);
            assert_eq!(routes.heard(HOST, Side::Accepted, 1), Admission::Owner);
            assert_eq!(routes.owner(HOST, Side::Accepted), Some(1));
        }
        assert_eq!(routes.end(HOST, Side::Accepted, 1), Some(2));
        assert_eq!(routes.owner(HOST, Side::Accepted), Some(2));
    }

    #[test]
    fn a_silent_owner_loses_its_route_and_has_it_back_when_the_newcomer_ends() {
        let (mut routes, mut now) = (Routes::default(), Instant::now());
        routes.look(now);
        routes.heard(HOST, Side::Accepted, 1);
        pass(&mut routes, &mut now, 5);
        assert_eq!(routes.heard(HOST, Side::Accepted, 2), Admission::Owner);
        assert_eq!(routes.heard(HOST, Side::Accepted, 1), WAITS);
        assert_eq!(routes.end(HOST, Side::Accepted, 2), Some(1));
        assert_eq!(routes.end(HOST, Side::Accepted, 1), None);
        assert_eq!(routes.owner(HOST, Side::Accepted), None);
    }

    #[test]
    fn an_owner_keeps_its_route_through_a_standstill_of_this_process() {
        let (mut routes, mut now) = (Routes::default(), Instant::now());
        routes.look(now);
        routes.heard(HOST, Side::Accepted, 1);
        now += Duration::from_secs(60);
        assert_eq!(routes.heard(HOST, Side::Accepted, 2), WAITS, "what it sent meanwhile was not read yet");
        routes.look(now);
        assert_eq!(routes.heard(HOST, Side::Accepted, 2), WAITS);
    }

    #[test]
    fn the_newest_of_a_bounded_number_of_claimants_is_next() {
        let mut routes = Routes::default();
        routes.heard(HOST, Side::Accepted, 0);
        for number in 1..=4 {
            assert_eq!(routes.heard(HOST, Side::Accepted, number), WAITS);
        }
        assert_eq!(routes.heard(HOST, Side::Accepted, 5), Admission::Waits { instead_of: Some(1) });
        assert_eq!(routes.end(HOST, Side::Accepted, 4), None);
        assert_eq!(routes.end(HOST, Side::Accepted, 0), Some(5));
    }

    #[test]
    fn a_connection_of_a_device_does_not_replace_our_connection_to_it() {
        let mut routes = Routes::default();
        let device = NodeId::Device(DeviceId(2));
        routes.made(device, 1);
        assert_eq!(routes.heard(device, Side::Accepted, 2), Admission::Owner);
        assert_eq!(routes.owner(device, Side::Made), Some(1));
        routes.made(device, 3);
        assert_eq!(routes.owner(device, Side::Made), Some(3));
        assert_eq!(routes.end(device, Side::Made, 3), Some(1));
    }
}
