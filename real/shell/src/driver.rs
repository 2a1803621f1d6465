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
use crate::host::{Call, Calls, Pending};
use crate::transport::Transport;
use braid_base::{NodeId, Now, Time};
use braid_machine::{DiskResult, DiskTag, Effect, Effects, HostError, HostRequest, Input, Machine};
use braid_wire::Message;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// Requests taken before a flush at most, so that the first answers need not wait for the last questions.
const ROUND_CALLS_MAX: usize = 1024;
/// Rounds before others on this thread, such as a front end, have their turn.
const ROUNDS_MAX: usize = 8;
/// A host whose devices run in its own thread looks again for so long before it sleeps: to be woken by the disk or by a
/// client costs more than to find out by oneself, and nobody else of the array needs this processor.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// The longest sleep. The timer's clock stands still while the computer sleeps, the machine's does not: after waking,
/// a deadline is noticed this late at most.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Unoptimized and test builds check the invariants after every input, others after one in so many.
const INVARIANTS_EVERY: u64 = if cfg!(debug_assertions) { 1 } else { 4096 };
/// A machine that is told to stop has so long to end what it has begun.
const STOP_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Driver<M> {
    machine: M,
    effects: Effects,
    transport: Transport,
    disk: Option<Engine>,
    calls: Option<Calls>,
    pending: Pending,
    received: Vec<(NodeId, Message)>,
    completions: Vec<(DiskTag, DiskResult)>,
    timer: Timer,
    inputs: u64,
    /// When stopping: a device hears no more messages.
    deaf: bool,
    awake_until: Instant,
    counters: Arc<Counters>,
}

impl<M: Machine> Driver<M> {
    pub fn device(machine: M, transport: Transport, disk: Engine, counters: Arc<Counters>) -> Driver<M> {
        Driver::new(machine, transport, Some(disk), None, counters)
    }

    pub fn server(machine: M, transport: Transport, disk: Engine, calls: Calls, counters: Arc<Counters>) -> Driver<M> {
        Driver::new(machine, transport, Some(disk), Some(calls), counters)
    }

    pub fn host(machine: M, transport: Transport, calls: Calls, counters: Arc<Counters>) -> Driver<M> {
        Driver::new(machine, transport, None, Some(calls), counters)
    }

    fn new(
        machine: M,
        transport: Transport,
        disk: Option<Engine>,
        calls: Option<Calls>,
        counters: Arc<Counters>,
    ) -> Driver<M> {
        Driver {
            machine,
            effects: Effects::new(),
            transport,
            disk,
            calls,
            pending: Pending::default(),
            received: Vec::new(),
            completions: Vec::new(),
            timer: Timer::new(),
            inputs: 0,
            deaf: false,
            awake_until: Instant::now(),
            counters,
        }
    }

    /// Runs the machine until `stop` ends, then lets it end what it has begun.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut stop = pin!(stop);
        self.step(clock::now(), Input::Start);
        let running = poll_fn(|cx| {
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.poll(cx).map(|never| never.map(|never| match never {}))
        });
        // What is done in one turn is bounded by rounds.
        unconstrained(running).await?;
        // What waits to be heard is not begun yet. A device has only its disk to wait for; a host's requests need
        // the devices' answers.
        self.deaf = self.disk.is_some();
        self.calls = None;
        let until_idle = poll_fn(|cx| match self.poll(cx)? {
            Poll::Ready(never) => match never {},
            Poll::Pending if self.is_busy() => Poll::Pending,
            Poll::Pending => Poll::Ready(io::Result::Ok(())),
        });
        if let Ok(ended) = tokio::time::timeout(STOP_MAX, until_idle).await {
            ended?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.disk.as_ref().is_some_and(|disk| disk.in_flight() > 0)
    }

    /// Does all that can be done now. Never ready but with an error; `cx` is woken when there is more to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Infallible>> {
        for round in 0..ROUNDS_MAX {
            if !self.round(cx)? {
                if self.transport.is_within_process() && self.disk.is_none() {
                    self.look_again(cx, round > 0);
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has `cx` woken though nothing has happened, for a while after something did.
    fn look_again(&mut self, cx: &mut Context<'_>, has_worked: bool) {
        let now = Instant::now();
        if has_worked {
            self.awake_until = now + LOOK_AGAIN;
        }
        if now < self.awake_until {
            std::thread::yield_now();
            // Woken after the runtime has looked for events, not at once.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        }
    }

    /// Steps all that is ready, then flushes. False if nothing was.
    fn round(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.inputs;
        let mut received = std::mem::take(&mut self.received);
        let mut more = self.transport.poll_receive(cx, &mut received);
        // One reading serves all that one wake-up brought. It comes after what was received: should the process stand still in
        // between, a lease must not seem to run when a message is served that was sent after it had run out.
        let now = clock::now();
        for (from, message) in received.drain(..) {
            if !self.deaf {
                self.step(now, Input::Message { from, message });
            }
        }
        self.received = received;
        if let Some(disk) = &mut self.disk {
            let mut completions = std::mem::take(&mut self.completions);
            disk.poll_take(cx, &mut completions)?;
            for (tag, result) in completions.drain(..) {
                self.step(now, Input::DiskDone { tag, result });
            }
            self.completions = completions;
        }
        for _ in 0..ROUND_CALLS_MAX {
            let mut abandoned = Vec::new();
            let call = self.calls.as_mut().map(|calls| calls.poll_next(cx, &mut abandoned));
            if !abandoned.is_empty() {
                self.abandon(now, &abandoned);
            }
            let Some(Poll::Ready(Some(Call { request, answer, session }))) = call else { break };
            if session.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::SeqCst)) {
                // Whoever waits for it, if anybody does, is gone.
                let _ = answer.send(Err(HostError::Abandoned));
                continue;
            }
            let op = self.pending.add(Some(answer), session);
            self.step(now, Input::Request { op, request });
        }
        if self.machine.deadline().is_some_and(|deadline| deadline <= now.time) {
            self.step(now, Input::Wake);
        }
        more |= self.inputs != before;
        add(&self.counters.inputs, (self.inputs - before) as usize);
        add(&self.counters.rounds, usize::from(more));
        // The disk first: it works while the messages are written.
        if let Some(disk) = &mut self.disk {
            disk.submit()?;
        }
        self.transport.flush(cx);
        self.timer.set(now.time, self.machine.deadline());
        Ok(more | self.timer.poll(cx).is_ready())
    }

    /// Has the machine begin nothing more for these sessions.
    fn abandon(&mut self, now: Now, sessions: &[Arc<AtomicBool>]) {
        let ops = self.pending.of(sessions);
        if !ops.is_empty() {
            let op = self.pending.add(None, None);
            self.step(now, Input::Request { op, request: HostRequest::Abandon { ops } });
        }
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

    /// Ready when there may be a deadline to look at.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.sleep.as_mut().poll(cx));
        // It may have ended a little early by the machine's clock: what is left is slept then.
        self.set = None;
        Poll::Ready(())
    }
}
