//! Devices that are suspended in the middle of their work: while reads of their disks are under way, for longer than the lease of a host.
//!
//! A process that is stopped and continued finds everything at once: what its disk has done, messages, and leases that are over. A stall at
//! any time (`stall`) seldom meets a read that is under way. This one begins when a read ends, so that its content is what the device finds
//! first.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::prelude::*;
use braid_store::CHUNK_BLOCKS;
use braid_world::Suspension;

/// The most reads until the one after which a device is suspended.
const READS_MAX: u64 = 8;
/// How long this read takes at least, in microseconds: meanwhile what other devices send may arrive.
const READ_TAKES: [u64; 3] = [0, 2_000, 20_000];

#[derive(Clone, Debug)]
pub(crate) struct Suspensions;

impl Feature for Suspensions {
    const NAME: &'static str = "suspend";
    const ONE_IN: u64 = 10;
    const EVERY: Option<[u64; 3]> = Some([100, 500, 2_000]);
    // Where writes take effect on arrival, no device is out and no host is fenced in the same run. Other kinds need all devices.
    const NOT_WITH: &'static [&'static str] = &["changes", "calm"];

    /// If the choices name this, runs have units of whole chunks where they can: such a unit is written to its place at once, and is read
    /// from the disk and not from memory.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Suspensions> {
        let others = ["attribute-volumes", "files", "dead", "volumes", "migrate"];
        if draw.is_named && !options.activities.has_any(&others) && options.layout.redundancy_units() == 1 {
            let (scheme, devices) = (options.layout.scheme(), options.layout.devices());
            options.layout = Layout::new(scheme, devices, CHUNK_BLOCKS).expect("a ring that is wide enough");
            options.stripes = options.stripes.min(2);
        }
        Some(Suspensions)
    }
}

impl Activity for Suspensions {
    /// Has a device suspended after one of its next reads.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let lease = run.cluster.options.settings.host_lease.as_nanos() as u64;
        let devices = run.cluster.devices();
        let node = NodeId::Device(devices[rng.below(devices.len() as u64) as usize]);
        let read = rng.between(1, READS_MAX);
        let takes = Duration::from_micros(READ_TAKES[rng.below(3) as usize]);
        let span = Duration::from_nanos(lease + rng.below(lease));
        if run.cluster.world.is_up(node) {
            run.cluster.world.suspend_after_read(node, Suspension { read, takes, span });
        }
    }
}
