//! Keeping out hosts that are silent: before anybody else gets what they held, the monitor has to have every device refuse them.
//!
//! The monitor is asked for all hosts together that are doomed by then, one round at a time. Once doomed, there is no way back: some
//! device may have shut the host out already.

use crate::server::{LockServer, Timer};
use braid_base::{Epoch, Generation, NodeId, Now, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};
use std::time::Duration;

/// All doomed hosts fit in one request.
const _: () = assert!(limits::HOSTS_MAX <= limits::FENCED_MAX);

/// What the monitor has been asked.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    ticket: u64,
    hosts: Vec<Generation>,
    /// How long to wait until it is asked again.
    patience: Duration,
}

impl LockServer {
    /// Begins a round if there is somebody to fence, and none is under way.
    pub(crate) fn fence_doomed(&mut self, now: Now, out: &mut Effects) {
        if self.doomed.is_empty() || self.round.is_some() {
            return;
        }
        self.rounds += 1;
        self.round = Some(Round {
            // Answers to an earlier start of the server must not pass for those to this one.
            ticket: u64::from(self.config.start.0) << 32 | self.rounds,
            hosts: self.doomed.iter().copied().collect(),
            patience: self.config.settings.resend_min,
        });
        self.ask_monitor(now, out);
    }

    fn ask_monitor(&mut self, now: Now, out: &mut Effects) {
        let round = self.round.as_ref().expect("a round is under way");
        self.timers.set(Timer::Fence, now.time.after(round.patience));
        let command = MonitorCommand::Fence {
            ticket: round.ticket,
            below: Generation(0),
            except: Vec::new(),
            also: round.hosts.clone(),
        };
        self.counters.messages_sent += 1;
        // A lock server lives by no epoch.
        out.send(NodeId::Monitor, Message::MonitorRequest(MonitorRequest { epoch: Epoch(0), command }));
    }

    pub(crate) fn ask_monitor_again(&mut self, now: Now, out: &mut Effects) {
        let round = self.round.as_mut().expect("the timer is that of a round");
        round.patience = (round.patience * 2).min(self.config.settings.resend_max);
        self.ask_monitor(now, out);
    }

    pub(crate) fn on_monitor_answer(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        match (&self.round, answer.reply) {
            (Some(round), MonitorReply::Fenced { ticket }) if round.ticket == ticket => self.on_fenced(now, out),
            _ => self.ignore(Ignored::NotAwaited, out),
        }
    }

    /// No device serves them any more: others may have what they held.
    fn on_fenced(&mut self, now: Now, out: &mut Effects) {
        let round = self.round.take().expect("it just ended");
        self.timers.cancel(Timer::Fence);
        for host in round.hosts {
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
