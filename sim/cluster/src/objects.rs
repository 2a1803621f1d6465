//! Clients that use objects of devices, with bytes and attributes.

use crate::activity::{Activity, Draw, Feature, Options, Report, Run};
use crate::cluster::{Cluster, HostSlot, PendingOperation};
use crate::object_requests;
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::object_workload::{ObjectOptions, ObjectWorkload};
use crate::prelude::*;
use braid_check::count_outcomes;

/// The number of clients of all hosts together, where there are many; each has one operation in progress.
const CLIENTS_AT_ONCE_MAX: usize = 12;
/// The longest delay of a message that is held at a cut.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Bytes of a device for objects, in addition to those for the volume.
const BYTES_FOR_OBJECTS: u64 = 16 << 20;

/// Clients also use objects of devices.
#[derive(Clone, Debug)]
pub(crate) struct ObjectUse {
    options: ObjectOptions,
    workload: ObjectWorkload,
}

impl Feature for ObjectUse {
    const NAME: &'static str = "objects";
    const ONE_IN: u64 = 4;
    const NEEDS_ATOMICITY: bool = false;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<ObjectUse> {
        // An object lies on one device: a lost disk would lose it.
        options.without_faults(&[FaultKind::Replace, FaultKind::Misdirected]);
        // Tests of exactly-once execution need many requests that are interrupted.
        let is_atomic = options.atomicity == Atomicity::Implied;
        let often = draw.rng.below(2) == 0 && is_atomic;
        let faults = &mut options.faults;
        if often && draw.choices.may(FaultKind::DeviceCrash.name()) {
            faults.weights.insert(FaultKind::DeviceCrash, 30);
            faults.every = faults.every.min(Duration::from_millis(200));
            faults.span_max = faults.span_max.min(Duration::from_millis(500));
        }
        let objects = ObjectOptions::draw(&mut draw.rng, options.settings.request_timeout);
        // By the time a cut is healed, impatient requests are abandoned, and their messages arrive late.
        if objects.hasty > 0 && is_atomic && draw.choices.may(FaultKind::Cut.name()) {
            faults.weights.insert(FaultKind::Cut, 20);
            faults.every = faults.every.min(Duration::from_millis(300));
            (faults.network.held, faults.network.held_max) = (3_000, HELD_MAX);
        }
        // Where much is written to the journal, the journal wraps around soon.
        if objects.bulk_bytes_max > 0 && !options.activities.has("migrate") {
            options.journal_bytes = Some(1 << 20);
        }
        // Devices without space refuse objects: here they must accept them.
        options.chunks = None;
        options.device_bytes += BYTES_FOR_OBJECTS;
        // The operations on the volume are checked, too; many of them at once take long to check. And not too many object requests
        // may be in progress.
        if objects.share > 90 && is_atomic {
            options.clients = options.clients.max(objects.crowd.min(CLIENTS_AT_ONCE_MAX / options.hosts));
        }
        let workload = ObjectWorkload::new(objects.clone(), options.source(Self::NAME).named("events"));
        Some(ObjectUse { options: objects, workload })
    }
}

impl Activity for ObjectUse {
    fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        for device in cluster.devices().into_iter().take(self.options.devices.into()) {
            cluster.make_objects(first, device, 1..=self.options.staying);
        }
    }

    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        self.workload.limit_devices(run.cluster.devices().len() as u16);
        object_requests::overhear(&mut run.cluster);
    }

    fn operate(&mut self, run: &mut Run, _rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let operation = self.workload.operation();
        operation.map(|operation| object_requests::wish_objects(&mut run.cluster, slot, client, operation)).is_some()
    }

    fn learn(&mut self, cluster: &Cluster, answered: &PendingOperation) {
        if let Some(operation) =
            object_requests::object_operation(cluster, answered).filter(|it| it.device != ATTRIBUTE_VOLUME)
        {
            self.workload.learn(operation);
        }
    }

    fn count(&self, cluster: &Cluster, report: &mut Report) {
        let operations = cluster.objects.operations().iter().filter(|operation| operation.device != ATTRIBUTE_VOLUME);
        report.count(Self::NAME, count_outcomes(operations));
    }
}
