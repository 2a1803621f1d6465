//! A simulated network that loses, duplicates, delays, reorders and damages messages, and can be partitioned.

use braid_base::{NodeId, Rng, Time};
use braid_wire::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How the network behaves. Probabilities are in ten-thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// The shortest latency of a message.
    pub latency_min: Duration,
    /// The longest latency of a message that meets no fault.
    pub latency_max: Duration,
    /// If set, messages from one node to another arrive in the order in which they were sent, as on one connection.
    pub in_order: bool,
    /// Probability that a message is lost.
    pub loss: u64,
    /// Probability that a message is delivered twice.
    pub double: u64,
    /// Probability that a message is damaged in transit, and therefore lost.
    pub damage: u64,
    /// Probability that a message is late, by up to `delay_max`.
    pub delay: u64,
    pub delay_max: Duration,
    /// Probability that a message at a cut is not lost but late, by up to `held_max`, as data in the buffers of a broken connection may
    /// be.
    pub held: u64,
    pub held_max: Duration,
}

impl NetworkOptions {
    /// Options without faults.
    pub fn clean() -> NetworkOptions {
        NetworkOptions {
            latency_min: Duration::from_micros(20),
            latency_max: Duration::from_micros(200),
            in_order: true,
            loss: 0,
            double: 0,
            damage: 0,
            delay: 0,
            delay_max: Duration::ZERO,
            held: 0,
            held_max: Duration::ZERO,
        }
    }

    /// Options under which messages are lost and doubled, in per cent, take up to `latency_max`, and overtake one another. A few take up to
    /// `delay_max`.
    pub fn unreliable(loss: u64, doubling: u64, latency_max: Duration, delay_max: Duration) -> NetworkOptions {
        NetworkOptions {
            latency_min: Duration::ZERO,
            latency_max,
            in_order: false,
            loss: loss * 100,
            double: doubling * 100,
            delay: doubling * 25,
            delay_max,
            ..NetworkOptions::clean()
        }
    }

    /// True if messages may be lost, or arrive later than the usual latency.
    pub fn loses_or_delays(&self) -> bool {
        self.loss > 0 || self.damage > 0 || self.delay > 0 || self.held > 0
    }
}

/// A rule's decision on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The options and the random source decide.
    Pass,
    Drop,
    Double,
    /// Deliver the message later than usual by this duration.
    Delay(Duration),
}

braid_base::counters! {
    /// Counts of messages and of the network's faults.
    pub struct NetworkCounts;

    sent,
    /// Messages lost by chance or by a rule.
    lost,
    /// Messages lost at a cut.
    cut,
    doubled,
    damaged,
    /// Messages that took longer than the usual latency.
    delayed,
    /// Messages that arrived before an earlier message of the same sender to the same receiver.
    reordered,
}

/// One delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    pub at: Time,
    /// Whether its bytes are damaged in transit.
    pub damaged: bool,
}

type Rule = Box<dyn FnMut(NodeId, NodeId, &Message) -> Verdict>;

pub struct Network {
    options: NetworkOptions,
    rng: Rng,
    rule: Option<Rule>,
    /// Pairs (sender, receiver) between which every message is stopped.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// When the last message of each pair arrives, kept while messages arrive in order; a rule may delay it further.
    last_arrivals: BTreeMap<(NodeId, NodeId), Time>,
    /// The latest arrival of any message of each pair.
    latest_arrivals: BTreeMap<(NodeId, NodeId), Time>,
    /// A node to which no message is late by chance.
    prompt: Option<NodeId>,
    counts: NetworkCounts,
}

impl Network {
    /// Creates a network with a random source of its own.
    pub fn new(options: NetworkOptions, rng: Rng) -> Network {
        Network {
            options,
            rng,
            rule: None,
            cuts: BTreeSet::new(),
            last_arrivals: BTreeMap::new(),
            latest_arrivals: BTreeMap::new(),
            prompt: None,
            counts: NetworkCounts::default(),
        }
    }

    /// Replaces the options.
    pub fn set_options(&mut self, options: NetworkOptions) {
        self.options = options;
    }

    /// Consults `rule` for every later message. Scripted scenarios select the messages to disturb with it.
    pub fn set_rule(&mut self, rule: impl FnMut(NodeId, NodeId, &Message) -> Verdict + 'static) {
        self.rule = Some(Box::new(rule));
    }

    /// Drops every later message of which this is true.
    pub fn drop_if(&mut self, is_so: impl FnMut(NodeId, NodeId, &Message) -> bool + 'static) {
        self.judge_if(Verdict::Drop, is_so);
    }

    /// Delays every later message of which this is true.
    pub fn delay_if(&mut self, span: Duration, is_so: impl FnMut(NodeId, NodeId, &Message) -> bool + 'static) {
        self.judge_if(Verdict::Delay(span), is_so);
    }

    /// Has this verdict on every later message of which this is true.
    pub fn judge_if(&mut self, verdict: Verdict, mut is_so: impl FnMut(NodeId, NodeId, &Message) -> bool + 'static) {
        self.set_rule(move |from, to, message| if is_so(from, to, message) { verdict } else { Verdict::Pass });
    }

    /// Stops all messages from `from` to `to`; messages in transit still arrive.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    /// Removes one cut.
    pub fn join(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    /// From now on, no message to this node is late by chance.
    pub fn be_prompt(&mut self, to: Option<NodeId>) {
        self.prompt = to;
    }

    /// True if a message is on its way that arrives later than one sent now usually does.
    pub fn is_one_late(&self, now: Time, from: NodeId, to: NodeId) -> bool {
        let latest = self.latest_arrivals.get(&(from, to));
        latest.is_some_and(|latest| *latest > now.after(self.options.latency_max))
    }

    /// Removes all cuts, the rule and all faults. Messages that are already late still arrive late, but later messages do not wait for
    /// them.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.last_arrivals.clear();
        self.rule = None;
        self.options = NetworkOptions::clean();
    }

    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }

    /// Sends a message. Returns its deliveries: when each arrives, and whether it is damaged.
    pub fn send(&mut self, now: Time, from: NodeId, to: NodeId, message: &Message) -> Vec<Flight> {
        let verdict = self.rule.as_mut().map_or(Verdict::Pass, |rule| rule(from, to, message));
        self.carry(now, from, to, verdict)
    }

    /// The same for something that is no message of the array, with this verdict on it.
    pub fn carry(&mut self, now: Time, from: NodeId, to: NodeId, verdict: Verdict) -> Vec<Flight> {
        self.counts.sent += 1;
        if self.cuts.contains(&(from, to)) {
            self.counts.cut += 1;
            return self.come_through(now).into_iter().collect();
        }
        if verdict == Verdict::Drop || self.rng.chance(self.options.loss, 10_000) {
            self.counts.lost += 1;
            return Vec::new();
        }
        let mut flights = vec![self.fly(now, from, to)];
        if verdict == Verdict::Double || self.rng.chance(self.options.double, 10_000) {
            self.counts.doubled += 1;
            flights.push(self.fly(now, from, to));
        }
        if let Verdict::Delay(span) = verdict {
            self.counts.delayed += 1;
            flights.iter_mut().for_each(|flight| flight.at = flight.at.after(span));
        }
        let latest = self.latest_arrivals.entry((from, to)).or_default();
        self.counts.reordered += u64::from(flights.iter().any(|flight| flight.at < *latest));
        *latest = flights.iter().map(|flight| flight.at).fold(*latest, Time::max);
        flights
    }

    /// The delivery, if any, of a message at a cut: late, so that all messages sent after the cut is removed overtake it.
    fn come_through(&mut self, now: Time) -> Option<Flight> {
        let NetworkOptions { held, held_max, latency_min, .. } = self.options;
        if held == 0 || !self.rng.chance(held, 10_000) {
            return None;
        }
        self.counts.delayed += 1;
        let late = self.rng.below(held_max.as_nanos() as u64 + 1);
        Some(Flight { at: Time(now.0 + latency_min.as_nanos() as u64 + late), damaged: false })
    }

    fn fly(&mut self, now: Time, from: NodeId, to: NodeId) -> Flight {
        let (low, high) = (self.options.latency_min.as_nanos() as u64, self.options.latency_max.as_nanos() as u64);
        let mut at = Time(now.0 + self.rng.between(low, high));
        if self.rng.chance(self.options.delay, 10_000) && self.prompt != Some(to) {
            self.counts.delayed += 1;
            at.0 += self.rng.below(self.options.delay_max.as_nanos() as u64 + 1);
        }
        if self.options.in_order {
            let last = self.last_arrivals.entry((from, to)).or_default();
            at = at.max(*last);
            *last = at;
        }
        let damaged = self.rng.chance(self.options.damage, 10_000);
        self.counts.damaged += u64::from(damaged);
        Flight { at, damaged }
    }
}
