//! A process that repeatedly locks an object, works under the lock, and unlocks it, as a state machine that emits its requests step
//! by step.
//!
//! It uses neither sockets nor a clock, so that simulated and real processes share it. It is not a procedure of `core/recipes`: procedures
//! wait in the recommended way, while this code compares good and bad ways of waiting, and uses objects on several devices.
//!
//! ```text
//!   process              device of the object
//!      │ CAS lock: free → mine  │     refused: count oneself (FA), wait, again
//!      ├───────────────────────▶│
//!      │ write, get or nothing  │     (or a sleep, or a get elsewhere)
//!      ├───────────────────────▶│
//!      │ CAS lock: mine → free  │     unless the write has set it free
//!      ├───────────────────────▶│
//! ```

use super::strategy::{Counting, Expected, Strategy};
use braid_base::{DeviceId, ObjectId, Rng, Time};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::time::Duration;

/// The lock of an object: eight bytes, all zero if it is free.
pub const LOCK: AttributeName = AttributeName::new(1, 1);
/// The number of waiting processes, as far as their strategy counts them.
pub const WAITING: AttributeName = AttributeName::new(1, 2);
/// The value of a free lock.
const FREE: [u8; 8] = [0; 8];
/// The longest sleep under a lock, in microseconds; the shortest is 1.
const SLEEP_MAX_US: u64 = 600;

/// The work of a process under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    None,
    /// A sleep of 1 to 600 us.
    Sleep,
    /// A get of an attribute of the locked object.
    Get,
    /// A get of an attribute of an object on another device.
    GetElsewhere,
    /// A write to the locked object.
    Write,
}

/// How locks are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unlock {
    /// By a compare-and-swap in a request of its own.
    Apart,
    /// By the write, which also sets the attribute.
    WithWrite,
    /// Lock, write and unlock are one request, which does nothing if another process holds the lock.
    OneRequest,
}

/// The keeper of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockOwner {
    /// The devices, in attributes of the objects.
    Devices,
    /// One device without other objects: a lock manager that commits every change and has no queue, so that a refused process must
    /// ask again.
    OneDevice,
    /// A lock manager.
    Manager,
}

/// The steps that a process repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Habit {
    pub keeper: LockOwner,
    /// How the process waits, unless a lock manager keeps the locks.
    pub strategy: Strategy,
    pub work: Work,
    pub unlock: Unlock,
    pub write_bytes: usize,
}

/// The address of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAddress {
    pub device: DeviceId,
    pub object: ObjectId,
}

/// The next step of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a request to a device.
    Ask {
        device: DeviceId,
        request: ObjectRequest,
    },
    /// Request the object's lock from the lock manager.
    Lock(LockAddress),
    /// Release the lock at the lock manager.
    GiveBack(LockAddress),
    Wait(Duration),
    /// The lock has been used and released.
    Done,
}

/// The event that lets a process continue.
#[derive(Clone, Debug)]
pub enum LockerEvent<'a> {
    /// The process starts, or has finished waiting.
    Nothing,
    /// A device has executed the request.
    Results(&'a [CommandResult]),
    /// The lock manager has executed the request.
    Managed {
        /// Whether the lock was held by another process.
        waited: bool,
    },
}

/// Counts of a process, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Locks taken, used and released.
    pub locks: u64,
    /// Requests that concern locks: attempts, counting, releases. The work under the lock is not included, unless it shares a request
    /// with one of these.
    pub requests: u64,
    pub refused: u64,
    /// Locks that were not acquired at the first attempt.
    pub delayed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.locks += other.locks;
        self.requests += other.requests;
        self.refused += other.refused;
        self.delayed += other.delayed;
    }
}

#[derive(Clone, Debug)]
pub struct Locker {
    habit: Habit,
    /// The value that the process writes into locks.
    mine: Bytes,
    data: Bytes,
    at: LockAddress,
    lock: LockAddress,
    elsewhere: LockAddress,
    state: State,
    /// When its last request was sent.
    asked: Time,
    refusals: u32,
    /// How often it has added itself to the counter of waiting processes.
    counted: u64,
    /// The value of that counter when it last did so, without itself.
    waiting: u64,
    /// The round-trip time of the last request.
    trip: Duration,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Trying,
    Counting,
    Waiting,
    CountingOff,
    Working,
    GivingBack,
}

impl Locker {
    /// A process that has done nothing yet; `number` identifies it.
    pub fn new(number: u64, habit: Habit) -> Locker {
        let nowhere = LockAddress { device: DeviceId(0), object: ObjectId(0) };
        Locker {
            habit,
            mine: Bytes::copy_from_slice(&(number + 1).to_be_bytes()),
            data: Bytes::from(vec![number as u8; habit.write_bytes]),
            at: nowhere,
            lock: nowhere,
            elsewhere: nowhere,
            state: State::Idle,
            asked: Time(0),
            refusals: 0,
            counted: 0,
            waiting: 0,
            trip: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Starts to use an object. `elsewhere` is an object on another device: the one to get from ([`Work::GetElsewhere`]), or the one
    /// that has the lock ([`LockOwner::OneDevice`]).
    pub fn begin(&mut self, at: LockAddress, elsewhere: LockAddress, now: Time) -> Step {
        assert_eq!(self.state, State::Idle, "one lock at a time");
        (self.at, self.elsewhere) = (at, elsewhere);
        self.lock = if self.habit.keeper == LockOwner::OneDevice { elsewhere } else { at };
        self.refusals = 0;
        match self.habit.keeper {
            LockOwner::Devices | LockOwner::OneDevice => self.attempt(now),
            LockOwner::Manager => {
                self.counts.requests += 1;
                self.state = State::Trying;
                Step::Lock(self.at)
            }
        }
    }

    /// Continues after an event; returns the next step.
    pub fn resume(&mut self, now: Time, sampler: &mut Rng, event: LockerEvent<'_>) -> Step {
        match self.state {
            State::Idle => panic!("the process is not using an object"),
            State::Waiting => self.attempt(now),
            State::Trying => match event {
                LockerEvent::Results(results) => self.on_attempt(now, sampler, results),
                LockerEvent::Managed { waited } => {
                    self.counts.delayed += u64::from(waited);
                    self.work(now, sampler)
                }
                LockerEvent::Nothing => panic!("an attempt has an answer"),
            },
            State::Counting => self.on_counted(now, sampler, event),
            State::CountingOff => self.work(now, sampler),
            State::Working => self.give_back(now),
            State::GivingBack => self.on_given_back(event),
        }
    }

    fn attempt(&mut self, now: Time) -> Step {
        self.counts.requests += 1;
        self.state = State::Trying;
        let mut commands = vec![self.swap(Bytes::from_static(&FREE), self.mine.clone())];
        if self.habit.unlock == Unlock::OneRequest {
            let write = ObjectCommand { when: When::IfSwapped, ..self.write_and_free() };
            commands.push(write);
        }
        self.ask(now, self.lock.device, commands)
    }

    fn on_attempt(&mut self, now: Time, sampler: &mut Rng, results: &[CommandResult]) -> Step {
        let swapped =
            matches!(results, [CommandResult { action: ActionResult::Compared { swapped: true, .. }, .. }, ..]);
        if swapped {
            self.counts.delayed += u64::from(self.refusals > 0);
            let off = self.habit.strategy.takes_back(self.counted);
            if off > 0 {
                self.counted -= off;
                self.state = State::CountingOff;
                return self.count(now, -(off as i64));
            }
            return self.work(now, sampler);
        }
        self.counts.refused += 1;
        self.refusals += 1;
        match self.habit.strategy.counting() {
            Counting::EachTime => self.count_oneself(now),
            Counting::Once if self.counted == 0 => self.count_oneself(now),
            // The process has counted itself before, and knows the round-trip time since then.
            Counting::Once => self.wait(now, sampler),
            Counting::Never => {
                self.trip = now.since(self.asked);
                self.wait(now, sampler)
            }
        }
    }

    fn count_oneself(&mut self, now: Time) -> Step {
        self.counted += 1;
        self.state = State::Counting;
        self.count(now, 1)
    }

    fn count(&mut self, now: Time, add: i64) -> Step {
        self.counts.requests += 1;
        let command = self.of_lock(Action::FetchAndAdd { name: WAITING, add, original: true });
        self.ask(now, self.lock.device, vec![command])
    }

    fn on_counted(&mut self, now: Time, sampler: &mut Rng, event: LockerEvent<'_>) -> Step {
        let LockerEvent::Results([CommandResult { action: ActionResult::Added { original: Some(before) }, .. }]) =
            event
        else {
            panic!("a fetch-and-add returns the previous number, not {event:?}");
        };
        self.waiting = u64::try_from(*before).expect("the counter is never decremented below zero");
        self.trip = now.since(self.asked);
        self.wait(now, sampler)
    }

    fn wait(&mut self, now: Time, sampler: &mut Rng) -> Step {
        let span = self.habit.strategy.wait(self.refusals, self.waiting, self.trip, self.expected(), sampler);
        if span.is_zero() {
            return self.attempt(now);
        }
        self.state = State::Waiting;
        Step::Wait(span)
    }

    /// The assumption of waiting processes about the work of the others.
    fn expected(&self) -> Expected {
        match self.habit.work {
            Work::None => Expected::Nothing,
            Work::Sleep => Expected::Span(Duration::from_micros(SLEEP_MAX_US / 2)),
            Work::Get | Work::GetElsewhere | Work::Write => Expected::Request,
        }
    }

    fn work(&mut self, now: Time, sampler: &mut Rng) -> Step {
        if self.habit.unlock == Unlock::OneRequest {
            return self.done();
        }
        self.state = State::Working;
        let get = |at: LockAddress| {
            let gets = vec![AttributeName::OBJECT_LENGTH];
            ObjectCommand { gets, ..ObjectCommand::new(at.object, Action::Nothing) }
        };
        match (self.habit.work, self.habit.unlock) {
            (Work::None, _) => self.give_back(now),
            (Work::Sleep, _) => Step::Wait(Duration::from_micros(1 + sampler.below(SLEEP_MAX_US))),
            (Work::Get, _) => self.ask(now, self.at.device, vec![get(self.at)]),
            (Work::GetElsewhere, _) => self.ask(now, self.elsewhere.device, vec![get(self.elsewhere)]),
            (Work::Write, Unlock::WithWrite) => {
                self.counts.requests += 1;
                self.state = State::GivingBack;
                let write = self.write_and_free();
                self.ask(now, self.at.device, vec![write])
            }
            (Work::Write, _) => {
                let write = self.command(Action::Write { offset: 0, data: self.data.clone() });
                self.ask(now, self.at.device, vec![write])
            }
        }
    }

    fn give_back(&mut self, now: Time) -> Step {
        self.counts.requests += 1;
        self.state = State::GivingBack;
        if self.habit.keeper == LockOwner::Manager {
            return Step::GiveBack(self.at);
        }
        let command = self.swap(self.mine.clone(), Bytes::from_static(&FREE));
        self.ask(now, self.lock.device, vec![command])
    }

    fn on_given_back(&mut self, event: LockerEvent<'_>) -> Step {
        if let LockerEvent::Results([CommandResult { action: ActionResult::Compared { swapped, .. }, .. }]) = event {
            assert!(swapped, "only the holder changes the lock");
        }
        self.done()
    }

    fn done(&mut self) -> Step {
        self.counts.locks += 1;
        self.state = State::Idle;
        Step::Done
    }

    fn command(&self, action: Action) -> ObjectCommand {
        ObjectCommand::new(self.at.object, action)
    }

    fn swap(&self, compare: Bytes, swap: Bytes) -> ObjectCommand {
        let undefined = Undefined::Matches;
        self.of_lock(Action::CompareAndSwap { name: LOCK, compare, swap, undefined, original: false })
    }

    fn of_lock(&self, action: Action) -> ObjectCommand {
        ObjectCommand { object: self.lock.object, ..self.command(action) }
    }

    /// A write that also frees the lock. It is safe, because only the holder issues it.
    fn write_and_free(&self) -> ObjectCommand {
        let free = SetAttribute { name: LOCK, value: Bytes::from_static(&FREE) };
        ObjectCommand { sets: vec![free], ..self.command(Action::Write { offset: 0, data: self.data.clone() }) }
    }

    fn ask(&mut self, now: Time, device: DeviceId, commands: Vec<ObjectCommand>) -> Step {
        self.asked = now;
        Step::Ask { device, request: ObjectRequest { commands } }
    }
}
