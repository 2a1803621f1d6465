//! The latency model of a disk: when a read or write is answered. It adds the time to position the arm and the time to transfer the bytes, and
//! each arm serves its commands in order. The parameters are in [`crate::parameters::Disk`] and `sim/experiments/parameters`.

use crate::hardware::Server;
use crate::parameters::{Disk, WriteReport, milliseconds};
use crate::prelude::*;
use crate::sampler::Sampler;

/// A disk with its arms.
#[derive(Clone, Debug)]
pub struct DiskModel {
    parameters: Disk,
    arms: Vec<Server>,
    /// The blocks read last: a write to one of them finds the head in position or the block in the cache.
    recent: VecDeque<u64>,
}

/// Reads that are remembered for `update_hit_ratio`.
const RECENT_MAX: usize = 256;

impl DiskModel {
    pub fn new(parameters: &Disk) -> DiskModel {
        let arms = vec![Server::default(); parameters.arms as usize];
        DiskModel { parameters: parameters.clone(), arms, recent: VecDeque::new() }
    }

    /// Adds a command; returns when it is answered.
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

    /// How long the arms have worked until `now`, all together.
    pub fn busy(&self, now: Time) -> Duration {
        self.arms.iter().map(|arm| arm.busy(now)).sum()
    }

    pub fn arms(&self) -> usize {
        self.arms.len()
    }

    fn first_free(&mut self) -> &mut Server {
        self.arms.iter_mut().min_by_key(|arm| arm.busy_until()).expect("a disk has an arm")
    }
}

#[cfg(test)]
mod tests;
