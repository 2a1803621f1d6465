//! Plans of writes and reads, executed on devices in memory, and compared with a flat array of bytes.
#![no_main]

use arbitrary::Arbitrary;
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_layout::{Absence, CheckPlan, Layout, New, Old, ReadPlan, RaidLevel, Share, WritePlan};
use braid_blocks::{Content, Piece};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Small, so that writes overlap.
const VOLUME_BYTES: u64 = 48 * BLOCK_BYTES as u64;

#[derive(Arbitrary, Debug)]
struct Run {
    scheme: u8,
    width: u8,
    more_devices: u8,
    unit: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Write { offset: u32, length: u32, byte: u8 },
    Zero { offset: u32, length: u32 },
    Read { offset: u32, length: u32 },
}

/// The written blocks of each device; other blocks are holes.
type Devices = Vec<BTreeMap<u64, Bytes>>;

libfuzzer_sys::fuzz_target!(|run: Run| {
    let scheme = match run.scheme % 3 {
        0 => RaidLevel::Raid0 { data: 1 + usize::from(run.width % 5) },
        1 => RaidLevel::Raid1 { copies: 2 + usize::from(run.width % 3) },
        _ => RaidLevel::Raid5 { data: 2 + usize::from(run.width % 6) },
    };
    let devices = scheme.width() + usize::from(run.more_devices % 9);
    let layout = Layout::new(scheme, devices, 1 << (run.unit % 4)).expect("the layout is valid");
    let mut devices: Devices = vec![BTreeMap::new(); devices];
    let mut flat = vec![0; VOLUME_BYTES as usize];
    for step in run.steps {
        match step {
            Step::Write { offset, length, byte } => {
                let (offset, length) = within(offset, length);
                let data: Vec<u8> = (0..length).map(|at| byte.wrapping_add((at % 251) as u8)).collect();
                flat[offset as usize..(offset + length) as usize].copy_from_slice(&data);
                write(&layout, &mut devices, offset, length, &New::Data(data.into()));
            }
            Step::Zero { offset, length } => {
                let (offset, length) = within(offset, length);
                flat[offset as usize..(offset + length) as usize].fill(0);
                write(&layout, &mut devices, offset, length, &New::Zeros);
            }
            Step::Read { offset, length } => {
                let (offset, length) = within(offset, length);
                let plan = ReadPlan::new(&layout, &Absence::none(), offset, length).expect("nothing is unavailable");
                let read = plan.assemble(&answers(&devices, plan.shares())).concat();
                assert!(read == flat[offset as usize..(offset + length) as usize], "what was written is read");
            }
        }
    }
    for stripe in 0..layout.stripes(VOLUME_BYTES / BLOCK_BYTES as u64) {
        let plan = CheckPlan::new(&layout, &Absence::none(), stripe).expect("nothing is unavailable");
        assert!(plan.matches(&answers(&devices, plan.shares())), "parity matches");
    }
});

fn within(offset: u32, length: u32) -> (u64, u64) {
    let offset = u64::from(offset) % VOLUME_BYTES;
    (offset, u64::from(length) % (VOLUME_BYTES - offset + 1))
}

fn write(layout: &Layout, devices: &mut Devices, offset: u64, length: u64, new: &New) {
    let plan = WritePlan::new(layout, &Absence::none(), offset, length).expect("nothing is unavailable");
    let written = plan.compute(new, &answers(devices, plan.shares()));
    for (position, pieces) in written {
        for Piece { range, content } in pieces {
            for block in range.blocks() {
                let start = (block - range.start) as usize * BLOCK_BYTES;
                match &content {
                    Content::Data(data) => devices[position].insert(block, data.slice(start..start + BLOCK_BYTES)),
                    Content::Hole => devices[position].remove(&block),
                    Content::Present | Content::Header { .. } | Content::Lost => panic!("plans never write that"),
                };
            }
        }
    }
}

fn answers(devices: &Devices, shares: &[Share]) -> Old {
    let mut old = Old::new();
    for share in shares {
        let content = |block| devices[share.position].get(&block).cloned().map_or(Content::Hole, Content::Data);
        let blocks = share.reads.iter().flat_map(|range| range.blocks());
        old.insert(
            share.position,
            blocks.map(|block| Piece { range: BlockRange::new(block, 1), content: content(block) }).collect(),
        );
    }
    old
}
