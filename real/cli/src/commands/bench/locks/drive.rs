//! Processes that take locks, each by a host of its own: the very steps that the simulator drives, on devices that are there.

use super::alarm::Alarm;
use crate::failure::Failure;
use braid_base::limits::OBJECT_COMMANDS_MAX;
use braid_base::{BLOCK_BYTES, DeviceId, ObjectId, Rng, VolumeId};
use braid_machine::{HostRequest, HostSuccess};
use braid_measure::locking::locker::WAITING;
use braid_measure::locking::{Counts, Habit, Heard, Keeper, Locker, Place, Step, Strategy};
use braid_shell::HostClient;
use braid_wire::{Action, ActionResult, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, When};
use bytes::Bytes;
use hdrhistogram::Histogram;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a request is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// The objects that locks are taken of: some on each device, numbered as the device chose.
#[derive(Clone, Debug)]
pub struct Objects {
    by_device: Vec<Vec<ObjectId>>,
}

impl Objects {
    /// Makes so many on each of the first devices.
    pub async fn make(client: &HostClient, devices: u16, each: u64) -> Result<Objects, Failure> {
        let mut by_device = Vec::new();
        for device in (0..devices).map(DeviceId) {
            let mut made = Vec::new();
            while (made.len() as u64) < each {
                let count = (each as usize - made.len()).min(OBJECT_COMMANDS_MAX);
                let commands = vec![command(ObjectId(0), Action::Create); count];
                for result in ask(client, device, ObjectRequest { commands }).await? {
                    match result.action {
                        ActionResult::Created { object } => made.push(object),
                        other => return Err(unexpected(&other)),
                    }
                }
            }
            by_device.push(made);
        }
        Ok(Objects { by_device })
    }

    /// Removes them.
    pub async fn remove(&self, client: &HostClient) -> Result<(), Failure> {
        for (device, objects) in self.by_device.iter().enumerate() {
            for batch in objects.chunks(OBJECT_COMMANDS_MAX) {
                let commands = batch.iter().map(|object| command(*object, Action::Remove)).collect();
                ask(client, DeviceId(device as u16), ObjectRequest { commands }).await?;
            }
        }
        Ok(())
    }

    /// Where the lock of this index lies, if the last device keeps them all.
    fn lock(&self, index: u64) -> Place {
        let last = self.by_device.len() - 1;
        Place { device: DeviceId(last as u16), object: self.by_device[last][index as usize] }
    }

    /// Where the object of this index lies, if they are dealt round so many devices.
    fn place(&self, index: u64, devices: u16) -> Place {
        let device = (index % u64::from(devices)) as usize;
        let object = self.by_device[device][(index / u64::from(devices)) as usize];
        Place { device: DeviceId(device as u16), object }
    }
}

/// What a run is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Locks in devices.
    Devices {
        /// What each process does each time.
        habit: Habit,
        /// Devices that the objects are on.
        devices: u16,
    },
    /// Writes of a block to a volume whose hosts lock it at a lock server.
    LockServer(VolumeId),
}

/// How a run went.
pub struct Driven {
    /// From the first begin to the last end.
    pub elapsed: Duration,
    /// How long each lock took, from the first attempt to the end, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Of all processes together; of a lock server's locks only how many.
    pub counts: Counts,
}

/// Has each client take so many locks, one after the other, of `set` objects.
pub async fn drive(
    clients: &[HostClient],
    objects: &Rc<Objects>,
    load: &Load,
    set: u64,
    locks: u64,
    seed: u64,
) -> Result<Driven, Failure> {
    if let Load::Devices { devices, .. } = load {
        forget_who_waits(&clients[0], objects.place(0, *devices)).await?;
    }
    let alarm = Alarm::start()?;
    let mut seeds = Rng::new(seed);
    let begun = Instant::now();
    let mut processes = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let process = Process {
            number: number as u64,
            client: client.clone(),
            set,
            locks,
            dice: seeds.fork(),
            alarm: alarm.clone(),
        };
        match load {
            Load::Devices { habit, devices } => {
                processes.spawn_local(process.lock_in_devices(objects.clone(), *habit, *devices));
            }
            Load::LockServer(volume) => {
                processes.spawn_local(process.lock_at_a_server(*volume));
            }
        }
    }
    let mut driven = Driven { elapsed: Duration::ZERO, latencies: histogram(), counts: Counts::default() };
    while let Some(ended) = processes.join_next().await {
        let (latencies, counts) = ended.map_err(|error| Failure::failed("internal", error.to_string()))??;
        driven.latencies.add(latencies).expect("all have the same form");
        driven.counts.locks += counts.locks;
        driven.counts.requests += counts.requests;
        driven.counts.refused += counts.refused;
        driven.counts.delayed += counts.delayed;
    }
    driven.elapsed = begun.elapsed();
    Ok(driven)
}

/// One strategy leaves more counts of those who wait than there are.
async fn forget_who_waits(client: &HostClient, at: Place) -> Result<(), Failure> {
    let sets = vec![SetAttribute { name: WAITING, value: Bytes::new() }];
    let command = ObjectCommand { sets, ..command(at.object, Action::Nothing) };
    ask(client, at.device, ObjectRequest { commands: vec![command] }).await.map(|_| ())
}

/// One that takes locks.
struct Process {
    number: u64,
    client: HostClient,
    set: u64,
    locks: u64,
    dice: Rng,
    alarm: Alarm,
}

impl Process {
    async fn lock_in_devices(
        mut self,
        objects: Rc<Objects>,
        habit: Habit,
        devices: u16,
    ) -> Result<(Histogram<u64>, Counts), Failure> {
        let (mut locker, mut latencies) = (Locker::new(self.number, habit), histogram());
        for _ in 0..self.locks {
            let index = match habit.strategy {
                Strategy::Uncontended => self.number,
                _ => self.dice.below(self.set),
            };
            let at = objects.place(index, devices);
            let elsewhere = match habit.keeper {
                Keeper::OneDevice => objects.lock(index),
                _ => objects.place((index + 1) % u64::from(devices), devices),
            };
            let begun = Instant::now();
            let mut step = locker.begin(at, elsewhere, braid_shell::now().time);
            loop {
                step = match step {
                    Step::Ask { device, request } => {
                        let results = ask(&self.client, device, request).await?;
                        locker.resume(braid_shell::now().time, &mut self.dice, Heard::Results(&results))
                    }
                    Step::Wait(span) => {
                        self.alarm.wait(span).await;
                        locker.resume(braid_shell::now().time, &mut self.dice, Heard::Nothing)
                    }
                    Step::Done => break,
                    Step::Claim(_) | Step::GiveBack(_) => unreachable!("lock servers are asked by hosts"),
                }
            }
            latencies.record(begun.elapsed().as_nanos() as u64).expect("it grows as needed");
        }
        Ok((latencies, locker.counts()))
    }

    async fn lock_at_a_server(mut self, volume: VolumeId) -> Result<(Histogram<u64>, Counts), Failure> {
        let mut latencies = histogram();
        let data = Bytes::from(vec![self.number as u8; BLOCK_BYTES]);
        for _ in 0..self.locks {
            let offset = self.dice.below(self.set) * BLOCK_BYTES as u64;
            let begun = Instant::now();
            self.client.call(HostRequest::Write { volume, offset, data: data.clone() }).await?;
            latencies.record(begun.elapsed().as_nanos() as u64).expect("it grows as needed");
        }
        Ok((latencies, Counts { locks: self.locks, ..Counts::default() }))
    }
}

async fn ask(client: &HostClient, device: DeviceId, request: ObjectRequest) -> Result<Vec<CommandResult>, Failure> {
    match client.call(HostRequest::Objects { device, request, patience: PATIENCE }).await? {
        HostSuccess::Objects(results) => Ok(results),
        other => unreachable!("a host answers a request for objects with results, not {other:?}"),
    }
}

fn command(object: ObjectId, action: Action) -> ObjectCommand {
    let (when, sets_when) = (When::Always, When::Always);
    ObjectCommand { object, when, action, sets: Vec::new(), sets_when, gets: Vec::new() }
}

fn unexpected(result: &ActionResult) -> Failure {
    Failure::failed("wrong-answer", format!("the device answered what can't be: {result:?}"))
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}
