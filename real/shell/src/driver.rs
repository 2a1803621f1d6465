//! The driver: one task that owns one machine and passes every input to it.
//!
//! ```text
//!     wait for any input ─► step all that is ready ─► one write per connection, one system call for the disk ─► …
//! ```
//!
//! All input that is ready is processed before the flush. Therefore the busier a node is, the less each message costs.

use crate::clock;
use crate::counters::{Counters, add};
use crate::disk::Engine;
use crate::host::{Call, Calls, Pending, Unanswered};
use crate::inbox::Received;
use crate::transport::Transport;
use crate::unix::registered;
use braid_base::{Now, Time};
use braid_machine::{Abandon, Disk, DiskResult, DiskTag, Effect, Effects, EffectsOf, Input, InputOf, Machine};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// The most requests taken before a flush, so that the first answers do not wait for the last requests.
const ROUND_CALLS_MAX: usize = 1024;
/// Rounds before other tasks of this thread, such as a front end, run.
const ROUNDS_MAX: usize = 8;
/// How long a host keeps polling before it sleeps, if all its devices run in its own thread: being woken by the disk or by a client costs more
/// than polling, and no other part of the array needs this processor. It does not give up the processor meanwhile: beside busy programs it
/// would get it back only milliseconds later.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How often a driver looks at its connections, at moments that are the same for all drivers of the machine.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Deadlines that are far away, as those of heartbeats, are noticed together with others: at moments that are so far apart, which are the same
/// for all processes of the machine. Each wake-up costs more than what it is for.
const GATHERED: Duration = Duration::from_millis(50);
/// A deadline is far away after so many of these.
const FAR: u32 = 8;
/// Inputs between two checks of the invariants: every input in unoptimized and test builds, otherwise one in 4096.
const INVARIANTS_EVERY: u64 = if cfg!(debug_assertions) { 1 } else { 4096 };
/// How long a machine that is told to stop may take to end its operations.
const STOP_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Driver<M: Machine> {
    machine: M,
    effects: EffectsOf<M>,
    transport: Transport,
    disk: Option<Engine>,
    calls: Option<Calls<M::Request, M::Outcome>>,
    pending: Pending<M::Outcome>,
    received: Vec<Received>,
    completions: Vec<(DiskTag, DiskResult)>,
    timer: Timer,
    inputs: u64,
    /// True for a device that is stopping: it receives no more messages.
    deaf: bool,
    awake_until: Instant,
    counters: Arc<Counters>,
}

impl<M: Machine<Request: Abandon>> Driver<M> {
    /// A machine with a disk needs the engine; one that is sent requests, the calls.
    pub fn new(
        machine: M,
        transport: Transport,
        disk: Option<Engine>,
        calls: Option<Calls<M::Request, M::Outcome>>,
        counters: Arc<Counters>,
    ) -> Driver<M> {
        Driver {
            machine,
            effects: Effects::new(),
            transport,
            disk,
            calls,
            pending: Pending::new(),
            received: Vec::new(),
            completions: Vec::new(),
            timer: Timer::new(),
            inputs: 0,
            deaf: false,
            awake_until: Instant::now(),
            counters,
        }
    }

    /// Runs the machine until `stop` completes, then lets it end its operations.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        // Polled only when it was woken itself, and not for every message.
        let mut stop = FuturesUnordered::from_iter([stop]);
        self.step(clock::now(), Input::Start);
        let running = poll_fn(|cx| {
            if stop.poll_next_unpin(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.poll(cx).map(|never| never.map(|never| match never {}))
        });
        // The number of rounds bounds the work in one poll.
        unconstrained(running).await?;
        // Messages that were not yet received start no operation. A device waits only for its disk; a host's requests need answers of
        // devices.
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

    /// Does everything that can be done now. Ready only with an error; `cx` is woken when there is more to do.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Infallible>> {
        for round in 0..ROUNDS_MAX {
            if !self.round(cx)? {
                if self.disk.is_none() && self.transport.devices_are_local() {
                    self.look_again(cx, round > 0);
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has `cx` woken without any event, for a while after the last event.
    fn look_again(&mut self, cx: &mut Context<'_>, has_worked: bool) {
        let now = Instant::now();
        if has_worked {
            self.awake_until = now + LOOK_AGAIN;
        }
        if now < self.awake_until {
            // Woken after the runtime has polled for events, not immediately.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        }
    }

    /// Steps all input that is ready, then flushes. Returns false if no input was ready.
    fn round(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.inputs;
        let mut received = std::mem::take(&mut self.received);
        let mut more = self.transport.poll_receive(cx, self.machine.level(), &mut received);
        // One clock reading serves all input of a wake-up. It is taken after receiving: if the process is suspended in between, a lease
        // must not seem valid when a message is processed that was sent after the lease expired.
        let now = clock::now();
        for Received { to, from, message } in received.drain(..) {
            if !self.deaf {
                self.step(now, Input::Message { to, from, message });
            }
        }
        self.received = received;
        if let Some(disk) = &mut self.disk {
            let mut completions = std::mem::take(&mut self.completions);
            disk.poll_take(cx, now.time, &mut completions)?;
            for (tag, result) in completions.drain(..) {
                if let Some(result) = M::Disk::result(result) {
                    self.step(now, Input::DiskDone { tag, result });
                }
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
                // The caller, if any, has gone.
                let _ = answer.send(Err(Unanswered::Abandoned));
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
        // The disk first, so that it works while the messages are written.
        if let Some(disk) = &mut self.disk {
            disk.submit(now.time)?;
        }
        more |= self.transport.flush(cx);
        self.timer.set(now.time, self.machine.deadline())?;
        match self.timer.poll(cx)? {
            Poll::Ready(()) => Ok(true),
            Poll::Pending => Ok(more),
        }
    }

    /// Tells the machine to start nothing more for these sessions, and to abandon their requests.
    fn abandon(&mut self, now: Now, sessions: &[Arc<AtomicBool>]) {
        let ops = self.pending.of(sessions);
        if !ops.is_empty()
            && let Some(request) = M::Request::abandon(ops)
        {
            let op = self.pending.add(None, None);
            self.step(now, Input::Request { op, request });
        }
    }

    fn step(&mut self, now: Now, input: InputOf<M>) {
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
        effects.drain_notes().for_each(|note| tracing::debug!("{note:?}"));
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect<M::Outcome, M::Disk>) {
        match effect {
            Effect::Send { to, message } => self.transport.send(to, message),
            Effect::Disk { tag, command } => {
                let disk = self.disk.as_mut().expect("only a machine with a disk has disk commands");
                disk.push(tag, M::Disk::command(command));
            }
            Effect::Reply { op, outcome } => self.pending.answer(op, outcome),
        }
    }
}

/// Wakes at the machine's deadline or somewhat earlier, and later if it is far away; the round checks whether the deadline has passed. It goes by
/// the machine's clock, which does not stop while the computer sleeps. The runtime's timers do, and wake several times for one deadline.
struct Timer {
    alarm: Option<AsyncFd<OwnedFd>>,
    /// The deadline for which the alarm is set, and when it wakes.
    set: Option<(Time, Time)>,
    /// When to look at connections that are silent, whatever the machine waits for.
    look: Pin<Box<Sleep>>,
}

impl Timer {
    fn new() -> Timer {
        Timer { alarm: None, set: None, look: Box::pin(tokio::time::sleep(LOOK_EVERY)) }
    }

    /// A deadline that moves later, as most do, costs nothing until the earlier one has passed.
    fn set(&mut self, now: Time, deadline: Option<Time>) -> io::Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        // What the machine does now may be due soon after that deadline, and not wait for others.
        let wakes_late = |wakes| deadline < wakes && deadline.since(now) < GATHERED;
        if self.set.is_some_and(|(set, wakes)| now < set && set <= deadline && !wakes_late(wakes)) {
            return Ok(());
        }
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                registered(timerfd_create(TimerfdClockId::Boottime, flags)?, Interest::READABLE)?
            }
        };
        let wakes = gathered(now, deadline);
        // Zero would mean that it is not set.
        let nanos = wakes.0.max(1);
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_value: at, it_interval: Timespec { tv_sec: 0, tv_nsec: 0 } };
        timerfd_settime(&alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        (self.alarm, self.set) = (Some(alarm), Some((deadline, wakes)));
        Ok(())
    }

    /// Ready when a deadline may have passed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.look.as_mut().poll(cx).is_ready() {
            let into = Duration::from_nanos(clock::now().time.0 % LOOK_EVERY.as_nanos() as u64);
            self.look.as_mut().reset(Instant::now() + LOOK_EVERY - into);
            return Poll::Ready(Ok(()));
        }
        let Some(alarm) = &self.alarm else { return Poll::Pending };
        // It counts as read when it is set again.
        ready!(alarm.poll_read_ready(cx))?.clear_ready();
        self.set = None;
        Poll::Ready(Ok(()))
    }
}

/// When to wake for a deadline.
fn gathered(now: Time, deadline: Time) -> Time {
    let is_near = deadline.since(now) < GATHERED * FAR;
    if is_near { deadline } else { Time(deadline.0.next_multiple_of(GATHERED.as_nanos() as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::inbox::Node;
    use crate::pipe::{self, Pipe};
    use crate::stream::Listener;
    use braid_base::{ArrayId, DeviceId, Epoch, Generation, NodeId};
    use braid_machine::{Never, NoDisk};
    use braid_wire::{Command, Frame, Message, Request};
    use std::task::{Wake, Waker};
    use tokio::sync::watch;

    const ARRAY: ArrayId = ArrayId([1; 16]);
    const US: NodeId = NodeId::Device(DeviceId(0));

    #[test]
    fn deadlines_that_are_far_away_are_noticed_together() {
        let millis = |millis: u64| Time(millis * 1_000_000);
        let woken = |now, deadline| gathered(millis(now), millis(deadline));
        assert_eq!((woken(1003, 1010), woken(1003, 1402)), (millis(1010), millis(1402)));
        assert_eq!(
            (woken(1003, 1503), woken(1021, 1521), woken(1000, 1550)),
            (millis(1550), millis(1550), millis(1550))
        );
    }

    /// A heartbeat of a host that was sent at `time`; its settled mark says when.
    fn heartbeat(host: u32, time: Time) -> Frame {
        let host = Generation(host);
        let request = Request {
            host,
            epoch: Epoch(1),
            settled: time.0,
            over: Vec::new(),
            commits: Vec::new(),
            command: Command::Heartbeat,
        };
        Frame { array: ARRAY, from: NodeId::Host(host), to: US, message: Message::Request(request) }
    }

    /// Notes when it has processed each message, and when that was sent.
    #[derive(Default)]
    struct Noting {
        messages: Vec<(Time, Time)>,
    }

    impl Machine for Noting {
        type Request = Never;
        type Outcome = Never;
        type Disk = NoDisk;

        fn step(&mut self, now: Now, input: Input<Never, NoDisk>, _: &mut Effects<Never, NoDisk>) {
            if let Input::Message { message: Message::Request(request), .. } = input {
                self.messages.push((now.time, Time(request.settled)));
            }
        }

        fn deadline(&self) -> Option<Time> {
            None
        }

        fn invariants(&self) {}
    }

    /// A host that sends a message while the driver receives from another host; before that, the driver's process is suspended for a moment.
    struct SendsWhenWoken(Pipe);

    impl Wake for SendsWhenWoken {
        fn wake(self: Arc<Self>) {
            std::thread::sleep(Duration::from_millis(1));
            assert!(self.0.send(heartbeat(2, clock::now().time)), "the pipe was empty");
        }
    }

    /// A lease that has expired must not seem valid: see [`Driver::round`].
    #[tokio::test]
    async fn a_message_is_not_processed_at_a_time_before_it_was_sent() {
        let mut listener = Listener::bind(&Address::loopback(0)).await.expect("a free port");
        listener.open_to_this_process();
        let (address, counters) = (listener.address().clone(), Arc::<Counters>::default());
        let (us, nobody) = (Node { array: ARRAY, id: US }, watch::channel(Default::default()).1);
        let transport = Transport::listen_and_connect(us, US, listener, nobody, counters.clone());
        let mut driver = Driver::new(Noting::default(), transport, None, None, counters);
        let mut cx = Context::from_waker(Waker::noop());
        let mut pipes = Vec::new();
        for host in [1, 2] {
            let pipe = pipe::connect(&address).expect("the listener is open");
            assert!(pipe.send(heartbeat(host, Time(0))));
            pipes.push(pipe);
            while driver.machine.messages.len() < pipes.len() {
                tokio::task::yield_now().await;
                driver.round(&mut cx).expect("there is no disk");
            }
        }
        // From here on, only a connection that is woken is read from.
        driver.round(&mut cx).expect("there is no disk");
        let second = Waker::from(Arc::new(SendsWhenWoken(pipes.pop().expect("two"))));
        let first = &pipes[0];
        // Host 1 has filled its pipe. As soon as the driver has taken a message from it, host 2 sends.
        while first.send(heartbeat(1, Time(0))) {}
        let mut room = pin!(first.sender.reserve());
        assert!(room.as_mut().poll(&mut Context::from_waker(&second)).is_pending());
        // As the driver's task, it may receive as much as there is.
        let round = poll_fn(|_| Poll::Ready(driver.round(&mut cx)));
        unconstrained(round).await.expect("there is no disk");
        let (processed, sent) = *driver.machine.messages.last().expect("some");
        assert!(sent > Time(0), "the last message is of host 2");
        assert!(processed >= sent, "{processed:?} {sent:?}");
    }
}
