//! Where time goes: processors, disks and links, each a queue that serves first come, first served.
//!
//! A queue of one server needs no events of its own: whoever comes is done when all before him are, plus his own time.

use crate::parameters::{Disk, Links, Network, Processor, Service, WriteReport, milliseconds};
use crate::sampler::Sampler;
use braid_base::Time;
use braid_machine::DiskCommand;
use std::collections::VecDeque;
use std::time::Duration;

/// One server, first come, first served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    busy_until: Time,
    busy: Duration,
}

impl Server {
    /// Somebody comes at `now` (never before whoever came last) and needs `takes`: when he is done.
    pub fn serve(&mut self, now: Time, takes: Duration) -> Time {
        self.busy_until = self.busy_until.max(now).after(takes);
        self.busy += takes;
        self.busy_until
    }

    /// How long it has worked until `now`: what waits is not worked on yet.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy - self.busy_until.since(now.min(self.busy_until))
    }

    /// When it will have nothing to do.
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }
}

/// What a kind of node needs for messages and requests.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorCosts {
    /// For a request of an application.
    pub request: Duration,
    /// For a message sent.
    pub send: Duration,
    /// For a message received.
    pub receive: Duration,
    /// How that varies.
    pub service: Service,
}

impl ProcessorCosts {
    /// A host's.
    pub fn host(model: &Processor) -> ProcessorCosts {
        ProcessorCosts::new(model, model.host_request_us, model.host_send_us, model.host_receive_us)
    }

    /// A device's.
    pub fn device(model: &Processor) -> ProcessorCosts {
        ProcessorCosts::new(model, 0.0, model.device_send_us, model.device_receive_us)
    }

    /// A lock server's.
    pub fn lock_server(model: &Processor) -> ProcessorCosts {
        ProcessorCosts::new(model, 0.0, model.lock_server_send_us, model.lock_server_receive_us)
    }

    fn new(model: &Processor, request: f64, send: f64, receive: f64) -> ProcessorCosts {
        let span = |microseconds: f64| milliseconds(microseconds / 1e3);
        ProcessorCosts { request: span(request), send: span(send), receive: span(receive), service: model.service }
    }

    /// One service that takes `mean` on average.
    pub fn draw(&self, mean: Duration, sampler: &mut Sampler) -> Duration {
        match self.service {
            Service::Constant => mean,
            Service::Exponential if mean.is_zero() => mean,
            Service::Exponential => Duration::from_nanos(sampler.exponential(mean.as_nanos() as f64) as u64),
        }
    }
}

/// A device's disk.
#[derive(Clone, Debug)]
pub struct DiskModel {
    parameters: Disk,
    arms: Vec<Server>,
    /// Where it read last: what a write there finds under the head or in the cache.
    recent: VecDeque<u64>,
}

/// So many reads are remembered for `update_hit_ratio`.
const RECENT_MAX: usize = 256;

impl DiskModel {
    /// A disk that is at rest.
    pub fn new(parameters: &Disk) -> DiskModel {
        let arms = vec![Server::default(); parameters.arms as usize];
        DiskModel { parameters: parameters.clone(), arms, recent: VecDeque::new() }
    }

    /// A command comes: when it is answered.
    pub fn issue(&mut self, now: Time, command: &DiskCommand, sampler: &mut Sampler) -> Time {
        let model = &self.parameters;
        let (bytes, hit, is_write) = match command {
            DiskCommand::Read { offset, length } => {
                if model.update_hit_ratio > 0.0 {
                    self.recent.push_back(*offset);
                    if self.recent.len() > RECENT_MAX {
                        self.recent.pop_front();
                    }
                }
                (*length, sampler.chance(model.read_hit_ratio), false)
            }
            DiskCommand::Write { offset, data, .. } => {
                let read_before = self.recent.iter().rposition(|recent| recent == offset);
                if let Some(place) = read_before {
                    self.recent.remove(place);
                }
                let hit = sampler.chance(model.write_hit_ratio)
                    || (read_before.is_some() && sampler.chance(model.update_hit_ratio));
                (data.iter().map(|part| part.len()).sum(), hit, true)
            }
            DiskCommand::Sync | DiskCommand::Reserve { .. } => return now,
        };
        let transfer = bytes as f64 * model.transfer_us_per_byte / 1e3;
        let positioning = if hit { 0.0 } else { sampler.normal(model.positioning_ms, model.positioning_deviation_ms) };
        match model.write_report {
            WriteReport::Absorbed if is_write => now.after(milliseconds(transfer)),
            WriteReport::AtOnce if is_write => {
                self.first_free().serve(now, milliseconds(positioning + transfer));
                now.after(milliseconds(transfer))
            }
            _ => self.first_free().serve(now, milliseconds(positioning + transfer)),
        }
    }

    /// How long its arms have worked until `now`.
    pub fn busy(&self, now: Time) -> Duration {
        self.arms.iter().map(|arm| arm.busy(now)).sum()
    }

    /// How many arms it has.
    pub fn arms(&self) -> usize {
        self.arms.len()
    }

    fn first_free(&mut self) -> &mut Server {
        self.arms.iter_mut().min_by_key(|arm| arm.busy_until()).expect("a disk has an arm")
    }
}

/// One node's way into the network and out of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    sending: Server,
    receiving: Server,
}

/// What all messages go through.
#[derive(Clone, Debug)]
pub struct NetworkModel {
    parameters: Network,
}

impl NetworkModel {
    /// The network of some parameters.
    pub fn new(parameters: &Network) -> NetworkModel {
        NetworkModel { parameters: parameters.clone() }
    }

    /// A message with so many bytes of data leaves at `now`: when it arrives at the other node's link.
    pub fn send(&self, now: Time, from: &mut Link, data: u64, sampler: &mut Sampler) -> Time {
        let takes = self.transfer(data);
        let sent = match self.parameters.links {
            Links::Unshared => now.after(takes),
            Links::Sending | Links::Both => from.sending.serve(now, takes),
        };
        sent.after(milliseconds(sampler.between(self.parameters.overhead_min_ms, self.parameters.overhead_max_ms)))
    }

    /// A message is at a node's link: when it is through.
    pub fn receive(&self, now: Time, to: &mut Link, data: u64) -> Time {
        match self.parameters.links {
            Links::Unshared | Links::Sending => now,
            // Its bits stream through both links: only what is in the way costs time, if anything.
            Links::Both => {
                let takes = self.transfer(data);
                let began = Time(now.0.saturating_sub(takes.as_nanos() as u64));
                to.receiving.serve(began, takes)
            }
        }
    }

    fn transfer(&self, data: u64) -> Duration {
        let bytes = (data + self.parameters.header_bytes) as f64;
        milliseconds(bytes / self.parameters.bandwidth_mb_s / 1e3)
    }
}

#[cfg(test)]
mod tests;
