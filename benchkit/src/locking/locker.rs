//! A process that takes locks, does something under them, and gives them back, again and again: what it asks for, step by step.
//!
//! It knows neither socket nor clock, so that simulated and real processes do the same. (It is no procedure of `core/recipes`:
//! those wait as programs should, while this is about ways of waiting, good and bad, and about what lies on several devices.)
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
use std::time::Duration;

/// The lock of an object: eight bytes, all zero if it is free.
pub const LOCK: AttributeName = AttributeName::new(1, 1);
/// How many wait for it, as far as their strategy counts them.
pub const WAITING: AttributeName = AttributeName::new(1, 2);
/// Nobody's.
const FREE: [u8; 8] = [0; 8];
/// A sleep inside the lock takes from 1 to so many microseconds.
const SLEEP_MAX_US: u64 = 600;

/// What a process does under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Nothing.
    None,
    /// It sleeps, for 1 to 600 us.
    Sleep,
    /// It gets an attribute of the object that is locked.
    Get,
    /// It gets an attribute of an object on another device.
    GetElsewhere,
    /// It writes to the object that is locked.
    Write,
}

/// How locks are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unlock {
    /// By a compare-and-swap of their own.
    Apart,
    /// By the write, which sets the attribute, too.
    WithWrite,
    /// Lock, write and unlock are one request, of which nothing is done if the lock is another's.
    OneRequest,
}

/// Who keeps locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockOwner {
    /// The devices, in attributes of the objects.
    Devices,
    /// One device, which keeps nothing else: a lock manager that commits every change, and sends away whom it must refuse.
    OneDevice,
    /// A lock manager.
    Manager,
}

/// What a process does each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habit {
    /// Who keeps locks.
    pub keeper: LockOwner,
    /// How it waits, unless that is a lock manager.
    pub strategy: Strategy,
    /// What it does under the lock.
    pub work: Work,
    /// How it gives it back.
    pub unlock: Unlock,
    /// How much it writes.
    pub write_bytes: usize,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAddress {
    /// On which device.
    pub device: DeviceId,
    /// Its number there.
    pub object: ObjectId,
}

/// What a process does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It asks a device.
    Ask {
        /// Which.
        device: DeviceId,
        /// For what.
        request: ObjectRequest,
    },
    /// It asks the lock manager for the object's lock.
    Lock(LockAddress),
    /// It gives it back there.
    GiveBack(LockAddress),
    /// It waits.
    Wait(Duration),
    /// It has used the lock.
    Done,
}

/// What it hears.
#[derive(Clone, Debug)]
pub enum Heard<'a> {
    /// Nothing: it begins, or has waited.
    Nothing,
    /// A device has done what it asked for.
    Results(&'a [CommandResult]),
    /// The lock manager has.
    Managed {
        /// Whether somebody was in the way.
        waited: bool,
    },
}

/// What a process has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Locks taken, used and given back.
    pub locks: u64,
    /// Requests about locks: attempts, counting, giving back. What is done under the lock is not among them, but where one request does
    /// both.
    pub requests: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Locks that could not be had at the first attempt.
    pub delayed: u64,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Locker {
    habit: Habit,
    /// What it writes into locks.
    mine: Bytes,
    data: Bytes,
    at: LockAddress,
    /// Where its lock is.
    lock: LockAddress,
    elsewhere: LockAddress,
    state: State,
    /// When it last asked.
    asked: Time,
    refusals: u32,
    /// How often it has counted itself among those who wait.
    counted: u64,
    /// How many were there before it, when it last did.
    waiting: u64,
    /// How long that took.
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
    /// The process of this number, which has done nothing yet.
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

    /// What it has done.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Begins to use an object; `elsewhere` is another one, on another device: there to be got from ([`Work::GetElsewhere`]), or the one that
    /// has the lock ([`LockOwner::OneDevice`]).
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

    /// Goes on.
    pub fn resume(&mut self, now: Time, sampler: &mut Rng, heard: Heard<'_>) -> Step {
        match self.state {
            State::Idle => panic!("nothing was begun"),
            State::Waiting => self.attempt(now),
            State::Trying => match heard {
                Heard::Results(results) => self.on_attempt(now, sampler, results),
                Heard::Managed { waited } => {
                    self.counts.delayed += u64::from(waited);
                    self.work(now, sampler)
                }
                Heard::Nothing => panic!("an attempt has an answer"),
            },
            State::Counting => self.on_counted(now, sampler, heard),
            State::CountingOff => self.work(now, sampler),
            State::Working => self.give_back(now),
            State::GivingBack => self.on_given_back(heard),
        }
    }

    fn attempt(&mut self, now: Time) -> Step {
        self.counts.requests += 1;
        self.state = State::Trying;
        let swap = |compare: Bytes, swap: Bytes| Action::CompareAndSwap {
            name: LOCK,
            compare,
            swap,
            undefined: Undefined::Matches,
            original: false,
        };
        let mut commands = vec![self.of_lock(swap(Bytes::from_static(&FREE), self.mine.clone()))];
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
            // It has counted itself before, and knows how long a trip takes since then.
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

    fn on_counted(&mut self, now: Time, sampler: &mut Rng, heard: Heard<'_>) -> Step {
        let Heard::Results([CommandResult { action: ActionResult::Added { original: Some(before) }, .. }]) = heard
        else {
            panic!("a fetch-and-add brings the number that was there, not {heard:?}");
        };
        self.waiting = u64::try_from(*before).expect("nobody counts off what was not counted");
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

    /// What those who wait believe that the others do.
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
        let get = |at: LockAddress| ObjectCommand {
            object: at.object,
            when: When::Always,
            action: Action::Nothing,
            sets: Vec::new(),
            sets_when: When::Always,
            gets: vec![AttributeName::OBJECT_LENGTH],
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
        let swap = Action::CompareAndSwap {
            name: LOCK,
            compare: self.mine.clone(),
            swap: Bytes::from_static(&FREE),
            undefined: Undefined::Matches,
            original: false,
        };
        let command = self.of_lock(swap);
        self.ask(now, self.lock.device, vec![command])
    }

    fn on_given_back(&mut self, heard: Heard<'_>) -> Step {
        if let Heard::Results([CommandResult { action: ActionResult::Compared { swapped, .. }, .. }]) = heard {
            assert!(swapped, "the lock was ours until now");
        }
        self.done()
    }

    fn done(&mut self) -> Step {
        self.counts.locks += 1;
        self.state = State::Idle;
        Step::Done
    }

    fn command(&self, action: Action) -> ObjectCommand {
        ObjectCommand {
            object: self.at.object,
            when: When::Always,
            action,
            sets: Vec::new(),
            sets_when: When::Always,
            gets: Vec::new(),
        }
    }

    fn of_lock(&self, action: Action) -> ObjectCommand {
        ObjectCommand { object: self.lock.object, ..self.command(action) }
    }

    /// A write that sets the lock free: safe, for it is done by whoever has it.
    fn write_and_free(&self) -> ObjectCommand {
        let free = SetAttribute { name: LOCK, value: Bytes::from_static(&FREE) };
        ObjectCommand { sets: vec![free], ..self.command(Action::Write { offset: 0, data: self.data.clone() }) }
    }

    fn ask(&mut self, now: Time, device: DeviceId, commands: Vec<ObjectCommand>) -> Step {
        self.asked = now;
        Step::Ask { device, request: ObjectRequest { commands } }
    }
}
