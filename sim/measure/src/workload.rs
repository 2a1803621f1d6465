//! The workload of hosts: streams of hostreads and hostwrites at random addresses (shared-array paper, Table 1).

use crate::parameters::{Alignment, Parameters, Workload, milliseconds};
use crate::prelude::*;
use crate::sampler::Sampler;
use braid_base::VolumeId;
use braid_machine::{Patience, VolumeRequest};

/// A generator of requests.
#[derive(Clone, Debug)]
pub struct Requests {
    workload: Workload,
    volumes: u64,
    /// Stripe units in the addressed part of each volume.
    units: u64,
    stripe_units: u64,
    unit_blocks: u64,
}

impl Requests {
    /// A generator for volumes, numbered from 1, with the layout that the parameters describe.
    pub fn new(parameters: &Parameters) -> Requests {
        Requests {
            workload: parameters.workload.clone(),
            volumes: parameters.volumes(),
            units: parameters.active_stripes() * parameters.system.data_units,
            stripe_units: parameters.system.data_units,
            unit_blocks: parameters.system.unit_kib * 1024 / BLOCK_BYTES as u64,
        }
    }

    /// Draws the think time of a stream.
    pub fn think(&self, sampler: &mut Sampler) -> Duration {
        milliseconds(sampler.normal(self.workload.think_ms, self.workload.think_deviation_ms))
    }

    /// Draws the next request. A hostwrite carries zeros: its devwrites are the same as for other content, and no bytes are copied.
    pub fn next(&self, sampler: &mut Sampler) -> VolumeRequest {
        let (start, count) = self.blocks(sampler);
        let volume = VolumeId(1 + sampler.below(self.volumes));
        let (offset, length) = (start * BLOCK_BYTES as u64, count * BLOCK_BYTES as u64);
        if sampler.chance(self.workload.read_fraction) {
            VolumeRequest::Read { volume, offset, length: length as usize, patience: Patience::Host }
        } else {
            VolumeRequest::Zero { volume, offset, length, patience: Patience::Host }
        }
    }

    /// Draws the first block and the number of blocks.
    fn blocks(&self, sampler: &mut Sampler) -> (u64, u64) {
        let (least, most) = (self.workload.size_units_min, self.workload.size_units_max);
        let mut uniform = |low: u64, high: u64| low + sampler.below(high - low + 1);
        match self.workload.alignment {
            Alignment::Unit => {
                let size = uniform(least, most);
                (uniform(0, self.units - size) * self.unit_blocks, size * self.unit_blocks)
            }
            Alignment::Stripe => {
                let size = uniform(least, most);
                let stripe = uniform(0, self.units / self.stripe_units - 1);
                let first = stripe * self.stripe_units + uniform(0, self.stripe_units - size);
                (first * self.unit_blocks, size * self.unit_blocks)
            }
            Alignment::HalfUnit => {
                let half = (self.unit_blocks / 2).max(1);
                let (halves, in_unit) = (self.units * self.unit_blocks / half, self.unit_blocks / half);
                let size = uniform(least * in_unit, most * in_unit);
                (uniform(0, halves - size) * half, size * half)
            }
            Alignment::Start => {
                let size = uniform(least, most) * self.unit_blocks;
                (uniform(0, self.units * self.unit_blocks - size), size)
            }
            Alignment::Block => {
                let size = uniform(least * self.unit_blocks, most * self.unit_blocks);
                (uniform(0, self.units * self.unit_blocks - size), size)
            }
        }
    }
}
