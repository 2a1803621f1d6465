//! Writes that devices execute together (parallel-RAID paper, section 3.5; `docs/parallel-raid.md`): each device gets its column, and the
//! participants answer once their intents are durable. What they do is in `core/device/src/scheduler/columns.rs`.

use crate::ctx::Ctx;
use crate::transaction::{Phase, Transaction};
use crate::transactions::Transactions;
use crate::work::Work;
use braid_base::{DeviceId, TransactionId};
use braid_blocks::Column;
use braid_layout::RaidMap;
use braid_machine::Ignored;
use braid_wire::Progress;
use std::collections::{BTreeMap, BTreeSet};

/// How often a device answers that it misses what others owe it, before the write is attempted without their help.
const IN_VAIN_MAX: usize = 3;

impl Transaction {
    /// What each device does if they execute its write together. `None` if they don't: its volume computes parity at the host, or such a
    /// write is not possible or not worth it.
    pub(crate) fn columns(&self) -> Option<BTreeMap<DeviceId, Column>> {
        let Work::Write(plan, new) = &*self.work else { return None };
        let site = self.volume.parity_site.site_of(plan)?;
        let map = RaidMap::new(plan, new, site, |position| self.volume.device_at(position))?;
        Some(map.columns.into_iter().map(|(position, column)| (self.volume.device_at(position), column)).collect())
    }
}

impl Transactions {
    /// Sends each device its column.
    pub(crate) fn execute(&mut self, ctx: &mut Ctx, sequence: u64, columns: BTreeMap<DeviceId, Column>) {
        let transaction = self.of_mut(sequence);
        let (devices, silent) = (columns.keys().copied().collect(), transaction.participants.clone());
        transaction.phase = Phase::Executing { silent, columns, in_vain: Vec::new() };
        (transaction.at_once, transaction.wrote) = (true, true);
        transaction.resend.reset();
        self.send_columns(ctx, sequence, &devices);
        self.arm_resend(ctx, sequence);
    }

    /// A device still executes its column. If others owe it something, they are asked again. Returns those for which it has waited in vain,
    /// if it has: they may not reach each other.
    pub(crate) fn on_executing(
        &mut self,
        ctx: &mut Ctx,
        device: DeviceId,
        id: TransactionId,
        progress: Progress,
    ) -> Option<Vec<DeviceId>> {
        let phase = self.own(ctx, id).map(|transaction| &mut transaction.phase);
        let (Some(Phase::Executing { columns, in_vain, .. }), Progress::Gathering { missing }) = (phase, progress)
        else {
            ctx.out.ignore(Ignored::NotAwaited);
            return None;
        };
        in_vain.push(device);
        if in_vain.iter().filter(|other| **other == device).count() >= IN_VAIN_MAX {
            return Some(missing);
        }
        let owing = missing.into_iter().filter(|device| columns.contains_key(device)).collect();
        self.send_columns(ctx, id.sequence, &owing);
        self.of_mut(id.sequence).resend.reset();
        self.arm_resend(ctx, id.sequence);
        None
    }

    /// Sends their columns to the devices that have answered, but may owe something to those that have not.
    pub(crate) fn send_to_owing(&self, ctx: &mut Ctx, sequence: u64) {
        if let Phase::Executing { silent, columns, .. } = &self.of(sequence).phase {
            let owing = silent.iter().flat_map(|device| columns[device].awaited());
            let owing = owing.filter(|device| !silent.contains(device)).collect();
            self.send_columns(ctx, sequence, &owing);
        }
    }

    fn send_columns(&self, ctx: &mut Ctx, sequence: u64, devices: &BTreeSet<DeviceId>) {
        let (id, transaction) = (ctx.id(sequence), self.of(sequence));
        for device in devices {
            ctx.send(*device, transaction.command(id, *device));
        }
    }
}
