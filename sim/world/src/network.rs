//! A network that loses, doubles, delays, reorders and damages what it is given, and can be cut in parts.

use braid_base::{NodeId, Rng, Time};
use braid_wire::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How the network behaves. Probabilities are parts of ten thousand messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// The least that a message takes.
    pub latency_min: Duration,
    /// The most that an undisturbed message takes.
    pub latency_max: Duration,
    /// If set, messages from one node to another arrive in the order sent, as on one connection.
    pub in_order: bool,
    /// Lost.
    pub loss: u64,
    /// Delivered twice.
    pub double: u64,
    /// Damaged on the way, and therefore lost.
    pub damage: u64,
    /// Late, by up to `delay_max`.
    pub delay: u64,
    /// See `delay`.
    pub delay_max: Duration,
    /// Of those at a cut, not lost but late, by up to `held_max`, as what lies in the buffers of a connection that is gone.
    pub held: u64,
    /// See `held`.
    pub held_max: Duration,
}

impl NetworkOptions {
    /// A network without faults.
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

    /// True if messages may be lost, or arrive later than usual.
    pub fn loses_or_delays(&self) -> bool {
        self.loss > 0 || self.damage > 0 || self.delay > 0 || self.held > 0
    }
}

/// What a rule says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the options and the random source has it.
    Pass,
    /// Lost.
    Drop,
    /// Delivered twice.
    Double,
    /// Delivered so much later than usual.
    Delay(Duration),
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Messages given to it.
    pub sent: u64,
    /// Lost by chance or by rule.
    pub lost: u64,
    /// Lost at a cut.
    pub cut: u64,
    /// Delivered twice.
    pub doubled: u64,
    /// Damaged.
    pub damaged: u64,
    /// Delayed beyond the usual latency.
    pub delayed: u64,
    /// That arrive before one that was sent earlier from the same node to the same.
    pub reordered: u64,
}

impl NetworkCounts {
    /// Adds what another network did.
    pub fn add(&mut self, more: &NetworkCounts) {
        self.sent += more.sent;
        self.lost += more.lost;
        self.cut += more.cut;
        self.doubled += more.doubled;
        self.damaged += more.damaged;
        self.delayed += more.delayed;
        self.reordered += more.reordered;
    }
}

/// One delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it arrives.
    pub at: Time,
    /// Whether its bytes are damaged on the way.
    pub damaged: bool,
}

type Rule = Box<dyn FnMut(NodeId, NodeId, &Message) -> Verdict>;

/// The network between all nodes.
pub struct Network {
    options: NetworkOptions,
    rng: Rng,
    rule: Option<Rule>,
    /// Pairs (from, to) between which nothing passes.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// When the last message of each pair arrives, kept while messages arrive in order; rules may delay it further.
    last_arrivals: BTreeMap<(NodeId, NodeId), Time>,
    /// The latest moment at which a message of each pair arrives.
    latest_arrivals: BTreeMap<(NodeId, NodeId), Time>,
    counts: NetworkCounts,
}

impl Network {
    /// A network with random source of its own.
    pub fn new(options: NetworkOptions, rng: Rng) -> Network {
        Network {
            options,
            rng,
            rule: None,
            cuts: BTreeSet::new(),
            last_arrivals: BTreeMap::new(),
            latest_arrivals: BTreeMap::new(),
            counts: NetworkCounts::default(),
        }
    }

    /// Behaves otherwise from now on.
    pub fn set_options(&mut self, options: NetworkOptions) {
        self.options = options;
    }

    /// Asks `rule` about every message from now on; scripted scenarios choose their victims with it.
    pub fn set_rule(&mut self, rule: impl FnMut(NodeId, NodeId, &Message) -> Verdict + 'static) {
        self.rule = Some(Box::new(rule));
    }

    /// Lets nothing pass from `from` to `to`; what is under way arrives.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    /// Undoes one cut.
    pub fn join(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    /// No cuts, no rule, no faults; what is late already comes late, but nothing has to wait for it.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.last_arrivals.clear();
        self.rule = None;
        self.options = NetworkOptions::clean();
    }

    /// What it did so far.
    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }

    /// Takes a message; says when, how often and in what state it arrives.
    pub fn send(&mut self, now: Time, from: NodeId, to: NodeId, message: &Message) -> Vec<Flight> {
        self.counts.sent += 1;
        let verdict = self.rule.as_mut().map_or(Verdict::Pass, |rule| rule(from, to, message));
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

    /// A message at a cut: overtaken by all that is sent when that is healed, if it comes at all.
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
        if self.rng.chance(self.options.delay, 10_000) {
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
