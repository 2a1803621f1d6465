//! Measures the cost of a message and of a disk command: `cargo run --release -p braid-shell --example measure [FOLDER]`.
//!
//! Host and device have a thread each, in one process; the CPU time reported is the sum of both.

#[allow(clippy::duplicate_mod)]
#[path = "../tests/toy/mod.rs"]
mod toy;

use braid_base::{DeviceId, NodeId, Now, Time};
use braid_machine::{DiskCommand, DiskTag, Effects, Input, Machine, Never, OneDisk};
use braid_shell::{Address, Counters, Disk, DiskOptions, EngineChoice, HostClient, Listener, Node, run_device};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const BLOCKS: u64 = 65_536;

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("braid-measure-{}", std::process::id()));
    fill(&file);
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        for in_flight in [1, 32] {
            for (write, durable) in [(false, false), (true, false), (true, true)] {
                disk_alone(&file, engine, in_flight, write, durable);
            }
        }
    }
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        over_the_network(&file, engine);
    }
    let _ = std::fs::remove_file(&file);
}

fn fill(file: &Path) {
    let disk =
        Disk::open(file, &DiskOptions { create: Some(BLOCKS * 4096), ..DiskOptions::default() }).expect("a disk");
    println!("{}: direct I/O: {}", file.display(), disk.is_direct());
    let data = vec![Bytes::from(vec![1; 1 << 20])];
    for offset in (0..BLOCKS * 4096).step_by(1 << 20) {
        disk.perform(DiskCommand::Write { offset, data: data.clone(), durable: false });
    }
    disk.perform(DiskCommand::Sync);
}

/// Keeps this many disk commands in flight until it has completed enough.
struct LoadGenerator {
    seed: u64,
    left: u64,
    in_flight: u64,
    write: Option<Bytes>,
    durable: bool,
    done: Option<oneshot::Sender<()>>,
}

impl LoadGenerator {
    fn next(&mut self, tag: DiskTag, out: &mut Effects) {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Each tag has its own part of the disk, so that no two commands in flight overlap.
        let part = BLOCKS / 32;
        let offset = (tag.0 * part + (self.seed >> 33) % part) * 4096;
        let command = match &self.write {
            None => DiskCommand::Read { offset, length: 4096 },
            Some(data) => DiskCommand::Write { offset, data: vec![data.clone()], durable: self.durable },
        };
        out.disk(tag, command);
    }
}

impl Machine for LoadGenerator {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, _now: Now, input: Input, out: &mut Effects) {
        match input {
            Input::Start => (0..self.in_flight).for_each(|tag| self.next(DiskTag(tag), out)),
            Input::DiskDone { tag, .. } if self.left > 0 => {
                self.left -= 1;
                self.next(tag, out);
            }
            Input::DiskDone { .. } => drop(self.done.take().map(|done| done.send(()))),
            _ => {}
        }
    }
    fn deadline(&self) -> Option<Time> {
        None
    }
    fn invariants(&self) {}
}

fn disk_alone(file: &Path, engine: EngineChoice, in_flight: u64, write: bool, durable: bool) {
    let count = if in_flight == 1 || durable { 10_000 } else { 200_000 };
    let (done, stop) = oneshot::channel();
    let buffer = braid_base::AlignedBuffer::zeroed(4096).freeze();
    let mill =
        LoadGenerator { seed: 1, left: count, in_flight, write: write.then_some(buffer), durable, done: Some(done) };
    let disk = Disk::open(file, &DiskOptions::default()).expect("a disk");
    let counters = Arc::new(Counters::default());
    let measure = Measure::start();
    runtime().block_on(async {
        let us = Node { array: toy::ARRAY, id: NodeId::Device(DeviceId(0)) };
        let listener = Listener::bind(&Address::loopback(0)).await.expect("a port");
        let stop = async {
            let _ = stop.await;
        };
        run_device(mill, us, disk, engine, listener, counters.clone(), stop).await.expect("it works");
    });
    let what = match (write, durable) {
        (false, _) => "reads",
        (true, false) => "writes",
        (true, true) => "durable writes",
    };
    measure.end(&format!("disk alone, {engine:?}, 4 KiB {what}, {in_flight} in flight"), count, &[&counters]);
}

fn over_the_network(file: &Path, engine: EngineChoice) {
    let (ready, address) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let device = std::thread::spawn({
        let file = file.to_path_buf();
        move || {
            runtime().block_on(async {
                let (address, device) = toy::start_device(0, &file, &Address::loopback(0), engine).await;
                ready.send((address, device.counters.clone())).expect("heard");
                let _ = stopped.await;
                device.stop().await;
            });
        }
    });
    let (address, device_counters) = address.recv().expect("a device");
    runtime().block_on(async {
        let (client, _addresses, host) = toy::start_host(toy::ARRAY, 1, [(0, address)]);
        toy::echo(&client, 0).await.expect("connected");
        let counters = [&host.counters, &device_counters];
        for in_flight in [1, 32] {
            let count = if in_flight == 1 { 20_000 } else { 400_000 };
            let name = format!("echo, {in_flight} in flight");
            many(&client, &name, in_flight, count, &counters, async |client, _| {
                toy::echo(&client, 0).await.expect("an echo");
            })
            .await;
            let count = if in_flight == 1 { 10_000 } else { 200_000 };
            let name = format!("4 KiB reads over TCP, {engine:?}, {in_flight} in flight");
            many(&client, &name, in_flight, count, &counters, async |client, number| {
                let offset = number.wrapping_mul(0x9e37_79b9) % BLOCKS * 4096;
                toy::read(&client, 0, offset, 4096).await.expect("read");
            })
            .await;
        }
        host.stop().await;
    });
    drop(stop);
    device.join().expect("the device ended well");
}

async fn many<F>(client: &HostClient, name: &str, in_flight: u64, count: u64, counters: &[&Arc<Counters>; 2], call: F)
where
    F: AsyncFn(HostClient, u64) + Copy + 'static,
{
    let measure = Measure::start();
    let before: Vec<_> = counters.iter().map(|counters| counters.list()).collect();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let tasks: Vec<_> = (0..in_flight)
                .map(|task| {
                    let client = client.clone();
                    tokio::task::spawn_local(async move {
                        for number in 0..count / in_flight {
                            call(client.clone(), number * in_flight + task).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no panic");
            }
        })
        .await;
    measure.end(name, count, &[]);
    for (side, (counters, before)) in ["host", "device"].iter().zip(counters.iter().zip(before)) {
        print!("      {side}, each:");
        for ((name, value), (_, before)) in counters.list().into_iter().zip(before) {
            if value > before && !name.starts_with("bytes") {
                print!(" {name} {:.3}", (value - before) as f64 / count as f64);
            }
        }
        println!();
    }
}

struct Measure {
    wall: Instant,
    cpu: Duration,
}

impl Measure {
    fn start() -> Measure {
        Measure { wall: Instant::now(), cpu: cpu() }
    }

    fn end(&self, what: &str, count: u64, counters: &[&Arc<Counters>]) {
        let (wall, cpu) = (self.wall.elapsed(), cpu() - self.cpu);
        let enters: u64 = counters.iter().map(|counters| counters.value("ring_enters")).sum();
        println!(
            "{what}: {:.0}/s, {:.2} us CPU each, {:.3} ring enters each",
            count as f64 / wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / count as f64,
            enters as f64 / count as f64
        );
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
