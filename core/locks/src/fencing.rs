//! Keeping out hosts that are silent: at every device, durably, before anybody else gets what they held.
//!
//! One round at a time goes over all devices, for all hosts that are doomed when it begins. Once doomed, there is no way back: some
//! device may have shut the host out already.

use crate::server::{LockServer, Timer};
use braid_base::{DeviceId, Generation, NodeId, Now, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{Answer, Command, Managed, Message, Reply, Request, Task};
use std::collections::BTreeSet;
use std::time::Duration;

/// A round over all devices.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    ticket: u64,
    hosts: Vec<Generation>,
    /// Devices that have yet to answer.
    silent: BTreeSet<DeviceId>,
    /// How long to wait until they are asked again.
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
            silent: self.config.devices.iter().copied().collect(),
            patience: self.config.settings.resend_min,
        });
        self.ask_devices(now, out);
    }

    fn ask_devices(&mut self, now: Now, out: &mut Effects) {
        let round = self.round.as_ref().expect("a round is under way");
        self.timers.set(Timer::Fence, now.time.after(round.patience));
        for device in &round.silent {
            let task = Task::Fence { below: Generation(0), except: Vec::new(), also: round.hosts.clone() };
            let request = Request {
                host: self.config.start,
                epoch: self.config.epoch,
                settled: 0,
                over: Vec::new(),
                commits: Vec::new(),
                command: Command::Manage { ticket: round.ticket, task },
            };
            self.counters.messages_sent += 1;
            out.send(NodeId::Device(*device), Message::Request(request));
        }
    }

    pub(crate) fn ask_devices_again(&mut self, now: Now, out: &mut Effects) {
        let round = self.round.as_mut().expect("the timer is that of a round");
        round.patience = (round.patience * 2).min(self.config.settings.resend_max);
        self.ask_devices(now, out);
    }

    pub(crate) fn on_device_answer(&mut self, now: Now, device: DeviceId, answer: Answer, out: &mut Effects) {
        let Some(round) = &mut self.round else {
            return self.ignore(Ignored::NotAwaited, out);
        };
        // A device that can't do it is asked again: nobody gets the host's locks before all have.
        let done = Reply::Managed { ticket: round.ticket, result: Ok(Managed::Done) };
        if answer.reply != done {
            return self.ignore(Ignored::NotAwaited, out);
        }
        round.silent.remove(&device);
        if round.silent.is_empty() {
            self.on_fenced(now, out);
        }
    }

    /// Every device keeps them out, durably: others may have what they held.
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
