//! Renewals on their way to the store. A renewal looks at the lease, writes its heartbeat, and looks again, as in a folder of files; in
//! between, the host may be suspended.

use super::ControlPlane;
use super::context::{Context, Event, Report};
use super::fencing::{Fencing, Outage, RenewalFate};
use crate::failed::Failed;
use crate::prelude::*;
use crate::role::Role;
use braid_control_protocol::{HostEvent, ServerLease, Version};
use braid_host_leases::{Heartbeat, LeaseTime, RenewerInput};

impl ControlPlane {
    /// A generation for a host that starts.
    pub(crate) fn take_generation(&mut self, now: &LeaseTime) -> Generation {
        let is_unheard = |fencing: &mut Fencing| fencing.draws(2 * fencing.options.store_faults);
        if self.fencing.as_mut().is_some_and(is_unheard) {
            // The host has not heard the answer, and asks again.
            self.count("generation without an answer");
            self.store.leases.take(now);
        }
        self.store.leases.take(now)
    }

    /// The generations of other nodes are in no table of leases; they come from the same counter.
    pub(crate) fn take_unleased(&mut self, now: &LeaseTime) -> Generation {
        let taken = self.store.leases.take(now);
        self.store.leases.release(taken);
        taken
    }

    fn outage(&self, now: Time) -> Option<&Outage> {
        self.fencing.as_ref()?.outage(now)
    }

    /// True if the store takes no writes but renewals.
    pub(super) fn is_unwritable(&self, now: Time) -> bool {
        self.outage(now).is_some_and(|outage| outage.others)
    }

    fn takes_no_renewals(&self, now: Time) -> bool {
        self.outage(now).is_some_and(|outage| outage.renewals)
    }

    fn renewal_fate(&mut self, now: Time, host: Generation) -> RenewalFate {
        if self.takes_no_renewals(now) {
            return RenewalFate::Unwritable;
        }
        let Some(fencing) = &mut self.fencing else { return RenewalFate::Made };
        if fencing.mute.get(&host).is_some_and(|until| now < *until) {
            return RenewalFate::Lost;
        }
        if !fencing.draws(fencing.options.store_faults) {
            return RenewalFate::Made;
        }
        if fencing.rng.chance(1, 3) {
            self.count("renewal lost");
            return RenewalFate::Lost;
        }
        let by = fencing.late();
        self.count("renewal late");
        RenewalFate::Late { by }
    }

    pub(super) fn send_renewal(&mut self, cx: &mut Context, host: Generation, confirmed: Version) {
        let way = self.way();
        let report = match cx.world.machine(NodeId::Host(host)) {
            Some(Role::Metadata(node)) if node.state() == NodeState::Owns => node.server().map(|server| ServerLease {
                host,
                file_system: node.file_system(),
                is_live: true,
                serves: server.is_serving(),
                quiescent: server.is_quiescent(),
            }),
            _ => None,
        };
        let heartbeat = Heartbeat { renewed: Some(cx.lease_time()), confirmed, report };
        cx.later(way, Event::Renewal { host, heartbeat });
    }

    pub(super) fn on_renewal(&mut self, cx: &mut Context, host: Generation, heartbeat: Heartbeat<Report>) {
        let fate = self.renewal_fate(cx.now(), host);
        // A host has no answer until its next round would begin.
        let unanswered = cx.heartbeat();
        let (end, after) = match fate {
            RenewalFate::Lost => (RenewerInput::Unknown, unanswered),
            _ if !self.store.leases.has_lease(host) => (RenewerInput::Refused, Duration::ZERO),
            RenewalFate::Unwritable => (RenewerInput::Unwritable, Duration::ZERO),
            RenewalFate::Late { by } => {
                cx.later(by, Event::LateHeartbeat { host, heartbeat });
                (RenewerInput::Unknown, unanswered)
            }
            RenewalFate::Made => {
                self.store.leases.renew(host, heartbeat);
                (RenewerInput::Renewed, Duration::ZERO)
            }
        };
        cx.later(after, Event::Host(host, HostEvent::Renewal(end)));
    }

    /// The heartbeat of a renewal arrives that was suspended in between.
    pub(super) fn on_late_heartbeat(&mut self, cx: &Context, host: Generation, heartbeat: Heartbeat<Report>) {
        if !self.takes_no_renewals(cx.now()) {
            self.store.leases.write_late_heartbeat(host, heartbeat);
        }
    }

    /// Forgets leases that are over. So many of the writes are made.
    pub(super) fn forget_leases(&mut self, cx: &Context, gone: &[Generation], writes: usize) {
        if let Some(host) = gone.iter().find(|host| cx.is_served(**host)) {
            let details = format!("the lease of {host} is forgotten, and a device serves it");
            self.failed.get_or_insert(Failed { check: "forgotten-too-soon", details });
        }
        self.store.leases.forget(gone, writes);
    }
}
