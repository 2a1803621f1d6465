//! Keeping out hosts that are silent: before anybody else gets what they held, the monitor has to have every device refuse them.
//!
//! The monitor is asked for all hosts together that are doomed by then, one round at a time. Once doomed, there is no way back: some
//! device may have shut the host out already.

use crate::server::LockServer;
use braid_base::{Generation, Now, limits};
use braid_machine::{Effects, Ignored};
use braid_membership::client::{Ctx, Event, FenceRequest, Persistence};
use braid_wire::MonitorAnswer;

/// All doomed hosts fit in one request.
const _: () = assert!(limits::HOSTS_MAX <= limits::FENCED_MAX);

impl LockServer {
    /// Begins a round if there is somebody to fence, and none is under way.
    pub(crate) fn fence_doomed(&mut self, now: Now, out: &mut Effects) {
        if self.doomed.is_empty() || self.monitor.is_fencing() {
            return;
        }
        self.rounds += 1;
        // Answers to an earlier start of the server must not pass for those to this one.
        let ticket = u64::from(self.config.start.0) << 32 | self.rounds;
        let request = FenceRequest { also: self.doomed.iter().copied().collect(), ..FenceRequest::default() };
        self.counters.messages_sent += 1;
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.monitor.fence(cx, ticket, ticket, request, Persistence::Forever);
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let event = self.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out });
        assert!(event.is_none(), "the monitor is asked until it has fenced: {event:?}");
    }

    pub(crate) fn on_monitor_answer(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        self.monitor.on_answer(now.time, answer);
        let mut awaited = false;
        while let Some(event) = self.monitor.next_event(&Ctx { now, settings: &self.config.settings, out }) {
            if let Event::Fenced { also, .. } = event {
                awaited = true;
                self.on_fenced(now, also, out);
            }
        }
        if !awaited {
            self.ignore(Ignored::NotAwaited, out);
        }
    }

    /// No device serves them any more: others may have what they held.
    fn on_fenced(&mut self, now: Now, hosts: Vec<Generation>, out: &mut Effects) {
        for host in hosts {
            self.counters.fenced += 1;
            self.doomed.remove(&host);
            if self.fenced.len() == limits::FENCED_MAX {
                // Whoever is forgotten here is still refused by the devices.
                self.fenced.pop_first();
            }
            self.fenced.insert(host);
            self.forget(now, host, out);
        }
        self.serve_if_recovered(now, out);
        self.fence_doomed(now, out);
    }
}
