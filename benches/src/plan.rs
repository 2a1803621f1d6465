//! Plans of requests, and the parity that a plan computes.

use crate::{Workload, pattern};
use braid_base::BLOCK_BYTES;
use braid_blocks::{Content, Piece};
use braid_layout::{Absence, Layout, New, Old, ReadPlan, WritePlan};

/// The offset of requests: the start of a stripe inside the volume.
const OFFSET: u64 = 1000 * STRIPE;
/// Bytes of a stripe's data: four units of 64 KiB.
const STRIPE: u64 = 256 << 10;

pub(crate) fn workloads() -> Vec<Workload> {
    let read = |name, length| {
        Workload::same(name, layout, move |layout| ReadPlan::new(layout, &Absence::none(), OFFSET, length))
    };
    let write = |name, length| {
        Workload::same(name, layout, move |layout| WritePlan::new(layout, &Absence::none(), OFFSET, length))
    };
    let parity = |name, length| {
        Workload::same(name, move || Hostwrite::new(length), |write| write.plan.compute(&write.new, &write.old))
            .of_bytes(length as usize)
    };
    vec![
        read("plan/read-4KiB", 4 << 10),
        read("plan/read-1MiB", 1 << 20),
        write("plan/write-4KiB", 4 << 10),
        write("plan/write-a-stripe", STRIPE),
        write("plan/write-1MiB", 1 << 20),
        parity("parity/write-4KiB", 4 << 10),
        parity("parity/write-a-stripe", STRIPE),
        parity("parity/write-1MiB", 1 << 20),
    ]
}

fn layout() -> Layout {
    let scheme = "raid5:4+1".parse().expect("the scheme is valid");
    Layout::new(scheme, 5, Layout::UNIT_BLOCKS_DEFAULT).expect("the ring has enough devices")
}

/// A planned write, and the data that it reads.
struct Hostwrite {
    plan: WritePlan,
    new: New,
    old: Old,
}

impl Hostwrite {
    fn new(length: u64) -> Hostwrite {
        let plan = WritePlan::new(&layout(), &Absence::none(), OFFSET, length).expect("all devices are there");
        let mut old = Old::new();
        for share in plan.shares() {
            let pieces = share.reads.iter().map(|range| {
                let data = pattern(range.count as usize * BLOCK_BYTES);
                Piece { range: *range, content: Content::Data(data) }
            });
            old.insert(share.position, pieces.collect());
        }
        Hostwrite { plan, new: New::Data(pattern(length as usize)), old }
    }
}
