//! Acquires locks on real devices, with the same steps that the simulator performs.

use super::Task;
use crate::atomics::{ask, histogram, unexpected};
use crate::prelude::*;
use braid_base::limits::OBJECT_COMMANDS_MAX;
use braid_base::{DeviceId, ObjectId, VolumeId};
use braid_benchkit::locking::locker::WAITING;
use braid_benchkit::locking::{Counts, Habit, LockAddress, LockOwner, Locker, LockerEvent, Step, Strategy};
use braid_machine::{Patience, VolumeRequest};
use braid_wire::{Action, ActionResult, ObjectCommand, SetAttribute};

/// The objects that are locked: some on each device, with numbers chosen by the devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Objects {
    by_device: Vec<Vec<u64>>,
}

impl Objects {
    /// Creates `each` objects on each of the first `devices` devices.
    pub async fn make(client: &HostClient, devices: u16, each: u64) -> Result<Objects, Failure> {
        let mut by_device = Vec::new();
        for device in (0..devices).map(DeviceId) {
            let mut made = Vec::new();
            while (made.len() as u64) < each {
                let count = (each as usize - made.len()).min(OBJECT_COMMANDS_MAX);
                let commands = vec![ObjectCommand::new(ObjectId(0), Action::Create); count];
                for result in ask(client, device, commands).await? {
                    let ActionResult::Created { object } = result.action else { return Err(unexpected(&[result])) };
                    made.push(object.0)
                }
            }
            by_device.push(made);
        }
        Ok(Objects { by_device })
    }

    pub async fn remove(&self, client: &HostClient) -> Result<(), Failure> {
        for (device, objects) in self.by_device.iter().enumerate() {
            for batch in objects.chunks(OBJECT_COMMANDS_MAX) {
                let remove = |object: &u64| ObjectCommand::new(ObjectId(*object), Action::Remove);
                ask(client, DeviceId(device as u16), batch.iter().map(remove).collect()).await?;
            }
        }
        Ok(())
    }

    /// The lock of this index, if the last device keeps all locks.
    fn lock(&self, index: u64) -> LockAddress {
        let last = self.by_device.len() - 1;
        LockAddress { device: DeviceId(last as u16), object: ObjectId(self.by_device[last][index as usize]) }
    }

    /// The object of this index, if objects are distributed over this many devices in turn.
    fn place(&self, index: u64, devices: u16) -> LockAddress {
        let device = (index % u64::from(devices)) as usize;
        let object = self.by_device[device][(index / u64::from(devices)) as usize];
        LockAddress { device: DeviceId(device as u16), object: ObjectId(object) }
    }
}

/// Clears the count of waiting processes, which one strategy leaves too high.
pub async fn forget_who_waits(client: &HostClient, objects: &Objects) -> Result<(), Failure> {
    let at = objects.place(0, 1);
    let sets = vec![SetAttribute { name: WAITING, value: Bytes::new() }];
    let command = ObjectCommand { sets, ..ObjectCommand::new(at.object, Action::Nothing) };
    ask(client, at.device, vec![command]).await.map(|_| ())
}

/// A process that acquires locks.
pub struct Locking {
    number: u64,
    client: HostClient,
    objects: Objects,
    volume: VolumeId,
}

impl Locking {
    /// With its own host and number.
    pub fn new(number: u64, client: HostClient, objects: Objects, volume: VolumeId) -> Locking {
        Locking { number, client, objects, volume }
    }

    /// Acquires locks, one after the other. Returns the latencies in nanoseconds, and the counts of requests; with a lock
    /// server, only the number of locks.
    pub async fn run(&self, task: Task, seed: u64) -> Result<(Histogram<u64>, Counts), Failure> {
        let (rng, Task { objects, locks, devices }) = (Rng::new(seed), task);
        match devices {
            Some((habit, devices)) => self.lock_in_devices(habit, devices, objects, locks, rng).await,
            None => self.lock_at_a_server(objects, locks, rng).await,
        }
    }

    async fn lock_in_devices(
        &self,
        habit: Habit,
        devices: u16,
        set: u64,
        locks: u64,
        mut rng: Rng,
    ) -> Result<(Histogram<u64>, Counts), Failure> {
        let (mut locker, mut latencies) = (Locker::new(self.number, habit), histogram());
        for _ in 0..locks {
            let index = match habit.strategy {
                Strategy::Uncontended => self.number,
                _ => rng.below(set),
            };
            let at = self.objects.place(index, devices);
            let elsewhere = match habit.keeper {
                LockOwner::OneDevice => self.objects.lock(index),
                _ => self.objects.place((index + 1) % u64::from(devices), devices),
            };
            let begun = Instant::now();
            let mut step = locker.begin(at, elsewhere, braid_shell::now().time);
            loop {
                step = match step {
                    Step::Ask { device, request } => {
                        let results = ask(&self.client, device, request.commands).await?;
                        locker.resume(braid_shell::now().time, &mut rng, LockerEvent::Results(&results))
                    }
                    Step::Wait(span) => {
                        sleep_precisely(span).await;
                        locker.resume(braid_shell::now().time, &mut rng, LockerEvent::Nothing)
                    }
                    Step::Done => break,
                    Step::Lock(_) | Step::GiveBack(_) => unreachable!("hosts send the requests to lock servers"),
                }
            }
            latencies.record(begun.elapsed().as_nanos() as u64).expect("the histogram grows as needed");
        }
        Ok((latencies, locker.counts()))
    }

    async fn lock_at_a_server(&self, set: u64, locks: u64, mut rng: Rng) -> Result<(Histogram<u64>, Counts), Failure> {
        let mut latencies = histogram();
        let data = Bytes::from(vec![self.number as u8; BLOCK_BYTES]);
        for _ in 0..locks {
            let (volume, offset) = (self.volume, rng.below(set) * BLOCK_BYTES as u64);
            let write = VolumeRequest::Write { volume, offset, data: data.clone(), patience: Patience::Host };
            let begun = Instant::now();
            self.client.call(write).await?;
            latencies.record(begun.elapsed().as_nanos() as u64).expect("the histogram grows as needed");
        }
        Ok((latencies, Counts { locks, ..Counts::default() }))
    }
}

/// A wait of some tens of microseconds, as the papers' back-offs. The timers of the runtime have a resolution of milliseconds; a thread that
/// sleeps is more precise.
async fn sleep_precisely(span: Duration) {
    tokio::task::spawn_blocking(move || std::thread::sleep(span)).await.expect("sleeping does not panic");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_waits_take_their_time_and_no_millisecond_more() {
        let span = Duration::from_micros(300);
        let mut waits = Vec::new();
        for _ in 0..100 {
            let begun = Instant::now();
            sleep_precisely(span).await;
            waits.push(begun.elapsed());
        }
        let least = waits.iter().min().expect("there are some");
        assert!((span..Duration::from_millis(1)).contains(least), "{waits:?}");
    }
}
