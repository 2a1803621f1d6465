//! The transport sends and receives messages as datagrams: it makes, replaces and drops connections internally, and drops messages that
//! can't be sent.
//!
//! The driver polls established connections itself, all that are ready together, instead of one task per connection: one wake-up then
//! handles the input of all of them in one pass. Silent connections cost nothing.

use crate::address::Address;
use crate::budget::{Account, Budget};
use crate::connection::{Arrival, Connection, Ended, Origin};
use crate::connector::{self, Addresses, Wanted, is_one_way, us_towards};
use crate::counters::{Counters, add};
use crate::inbox::{Inbox, Node, Received, Refused};
use crate::outbox::Pushed;
use crate::places::{NEWCOMER_EVERY, Places};
use crate::ready::{Notice, ReadyList};
use crate::routes::{Admission, Routes, Side};
use crate::stream::Listener;
use crate::warning::Warning;
use braid_base::{Level, NodeId};
use braid_wire::{Frame, Message};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// The interval of the check for silent connections.
const PATROL_EVERY: Duration = Duration::from_millis(500);
/// If the check is so late, this process did not run, and its peers are not to blame for their silence.
const PATROL_LATE: Duration = Duration::from_secs(2);
/// A connection that has received nothing for so long needs no memory for more.
const IDLE: Duration = Duration::from_secs(1);
/// How long messages may wait for the first connection to their node. Otherwise a short program would lose its first request, and wait
/// longer to send it again than for everything else.
const EARLY: Duration = Duration::from_secs(1);
/// The most messages to one node that wait for its first connection, and their part of the memory budget: one in so many.
const EARLY_MAX: usize = 64;
const EARLY_SHARE: u64 = 16;

pub(crate) struct Transport {
    us: Node,
    /// This node for those that connect to it: a process that is a host towards devices can be a server towards other hosts, and towards
    /// the other servers of its kind.
    serves_as: NodeId,
    /// By number; numbers are never reused.
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    routes: Routes,
    places: Places,
    budget: &'static Budget,
    /// Connections that can be read from, and written to after they could not.
    readable: ReadyList,
    writable: ReadyList,
    /// The number of the last turn: in each, a connection is read from at most once.
    turn: u64,
    /// Reused.
    taken: Vec<Arc<Notice>>,
    /// Connections with frames to write.
    dirty: Vec<u64>,
    ended: Vec<(u64, Ended)>,
    arrivals: mpsc::Receiver<Arrival>,
    /// When newcomers are let in while places are taken: at Unix sockets, whose clients wait for their turn. Over TCP those who send most
    /// would shut out all others.
    newcomers: Option<Interval>,
    /// Messages that wait for the first connection to their node, with their lengths in bytes.
    early: BTreeMap<NodeId, Vec<(Frame, usize)>>,
    early_until: Instant,
    /// How often a connection was wanted that is made only then.
    wanted: watch::Sender<BTreeMap<NodeId, u64>>,
    next_patrol: Instant,
    /// True if it is connected to devices, and all of them are in this process.
    devices_are_local: bool,
    warning: Arc<Warning>,
    counters: Arc<Counters>,
    /// The tasks of the connector, which end when this is dropped.
    _connector: JoinSet<()>,
}

impl Transport {
    /// Keeps connections to `nodes`. To be called within a tokio runtime.
    pub fn connect(us: Node, nodes: watch::Receiver<Addresses>, counters: Arc<Counters>) -> Transport {
        let transport = Transport::new((us, us.id), counters, Arc::default(), |arrivals, wanted| {
            connector::keep_connected((us.id, us.id), nodes, wanted, arrivals)
        });
        Transport { early_until: Instant::now() + EARLY, ..transport }
    }

    /// Accepts connections, for which it is `serves_as`, and keeps connections to `nodes`. To be called within a tokio runtime.
    pub fn listen_and_connect(
        us: Node,
        serves_as: NodeId,
        listener: Listener,
        nodes: watch::Receiver<Addresses>,
        counters: Arc<Counters>,
    ) -> Transport {
        let (warning, newcomers) = (Arc::<Warning>::default(), newcomers(&listener));
        let transport =
            Transport::new((us, serves_as), counters, warning.clone(), move |arrivals, wanted| async move {
                let accepting = connector::accept(listener, arrivals.clone(), warning);
                tokio::join!(accepting, connector::keep_connected((us.id, serves_as), nodes, wanted, arrivals));
            });
        Transport { newcomers, ..transport }
    }

    fn new<T>(
        (us, serves_as): (Node, NodeId),
        counters: Arc<Counters>,
        warning: Arc<Warning>,
        connector: impl FnOnce(mpsc::Sender<Arrival>, Wanted) -> T,
    ) -> Transport
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (sender, arrivals) = mpsc::channel(1);
        let (wanted, wishes) = watch::channel(BTreeMap::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(connector(sender, wishes));
        Transport {
            us,
            serves_as,
            connections: BTreeMap::new(),
            next_connection: 0,
            routes: Routes::default(),
            places: Places::default(),
            budget: Budget::process(),
            readable: ReadyList::default(),
            writable: ReadyList::default(),
            turn: 0,
            taken: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            arrivals,
            newcomers: None,
            early: BTreeMap::new(),
            early_until: Instant::now(),
            wanted,
            next_patrol: Instant::now() + PATROL_EVERY,
            devices_are_local: false,
            warning,
            counters,
            _connector: tasks,
        }
    }

    /// Sends a message with the next flush, or drops it.
    pub fn send(&mut self, to: NodeId, message: Message) {
        // The answers to a node go where its requests came from.
        let side = if message.is_by_caller() { Side::Made } else { Side::Accepted };
        let Some((number, connection)) =
            self.routes.owner(to, side).and_then(|number| Some((number, self.connections.get_mut(&number)?)))
        else {
            return self.send_early(to, message);
        };
        let Node { array, id: from } = connection.us();
        if let Some(sequence) = message.ends_demand() {
            connection.has_answered(sequence);
        }
        let frame = Frame { array, from, to, message };
        let pushed = connection.push(frame);
        if pushed == Pushed::First {
            self.dirty.push(number);
        }
        match pushed {
            Pushed::First | Pushed::Behind => add(&self.counters.frames_sent, 1),
            Pushed::Full => add(&self.counters.dropped_full, 1),
        }
    }

    /// Lets a message wait for the first connection to its node, or drops it.
    fn send_early(&mut self, to: NodeId, message: Message) {
        let waiting = self.early.get(&to).map_or(0, Vec::len);
        let us = us_towards(self.us.id, self.serves_as, to);
        if is_one_way(us, to) {
            if waiting == 0 {
                self.wanted.send_modify(|wanted| *wanted.entry(to).or_default() += 1);
                self.early_until = Instant::now() + EARLY;
            }
        } else if Instant::now() >= self.early_until {
            return add(&self.counters.dropped_unconnected, 1);
        }
        let bytes: usize = self.early.values().flatten().map(|(_, bytes)| bytes).sum();
        if waiting >= EARLY_MAX || bytes as u64 >= self.budget.limit() / EARLY_SHARE {
            return add(&self.counters.dropped_unconnected, 1);
        }
        let frame = Frame { array: self.us.array, from: us, to, message };
        let length = frame.encode().len();
        self.early.entry(to).or_default().push((frame, length));
    }

    /// True if it is connected to devices, and all of them are in this process.
    pub fn devices_are_local(&self) -> bool {
        self.devices_are_local
    }

    fn look_where_devices_are(&mut self) {
        let made = self.connections.values().filter(|connection| connection.side() == Side::Made);
        let mut to_devices = made.filter(|connection| matches!(connection.peer(), Some(NodeId::Device(_)))).peekable();
        self.devices_are_local = to_devices.peek().is_some() && to_devices.all(Connection::is_pipe);
    }

    /// Writes the messages that were sent. A later call writes what a socket does not accept at once; the socket then wakes `cx`. Returns true
    /// if there is more to receive.
    pub fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        let Transport { writable, taken, dirty, connections, counters, ended, .. } = self;
        writable.take(cx, taken);
        dirty.extend(taken.drain(..).map(|notice| notice.number));
        let mut more = false;
        for number in dirty.drain(..) {
            match connections.get_mut(&number).map(|connection| connection.flush(counters)) {
                None => {}
                Some(Ok(resumes)) => more |= resumes,
                Some(Err(how)) => ended.push((number, how)),
            }
        }
        more | self.bury()
    }

    /// Appends received messages to `received`, from each connection those of one read. Returns true if there may be more; otherwise `cx`
    /// is woken when there are more. New connections say that the array has this level.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, level: Level, received: &mut Vec<Received>) -> bool {
        let now = Instant::now();
        let mut more = false;
        loop {
            let interval = self.newcomers.as_mut().filter(|_| self.places.are_taken());
            if interval.is_some_and(|interval| interval.poll_tick(cx).is_pending()) {
                break;
            }
            let Poll::Ready(Some(arrival)) = self.arrivals.poll_recv(cx) else { break };
            let displaced = self.take_in(arrival, level, now);
            if let Some(oldest) = displaced {
                // It may have identified itself meanwhile.
                more |= self.read(oldest, now, received);
                if self.connections.get(&oldest).is_some_and(|connection| connection.peer().is_none()) {
                    self.ended.push((oldest, Ended::Quietly));
                }
            }
        }
        self.turn += 1;
        let (mut taken, mut later) = (std::mem::take(&mut self.taken), Vec::new());
        loop {
            self.readable.take(cx, &mut taken);
            let mut is_done = true;
            for notice in taken.drain(..) {
                let Some(connection) = self.connections.get_mut(&notice.number) else { continue };
                if connection.begins_turn(self.turn) {
                    is_done = false;
                    more |= self.read(notice.number, now, received);
                } else {
                    // Others are not to wait for it.
                    later.push(notice);
                }
            }
            if is_done {
                break;
            }
        }
        later.iter().for_each(Notice::queue);
        more |= !later.is_empty();
        self.taken = taken;
        if now >= self.next_patrol {
            self.patrol(now, level);
        }
        more | self.bury()
    }

    /// Reads once from a connection. Returns true if there may be more to read.
    fn read(&mut self, number: u64, now: Instant, received: &mut Vec<Received>) -> bool {
        let Transport { connections, routes, places, counters, ended, .. } = self;
        let Some(connection) = connections.get_mut(&number) else { return false };
        let (side, known) = (connection.side(), connection.peer().is_some());
        let (mut displaced, mut has_place) = (None, true);
        let may_pass = |from| {
            if !known && side == Side::Accepted && !places.identified(number, from, now) {
                has_place = false;
                return false;
            }
            match routes.heard(from, side, number) {
                Admission::Owner => true,
                Admission::Waits { instead_of } => {
                    displaced = instead_of;
                    false
                }
            }
        };
        let to = connection.us().id;
        let take = |from, message| received.push(Received { to, from, message });
        let read = connection.read(now, counters, may_pass, take);
        ended.extend(displaced.map(|number| (number, Ended::Quietly)));
        match read {
            _ if !has_place => ended.push((number, Ended::Refused(Refused::TooMany))),
            Ok(more) => {
                if more {
                    connection.queue();
                }
                return more;
            }
            Err(how) => ended.push((number, how)),
        }
        false
    }

    /// Ends the connections of peers that are silent or too slow, and releases memory that is not needed.
    fn patrol(&mut self, now: Instant, level: Level) {
        self.routes.look(now);
        let is_late = now.saturating_duration_since(self.next_patrol) >= PATROL_LATE;
        self.next_patrol = now + PATROL_EVERY;
        if now >= self.early_until {
            self.early.clear();
        }
        for (number, connection) in &mut self.connections {
            if is_late {
                connection.excuse(now);
            }
            if now.saturating_duration_since(connection.last_read()) >= IDLE {
                connection.release();
            }
            connection.look(now);
            if connection.awaits_route() {
                // The owner of the route may have fallen silent.
                connection.wake();
            }
            self.ended.extend(connection.check(now, level).err().map(|how| (*number, how)));
        }
    }

    /// Takes in a new connection. Returns the one that loses its place to it, if it has not identified itself.
    fn take_in(&mut self, arrival: Arrival, level: Level, now: Instant) -> Option<u64> {
        let number = self.next_connection;
        self.next_connection += 1;
        if let Some(peer) = arrival.peer {
            self.routes.made(peer, number);
        }
        let us = match (&arrival.origin, arrival.peer) {
            (Origin::Made { .. }, Some(peer)) => us_towards(self.us.id, self.serves_as, peer),
            (Origin::Made { .. }, None) => self.us.id,
            (Origin::Accepted { .. }, _) => self.serves_as,
        };
        let us = Node { id: us, ..self.us };
        let side = if matches!(arrival.origin, Origin::Made { .. }) { Side::Made } else { Side::Accepted };
        let displaced = if side == Side::Accepted { self.places.accepted(number) } else { None };
        let account = Account::new(if side == Side::Made { Budget::own() } else { self.budget });
        let inbox = Inbox::new(us, arrival.peer, side, account.clone());
        let early = arrival.peer.and_then(|peer| self.early.remove(&peer)).filter(|_| now < self.early_until);
        let notices = (self.readable.add(number), self.writable.add(number));
        let mut connection = Connection::new(arrival, inbox, account, notices, level, now);
        connection.queue();
        self.dirty.push(number);
        for (frame, _) in early.into_iter().flatten() {
            match connection.push(frame) {
                Pushed::First => self.dirty.push(number),
                Pushed::Behind => {}
                Pushed::Full => add(&self.counters.dropped_full, 1),
            }
            add(&self.counters.frames_sent, 1);
        }
        self.connections.insert(number, connection);
        self.look_where_devices_are();
        displaced
    }

    /// Removes the connections that have ended. Returns true if others have got their routes, so that what they have sent can be received.
    fn bury(&mut self) -> bool {
        let (mut more, some_ended) = (false, !self.ended.is_empty());
        for (number, how) in self.ended.drain(..) {
            let Some(connection) = self.connections.remove(&number) else { continue };
            let (now, side) = (Instant::now(), connection.side());
            if side == Side::Accepted {
                self.places.ended(number, connection.peer(), now);
            }
            if let Some(peer) = connection.peer() {
                let next = self.routes.end(peer, side, number);
                let next = next.and_then(|next| self.connections.get(&next));
                next.inspect(|next| next.queue());
                more |= next.is_some();
            }
            if let Ended::Refused(refused) = how {
                add(&self.counters.connections_refused, 1);
                let peer = connection.peer().map(|peer| format!(" as {peer}")).unwrap_or_default();
                self.warning.say(|| format!("closing the connection with {}{peer}: {refused}", connection.name()));
            }
            connection.end();
        }
        if some_ended {
            self.look_where_devices_are();
        }
        more
    }
}

fn newcomers(listener: &Listener) -> Option<Interval> {
    let mut interval = matches!(listener.address(), Address::Unix(_)).then(|| tokio::time::interval(NEWCOMER_EVERY));
    if let Some(interval) = &mut interval {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    interval
}
