//! Models of hardware: processors and links, each a first-come, first-served queue. Disks are in [`crate::disk_latency`].
//!
//! A queue with one server needs no events of its own: a job is done when all earlier jobs are done, plus its own service time.

use crate::parameters::{Links, Network, Processor, Service, milliseconds};
use crate::prelude::*;
use crate::sampler::Sampler;

/// A server with a first-come, first-served queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    busy_until: Time,
    busy: Duration,
}

impl Server {
    /// Adds a job that arrives at `now` (never before the job that arrived last) and needs `takes`; returns when it is done.
    pub fn serve(&mut self, now: Time, takes: Duration) -> Time {
        self.busy_until = self.busy_until.max(now).after(takes);
        self.busy += takes;
        self.busy_until
    }

    /// How long the server has worked until `now`; jobs that still wait do not count.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy - self.busy_until.since(now.min(self.busy_until))
    }

    /// When the server will be idle.
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }
}

/// The processor time that a kind of node needs for messages and requests.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorCosts {
    /// For a request of an application.
    pub request: Duration,
    /// For a message sent.
    pub send: Duration,
    /// For a message received.
    pub receive: Duration,
    /// How these times vary.
    pub service: Service,
}

impl ProcessorCosts {
    /// Those of a node.
    pub fn of(node: NodeId, model: &Processor) -> ProcessorCosts {
        let (request, send, receive) = match node {
            NodeId::Host(_) => (model.host_request_us, model.host_send_us, model.host_receive_us),
            NodeId::Device(_) => (0.0, model.device_send_us, model.device_receive_us),
            _ => (0.0, model.lock_server_send_us, model.lock_server_receive_us),
        };
        let span = |microseconds: f64| milliseconds(microseconds / 1e3);
        ProcessorCosts { request: span(request), send: span(send), receive: span(receive), service: model.service }
    }

    /// Draws a service time with this mean.
    pub fn draw(&self, mean: Duration, sampler: &mut Sampler) -> Duration {
        match self.service {
            Service::Constant => mean,
            Service::Exponential if mean.is_zero() => mean,
            Service::Exponential => Duration::from_nanos(sampler.exponential(mean.as_nanos() as f64) as u64),
        }
    }
}

/// A node's link into the network and out of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    sending: Server,
    receiving: Server,
}

/// The network that all messages cross.
#[derive(Clone, Debug)]
pub struct NetworkModel {
    parameters: Network,
}

impl NetworkModel {
    pub fn new(parameters: &Network) -> NetworkModel {
        NetworkModel { parameters: parameters.clone() }
    }

    /// Sends a message with `data` bytes of data at `now`; returns when it arrives at the other node's link.
    pub fn send(&self, now: Time, from: &mut Link, data: u64, sampler: &mut Sampler) -> Time {
        let takes = self.transfer(data);
        let sent = match self.parameters.links {
            Links::Unshared => now.after(takes),
            Links::Sending | Links::Both => from.sending.serve(now, takes),
        };
        sent.after(milliseconds(sampler.between(self.parameters.overhead_min_ms, self.parameters.overhead_max_ms)))
    }

    /// Receives a message that is at a node's link; returns when it has passed the link.
    pub fn receive(&self, now: Time, to: &mut Link, data: u64) -> Time {
        match self.parameters.links {
            Links::Unshared | Links::Sending => now,
            // Its bits stream through both links: only waiting for earlier messages takes time.
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
