//! Volumes of an array, with a naive host in place of the array: it answers from memory, each request one step later, and asserts that no
//! request exceeds the limits of a storage transaction.

use crate::running::{Running, scratch};
use braid_base::{ArrayId, BLOCK_BYTES, DeviceId, Generation, NodeId, Now, Time, VolumeId, limits};
use braid_layout::{Layout, RaidLevel, VolumeDescription};
use braid_machine::{
    HostEffects, HostError, HostOutcome, HostRequest, HostSuccess, Input, Machine, MountRequest, NoDisk, OpId,
    Patience, VolumeRequest,
};
use braid_nbd::{Backend, Error, ErrorNumber, HostBackend, HostVolume, ServedVolume, Settings, Space, Volume};
use braid_shell::{Address, Counters, Node, run_host};
use braid_wire::Failure;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use tokio::sync::watch;

const BLOCK: u64 = BLOCK_BYTES as u64;
const VOLUME_BYTES: u64 = 200 << 20;
const GOOD: VolumeId = VolumeId(1);
const FULL: VolumeId = VolumeId(2);

#[derive(Default)]
struct NaiveHost {
    blocks: BTreeMap<u64, Vec<u8>>,
    asked: Vec<(OpId, VolumeRequest)>,
    time: Option<Time>,
}

impl Machine for NaiveHost {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        self.time = Some(now.time);
        match input {
            Input::Request { op, request } => {
                let MountRequest::Host(HostRequest::Volume(request)) = request else {
                    unreachable!("no client requests {request:?}")
                };
                self.asked.push((op, request));
                assert!(self.asked.len() <= limits::OPERATIONS_MAX);
            }
            // The last request is answered first, since answers may come in any order.
            Input::Wake => {
                for (op, request) in std::mem::take(&mut self.asked).into_iter().rev() {
                    out.reply(op, self.answer(request));
                }
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.asked.is_empty() { None } else { self.time }
    }

    fn invariants(&self) {}
}

impl NaiveHost {
    fn answer(&mut self, request: VolumeRequest) -> Result<HostSuccess, HostError> {
        match request {
            VolumeRequest::Write { volume: FULL, .. } => {
                Err(HostError::Device { device: DeviceId(3), failure: Failure::NoSpace })
            }
            VolumeRequest::Read { offset, length, .. } => {
                assert!(0 < length && length <= limits::TRANSACTION_BYTES_MAX);
                let (start, end) = (offset, offset + length as u64);
                Ok(HostSuccess::Data(blocks(start, end).map(|block| self.read(block, start, end)).collect()))
            }
            VolumeRequest::Write { offset, data, .. } => {
                assert!(!data.is_empty() && data.len() <= limits::TRANSACTION_BYTES_MAX);
                self.put(offset, &data);
                Ok(HostSuccess::Done)
            }
            VolumeRequest::Zero { offset, length, .. } => {
                assert!(0 < length && length <= 64 << 20);
                let end = offset + length;
                for block in blocks(offset, end) {
                    match block * BLOCK >= offset && (block + 1) * BLOCK <= end {
                        true => drop(self.blocks.remove(&block)),
                        false => {
                            let (start, end) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
                            self.put(start, &vec![0; (end - start) as usize]);
                        }
                    }
                }
                Ok(HostSuccess::Done)
            }
            VolumeRequest::Allocation { range, .. } => {
                assert!(0 < range.count && range.count <= limits::EXTENTS_MAX as u64);
                assert!(range.end() <= VOLUME_BYTES / BLOCK);
                Ok(HostSuccess::Allocation(range.blocks().map(|block| (1, self.blocks.contains_key(&block))).collect()))
            }
            VolumeRequest::Flush { .. } => Ok(HostSuccess::Done),
        }
    }

    fn read(&self, block: u64, start: u64, end: u64) -> Bytes {
        let base = block * BLOCK;
        let (from, to) = (start.max(base) - base, end.min(base + BLOCK) - base);
        match self.blocks.get(&block) {
            Some(content) => Bytes::copy_from_slice(&content[from as usize..to as usize]),
            None => vec![0; (to - from) as usize].into(),
        }
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for block in blocks(offset, end) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            let content = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK_BYTES]);
            content[(from - block * BLOCK) as usize..(to - block * BLOCK) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
    }
}

fn blocks(start: u64, end: u64) -> impl Iterator<Item = u64> {
    start / BLOCK..end.div_ceil(BLOCK)
}

fn volume(id: VolumeId, data: usize) -> ServedVolume {
    let layout = Layout::new(RaidLevel::Raid5 { data }, data + 1, Layout::UNIT_BLOCKS_DEFAULT).unwrap();
    let devices = (0..=data as u16).map(DeviceId).collect();
    let volume = VolumeDescription::new(id, VOLUME_BYTES, layout, devices);
    let name = if id == GOOD { "good" } else { "full" };
    ServedVolume { name: name.into(), description: "raid5".into(), volume, patience: Patience::Host }
}

/// A backend on a naive host, which runs as long as the present runtime.
fn backend(data: usize) -> HostBackend {
    let us = Node { array: ArrayId([1; 16]), id: NodeId::Host(Generation(1)) };
    let no_devices = watch::channel(BTreeMap::new()).1;
    let (client, running) =
        run_host(NaiveHost::default(), us, no_devices, Arc::new(Counters::default()), std::future::pending());
    tokio::task::spawn_local(running);
    HostBackend::new(client, watch::channel(vec![volume(GOOD, data), volume(FULL, data)]).1)
}

fn in_runtime<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test())
}

async fn open(data: usize) -> HostVolume {
    backend(data).open("good").await.unwrap()
}

#[derive(Clone, Debug)]
enum Action {
    Write(u8),
    Zero(bool),
    Trim,
}

/// An action and its range: at few positions, so that ranges overlap, and across the ends of pieces (3.9375 MiB for 3+1, 4 MiB for 4+1).
fn any_action() -> impl Strategy<Value = (u64, usize, Action)> {
    let offset = prop_oneof![0..20_000u64, (4 << 20) - 300_000..(4 << 20) + 10_000u64, 0..40u64 << 20];
    let length = prop_oneof![1..20_000usize, 1..12usize << 20];
    let action = prop_oneof![
        2 => (1..=255u8).prop_map(Action::Write),
        1 => any::<bool>().prop_map(Action::Zero),
        1 => Just(Action::Trim),
    ];
    (offset, length, action)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_keeps_what_was_written(
        data in 3..=4usize,
        actions in prop::collection::vec(any_action(), 1..12),
    ) {
        in_runtime(async || {
            let volume = open(data).await;
            let mut model = vec![0u8; 64 << 20];
            for (offset, length, action) in actions {
                match action {
                    Action::Write(byte) => {
                        // The content varies with the position, so that misplaced pieces are detected.
                        let bytes: Vec<u8> = (0..length).map(|at| byte.wrapping_add((at / 1021) as u8)).collect();
                        model[offset as usize..][..length].copy_from_slice(&bytes);
                        volume.write(offset, bytes.into()).await.unwrap();
                    }
                    Action::Zero(keep) => {
                        model[offset as usize..][..length].fill(0);
                        let space = if keep { Space::Keep } else { Space::GiveBack };
                        volume.zero(offset, length as u64, space).await.unwrap();
                    }
                    Action::Trim => {
                        let start = offset.next_multiple_of(BLOCK) as usize;
                        let end = (offset + length as u64) / BLOCK * BLOCK;
                        if start < end as usize {
                            model[start..end as usize].fill(0);
                        }
                        volume.trim(offset, length as u64).await.unwrap();
                    }
                }
                // Mostly the range that was just changed, and its surroundings.
                let (offset, length) = (offset.saturating_sub(5000), length + 10_000);
                let read = volume.read(offset, length).await.unwrap().concat();
                assert!(read == model[offset as usize..][..length], "{offset} {length}");
            }
            assert!(volume.read(0, model.len()).await.unwrap().concat() == model);
        });
    }
}

#[test]
fn allocation_is_reported_for_any_range_up_to_a_limit() {
    in_runtime(async || {
        let volume = open(4).await;
        volume.write(10 * BLOCK, vec![1; 2 * BLOCK_BYTES].into()).await.unwrap();
        let told = volume.allocation(10 * BLOCK + 100, BLOCK).await.unwrap();
        assert_eq!(told, [(BLOCK - 100, true), (BLOCK, true)]);
        let all: u64 = volume.allocation(0, VOLUME_BYTES).await.unwrap().iter().map(|run| run.0).sum();
        assert_eq!(all, VOLUME_BYTES);
    });
}

#[test]
fn a_range_of_gigabytes_is_zeroed_in_pieces() {
    in_runtime(async || {
        let volume = open(4).await;
        volume.write(100 << 20, vec![1; 1 << 20].into()).await.unwrap();
        volume.zero(1, VOLUME_BYTES - 1, Space::GiveBack).await.unwrap();
        assert!(volume.read(100 << 20, 1 << 20).await.unwrap().iter().flatten().all(|byte| *byte == 0));
        volume.zero(5, 20 << 20, Space::Keep).await.unwrap();
        assert!(volume.allocation(0, 20 << 20).await.unwrap().iter().all(|run| run.1));
        volume.flush().await.unwrap();
    });
}

#[test]
fn a_full_device_is_reported_as_such() {
    in_runtime(async || {
        let volume = backend(4).open("full").await.unwrap();
        let error = volume.write(0, vec![1; 10 << 20].into()).await.unwrap_err();
        assert_eq!(error, Error::new(ErrorNumber::NoSpace, "device d3: the device is full"));
    });
}

#[test]
fn a_copy_through_server_and_host_is_the_same() {
    let server = Running::start_at(&Address::loopback(0), Settings::default(), async || backend(3));
    let (image, copy) = (scratch("image"), scratch("copy"));
    let bytes: Vec<u8> = (0..VOLUME_BYTES / 8).flat_map(|word| (word * word).to_le_bytes()).collect();
    std::fs::write(&image, &bytes).unwrap();
    for (from, to) in [(image.to_str().unwrap(), &*server.uri("good")), (&server.uri("good"), copy.to_str().unwrap())] {
        let output = Command::new("nbdcopy").args([from, to]).output().expect("nbdcopy: apt-get install libnbd-bin");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(std::fs::read(&copy).unwrap() == bytes);
    drop(server);
    [image, copy].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}
