//! The loop: one task owns one machine, and feeds it everything that happens.
//!
//! ```text
//!     wait for anything ─► step all that is ready ─► one write per connection, one system call for the disk ─► …
//! ```
//!
//! All that is ready goes before the flush, so that the busier a node is, the less each message costs.

use crate::clock;
use crate::counters::{Counters, add};
use crate::disk::Engine;
use crate::host::{Call, Pending};
use crate::link::Event;
use crate::transport::Transport;
use braid_base::{Now, Time};
use braid_machine::{DiskResult, DiskTag, Effect, Effects, Input, Machine};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// Inputs before a flush at most, so that the first answers need not wait for the last questions.
const ROUND_INPUTS_MAX: usize = 1024;
/// The longest sleep. The timer's clock stands still while the computer sleeps, the machine's does not: after waking,
/// a deadline is noticed this late at most.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Unoptimized and test builds check the invariants after every input, others after one in so many.
const INVARIANTS_EVERY: u64 = if cfg!(debug_assertions) { 1 } else { 4096 };
/// A machine that is told to stop has so long to end what it has begun.
const STOP_MAX: Duration = Duration::from_secs(5);
/// A host that has answered everything stays for so long, to tell the devices how its transactions ended.
const STOP_LINGER: Duration = Duration::from_millis(20);

pub(crate) struct Driver<M> {
    machine: M,
    effects: Effects,
    transport: Transport,
    disk: Option<Engine>,
    calls: Option<mpsc::Receiver<Call>>,
    pending: Pending,
    completions: Vec<(DiskTag, DiskResult)>,
    timer: Timer,
    inputs: u64,
    /// When stopping: a device hears no more messages.
    deaf: bool,
    counters: Arc<Counters>,
}

/// What ends a wait.
enum Woken {
    Event(Event),
    Call(Call),
    /// The disk, or the time.
    Look,
}

impl<M: Machine> Driver<M> {
    pub fn device(machine: M, transport: Transport, disk: Engine, counters: Arc<Counters>) -> Driver<M> {
        Driver::new(machine, transport, Some(disk), None, counters)
    }

    pub fn host(machine: M, transport: Transport, calls: mpsc::Receiver<Call>, counters: Arc<Counters>) -> Driver<M> {
        Driver::new(machine, transport, None, Some(calls), counters)
    }

    fn new(
        machine: M,
        transport: Transport,
        disk: Option<Engine>,
        calls: Option<mpsc::Receiver<Call>>,
        counters: Arc<Counters>,
    ) -> Driver<M> {
        Driver {
            machine,
            effects: Effects::new(),
            transport,
            disk,
            calls,
            pending: Pending::default(),
            completions: Vec::new(),
            timer: Timer::new(),
            inputs: 0,
            deaf: false,
            counters,
        }
    }

    /// Runs the machine until `stop` ends, then lets it end what it has begun.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut stop = pin!(stop);
        self.step(clock::now(), Input::Start);
        self.flush()?;
        loop {
            let woken = tokio::select! {
                biased;
                () = &mut stop => break,
                woken = self.wait() => woken?,
            };
            self.round(woken)?;
        }
        // What waits to be heard is not begun yet. A device has only its disk to wait for; a host's requests need
        // the devices' answers.
        self.deaf = self.disk.is_some();
        self.calls = None;
        let end = Instant::now() + STOP_MAX;
        while self.is_busy()
            && let Ok(woken) = tokio::time::timeout_at(end, self.wait()).await
        {
            self.round(woken?)?;
        }
        let end = Instant::now() + STOP_LINGER;
        while self.disk.is_none()
            && let Ok(woken) = tokio::time::timeout_at(end, self.wait()).await
        {
            self.round(woken?)?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.disk.as_ref().is_some_and(|disk| disk.in_flight() > 0)
    }

    /// Ends when something may have happened. Dropped unfinished, it loses nothing.
    async fn wait(&mut self) -> io::Result<Woken> {
        let Driver { transport, disk, calls, timer, .. } = self;
        tokio::select! {
            biased;
            event = transport.receive() => Ok(Woken::Event(event)),
            ready = async {
                match disk {
                    Some(disk) => disk.ready().await,
                    None => std::future::pending().await,
                }
            } => ready.map(|()| Woken::Look),
            Some(call) = async {
                match calls {
                    Some(calls) => calls.recv().await,
                    None => None,
                }
            } => Ok(Woken::Call(call)),
            () = timer.wait() => Ok(Woken::Look),
        }
    }

    /// Steps all that is ready, then flushes.
    fn round(&mut self, woken: Woken) -> io::Result<()> {
        add(&self.counters.rounds, 1);
        // One reading serves all that one wake-up brought.
        let now = clock::now();
        let last = self.inputs + ROUND_INPUTS_MAX as u64;
        match woken {
            Woken::Event(event) => self.on_event(now, event),
            Woken::Call(call) => self.on_call(now, call),
            Woken::Look => {}
        }
        while self.inputs < last
            && let Some(event) = self.transport.try_receive()
        {
            self.on_event(now, event);
        }
        if let Some(disk) = &mut self.disk {
            let mut completions = std::mem::take(&mut self.completions);
            disk.take(&mut completions);
            for (tag, result) in completions.drain(..) {
                self.step(now, Input::DiskDone { tag, result });
            }
            self.completions = completions;
        }
        while self.inputs < last
            && let Some(call) = self.calls.as_mut().and_then(|calls| calls.try_recv().ok())
        {
            self.on_call(now, call);
        }
        if self.machine.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.step(now, Input::Wake);
        }
        self.flush()
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match event {
            Event::Up { peer, link } => self.transport.up(peer, link),
            Event::Messages { .. } if self.deaf => {}
            Event::Messages { from, messages } => {
                for message in messages {
                    self.step(now, Input::Message { from, message });
                }
            }
        }
    }

    fn on_call(&mut self, now: Now, (request, answer): Call) {
        let op = self.pending.add(answer);
        self.step(now, Input::Request { op, request });
    }

    fn step(&mut self, now: Now, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(now, input, &mut effects);
        self.inputs += 1;
        if self.inputs.is_multiple_of(INVARIANTS_EVERY) {
            self.machine.invariants();
        }
        for effect in effects.drain() {
            self.perform(effect);
        }
        drop(effects.drain_ignored());
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.transport.send(to, message),
            Effect::Disk { tag, command } => {
                self.disk.as_mut().expect("only a machine with a disk commands one").push(tag, command);
            }
            Effect::Reply { op, outcome } => self.pending.answer(op, outcome),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // The disk first: it works while the messages are written.
        if let Some(disk) = &mut self.disk {
            disk.submit()?;
        }
        self.transport.flush();
        self.timer.set(clock::now().time, self.machine.deadline());
        Ok(())
    }
}

/// Wakes at the machine's deadline or somewhat before; the round looks whether it has come.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// What the sleep is set to.
    set: Option<Time>,
}

impl Timer {
    fn new() -> Timer {
        Timer { sleep: Box::pin(tokio::time::sleep(SLEEP_MAX)), set: None }
    }

    /// A deadline that moves back, as most do, costs nothing until the earlier one has come.
    fn set(&mut self, now: Time, deadline: Option<Time>) {
        let latest = now.after(SLEEP_MAX);
        let deadline = deadline.map_or(latest, |deadline| deadline.min(latest));
        if self.set.is_none_or(|set| deadline < set || set <= now) {
            self.set = Some(deadline);
            self.sleep.as_mut().reset(Instant::now() + deadline.since(now));
        }
    }

    async fn wait(&mut self) {
        self.sleep.as_mut().await;
        // It may have ended a little early by the machine's clock: what is left is slept then.
        self.set = None;
    }
}
